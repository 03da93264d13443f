"""Learning as a whole: tuned kernels, averages, evaluations, and fits that are interrupted."""

import importlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pymc_discrete import learning
from pymc_discrete.engine.storage import CheckpointError
from pymc_discrete.kernels import block_gibbs, discrete_langevin

fit_module = importlib.import_module("pymc_discrete.learning.fit")  # `learning.fit` is the function
MODEL = learning.Ising(6)
DATA = {"x": np.random.default_rng(0).integers(0, 2, size=(40, 6))}


def short(data=DATA, **options):
    given = {"iterations": 30, "chains": 20, "batch": 20, "progressbar": False}
    sampler = learning.ContrastiveDivergence(*block_gibbs(), transitions=2)
    return learning.fit(MODEL, data, **{"sampler": sampler, **given, **options})


def test_kernels_are_tuned_while_a_model_is_learned():
    """The step size goes to where the acceptance probability is 0.574, from far away."""
    kernel, params = discrete_langevin()
    sampler = learning.ContrastiveDivergence(kernel, {**params, "step_size": 100.0}, transitions=5)
    strong = {"weights": np.triu(np.full((6, 6), -0.5), 1), "bias": np.zeros(6)}
    found = short(sampler=sampler, optimizer=optax.sgd(0.0), iterations=300, chains=100, params=strong)
    density = MODEL.density(found.params)
    tuned = sampler.tuned(MODEL.space, found.kept)
    assert tuned["step_size"] < 10
    fixed = learning.ContrastiveDivergence(kernel._replace(tuned=None), tuned, transitions=200)
    target = density.to_target()

    def accept(key, x):
        return fixed._run(key, x, target, tuned, 200)[1].accept

    keys = jax.random.split(jax.random.key(0), 100)
    got = float(jax.jit(jax.vmap(accept))(keys, found.kept.x).mean())
    assert got == pytest.approx(0.574, abs=0.05)


