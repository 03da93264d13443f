"""What makes flows exact, by enumeration, with networks that were not trained."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pymc_discrete import Space, target_from_logdensity
from pymc_discrete.flows import simulate, weights
from pymc_discrete.flows.flow import Flow
from pymc_discrete.flows.kernel import back_and_forth
from pymc_discrete.flows.paths import FROM_SOURCE, FROM_TARGET, FROM_UNIFORM, PATHS, Path
from pymc_discrete.flows.sources import Empirical, Independent, Mask, Uniform
from pymc_discrete.runtime.jax_settings import default_settings
from tests.tools.enumeration import check_runs, enumerate_target, run_steps
from tests.tools.interpreted import interpreted

TIMES = np.linspace(0.02, 0.98, 25)


@pytest.fixture(autouse=True)
def in_double_precision():
    with default_settings(wide=True):
        yield


# ---------------------------------------------------------------- paths
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_weights_and_velocities_of_the_table(path):
    """Table 3.1 of the thesis, with the signs that its misprints lack."""
    t = TIMES
    zero = np.zeros_like(t)
    forward = {
        "linear": (1 / (1 - t), zero, zero, -1 / (1 - t)),
        "quadratic": (2 * t / (1 - t**2), zero, zero, -2 * t / (1 - t**2)),
        "cubic": ((1 - 4 * t) / (2 * t**2 - t + 1) + 1 / (1 - t), zero, zero),
        "noise": (t * (2 - t) / (1 - t), 1 - t, zero, -1 / (1 - t)),
    }[path.name]
    backward = {
        "linear": (zero, zero, -1 / t, 1 / t),
        "quadratic": (zero, zero, -2 / t, 2 / t),
        "cubic": (zero, zero, (3 - 4 * t) / (2 * t**2 - 3 * t + 2) - 1 / t),
        "noise": (zero, -1 + zero, (t - 2) / t, 2 / t),
    }[path.name]
    for table, ahead in ((forward, True), (backward, False)):
        a, b = jax.vmap(lambda t, ahead=ahead: path.velocity(t, ahead))(t)
        found = np.column_stack([a, b])[:, : len(table)]
        np.testing.assert_allclose(found, np.stack(table, axis=1), atol=1e-9, rtol=1e-9)
        np.testing.assert_allclose(np.asarray(a).sum(1) + b, 0, atol=1e-9)
    np.testing.assert_allclose(path.weights(0.0), [0, 0, 1])
    np.testing.assert_allclose(path.weights(1.0), [1, 0, 0])


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_steps_lead_from_the_weights_of_one_time_to_those_of_another(path):
    for t, s in itertools.permutations([0.0, 0.1, 0.45, 0.8, 1.0], 2):
        step = path.step(t, s)
        moved = np.array([step.target, step.uniform, step.source])
        assert (moved >= 0).all()
        np.testing.assert_allclose(step.keep * path.weights(t) + moved, path.weights(s), atol=1e-12)
        assert moved[FROM_SOURCE if s > t else FROM_TARGET] == 0
        if s in (0.0, 1.0):
            assert step.keep == 0


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("ahead", [True, False])
def test_small_steps_are_the_velocity(path, ahead):
    t, h = 0.4, 1e-6
    step, (a, b) = path.step(t, t + h if ahead else t - h), path.velocity(t, ahead)
    sign = 1 if ahead else -1
    rates = np.array([step.target, step.uniform, step.source]) / h
    np.testing.assert_allclose(rates, sign * a, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose((step.keep - 1) / h, sign * b, rtol=1e-5)


def conditional(path, source, x1, t):
    """(values,) float, p_t of one site given its value at time 1; the last entry is the mask."""
    K = len(source) - 1
    uniform = np.append(np.full(K, 1 / K), 0.0)
    w = np.asarray(path.weights(t))
    return w[FROM_TARGET] * np.eye(K + 1)[x1] + w[FROM_UNIFORM] * uniform + w[FROM_SOURCE] * source


def marginals(path, source, p1, t):
    """Marginal p_t (values^D) of states, and the posterior of each site's value at time 1 (states, D, K)."""
    D, V = p1.ndim, len(source)
    states = np.array(list(itertools.product(range(V), repeat=D)))
    ends = np.array(list(itertools.product(range(V - 1), repeat=D)))
    given = np.stack([conditional(path, source, k, t) for k in range(V - 1)])
    joint = np.prod([given[ends[:, i]][:, states[:, i]] for i in range(D)], axis=0)
    joint = joint * p1[tuple(ends.T)][:, None]
    p = joint.sum(0)
    posterior = np.stack(
        [[joint[ends[:, i] == k].sum(0) for k in range(V - 1)] for i in range(D)]
    )  # (D, K, states)
    return states, p, np.moveaxis(posterior / np.where(p > 0, p, 1), 2, 0)


