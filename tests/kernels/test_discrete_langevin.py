"""Discrete Langevin kernels against enumeration."""

import itertools

import jax
import numpy as np
import pymc as pm
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels import discrete_langevin
from tests.models import SMALL, binary, bounded, categorical, mixed, wide
from tests.tools.enumeration import check_matrix, check_runs, enumerate_target, run_steps, small
from tests.tools.interpreted import interpreted
from tests.tools.transition_matrices import langevin_matrix

BALANCINGS = ("sqrt", "barker", "min", "max")
STEPS = (0.2, 1.0, 6.0)
# every two of a kind of site, the differences and the proposal are together in a case
CASES = [
    (b, how, proposal)
    for n, b in enumerate(SMALL)
    for how, proposal in zip(
        ("exact", "gradient"), ("dlp", "dlmc") if n < 3 else ("dlmc", "dlp"), strict=True
    )
]
IDS = [f"{b.__name__}-{how}-{p}" for b, how, p in CASES]


def nominal(e):
    return e.target.space.nominal


def scale_of(e):
    """A preconditioner: any positive numbers."""
    return np.linspace(0.7, 2.3, e.target.space.d)


@pytest.mark.parametrize(("build", "how", "proposal"), CASES, ids=IDS)
@pytest.mark.by_default(
    "mixed-gradient-dlp",
    "mixed-exact-dlmc",
    "windowed-gradient-dlp",
    "bounded-gradient-dlmc",
    "binary-exact-dlp",
    "categorical-exact-dlp",
    "geometric-gradient-dlp",
)
def test_matrix(build, how, proposal):
    e = small(build, how)
    for n, (h, balancing) in enumerate(itertools.product(STEPS, BALANCINGS)):
        scale = scale_of(e) if n % 3 else 1.0
        P, proposed = langevin_matrix(e, proposal, h, balancing, scale, nominal(e))
        check_matrix(P, e.pi, proposed)


def test_categories_are_nominal_and_counts_are_not():
    assert nominal(small(categorical, "exact")).all()
    assert not nominal(small(bounded, "exact")).any()
    np.testing.assert_array_equal(nominal(small(mixed, "exact")), [False, True, False])


# The matrices above are of other combinations. Of what is compiled both proposals of sites of every kind, and
# one of two values alone and of bounds; differences, step sizes and balancings come in turn.
CHOSEN = [
    (mixed, "exact", "dlp", 1.0, "sqrt", True),
    (mixed, "exact", "dlmc", 0.2, "barker", True),
    (binary, "gradient", "dlmc", 1.0, "barker", False),
    (bounded, "gradient", "dlp", 6.0, "max", True),
]


@pytest.mark.parametrize(
    ("build", "how", "proposal", "h", "balancing", "scaled"),
    CHOSEN,
    ids=[f"{c[0].__name__}-{'-'.join(map(str, c[1:]))}" for c in CHOSEN],
)
@pytest.mark.by_default("mixed-exact-dlp-1.0-sqrt-True")
def test_compiled_steps_do_what_was_enumerated(build, how, proposal, h, balancing, scaled):
    e = small(build, how)
    scale = scale_of(e) if scaled else 1.0
    kernel, params = discrete_langevin(proposal, h, balancing=balancing)
    case = CHOSEN.index((build, how, proposal, h, balancing, scaled))
    ends = run_steps(e, kernel, {**params, "scale": scale}, seed=case)
    P, proposed = langevin_matrix(e, proposal, h, balancing, scale, nominal(e))
    check_matrix(P, e.pi, proposed)
    check_runs(ends, P)
    with pytest.raises(AssertionError):
        check_runs(ends, langevin_matrix(e, proposal, h, balancing, scale, nominal(e), ratio=False)[0])


@pytest.mark.slow
def test_more_than_64_values():
    """Half of the draws lie beyond 64, and most proposals are accepted."""
    e = small(wide, "exact")
    P, proposed = langevin_matrix(e, "dlp", 200.0, nominal=nominal(e))
    check_matrix(P, e.pi, proposed)
    check_runs(run_steps(e, *discrete_langevin("dlp", 200.0), runs=20_000, seed=1), P)


def test_a_long_time_draws_from_every_conditional():
    e = small(categorical, "exact")
    P, _ = langevin_matrix(e, "dlmc", 1e6, nominal=nominal(e), adjusted=False)
    for s, x in enumerate(e.states):
        p = np.ones(len(e.states))
        for i in range(2):
            w = np.exp(e.differences[s, i])
            p = p * (w / w.sum())[e.states[:, i]]
        np.testing.assert_allclose(P[s], p, atol=1e-12, err_msg=str(x))


# ---------------------------------------------------------------- unadjusted
def ising():
    x = pm.Bernoulli("x", np.full((2, 3), 0.5), shape=(2, 3))
    s = 2 * x - 1
    pm.Potential("e", 0.3 * ((s[:, 1:] * s[:, :-1]).sum() + (s[1:] * s[:-1]).sum()))