def test_average_and_evaluation():
    """The average of the iterates, as a loop gives it; the best of what was evaluated is returned."""
    iterates = []

    def keep(params):
        iterates.append(params)
        return -abs(len(iterates) - 3)

    each = short(iterations=6, evaluate=keep, evaluate_every=1)
    assert each.scores.tolist() == [[n + 1, -abs(n - 2)] for n in range(6)]
    for got, want in zip(jax.tree.leaves(each.params), jax.tree.leaves(iterates[2]), strict=True):
        np.testing.assert_array_equal(got, want)
    shares = 0.9 ** np.arange(len(iterates))[::-1]
    shares /= shares.sum()
    average = jax.tree.map(lambda *each: sum(w * p for w, p in zip(shares, each, strict=True)), *iterates)
    averaged = short(iterations=6, ema=0.9)
    for got, want in zip(jax.tree.leaves(averaged.params), jax.tree.leaves(average), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)
    for got, want in zip(jax.tree.leaves(averaged.last), jax.tree.leaves(iterates[-1]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_penalties():
    """Gradients of absolute values and of the norms of tables, 0 at 0."""
    model = learning.Potts(3, 2)
    params = model.start(jax.random.key(1))
    params["tables"] = params["tables"].at[0].set(0.0)
    of = lambda **strengths: jax.grad(lambda p: fit_module.penalty(model.interactions(p), **strengths))(
        params
    )
    tables = np.asarray(params["tables"])
    norms = np.sqrt((tables**2).sum((1, 2), keepdims=True))
    group = of(l1=0.0, group_l1=0.3)
    np.testing.assert_allclose(group["tables"], 0.3 * tables / np.where(norms > 0, norms, 1), atol=1e-12)
    np.testing.assert_allclose(of(l1=0.2, group_l1=0.0)["tables"], 0.2 * np.sign(tables), atol=1e-12)
    np.testing.assert_array_equal(group["bias"], 0.0)


# ---------------------------------------------------------------- interrupted
def same(a, b):
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_interrupted_fit_goes_on(tmp_path, monkeypatch):
    """An error in the middle, and the same call again: to the last bit what comes without one.

    Of a kernel that tunes.
    """
    monkeypatch.setattr(fit_module, "CHECKPOINT_SECONDS", 0.0)
    calls = []

    def evaluate(params):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return float(jnp.abs(params["bias"]).sum())

    options = {"ema": 0.9, "evaluate": evaluate, "evaluate_every": 5, "checkpoint": tmp_path / "fit.npz"}
    options["sampler"] = learning.ReplayBuffer(*discrete_langevin(), transitions=2, size=50)
    whole = short(**{**options, "checkpoint": None})
    calls[:] = [1] * 4
    with pytest.raises(KeyboardInterrupt):
        short(**options)
    calls[:] = [1] * 100
    resumed = short(**options)
    assert len(calls) == 103  # the three evaluations before the interruption are not repeated
    same(whole, resumed)
    same(resumed, short(**options))  # it is complete
    with pytest.raises(CheckpointError, match="holds a fit with seed=0, and this one has seed=1"):
        short(**options, seed=1)
    with pytest.raises(CheckpointError, match="holds a fit with data="):
        short({"x": 1 - DATA["x"]}, **options)
    for changed in ({"optimizer": optax.adam(0.02)}, {"params": jax.tree.map(jnp.ones_like, whole.params)}):
        with pytest.raises(CheckpointError, match="holds a fit with program="):
            short(**options | changed)
    options["checkpoint"].write_bytes(options["checkpoint"].read_bytes()[:500])
    with pytest.raises(CheckpointError, match=r"fit\.npz is damaged.*Delete it to begin again"):
        short(**options)


@pytest.mark.parametrize(
    "of",
    [
        lambda w: lambda x: jax.jit(lambda v: v * jnp.asarray(np.array([1.0, w])))(x),
        lambda w: lambda x: jax.lax.scan(lambda v, _: (v * np.array([1.0, w]), None), x, length=2)[0],
        lambda w: lambda x: jax.pure_callback(lambda v: v * w, jax.ShapeDtypeStruct((2,), x.dtype), x),
    ],
    ids=["constant of an inner program", "constant in a loop", "what a callback closes over"],
)
def test_numbers_that_a_program_does_not_show(of):
    def of_iteration(w):
        def iteration(n, state):
            return of(w)(state)

        return fit_module.checksum_of_fit(SimpleNamespace(iteration=iteration), jnp.ones(2))

    assert of_iteration(0.5) == of_iteration(0.5) != of_iteration(0.9)


REFUSED = {
    "an average": ({"ema": 1.0}, "ema must be a number between 0 and 1, such as 0.999, got 1.0"),
    "an objective": (
        {"objective": "score matching"},
        "objective must be 'likelihood', .* got 'score matching'",
    ),
    "a sampler for nothing": (
        {"objective": "pseudo-likelihood", "sampler": learning.PMP()},
        "sampler and energy_l2 are of the likelihood",
    ),
    "no tables": ({"group_l1": 0.1}, r"interactions of Ising have the shapes \[\(6, 6\)\]. Use l1"),
    "too few iterations": (
        {"evaluate": len, "evaluate_every": 31},
        "evaluate_every=31 is more than iterations=30",
    ),
    "an evaluation": ({"evaluate": lambda params: float("nan")}, "evaluate returned nan after 3 iterations"),
    "a rate": (
        {"optimizer": optax.sgd(1e200), "energy_l2": 1.0},
        r"The gradient of iteration \d+ is not finite. Take a smaller learning rate",
    ),
    "a folder": ({"checkpoint": "/nowhere/fit.npz"}, "is in no folder that exists. Make the folder"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    options, message = REFUSED[name]
    options = {"sampler": None, **options} if "objective" in options else options
    with pytest.raises((ValueError, TypeError, FloatingPointError, CheckpointError), match=message):
        short(**options)


def test_hidden_variables_need_the_likelihood():
    with pytest.raises(ValueError, match="data lack 'h', and hidden variables are drawn for the likelihood"):
        learning.fit(learning.RBM(6, 2), {"v": DATA["x"]}, objective="pseudo-likelihood", progressbar=False)
