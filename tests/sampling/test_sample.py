"""pmd.sample: posteriors against enumeration and closed forms, the DataTree against that of pm.sample, and
what chains depend on.
"""

import inspect
import itertools
from functools import cache

import arviz as az
import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError
from pytensor.graph import Apply, Op

import pymc_discrete as pmd
from pymc_discrete.diagnostics.convergence import check_convergence
from pymc_discrete.engine.nuts import NutsBlock
from pymc_discrete.engine.nuts_options import DEFAULTS
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.program import Identity, Program
from pymc_discrete.engine.starts import check_initvals
from pymc_discrete.engine.warm_up import Mass
from pymc_discrete.sampling.options import CALLED, SAID_INSTEAD, refuse
from tests.models import labels_and_count
from tests.posteriors import CASES, probabilities
from tests.tools.interpreted import interpreted
from tests.tools.running import FAST, QUIET, assert_same_draws, saved_and_loaded
from tests.tools.statistics import LARGEST_Z, z_of_moments, zs_of_proportions

pytestmark = pytest.mark.shares_programs(patched=True)

# bounded sites, windows and a support that depends on another variable with the default, which is exact; and
# a step that tunes and may stay where it is. tests/steps/test_posteriors.py compares what each kind of
# support is to a kernel.
STEPS = {
    "bounded": pmd.AutoStep,
    "counts": pmd.AutoStep,
    "support_of_another": pmd.AutoStep,
    "categorical": lambda **o: pmd.GibbsWithGradients(n_flips="adapt", **o),
}
SAMPLED = {name: case for case in CASES if (name := case.build.__name__) in STEPS}


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.by_default("bounded")
def test_against_enumeration(name):
    case, step = SAMPLED[name], STEPS[name]
    with pm.Model() as model:
        case.build()
        idata = pmd.sample(
            5000, tune=300, chains=2, step=step(support=case.support), random_seed=3, thin=3, **QUIET
        )
    states, prob = probabilities(model, case.values)
    draws = np.concatenate(
        [idata["posterior"][name].values.reshape(2, 5000, -1) for name in case.values], axis=2
    )
    assert (draws.min((0, 1)) >= states.min(0)).all()
    zs = zs_of_proportions(draws, states, prob)
    assert len(zs) >= states.shape[1]
    assert np.abs(zs).max() < LARGEST_Z


@pytest.mark.slow
def test_mixed_against_the_sum():
    """A switch between two means: the posterior of each side has a closed form. Beside it a scale without
    data, which has its prior.
    """
    y = np.array([0.4, 1.9, -0.3, 2.2])
    with pm.Model():
        k = pm.Bernoulli("k", 0.4)
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu + 1.5 * k, 1.0, observed=y)
        scale = pm.HalfNormal("scale", 3.0)
        pm.Deterministic("log_scale", pm.math.log(scale))
        nuts = {"dense": True, "max_treedepth": 8}
        idata = pmd.sample(8000, tune=500, chains=2, random_seed=2, thin=2, nuts=nuts, **QUIET)
    n = len(y)
    sums = np.array([y.sum(), (y - 1.5).sum()])
    log = np.log([0.6, 0.4]) - 0.5 * np.array([(y**2).sum(), ((y - 1.5) ** 2).sum()]) + sums**2 / 2 / (n + 1)
    p = np.exp(log - log.max())
    p /= p.sum()
    mean = sums / (n + 1)
    total = p @ mean
    sd = np.sqrt(p @ (mean**2 + 1 / (n + 1)) - total**2)
    hit, half = idata["posterior"]["k"].values.astype(float), idata["posterior"]["scale"].values
    zs = [
        *z_of_moments(idata["posterior"]["mu"].values, total, sd),
        z_of_moments(hit, p[1], np.sqrt(p[1] * p[0]))[0],
        z_of_moments(half, 3 * np.sqrt(2 / np.pi), 3 * np.sqrt(1 - 2 / np.pi))[0],
    ]
    assert np.abs(zs).max() < LARGEST_Z
    np.testing.assert_allclose(idata["posterior"]["log_scale"], np.log(half))
    assert idata["sample_stats"]["diverging"].mean() < 0.01