@pytest.mark.slow
def test_the_bias_of_the_unadjusted_chain_is_its_own_matrix_s():
    with pm.Model() as model:
        ising()
    e = enumerate_target(pmd.target_from_model(model), [range(2)] * 6)
    biases = []
    for h in (2.0, 0.5, 0.1):
        P, proposed = langevin_matrix(e, "dlp", h, adjusted=False)
        np.testing.assert_allclose(proposed, 1, atol=1e-12)
        values, vectors = np.linalg.eig(P.T)
        stationary = np.real(vectors[:, np.argmax(np.real(values))])
        stationary = stationary / stationary.sum()
        biases.append(np.abs(stationary - e.pi).sum() / 2)
    kernel, params = discrete_langevin("dlp", h, adjusted=False)
    check_runs(run_steps(e, kernel, params, seed=1), P)
    assert biases[0] > biases[1] > biases[2]
    assert biases[2] < 0.01 < 0.1 < biases[0]


@pytest.mark.slow
def test_the_unadjusted_chain_reports_what_its_acceptance_would_have_been():
    e = small(binary, "exact")

    @interpreted
    def both(x, h, target):
        infos = []
        for adjusted in (True, False):
            kernel, params = discrete_langevin("dlp", 1.0, adjusted=adjusted)
            given = {**params, "step_size": h}
            infos.append(kernel.step(jax.random.key(0), kernel.init(x, target), target, given)[1])
        return infos

    for h in STEPS:
        one, other = both(e.states[3], h, e.target)
        assert one.accept == other.accept
        assert other.accepted


@pytest.mark.parametrize("proposal", ["dlp", "dlmc"])
@pytest.mark.parametrize("build", [mixed, bounded])
@pytest.mark.by_default("mixed-dlp", "bounded-dlmc")
def test_no_stale_cache(build, proposal):
    e = small(build, "exact")
    kernel, params = discrete_langevin(proposal, 1.0)

    @interpreted
    def run(x, target):
        start = kernel.init(x, target)
        return pmd.kernels.loop(kernel, jax.random.key(1), start, target, params, 30)[0]

    state = run(e.states[0], e.target)
    np.testing.assert_allclose(state.logdensity, e.target.logdensity(state.x), rtol=1e-12)
    np.testing.assert_allclose(state.differences, e.target.differences(state.x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("proposal", ["dlp", "dlmc"])
@pytest.mark.parametrize("cliff", [800.0, 5000.0])
@pytest.mark.by_default("800.0-dlp", "800.0-dlmc")
def test_a_bad_start_is_left(proposal, cliff):
    """However deep the fall, the way back has a probability, which is not lost to underflow."""
    space = pmd.Space.build({"x": (np.zeros(3), np.ones(3))})
    target = pmd.target_from_logdensity(lambda x: -cliff * x.sum(), space)
    kernel, params = discrete_langevin(proposal)

    @interpreted
    def run(x):
        return pmd.kernels.loop(kernel, jax.random.key(0), kernel.init(x, target), target, params, 100)[0].x

    assert (run(np.ones(3, int)) == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("build", "proposal"), [(mixed, "dlp"), (bounded, "dlmc")])
def test_what_is_known_of_a_state_belongs_to_its_step_size(build, proposal):
    e = small(build, "exact")
    kernel, params = discrete_langevin(proposal, 0.5)

    @interpreted
    def run(x, target, step_size, scale):
        start = kernel.init(x, target)
        state, _ = pmd.kernels.loop(kernel, jax.random.key(1), start, target, params, 20)
        given = {**params, "step_size": step_size, "scale": scale}
        return [
            kernel.step(jax.random.key(2), s, target, given) for s in (state, kernel.init(state.x, target))
        ]

    for step_size, scale in ((0.5, 1.0), (2.0, 1.0), (0.5, 3.0)):
        (one, info_one), (other, info_other) = run(e.states[0], e.target, step_size, scale)
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_allclose(info_one.accept, info_other.accept, rtol=1e-12)


@pytest.mark.parametrize("balancing", ["sqrt", "barker", "min", "max"])
@pytest.mark.by_default("min")
def test_a_site_that_is_certain_beyond_measure_stops_no_other(balancing):
    space = pmd.Space.build({"x": (np.zeros(3), np.full(3, 2))})
    target = pmd.target_from_logdensity(lambda x: -1e9 * (x[0] != 1) + 0.3 * x[1:].sum(), space)
    kernel, params = discrete_langevin("dlmc", 1.0, balancing=balancing)

    @interpreted
    def run(x):
        return pmd.kernels.loop(kernel, jax.random.key(0), kernel.init(x, target), target, params, 50)

    state, info = run(np.array([1, 0, 0]))
    assert float(info.accept) == pytest.approx(1.0)
    assert state.x[0] == 1
    assert (state.x[1:] > 0).any()