@pytest.mark.parametrize("source", ["mask", "uniform"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_the_velocity_of_the_posterior_solves_kolmogorov_s_equation(path, source):
    """d p_t / dt is what flows in less what flows out, one site at a time (D = 2, S = 3)."""
    p1 = np.random.default_rng(1).dirichlet(np.ones(9)).reshape(3, 3)
    p0 = np.eye(4)[3] if source == "mask" else np.append(np.full(3, 1 / 3), 0)
    t, h = 0.37, 1e-5
    states, p, posterior = marginals(path, p0, p1, t)
    change = (marginals(path, p0, p1, t + h)[1] - marginals(path, p0, p1, t - h)[1]) / (2 * h)
    for ahead in (True, False):
        a, b = (np.asarray(part) for part in path.velocity(t, ahead))
        flow = np.zeros(len(states))
        for n, x in enumerate(states):
            for i in range(2):
                u = a[FROM_TARGET] * np.append(posterior[n, i], 0) + a[FROM_SOURCE] * p0
                u += a[FROM_UNIFORM] * np.append(np.full(3, 1 / 3), 0) + b * np.eye(4)[x[i]]
                for v in range(4):
                    y = x.copy()
                    y[i] = v
                    flow[np.flatnonzero((states == y).all(1))[0]] += u[v] * p[n]
        np.testing.assert_allclose(flow, change, atol=1e-8)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_finite_step_is_exact_for_each_site(path):
    p1 = np.random.default_rng(2).dirichlet(np.ones(9)).reshape(3, 3)
    p0 = np.append(np.full(3, 1 / 3), 0)
    for t, s in ((0.3, 0.8), (0.8, 0.3), (0.0, 1.0), (1.0, 0.0)):
        states, p, posterior = marginals(path, p0, p1, t)
        _, after, _ = marginals(path, p0, p1, s)
        step = path.step(t, s)
        for i in range(2):
            moved = step.target * np.pad(posterior[:, i], ((0, 0), (0, 1))) + step.source * p0
            moved += step.uniform * np.append(np.full(3, 1 / 3), 0) + step.keep * np.eye(4)[states[:, i]]
            wanted = [after[states[:, i] == v].sum() for v in range(4)]
            np.testing.assert_allclose(p @ moved, wanted, atol=1e-12)


# ---------------------------------------------------------------- trajectories
SPACE = Space.build({"x": (1, 3), "b": (0, 1)}, shapes={"x": (1,), "b": (1,)})
STATES = np.array([[x, b] for x in (1, 2, 3) for b in (0, 1)])
F = np.random.default_rng(3).normal(size=(3, 2))
INDEPENDENT = Independent(np.array([[0.2, 0.5, 0.3], [0.4, 0.6, 0.0]]))
SOURCES = {"mask": Mask(), "uniform": Uniform(), "independent": INDEPENDENT}


def target():
    return target_from_logdensity(lambda x: jnp.asarray(F)[x[0] - 1, x[1]], SPACE)


def untrained(params, x, t):
    """Logits (2, 3) that depend on all values and on the time in an arbitrary way, the support aside."""
    features = jnp.concatenate([jnp.cos(1.7 * x + t), jnp.sin(2.3 * x - t), t[None]])
    return (params @ features).reshape(2, 3)


@functools.cache
def flow_of(path, source, scale=1.0):
    params = scale * jnp.asarray(np.random.default_rng(4).normal(size=(6, 5)))
    return Flow.build(SPACE, PATHS[path], SOURCES[source], untrained, params, (0.0, 0.3, 0.75, 1.0))


def of_all_sites(p, states):
    """(states, states) the probabilities of steps from tables p (states, 2, 4) of their sites."""
    return p[:, 0, states[:, 0]] * p[:, 1, states[:, 1]]


@functools.cache
def matrices(flow):
    """All states of two sites, masks included, and the matrices of all steps forth and back on the grid."""
    states = np.array(list(itertools.product(range(4), range(4))))

    def matrices_of(table, pairs):
        of_sites = interpreted(lambda t, s: jax.vmap(lambda x: table(flow, x, t, s))(jnp.asarray(states)))
        return [of_all_sites(np.exp(of_sites(t, s)), states) for t, s in pairs]

    pairs = list(itertools.pairwise(flow.times))
    forth = matrices_of(simulate.forward_table, pairs)
    back = matrices_of(simulate.backward_table, [pair[::-1] for pair in pairs])
    source = flow.source_probabilities
    start = source[0, states[:, 0]] * source[1, states[:, 1]]
    return states, forth, back, start


# each path and each source, and noise both with the mask, which has a way back of its own, and without
CASES = [
    ("linear", "mask"),
    ("quadratic", "uniform"),
    ("cubic", "independent"),
    ("noise", "mask"),
    ("noise", "uniform"),
]


@pytest.mark.parametrize(("path", "source"), CASES)
def test_steps_are_distributions_and_end_in_source_and_values(path, source):
    states, forth, back, start = matrices(flow_of(path, source))
    values = ((states[:, 0] < 3) & (states[:, 1] < 2)).astype(bool)
    at, ends = start > 0, values
    for k in range(3):
        np.testing.assert_allclose(forth[k][at].sum(1), 1, atol=1e-12)
        at = (forth[k][at] > 0).any(0)
    assert not at[~values].any()
    for k in reversed(range(3)):
        np.testing.assert_allclose(back[k][ends].sum(1), 1, atol=1e-12)
        # what can be reached back can be left forth again
        assert (forth[k].T[ends][back[k][ends] > 0] > 0).all()
        ends = (back[k][ends] > 0).any(0)
    np.testing.assert_allclose(back[0][:, start == 0][(back[1] > 0).any(0)], 0, atol=1e-12)


def mean_weights(flow, back=None, counted=None):
    """For each end (states,), the mean weight of the trajectories to it, divided by the density there.

    back : the matrices of the steps back in the weight, if they are others than the flow's
    counted : (states,), the probabilities of the starts in the weight, if they are others than the source's
    """
    states, forth, of_flow, start = matrices(flow)
    back, counted = of_flow if back is None else back, start if counted is None else counted
    total = np.zeros(len(states))
    for path in itertools.product(range(len(states)), repeat=4):
        f = np.prod([forth[k][path[k], path[k + 1]] for k in range(3)])
        if start[path[0]] * f > 0:
            w = np.prod([back[k][path[k + 1], path[k]] for k in range(3)]) / (counted[path[0]] * f)
            total[path[3]] += start[path[0]] * f * w
    return total[(states[:, 0] < 3) & (states[:, 1] < 2)]


@pytest.mark.parametrize(("path", "source"), CASES)
def test_weights_are_unbiased(path, source):
    """The steps back along all trajectories that the steps forth may make add up to 1 for each end."""
    np.testing.assert_allclose(mean_weights(flow_of(path, source)), 1, atol=1e-12)


def test_planted_errors_in_weights_are_found():
    uniform, noise = flow_of("linear", "uniform"), flow_of("noise", "mask")
    states, *_, start = matrices(uniform)
    tables = []
    for t, s in itertools.pairwise(noise.times):
        # the backward step of the path turns masks into values, which steps forth do not undo
        step = noise.path.step(s, t)
        drawn = np.array([[step.uniform / k * (v < k) for v in range(3)] + [step.source] for k in (3, 2)])
        tables.append(drawn + step.keep * np.eye(4)[states])
    wrong = {
        "no source": mean_weights(uniform, counted=np.ones(len(start))),
        "noise that unmasks on the way back": mean_weights(noise, [of_all_sites(p, states) for p in tables]),
    }
    for name, total in wrong.items():
        assert np.abs(total - 1).max() > 0.02, name


@pytest.mark.parametrize(("path", "source"), CASES)
def test_the_probability_of_a_state_is_the_mean_of_its_ratios(path, source):
    """E_B[p_0 F / B] is the probability with which the flow draws a state."""
    flow = flow_of(path, source)
    states, forth, back, start = matrices(flow)
    p = start @ np.linalg.multi_dot(forth)
    covered = np.zeros(len(states))
    for path_ in itertools.product(range(len(states)), repeat=4):
        if np.prod([back[k][path_[k + 1], path_[k]] for k in range(3)]) > 0:
            covered[path_[3]] += start[path_[0]] * np.prod(
                [forth[k][path_[k], path_[k + 1]] for k in range(3)]
            )
    values = (states[:, 0] < 3) & (states[:, 1] < 2)
    np.testing.assert_allclose(covered[values], p[values], atol=1e-12)


def accepted_moves(
    flow, turn, ratio=lambda pi, f, b: pi[1] / pi[0] * b[1] * f[0] / (b[0] * f[1]), logged=None
):
    """(states,) the target, and (states, states) the probabilities of moves that are accepted, of values.

    By enumeration of all trajectories back and forth.

    ratio : the ratio of acceptance, of pi, F, B on the trajectory that is left and on that which is made
    logged : the matrices of steps forth and back in the ratio, if they are others than those of the proposal
    """
    states, *steps_of_flow, _ = matrices(flow)
    logged = steps_of_flow if logged is None else logged
    first = flow.times.index(turn)
    values = np.flatnonzero((states[:, 0] < 3) & (states[:, 1] < 2))
    pi = np.exp(F[states[values, 0], states[values, 1]])
    # {middle: [(end, F, B, and those of the ratio) of all trajectories between them]}
    runs: dict[int, list] = {}
    for path in itertools.product(range(len(states)), repeat=len(flow.times) - first):
        if path[-1] not in values:
            continue
        steps = list(enumerate(itertools.pairwise(path), first))
        both = [
            (np.prod([f[k][a, b] for k, (a, b) in steps]), np.prod([g[k][b, a] for k, (a, b) in steps]))
            for f, g in (steps_of_flow, logged)
        ]
        if max(both[0]) > 0:
            end = int(np.flatnonzero(values == path[-1])[0])
            runs.setdefault(path[0], []).append((end, *both[0], *both[1]))
    P = np.zeros((len(values), len(values)))
    for of_middle in runs.values():
        ends, f, b, f_logged, b_logged = (np.array(a) for a in zip(*of_middle, strict=True))
        for k in np.flatnonzero(b > 0):
            x = ends[k]
            with np.errstate(divide="ignore", invalid="ignore"):
                r = ratio((pi[x], pi[ends]), (f_logged[k], f_logged), (b_logged[k], b_logged))
            np.add.at(P[x], ends, b[k] * f * np.where(f > 0, np.minimum(1, r), 0))
    return pi / pi.sum(), P


def kernel_matrix(flow, turn, **options):
    """(states,) the target, and (states, states) the kernel, of values; as `accepted_moves`."""
    pi, P = accepted_moves(flow, turn, **options)
    return pi, P + np.diag(1 - P.sum(1))


@pytest.mark.parametrize(("path", "source"), CASES)
def test_back_and_forth_is_reversible_and_reaches_all(path, source):
    flow = flow_of(path, source)
    for turn in flow.times[:-1]:
        pi, P = kernel_matrix(flow, turn)
        balance = pi[:, None] * P
        np.testing.assert_allclose(balance, balance.T, atol=1e-14)
        assert (np.linalg.matrix_power(P, 6) > 0).all()


def test_planted_errors_in_the_ratio_are_found():
    flow = flow_of("linear", "uniform")
    wrong = {
        "the way back left out": lambda pi, f, b: pi[1] / pi[0] * f[0] / f[1],
        "no reversal": lambda pi, f, b: pi[1] / pi[0] * b[0] * f[1] / (b[1] * f[0]),
        "the densities only": lambda pi, f, b: pi[1] / pi[0],
    }
    for name, ratio in wrong.items():
        pi, P = kernel_matrix(flow, 0.3, ratio=ratio)
        assert np.abs(pi @ P - pi).max() > 1e-3, name


def test_planted_errors_in_the_steps_of_the_ratio_are_found():
    flow = flow_of("noise", "uniform")
    _, forth, back, _ = matrices(flow)
    wrong = {
        "the times of the steps back turned round": (forth, [back[0], back[2], back[1]]),
        "the times of the steps forth turned round": ([forth[0], forth[2], forth[1]], back),
        "the steps back at the times of those before": (forth, [back[0], back[0], back[1]]),
        "the steps forth in place of the steps back": (forth, [step.T for step in forth]),
    }
    for name, logged in wrong.items():
        pi, P = kernel_matrix(flow, 0.3, logged=logged)
        assert np.abs(pi @ P - pi).max() > 1e-3, name


@pytest.mark.parametrize(("path", "source"), CASES)
@pytest.mark.by_default("noise-mask")
def test_logged_probabilities_are_those_of_the_trajectory(path, source):
    """A run of fewer steps begins a run of more, with the same keys, so that runs show whole trajectories."""
    flow = flow_of(path, source)
    states, forth, back, _ = matrices(flow)
    times, n = jnp.asarray(flow.times), 60
    values = np.flatnonzero((states[:, 0] < 3) & (states[:, 1] < 2))

    def trajectories(run, grids, starts):
        @interpreted
        def every(starts):
            keys = jax.random.split(jax.random.key(6), n)
            return [jax.vmap(run, (0, None, 0, None))(keys, flow, starts, grid) for grid in grids]

        runs = every(starts)
        return [4 * x[:, 0] + x[:, 1] for x in (starts, *(r.x for r in runs))], runs[-1]

    ends = states[np.random.default_rng(5).choice(values, n)]
    behind, run_back = trajectories(simulate.back, [times[2:], times[1:]], ends)
    ahead, run_forth = trajectories(simulate.forth, [times[1:3], times[1:]], states[behind[-1]])
    for trajectory, run in ((ahead, run_forth), (behind[::-1], run_back)):
        steps = list(enumerate(itertools.pairwise(trajectory), 1))
        with np.errstate(divide="ignore"):
            log_forward = np.log([forth[k][p, q] for k, (p, q) in steps]).sum(0)
            log_backward = np.log([back[k][q, p] for k, (p, q) in steps]).sum(0)
        np.testing.assert_allclose(run.log_forward, log_forward, atol=1e-10)
        np.testing.assert_allclose(run.log_backward, log_backward, atol=1e-10)


def test_compiled_steps_do_what_was_enumerated():
    flow = flow_of("noise", "mask")
    e = enumerate_target(target(), [range(1, 4), range(2)])
    _, P = kernel_matrix(flow, 0.3)
    check_runs(run_steps(e, *back_and_forth(flow, 0.3), seed=1), P)


def test_estimates_agree_with_exact_sums():
    flow = flow_of("cubic", "independent", 0.2)
    found = flow.log_partition(target(), 4000, seed=1)
    exact = np.log(np.exp(F).sum())
    assert abs(found.value - exact) < 4.5 * found.error
    assert np.isfinite(found.khat)
    states, forth, _, start = matrices(flow)
    p = start @ np.linalg.multi_dot(forth)
    inside = [int(np.flatnonzero((states == [x - 1, b]).all(1))[0]) for x, b in STATES]
    keys = jax.random.split(jax.random.key(2), (len(STATES), 4000))
    each = np.exp(np.asarray(weights.ratios(flow, keys, jnp.asarray(STATES - SPACE.lower))))
    assert (np.abs(each.mean(1) - p[inside]) < 5 * each.std(1) / np.sqrt(4000)).all()
    np.testing.assert_allclose(flow.log_probability(STATES, n=4000, seed=3), np.log(p[inside]), atol=0.3)
    drawn = flow.sample(4000, seed=3)
    counts = [((drawn["x"][:, 0] == x) & (drawn["b"][:, 0] == b)).mean() for x, b in STATES]
    np.testing.assert_allclose(counts, p[inside], atol=4.5 * np.sqrt(0.25 / 4000))


def moments_of_weights(flow, highest):
    """E w, E w^2, ..., of the weights of all trajectories from the source."""
    states, forth, back, start = matrices(flow)
    values = (states[:, 0] < 3) & (states[:, 1] < 2)
    density = np.zeros(len(states))
    density[values] = np.exp(F[states[values, 0], states[values, 1]])
    power = lambda a, k: np.where(a > 0, np.where(a > 0, a, 1) ** k, 0)
    found = []
    for k in range(1, highest + 1):
        steps = [power(f, 1 - k) * b.T**k for f, b in zip(forth, back, strict=True)]
        found.append(power(start, 1 - k) @ np.linalg.multi_dot(steps) @ density**k)
    return found


def test_diagnostics_are_those_of_the_enumeration():
    flow, n = flow_of("noise", "mask", 0.2), 4000
    found = flow.diagnostics(target(), n, turn=0.3, seed=5)
    m1, m2, m3, m4 = moments_of_weights(flow, 4)
    np.testing.assert_allclose(m1, np.exp(F).sum())
    share = m1**2 / m2
    # the delta method for the square of a mean over the mean of the squares
    variance = 4 * share**2 / m1**2 * m2 - 4 * share**3 / m1**3 * m3 + share**4 / m1**4 * m4 - share**2
    assert abs(found["ess share"] - share) < 4.5 * np.sqrt(variance / n)
    pi, P = accepted_moves(flow, 0.3)
    accept = pi @ P.sum(1)
    # starts that are drawn by weights, and as many proposals, of acceptances between 0 and 1
    error = np.sqrt(accept * (1 - accept) * (1 / (share * n) + 1 / n))
    assert abs(found["accept"] - accept) < 4.5 * error
    assert 0.02 < share < 0.95
    assert 0.1 < accept < 0.95


def test_a_flow_is_made_inside_of_a_program():
    def posterior(params):
        return Flow.build(SPACE, PATHS["noise"], Mask(), untrained, params, (0, 0.5, 1)).posterior(
            jnp.array([3, 0]), jnp.asarray(0.5)
        )

    assert jax.eval_shape(posterior, jnp.zeros((6, 5))).shape == (2, 3)


# ---------------------------------------------------------------- what is refused
def test_what_is_refused():
    params, times = jnp.zeros((6, 5)), (0.0, 0.5, 1.0)
    build = functools.partial(Flow.build, path=PATHS["linear"], network=untrained, params=params)
    counts = Space.build({"n": (0, None)})
    with pytest.raises(ValueError, match="'n' has no finite support"):
        build(space=counts, source=Mask(), times=times)
    sums = Space.build({"m": (0, 2)}, shapes={"m": (3,)}, sums={"m": 2})
    with pytest.raises(ValueError, match="'m' change only together"):
        build(space=sums, source=Mask(), times=times)
    with pytest.raises(ValueError, match="times must increase from 0 to 1"):
        build(space=SPACE, source=Mask(), times=(0.0, 0.5, 0.4, 1.0))
    with pytest.raises(ValueError, match="positive for every value"):
        build(space=SPACE, source=Independent(np.array([[1.0, 0, 0], [0.5, 0.5, 0]])), times=times)
    with pytest.raises(ValueError, match="leave the supports"):
        build(space=SPACE, source=Empirical(np.array([[0, 2]])), times=times)
    of_data = build(space=SPACE, source=Empirical(np.array([[0, 1]])), times=times)
    assert of_data.sample(3)["b"].shape == (3, 1)
    with pytest.raises(ValueError, match="cannot weigh its draws"):
        of_data.log_partition(target())
    with pytest.raises(ValueError, match="cannot go back along it"):
        back_and_forth(of_data)
    flow = build(space=SPACE, source=Mask(), times=times)
    with pytest.raises(ValueError, match=r"one of the flow's times but the last, 0, 0\.5; got 1\.0"):
        back_and_forth(flow, 1.0)
    zero = lambda x: 0.0 * x.sum()
    for message, (x, b), shapes in (
        (r"variables 'x', 'b', and the target of 'x', 'c': they must be the same", "xc", ((1,), (1,))),
        (r"variables 'x', 'b', and the target of 'b', 'x': .* in the same order", "bx", ((1,), (1,))),
        (r"'b' has the shape \(\) in the target, and \(1,\) in the flow", "xb", ((1,), ())),
        (r"The supports of 'x', 'b' in the target are others than in the flow", "xb", ((1,), (1,))),
    ):
        supports = {x: (0, 1), b: (1, 3)} if message.startswith("The") else {x: (1, 3), b: (0, 1)}
        other = target_from_logdensity(zero, Space.build(supports, dict(zip((x, b), shapes, strict=True))))
        with pytest.raises(ValueError, match=message):
            flow.log_partition(other)
    with pytest.raises(ValueError, match=r"logits of shape \(2,\).* it must give \(2, 3\)"):
        Flow.build(SPACE, PATHS["linear"], Mask(), lambda params, x, t: x + t, params, times)
    noisy = Path("noisy", lambda t: t**2, lambda t: t * (1 - t) ** 2)
    with pytest.raises(ValueError, match=r"'noisy' draws from the source between the times 0\.5 and 0\.75"):
        Flow.build(SPACE, noisy, Mask(), untrained, params, (0.0, 0.5, 0.75, 1.0))
    late = Path("late", lambda t: t / 2)
    with pytest.raises(ValueError, match=r"'late' has the weights .* and \[0.5 0.  0.5\] at time 1"):
        Flow.build(SPACE, late, Mask(), untrained, params, times)
    with pytest.raises(ValueError, match="x has values of 'b' outside of the support"):
        flow.log_probability(np.array([[1, 2]]))
    with pytest.raises(ValueError, match=r"x must be integers \(m, 2\)"):
        flow.log_probability(np.array([1, 1]))
    diverged = build(space=SPACE, source=Mask(), times=times, params=jnp.full((6, 5), jnp.nan))
    for use in (lambda: diverged.sample(3), lambda: diverged.log_partition(target(), 3)):
        with pytest.raises(ValueError, match="The network of the flow gives nan"):
            use()
    nothing = target_from_logdensity(lambda x: -jnp.inf * (x[0] >= 1), SPACE)
    with pytest.raises(ValueError, match="The target is 0 at all 5 draws"):
        flow.diagnostics(nothing, 5)
    no_number = target_from_logdensity(lambda x: jnp.nan * x[0], SPACE)
    with pytest.raises(ValueError, match="The log density of the target is nan at"):
        flow.log_partition(no_number, 5)