@pytest.mark.slow
def test_variables_that_are_drawn_as_one():
    """A list of scalars, which a chain holds in one array: their draws, what is made of them, and another
    step that reads them.
    """
    with pm.Model() as model:
        z = []
        for t in range(5):
            z.append(
                pm.Categorical(
                    f"z{t}", p=[0.3, 0.7] if t == 0 else pt.as_tensor([[0.8, 0.2], [0.4, 0.6]])[z[-1]]
                )
            )
        k = pm.Binomial("k", n=3, p=0.2 + 0.1 * z[1] + 0.3 * z[4])
        pm.Deterministic("weighted", pt.stack(z) * np.arange(1, 6))
        pm.Normal("y", sum(z) + k, 1.0, observed=3.2)
        seen = []
        step = [pmd.TreeGibbs([f"z{t}" for t in range(5)]), pmd.BlockGibbs("k")]
        options = {"random_seed": 4, **QUIET}
        idata = pmd.sample(
            4000, tune=100, chains=2, step=step, callback=lambda draws, done: seen.append(draws), **options
        )
        some = pmd.sample(200, tune=100, chains=2, step=step, var_names=["z3", "weighted"], **options)
    posterior = idata["posterior"]
    assert [*posterior.data_vars] == [*(f"z{t}" for t in range(5)), "k", "weighted"]
    drawn = np.stack([posterior[f"z{t}"].values for t in range(5)], axis=-1)
    assert drawn.dtype == np.int8
    np.testing.assert_array_equal(posterior["weighted"], drawn * np.arange(1, 6))
    np.testing.assert_array_equal(np.concatenate([d["z3"] for d in seen], axis=1), drawn[..., 3])
    assert [*some["posterior"].data_vars] == ["z3", "weighted"]
    np.testing.assert_array_equal(some["posterior"]["z3"], drawn[:, :200, 3])
    logp = model.compile_logp(mode="FAST_COMPILE")
    states = np.array(list(itertools.product(*[range(2)] * 5, range(4))))
    names = [*(f"z{t}" for t in range(5)), "k"]
    p = np.exp([float(logp(dict(zip(names, map(np.array, s), strict=True)))) for s in states])
    p /= p.sum()
    for n, name in enumerate(names):
        draws = posterior[name].values.astype(float)
        mean = p @ states[:, n]
        z_score = (draws.mean() - mean) / np.sqrt(
            (p @ states[:, n] ** 2 - mean**2) / float(az.ess(draws, method="mean"))
        )
        assert abs(z_score) < LARGEST_Z


# ---------------------------------------------------------------- what a chain depends on
# one program of `labels_and_count`, for all tests
FOUR = {"chains": 4, "random_seed": 5, **QUIET}


@pytest.mark.slow
def test_draws_depend_on_seed_chain_and_draw_alone():
    with labels_and_count():
        options = {"tune": 60, **FOUR}
        short = pmd.sample(40, chunk=10, **options)
        again = pmd.sample(40, **options)
        other = pmd.sample(40, **options | {"random_seed": 6})
    assert_same_draws(short, again)
    assert not np.array_equal(short["posterior"]["mu"], other["posterior"]["mu"])


def test_every_seed_and_chain_has_a_key_of_its_own():
    """Chains that start at different points would hide equal random numbers."""
    key = interpreted(lambda identity: jax.random.key_data(identity.key()))
    keys = set()
    for seed in (5, 6, 5 + 2**32):
        for chains in (np.arange(3), np.arange(3, 5)):
            of_seed = Program.identities(None, seed, chains)
            keys |= {tuple(key(Identity(*one)).tolist()) for one in zip(*of_seed, strict=True)}
    assert len(keys) == 3 * 5


@pytest.mark.slow
def test_thin_and_warmup():
    """Statistics of thinned draws are those of all transitions."""
    with labels_and_count():
        every = pmd.sample(30, tune=20, discard_tuned_samples=False, **FOUR)
        third = pmd.sample(10, tune=20, thin=3, **FOUR)
    for name in ("mu", "z", "n"):
        np.testing.assert_array_equal(every["posterior"][name].values[:, 2::3], third["posterior"][name])
    stats, some = every["sample_stats"], third["sample_stats"]
    by_three = {name: stats[name].values.reshape(4, 10, 3) for name in stats.data_vars}
    np.testing.assert_array_equal(some["n_steps"], by_three["n_steps"].sum(-1))
    np.testing.assert_allclose(some["acceptance_rate"], by_three["acceptance_rate"].mean(-1))
    np.testing.assert_array_equal(some["diverging"], by_three["diverging"].any(-1))
    np.testing.assert_array_equal(some["lp"], by_three["lp"][..., 2])
    assert every["warmup_posterior"]["z"].shape == (4, 20, 6)
    assert every["warmup_sample_stats"]["lp"].shape == (4, 20)
    assert every["posterior"]["z"].dtype == np.int8
    assert every["posterior"]["n"].dtype == np.int64


@pytest.mark.slow
def test_interruption_returns_what_was_drawn(caplog):
    seen = []

    def stop(draws, done):
        seen.append((draws["mu"].shape, done))
        if done >= 20:
            raise KeyboardInterrupt

    with labels_and_count():
        idata = pmd.sample(1000, tune=10, chunk=10, callback=stop, **FOUR)
    assert seen == [((4, 10, 2), 10), ((4, 10, 2), 20)]
    assert idata["posterior"]["mu"].shape == (4, 20, 2)
    assert "Interrupted after 20" in caplog.text
    assert idata["posterior"].attrs["interrupted"] == 1
    assert idata["posterior"].attrs["sampler_version"] == pmd.__version__


def test_lp_is_the_model_s():
    with labels_and_count() as model:
        idata = pmd.sample(5, tune=10, **FOUR)
    f = model.compile_logp(mode="FAST_COMPILE")
    post = idata["posterior"].isel(chain=0)
    for n in range(5):
        point = {name: post[name].values[n] for name in ("mu", "z", "n")}
        np.testing.assert_allclose(
            idata["sample_stats"]["lp"].values[0, n], f(point), rtol=1e-7
        )  # PyMC holds 0.5 and the like in float32


# ---------------------------------------------------------------- the DataTree
def described():
    """Dims, coords, Deterministics, transforms, missing values and pm.Data."""
    r = np.random.default_rng(3)
    y = np.where(np.arange(8) % 4 == 1, np.nan, r.normal(size=8))
    c = np.ma.masked_values([1, 0, 2, -1, 3], -1)
    with pm.Model(coords={"site": list("abcdefgh"), "group": [10, 20]}) as model:
        x = pm.Data("x", np.linspace(-1, 1, 8), dims="site")
        slope = pm.Normal("slope", 0, 1, dims="group")
        sigma = pm.HalfNormal("sigma", 1)
        z = pm.Bernoulli("z", 0.4, dims="site")
        pm.Deterministic("mean", slope[z] * x, dims="site")
        pm.Deterministic("fixed", pt.constant(2.0) * 3)
        with pytest.warns(match="Data in y contains missing values"):
            pm.Normal("y", slope[z] * x, sigma, observed=y, dims="site")
        with pytest.warns(match="Data in c contains missing values"):
            pm.Poisson("c", 1.0 + pm.math.exp(slope[0]), observed=c)
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # of so few draws and data
def test_tree_is_that_of_pm_sample_and_what_arviz_and_pymc_do_with_it(tmp_path, walks):
    """No other test of this file has the model, and so none the program, in which a walk stands for NUTS."""
    import matplotlib

    matplotlib.use("agg")
    with described():
        options = {"random_seed": 2, **QUIET}
        ours = pmd.sample(400, tune=200, chains=4, idata_kwargs={"log_likelihood": True}, **options)
        theirs = pm.sample(20, tune=20, chains=2, cores=1, step=pmd.AutoStep(), **options, **FAST)
        assert set(ours.children) == {*theirs.children, "log_likelihood"}
        for group in theirs.children:
            if group == "sample_stats":
                continue
            a, b = ours[group].dataset, theirs[group].dataset
            assert list(a.data_vars) == list(b.data_vars), group
            assert set(a.coords) == set(b.coords), group
            for name in b.data_vars:
                assert a[name].dims == b[name].dims, name
                assert a[name].dtype.kind == b[name].dtype.kind, name
                own = {"chain", "draw"} & set(b[name].dims)
                assert a[name].isel(dict.fromkeys(own, 0)).shape == b[name].isel(dict.fromkeys(own, 0)).shape
        assert set(ours["sample_stats"].data_vars) <= set(theirs["sample_stats"].data_vars)
        pm.sample_posterior_predictive(
            ours, var_names=["y"], random_seed=1, extend_inferencedata=True, progressbar=False, **FAST
        )
    assert "y" in ours["posterior_predictive"]
    assert (ours["posterior"]["fixed"] == 6).all()
    assert np.isfinite(az.summary(ours, var_names=["slope", "z", "mean"])["ess_bulk"].astype(float)).any()
    assert set(ours["log_likelihood"].data_vars) == {"y_observed", "c_observed"}
    assert np.isfinite(az.loo(ours, var_name="c_observed").elpd)
    az.plot_trace(ours, var_names=["slope", "z"])
    az.plot_rank(ours, var_names=["slope", "sigma"])
    steps = ours["posterior"].attrs["steps"]
    assert steps.startswith("NUTS(")
    assert "__" not in steps  # the names that users know
    assert ours["posterior"].attrs["random_seed"] == 2
    assert pmd.summary(saved_and_loaded(ours, tmp_path)).equals(pmd.summary(ours))


# ---------------------------------------------------------------- what it says
BAD = [
    ({"draws": 0}, ValueError, "draws must be an integer of at least 1"),
    ({"tune": -1}, ValueError, "tune must be an integer of at least 0"),
    ({"chains": True}, ValueError, "chains must be an integer"),
    ({"thin": 1.5}, ValueError, "thin must be an integer"),
    ({"chunk": "all"}, ValueError, "chunk must be an integer"),
    ({"dtype": "float16"}, ValueError, "dtype must be one of 'float64', 'float32'"),
    ({"return_inferencedata": False}, ValueError, "return_inferencedata must be True"),
    ({"callback": 3}, TypeError, "callback must be a function"),
    ({"devices": ["cpu"]}, TypeError, "devices must be a list of different JAX devices"),
    ({"devices": jax.devices}, TypeError, "devices must be a list of different JAX devices"),
    ({"nuts": True}, TypeError, "nuts must be a dictionary"),
    ({"nuts": {"max_treedepth": 0}}, ValueError, "must be an integer of at least 1"),
    ({"nuts": {"dense": "yes"}}, ValueError, "must be True, False or 'auto'"),
    ({"var_names": []}, ValueError, "var_names is empty"),
    ({"random_seed": -1}, ValueError, "random_seed must be an integer of at least 0"),
    ({"checkpoint": 3}, TypeError, "checkpoint must be the path of a folder"),
    ({"model": 3}, TypeError, "model must be a pm.Model"),
    ({"initvals": 5}, TypeError, "initvals must be a dictionary"),
    ({"initvals": [{}]}, ValueError, "initvals has 1 entries for 4 chains"),
    ({"superchains": 1}, ValueError, "superchains must be an integer of at least 2"),
    ({"superchains": 4}, ValueError, "superchains=4 must divide the 4 chains.*Pass chains=8"),
    ({"superchains": 3, "chains": 8}, ValueError, "superchains=3 must divide the 8 chains.*Pass chains=6"),
    ({"superchains": 2, "initvals": [{}] * 4}, ValueError, "initvals has 4 entries for 2 superchains"),
    ({"initvals": {"nope": 1}}, ValueError, "initvals names 'nope', which is no free variable"),
    ({"initvals": {"n": 2.5}}, ValueError, r"initvals\['n'\] must hold integers, got 2.5\."),
    ({"initvals": {"mu": [1.0]}}, ValueError, r"has the shape \(1,\), and the variable \(2,\)"),
    ({"initvals": {"mu": 1.0}}, ValueError, r"\['mu'\] has the shape \(\), .* Pass np.full\(\(2,\), 1.0\)"),
    ({"initvals": [{}, {}, {}, {"n": -1}]}, SamplingError, "'n' starts outside its support: element 0 is -1"),
    ({"var_names": "mu"}, TypeError, "var_names must be a list of names"),
    ({"cores": 4}, TypeError, r"pmd.sample has no cores=. All chains run in one program"),
    ({"trace": []}, TypeError, "with checkpoint="),
    ({"nuts_sampler": "numpyro"}, TypeError, "its options are nuts="),
    ({"transitions": 4}, TypeError, "has no option 'transitions'. Options of a step are given to the step"),
    ({"target_accept": 1.2}, ValueError, "target_accept must be between 0 and 1"),
    ({"nuts": {"depth": 3}}, ValueError, "nuts has no entry 'depth'; it has max_treedepth, dense, pooled"),
    ({"idata_kwargs": {"predictions": True}}, ValueError, "idata_kwargs has no entry 'predictions'"),
    ({"var_names": ["nu"]}, ValueError, "var_names has 'nu', which the model does not have"),
]


refusing = cache(labels_and_count)  # one model for all that is refused


@pytest.mark.parametrize(("options", "error", "message"), BAD)
def test_bad_options(options, error, message):
    with refusing(), pytest.raises(error, match=message):
        pmd.sample(**{"draws": 5, "tune": 5, **options}, **QUIET)


def test_chains_of_a_superchain_start_together(monkeypatch):
    starts, of_program = [], Program.start
    monkeypatch.setattr(
        Program, "start", lambda self, points, *rest: starts.append(points) or of_program(self, points, *rest)
    )
    with labels_and_count():
        idata = pmd.sample(8, tune=5, superchains=2, **FOUR)
    (a, b, c, d) = starts[-1]
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
        np.testing.assert_array_equal(c[name], d[name])
    assert any((a[name] != c[name]).any() for name in a)
    assert (idata["posterior"]["mu"][0] != idata["posterior"]["mu"][1]).any()
    assert np.isfinite(pmd.diagnostics.nested_rhat(idata, [0, 0, 1, 1], "mu")["mu"]).all()


def test_bad_steps():
    with labels_and_count() as model:
        with pytest.raises(TypeError, match="takes the steps of pymc_discrete, got Metropolis"):
            pmd.sample(5, step=pm.Metropolis([model["z"]]), **QUIET)
        with pytest.raises(
            TypeError, match=r"BlockGibbs is the class of a step, not a step: call it, step=BlockGibbs\(\)"
        ):
            pmd.sample(5, step=pmd.BlockGibbs, **QUIET)
        with pytest.raises(TypeError, match="takes the model by name"):
            pmd.sample(model, **QUIET)
        with pytest.raises(ValueError, match="'z' belongs to two steps"):
            pmd.sample(5, step=[pmd.BlockGibbs("z"), pmd.GibbsWithGradients("z")], **QUIET)
        step = pmd.BlockGibbs("z")
    with labels_and_count(), pytest.raises(ValueError, match="BlockGibbs was made for another model"):
        pmd.sample(5, step=step, **QUIET)
    assert model is not None


def test_every_argument_of_pm_sample_has_a_place_or_a_reason():
    theirs, ours = (
        set(inspect.signature(f).parameters) - {"kwargs", "options"} for f in (pm.sample, pmd.sample)
    )
    assert theirs - ours == set(SAID_INSTEAD)
    assert set(CALLED.values()) <= ours
    assert not ours & set(CALLED)
    with pytest.raises(TypeError, match=r"no option 'n_samples'. Did you mean 'draws'\?"):
        refuse({"n_samples": 100}, sorted(ours))


def test_no_jax_version():
    class Halve(Op):
        def make_node(self, x):
            return Apply(self, [pt.as_tensor(x)], [pt.as_tensor(x).type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0] / 2

    with pm.Model():
        a = pm.Normal("a", initval=1.0)
        pm.Bernoulli("b", 0.5)
        pm.Deterministic("half", Halve()(a))
        with pytest.raises(
            NotImplementedError, match=r"the Op Halve.*, which has no JAX version. Use pm.sample"
        ):
            pmd.sample(5, tune=5, **QUIET)


@pytest.mark.slow
def test_impossible_draws_are_never_returned(tmp_path):
    with pm.Model():
        x = pm.Bernoulli("x", 0.5, shape=3)
        pm.Potential("never", pt.switch(x.sum() >= 0, -np.inf, 0.0))
        for options in (
            {"tune": 0},
            {"tune": 20, "checkpoint": tmp_path},
            {"tune": 20, "checkpoint": tmp_path},
        ):
            with pytest.raises(SamplingError, match="the start of 'x' is impossible"):
                pmd.sample(20, chains=2, random_seed=1, step=pmd.BlockGibbs(), **options, **QUIET)


@pytest.mark.slow
def test_one_step_in_both_widths():
    mu, where = np.array([0.1, -0.4, 0.6]), np.array([0.3, 1.2, -0.7])
    with pm.Model():
        z = pm.Categorical("z", p=np.full(3, 1 / 3), shape=3)
        pm.Normal("y", pt.constant(mu)[z - 1] + pt.constant(mu)[z], 0.6, observed=where)
        pm.Normal("all", pt.dot(np.arange(6.0).reshape(2, 3), z * mu), 1.0, observed=[0.2, 0.4])
        step = pmd.TreeGibbs()
        seen = [
            pmd.sample(10, tune=5, chains=1, random_seed=1, dtype=d, step=step, **QUIET)
            for d in ("float64", "float32", "float64")
        ]
    assert seen[1]["sample_stats"]["lp"].dtype == np.float32
    assert_same_draws(seen[0], seen[2])


def test_nothing_to_sample():
    with pm.Model(), pytest.raises(ValueError, match="no free variable"):
        pmd.sample(5)


@pytest.mark.slow
def test_chains_that_disagree_are_reported(caplog):
    with pm.Model():
        s = pm.Bernoulli("s", np.full(12, 0.5))
        pm.Potential("e", 40.0 * pt.eq(s[1:], s[:-1]).sum())
        starts = [{"s": np.full(12, k)} for k in (0, 1)]
        pmd.sample(
            100,
            tune=20,
            chains=2,
            random_seed=1,
            initvals=starts,
            step=pmd.GibbsWithGradients(),
            progressbar=False,
        )
    assert "'s' differs between chains by labels only" in caplog.text


def test_many_draws_are_looked_at_in_parts(monkeypatch, caplog):
    with labels_and_count():
        idata = pmd.sample(150, tune=50, **FOUR)
    idata["posterior"]["z"].values[:, :, 2] = np.arange(4)[:, None] % 2
    said = []
    caplog.set_level("INFO", logger="pymc")
    for at_once in (2**24, 600):
        monkeypatch.setattr("pymc_discrete.diagnostics.facts.NUMBERS_IN_MEMORY", at_once)
        caplog.clear()
        with labels_and_count() as model:
            check_convergence(idata, model)
        said.append({r.getMessage() for r in caplog.records})
    assert said[0] == said[1]
    assert any("'z' disagrees between chains: 1 of its 6" in text for text in said[0])
    assert any("effective sample size" in text for text in said[0])


@pytest.mark.slow
def test_pooled_warm_up():
    """Chains share a step size and a mass matrix, that of all their draws."""
    r = np.random.default_rng(0)
    scale = np.array([0.1, 1.0, 10.0])
    with pm.Model():
        pm.Normal("a", 0.0, scale, shape=3)
        idata = pmd.sample(500, tune=150, chains=8, nuts={"pooled": True}, random_seed=1, **QUIET)
    assert len(np.unique(idata["sample_stats"]["step_size"])) == 1
    assert 0.6 < float(idata["sample_stats"]["acceptance_rate"].mean()) < 0.97
    for k in range(3):
        assert np.abs(z_of_moments(idata["posterior"]["a"].values[..., k], 0.0, scale[k])).max() < LARGEST_Z
    # the sums that are merged are those of all draws together
    draws = r.normal(size=(4, 6, 2)) @ np.array([[1.0, 0.4], [0.0, 2.0]])
    for dense in (False, True):
        with pm.Model() as model:
            pm.Normal("a", shape=2)
            block = NutsBlock(
                model,
                ["a"],
                model.initial_point(),
                Points([]),
                50,
                0.8,
                **{**DEFAULTS, "dense": dense, "pooled": True},
            )
        states = [block.start({}) for _ in draws]
        for n, own in enumerate(draws):
            for q in own:
                mass = Mass.of(*block._blackjax.mass_update(states[n].mass, q))
                states[n] = states[n]._replace(mass=mass)
        states = block.shared(jax.tree.map(lambda *a: np.stack(a), *states), True)
        every = draws.reshape(-1, 2)
        want = np.cov(every.T) if dense else every.var(axis=0, ddof=1)
        want = len(every) / (len(every) + 5) * want + 1e-3 * 5 / (len(every) + 5) * (
            np.eye(2) if dense else 1
        )
        for got in np.asarray(states.mass.inverse_mass_matrix):
            np.testing.assert_allclose(got, want, rtol=1e-10)


@pytest.mark.parametrize("shape", [(7,), (2, 3)])
def test_selections_are_what_they_replace(shape):
    rng = np.random.default_rng(1)
    where = rng.integers(-3, 3, shape)
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=3)
        z = pm.DiscreteUniform("z", -3, 2, shape=shape)
        pm.Potential(
            "e", (mu[z] ** 2 * np.arange(np.prod(shape)).reshape(shape)).sum() + pt.exp(mu)[z[::-1]].sum()
        )
    block = NutsBlock(model, ["mu"], model.initial_point(), Points([]), 10, 0.8, **DEFAULTS)
    at = rng.normal(size=3)
    point = {"mu": at, "z": where}
    np.testing.assert_allclose(
        block.logdensity(point), model.compile_logp(mode="FAST_COMPILE")(point), rtol=1e-6
    )
    slope = jax.grad(lambda mu: block.density.logdensity({"mu": mu, "z": where} | block.numbers))(at)
    np.testing.assert_allclose(slope, model.compile_dlogp([mu], mode="FAST_COMPILE")(point), rtol=1e-6)


@pytest.mark.slow
def test_gradient_beside_the_impossible():
    """z = 0 makes y = 1 impossible, through a switch whose other side has no gradient there."""
    rng = np.random.default_rng(2)
    z = np.repeat([0, 1], 10)
    seen = z[:, None] * rng.integers(0, 2, (20, 4))
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1.5), pm.Normal("b", 0, 1.5)
        z = pm.Bernoulli("z", logit_p=a, shape=20)
        pm.Bernoulli("y", p=z[:, None] * pm.math.invlogit(b), observed=seen)
        idata = pmd.sample(4000, tune=500, chains=2, random_seed=1, **QUIET)
    # z summed out, on a grid of a and b
    grid = np.linspace(-6, 6, 241)
    p, q = 1 / (1 + np.exp(-grid[:, None])), 1 / (1 + np.exp(-grid[None]))
    count, any_ = seen.sum(1), seen.any(1)
    logp = -0.5 * (grid[:, None] ** 2 + grid[None] ** 2) / 1.5**2
    for n, some in zip(count, any_, strict=True):
        logp = logp + np.log(p * q**n * (1 - q) ** (4 - n) + (0.0 if some else 1 - p))
    weight = np.exp(logp - logp.max())
    weight /= weight.sum()
    for name, axis in (("a", 1), ("b", 0)):
        marginal = weight.sum(axis)
        mean = marginal @ grid
        sd = np.sqrt(marginal @ (grid - mean) ** 2)
        assert np.abs(z_of_moments(idata["posterior"][name].values, mean, sd)).max() < LARGEST_Z
    assert model is not None


@pytest.mark.slow
def test_no_gradient_at_the_start():
    with pm.Model():
        a = pm.Normal("a", initval=0.0)
        pm.Potential("e", -pt.sqrt(pt.sqr(a) * pm.Bernoulli("b", 0.5)))
        with pytest.raises(
            SamplingError, match="The gradient of the log density by 'a' is not finite at the start"
        ):
            pmd.sample(10, tune=10, chains=2, initvals={"b": 0}, random_seed=1, **QUIET)


OUTSIDE = [
    ({"p": 1.0}, r"initvals\['p'\] is 1.0, which is outside its support, \(0, 1\)"),
    (
        {"s": [1.0, -2.0]},
        r"initvals\['s'\] has -2 as element \[1\], which is outside its support, \(0, inf\)",
    ),
    ({"u": [1.0, 4.0]}, r"initvals\['u'\] has 4 as element \[1\], which is outside its support, \(0, 3\)"),
    ({"t": 0.5}, r"initvals\['t'\] is 0.5, which is outside its support, \(1, inf\)"),
    ({"b": -1.0}, r"outside its support, between bounds that depend on other variables"),
    ({"w": [0.5, 0.6, -0.1]}, r"outside its support, positive numbers that sum to 1"),
    ({"o": [2.0, 1.0]}, r"initvals\['o'\] has 1 as element \[1\], .* increasing values"),
    ({"a": np.nan}, r"initvals\['a'\] is nan, which is outside its support, the finite numbers"),
    ({"a": "prior", "u": "support_point", "p_logodds__": 3.0, "s": [1, 2], "w": [0.2, 0.3, 0.5]}, None),
]


@cache
def of_every_transform():
    with pm.Model() as model:
        a, _ = pm.Normal("a"), pm.Beta("p", 1, 1)
        pm.HalfNormal("s", shape=2)
        pm.Uniform("u", 0, [2.0, 3.0])
        pm.Uniform("b", 0, 1 + a**2)
        pm.Truncated("t", pm.Normal.dist(), lower=1.0)
        pm.Dirichlet("w", np.ones(3))
        pm.Normal("o", [0.0, 1.0], transform=pm.distributions.transforms.ordered)
    return model


@pytest.mark.parametrize(("values", "message"), OUTSIDE, ids=lambda v: str(v)[:20])
def test_initvals_of_continuous_variables(values, message):
    model = of_every_transform()
    if message is None:
        check_initvals(model, values, 2)
        return
    with pytest.raises(ValueError, match=message):
        check_initvals(model, [{}, values], 2)


def test_impossible_start():
    with pm.Model():
        n = pm.Poisson("n", 1.0, initval=2)
        pm.Binomial("y", n=n, p=0.5, observed=9)
        idata = pmd.sample(50, tune=100, chains=2, random_seed=1, **QUIET)
    assert (idata["posterior"]["n"] >= 9).all()
    with pm.Model():
        n = pm.Poisson("n", 1.0, initval=2)
        pm.Binomial("y", n=n, p=0.5, observed=90)
        idata = pmd.sample(50, tune=100, chains=2, random_seed=1, **QUIET)
    assert (idata["posterior"]["n"] >= 90).all()
