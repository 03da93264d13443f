"""The distribution of partitions: its log density, draws, support point, differences and what it refuses."""

import functools
import itertools
import math

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan
from scipy import stats

import pymc_discrete as pmd
from pymc_discrete.differences.parts.by_label import ByLabel
from tests.tools.oracle import compare, with_zeros
from tests.tools.running import QUIET, draws_of, sample_with_pymc
from tests.tools.statistics import LARGEST_Z, check_proportions, g_test

pytestmark = pytest.mark.shares_programs

FAST = {"mode": "FAST_COMPILE"}
# PyMC keeps constants such as 1.5 in single precision, and its log densities of them have 1e-8 of rounding
A, D, G, RATE = 0.7, 0.4, 0.6, 1.3
LISTED = np.array([0.1, 0.4, 0.0, 0.3, 0.2])
# {name: (its arguments, a function of the number of components)}
PRIORS = {
    "crp": {"kind": "crp", "concentration": A},
    "pitman-yor": {"kind": "pitman-yor", "concentration": A, "discount": D},
    "negative concentration": {"kind": "pitman-yor", "concentration": -0.3, "discount": D},
    "no discount": {"kind": "pitman-yor", "concentration": A, "discount": 0},
    "mfm": {"kind": "mfm", "components": lambda: 1 + pm.Poisson.dist(RATE), "gamma": G},
    "geometric": {"kind": "mfm", "components": lambda: pm.Geometric.dist(0.3)},
    "listed": {"kind": "mfm", "components": LISTED, "gamma": 2.5},
}
# the probabilities of 1, 2, ... components, as far as they count
COMPONENTS = {
    "mfm": stats.poisson.pmf(np.arange(149), RATE).tolist(),
    "geometric": stats.geom.pmf(np.arange(1, 150), 0.3).tolist(),
    "listed": LISTED.tolist(),
}


def dist(prior, **options):
    arguments = PRIORS[prior] | options
    if callable(arguments.get("components")):
        arguments["components"] = arguments["components"]()
    return pmd.Partition.dist(**arguments)


def probability(rv):
    """The probability of labels, by PyMC's log density."""
    z = pt.lvector()
    logp = pytensor.function([z], pm.logp(rv, z), **FAST)
    return lambda labels: math.exp(logp(labels))


def probabilities(rv, labels):
    """The same of many labels (S, n) at once, which takes a tenth of the time for a thousand of them."""
    z, every = pt.lvector(), pt.lmatrix()
    logp = pytensor.function([every], vectorize_graph(pm.logp(rv, z), {z: every}), **FAST)
    return np.exp(logp(np.array(labels)))


# ---------------------------------------------------------------- another implementation
def in_sequence(z, joins, opens):
    """The probability of a partition: a product over sites that join a cluster of some size, or open one."""
    p, sizes = 1.0, {}
    for i, label in enumerate(z):
        size = sizes.get(label, 0)
        p *= joins(i, size) if size else opens(i, len(sizes))
        sizes[label] = size + 1
    return p


def of_partition(prior, z):
    """The probability of the partition that labels z make, by the sequential rules of the literature."""
    if prior in COMPONENTS:
        g = PRIORS[prior].get("gamma", 1.0)
        # components 1, ..., t of symmetric Dirichlet weights
        return sum(
            p
            * in_sequence(
                z,
                lambda i, size, t=t: (g + size) / (g * t + i),
                lambda i, k, t=t: g * (t - k) / (g * t + i),
            )
            for t, p in enumerate(COMPONENTS[prior], 1)
        )
    a, d = PRIORS[prior]["concentration"], PRIORS[prior].get("discount", 0)
    return in_sequence(
        z,
        lambda i, size: (size - d) / (a + i),
        lambda i, k: (a + k * d) / (a + i) if i else 1.0,
    )


def partitions(n):
    """All partitions of n sites: labels of which each new one is the next number."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*z, label] for z in found for label in range(max(z) + 2)]
    return found


def labellings(K, k):
    return math.perm(K, k)


def as_partition(z):
    numbers = {}
    return tuple(numbers.setdefault(label, len(numbers)) for label in z)


def enumerated(prior, n, K):
    """All labels of n sites, and their probabilities given at most K clusters."""
    states = list(itertools.product(range(K), repeat=n))
    of = {tuple(z): of_partition(prior, z) for z in partitions(n) if len(set(z)) <= K}
    p = np.array([of[as_partition(z)] / labellings(K, len(set(z))) for z in states])
    return np.array(states), p / sum(of.values())


# ---------------------------------------------------------------- log density
@pytest.mark.parametrize("K", [5, 3, 6])
@pytest.mark.parametrize("prior", PRIORS)
def test_labels_have_the_probabilities_of_sequential_rules(prior, K):
    """Of all labellings, in whatever order their clusters appear: so the partition is exchangeable."""
    if prior == "listed" and K == 6:
        K = None
    rv = dist(prior, shape=5, max_clusters=K)
    states, want = enumerated(prior, 5, K or 5)
    assert sum(want) == pytest.approx(1)
    if K == 3:  # so few that a simpler program is faster
        p = probability(rv)
        got = [p(z) for z in states]
        assert p([0, 1, 2, 3, 0]) == p([0, -1, 0, 1, 1]) == 0  # which are no labels
    else:
        got = probabilities(rv, states)
    np.testing.assert_allclose(got, want, rtol=1e-10)


@pytest.mark.parametrize("prior", ["pitman-yor", "mfm"])
def test_all_partitions_of_eight_sites(prior):
    all_of_them = partitions(8)
    assert len(all_of_them) == 4140
    each = probabilities(dist(prior, shape=8), all_of_them)
    each = each * [labellings(8, len(set(z))) for z in all_of_them]
    assert sum(each) == pytest.approx(1, abs=1e-10)
    some = slice(None, None, 50)
    np.testing.assert_allclose(each[some], [of_partition(prior, z) for z in all_of_them[some]], rtol=1e-10)


@pytest.mark.parametrize(("n", "K"), [(1, None), (4, 1)])
@pytest.mark.parametrize("prior", PRIORS)
def test_a_single_site_or_cluster(prior, n, K):
    assert probability(dist(prior, shape=n, max_clusters=K))(np.zeros(n, int)) == pytest.approx(1 / (K or 1))


def of_parameters(kind, K=None, n=6):
    """A model whose parameters are unknown, on their own scales."""
    with pm.Model() as model:
        plain = {"default_transform": None}
        if kind == "mfm":
            rate = pm.Gamma("rate", 2, 1, **plain)
            own = {"gamma": pm.Gamma("g", 2, 2, **plain), "components": 1 + pm.Poisson.dist(rate)}
        else:
            own = {"concentration": pm.Normal("a", 1, 1)}
        if kind == "pitman-yor":
            own["discount"] = pm.Normal("d", 0.5, 1)
        pmd.Partition("z", kind, shape=n, max_clusters=K, **own)
    return model


POINTS = {"crp": {"a": 0.7}, "pitman-yor": {"a": 0.7, "d": 0.4}, "mfm": {"rate": 1.5, "g": 0.6}}
Z = np.array([1, 1, 0, 1, 0, 1])


@functools.cache
def functions_of(kind, K):
    """Such a model, to which no test adds anything, its log density, and the gradient in its parameters."""
    model = of_parameters(kind, K)
    gradient = model.compile_dlogp([model[name] for name in POINTS[kind]], **FAST)
    return model, model.compile_logp(**FAST), gradient


@pytest.mark.parametrize("K", [None, 3])
@pytest.mark.parametrize("kind", POINTS)
def test_gradients(kind, K):
    _, logp, gradient = functions_of(kind, K)
    names, at = list(POINTS[kind]), np.array(list(POINTS[kind].values()))
    step = 1e-5 * np.eye(len(at))
    central = [
        (
            logp(dict(zip(names, at + h, strict=True)) | {"z": Z})
            - logp(dict(zip(names, at - h, strict=True)) | {"z": Z})
        )
        / 2e-5
        for h in step
    ]
    np.testing.assert_allclose(gradient(POINTS[kind] | {"z": Z}), central, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("crp", {"a": 0.0}),
        ("crp", {"a": -0.5}),
        ("pitman-yor", {"a": -0.4}),
        ("pitman-yor", {"a": 1.0, "d": 1.0}),
        ("pitman-yor", {"a": 1.0, "d": -0.1}),
        ("mfm", {"g": 0.0}),
        ("mfm", {"rate": -1.0}),
    ],
)
def test_parameters_out_of_range(kind, point):
    """The log density is -inf, and its gradient no nan in the parameters of the partition alone."""
    _, logp, gradient = functions_of(kind, 3)
    assert with_zeros(logp)(POINTS[kind] | {"z": Z}) > -np.inf
    assert with_zeros(logp)(POINTS[kind] | point | {"z": Z}) == -np.inf
    if kind != "mfm":
        assert np.isfinite(gradient(POINTS[kind] | point | {"z": Z})).all()


def test_a_concentration_between_minus_the_discount_and_zero():
    _, logp, _ = functions_of("pitman-yor", None)
    assert with_zeros(logp)({"a": -0.3, "d": 0.4, "z": Z}) > -np.inf


@pytest.mark.parametrize("kind", ["pitman-yor", "mfm"])
def test_in_jax(kind):
    model, logp, gradient = functions_of(kind, 3)
    point = POINTS[kind] | {"z": Z}
    assert model.compile_logp(mode="JAX")(point) == pytest.approx(logp(point))
    in_jax = model.compile_dlogp([model[name] for name in POINTS[kind]], mode="JAX")
    np.testing.assert_allclose(in_jax(point), gradient(point), rtol=1e-8)


def test_of_many_sites():
    """No intermediate result leaves the range of floats, and the sum over few clusters is exact."""
    n, K = 3000, 20
    p = pmd.Partition.dist("pitman-yor", concentration=2.0, discount=0.3, shape=n, max_clusters=K)
    assert np.isfinite(pm.logp(p, np.arange(n) % K).eval(**FAST))
    # log s(n, k) + k log a, by the coefficients of x (x + 1) ... (x + n - 1) in exact integers
    n, K, a = 400, 5, 0.5
    stirling = [0, 1] + [0] * (K - 1)
    for m in range(1, n):
        stirling = [0] + [stirling[k - 1] + m * stirling[k] for k in range(1, K + 1)]
    largest = max(math.log(s) + k * math.log(a) for k, s in enumerate(stirling) if s)
    total = largest + math.log(
        sum(math.exp(math.log(s) + k * math.log(a) - largest) for k, s in enumerate(stirling) if s)
    )
    z = np.arange(n) % 4
    want = 4 * math.log(a) + 4 * math.lgamma(n / 4) - total - math.log(labellings(K, 4))
    got = pm.logp(pmd.Partition.dist("crp", concentration=a, shape=n, max_clusters=K), z).eval(**FAST)
    assert got == pytest.approx(want, rel=1e-10)


# ---------------------------------------------------------------- draws
# A draw uses the prior by its discount and by the weights that the log density uses, too: few priors suffice.
@pytest.mark.parametrize(
    ("prior", "K"), [("crp", 2), ("pitman-yor", 4), ("pitman-yor", 2), ("mfm", 2), ("listed", 4)]
)
def test_draws(prior, K):
    draws = pm.draw(dist(prior, shape=4, max_clusters=K), 3000, random_seed=1, **FAST)
    assert draws.dtype == np.int64
    states, p = enumerated(prior, 4, K)
    counts = np.bincount(draws @ K ** np.arange(3, -1, -1), minlength=len(states))
    assert g_test(counts, p) > 1e-3


def test_draws_of_a_model():
    """Parameters that are random are drawn along, and out of range are an error."""
    with pm.Model() as model:
        a = pm.Gamma("a", 2, 2)
        pmd.Partition("z", "crp", concentration=a, shape=5, max_clusters=3)
        pmd.Partition("wrong", "crp", concentration=-a, shape=5)
    found = pm.draw([model["a"], model["z"]], random_seed=1, **FAST)
    assert found[0] > 0
    assert set(found[1]) <= {0, 1, 2}
    with pytest.raises(ValueError, match="cannot be drawn, as its parameters are out of range"):
        pm.draw(model["wrong"], random_seed=1, **FAST)


# ---------------------------------------------------------------- in a model
def test_support_points_and_lengths():
    with pm.Model(coords={"site": range(6)}) as model:
        pmd.Partition("z", "crp", concentration=1, shape=6)
        pmd.Partition("dims", "crp", concentration=1, dims="site")
        pmd.Partition("few", "mfm", components=[0.0, 1.0, 0.0], shape=6)
        pmd.Partition("one", "crp", concentration=1, shape=1)
        pmd.Partition("given", "crp", concentration=1, shape=3, initval=[2, 0, 2])
        pmd.Partition("seen", "crp", concentration=1, observed=[0, 0, 1])
    point = model.initial_point()
    assert point["z"].tolist() == point["dims"].tolist() == [0, 0, 0, 1, 1, 1]
    assert point["few"].tolist() == [0, 0, 0, 1, 1, 1]
    assert point["one"].tolist() == [0]
    assert point["given"].tolist() == [2, 0, 2]
    assert np.isfinite(model.compile_logp(**FAST)(point))


def test_observed():
    with pm.Model() as model:
        a = pm.Gamma("a", 2, 2, default_transform=None)
        pmd.Partition("z", "crp", concentration=a, observed=[0, 0, 1])
    got = model.compile_logp(**FAST)({"a": 0.7})
    want = stats.gamma.logpdf(0.7, 2, scale=0.5) + math.log(of_partition("crp", [0, 0, 1]) / 6)
    assert got == pytest.approx(want)


def test_data_may_change():
    with pm.Model() as model:
        pmd.Partition("z", "crp", concentration=pm.Data("a", 1.0), shape=3, max_clusters=2)
    logp = model.compile_logp(**FAST)
    # two ways of one cluster, which has the weight a 2!, and three pairs of clusters of a^2 each
    assert logp({"z": [0, 0, 0]}) == pytest.approx(math.log(2 / (2 + 3) / 2))
    model["a"].set_value(2.0)
    assert logp({"z": [0, 0, 0]}) == pytest.approx(math.log(4 / (4 + 12) / 2))


def test_the_number_of_sites_may_not():
    with pm.Model() as model:
        data = pm.Data("data", [0, 1, 1])
        pmd.Partition("z", "crp", concentration=pm.Gamma("a", 2, 2), observed=data, max_clusters=3)
    data.set_value([0, 1, 1, 0])
    assert model.compile_logp(**FAST)(model.initial_point()) == -np.inf


# a limit of clusters with each kind, and none with that of the most parameters
@pytest.mark.parametrize(("kind", "K"), [*((kind, 4) for kind in POINTS), ("pitman-yor", None)])
def test_differences(kind, K):
    model = of_parameters(kind, K)
    with model:
        mu = pm.Normal("mu", 0, 2, shape=K or 6)
        pm.Normal("y", mu[model["z"]], 1, observed=np.linspace(-2, 2, 6))
    target, *_ = compare(model, ["z"])
    assert target.exact
    parts = target.density.parts
    assert sum(isinstance(part, ByLabel) for part in parts) == 2
    assert {type(part).__name__ for part in parts} <= {"ByLabel", "Tables", "InPlace"}


def test_differences_of_a_concentration_and_labels_together():
    compare(mixture("crp", 3), ["c", "z"])


# ---------------------------------------------------------------- sampled
def mixture(prior, K):
    """Five points in a mixture of known means, which tell labels apart, at a concentration of two values."""
    arguments = {name: of() if callable(of) else of for name, of in PRIORS[prior].items()}
    with pm.Model() as model:
        c = pm.Bernoulli("c", 0.4)
        if "concentration" in arguments:
            arguments["concentration"] = pt.as_tensor([0.3, 2.0])[c]
        z = pmd.Partition("z", shape=5, max_clusters=K, **arguments)
        pm.Normal("y", pt.as_tensor(np.linspace(-1, 1, K))[z], 0.8, observed=[-1.2, -0.9, 0.1, 0.3, 1.4])
    return model


@functools.cache
def enumerated_posterior():
    """A mixture, all of its states, and their probabilities."""
    model = mixture("crp", 3)
    states = np.array([[c, *z] for c in (0, 1) for z in itertools.product(range(3), repeat=5)])
    logp = model.compile_logp(**FAST)
    log_p = np.array([logp({"c": x[0], "z": x[1:]}) for x in states])
    p = np.exp(log_p - log_p.max())
    return model, states, p / p.sum()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pmd.sample", "summed out"])
def test_posteriors(how):
    model, states, p = enumerated_posterior()
    with model:
        step = pmd.BlockGibbs() if how == "pmd.sample" else None
        idata = pmd.sample(2000, tune=200, step=step, random_seed=1, **QUIET)
    check_proportions(idata["posterior"].dataset, ["c", "z"], states, p)


def test_steps_of_pymc_move_labels():
    """To labels that there are, from states of positive density."""
    with mixture("mfm", 3) as model:
        steps = [pm.BinaryGibbsMetropolis([model["c"]]), pm.Metropolis([model["z"]])]
    z = draws_of(sample_with_pymc(model, steps, 200, 20))["z"]
    assert set(np.unique(z)) == {0, 1, 2}
    assert (np.diff(z, axis=1) != 0).any(axis=(0, 1)).all()


def drawn_in_sequence(kind, n):
    """Draws (n, ...) of what `of_unknown_data` has, by the sequential rules of the literature."""
    r = np.random.default_rng(2)
    a = r.gamma(3, 1 / 2, n)
    d = {"crp": np.zeros(n), "pitman-yor": r.beta(2, 3, n), "mfm": r.beta(3, 3, n)}[kind]
    z = np.zeros((n, 6), int)
    left = np.arange(n)
    while len(left):  # given the parameters, those of more clusters are drawn again
        each, sizes, k = np.arange(len(left)), np.zeros((len(left), 7)), np.zeros(len(left), int)
        components = r.geometric(d[left]) if kind == "mfm" else None
        for site in range(6):
            if kind == "mfm":
                weights = np.where(sizes > 0, sizes + a[left, None], 0)
                weights[each, k] = a[left] * (components - k)
            else:
                weights = np.where(sizes > 0, sizes - d[left, None], 0)
                weights[each, k] = a[left] + k * d[left]
            below = weights.cumsum(1)
            label = (below <= r.uniform(size=(len(left), 1)) * below[:, -1:]).sum(1)
            k += label == k
            sizes[each, label] += 1
            z[left, site] = label
        left = left[z[left].max(1) >= 4]
    labels = r.permuted(np.tile(np.arange(4), (n, 1)), axis=1)
    z = np.take_along_axis(labels, z, axis=1)
    share = r.beta(0.5, 0.7, (n, 4))
    y = r.binomial(3, np.take_along_axis(share, z, axis=1))
    return {"a": a, "z": z, "share": share, "y": y} | ({} if kind == "crp" else {"d": d})


def of_unknown_data(kind):
    with pm.Model() as model:
        own = {"gamma" if kind == "mfm" else "concentration": pm.Gamma("a", 3, 2)}
        if kind == "pitman-yor":
            own["discount"] = pm.Beta("d", 2, 3)
        if kind == "mfm":
            own["components"] = pm.Geometric.dist(pm.Beta("d", 3, 3))
        z = pmd.Partition("z", kind, shape=6, max_clusters=4, **own)
        pm.Binomial("y", 3, pm.Beta("share", 0.5, 0.7, shape=4)[z])
    return model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pitman-yor", "mfm"])
def test_draws_with_parameters_and_data(kind):
    """One by one: 5000 show it where clusters are opened 7 % too seldom."""
    expected = moments(drawn_in_sequence(kind, 20_000))
    with of_unknown_data(kind) as model:
        drawn = pm.draw(list(model.free_RVs), 5000, random_seed=2, **FAST)
    for name, found in moments(dict(zip([rv.name for rv in model.free_RVs], drawn, strict=True))).items():
        own = expected[name]
        error = own.std() * np.hypot(1 / np.sqrt(own.size), 1 / np.sqrt(found.size))
        assert abs(found.mean() - own.mean()) < LARGEST_Z * error, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "integrate", "precision"), [("crp", ["share"], "float64"), ("pitman-yor", None, "float32")]
)
def test_jointly_with_unknown_data(kind, integrate, precision, walks):
    """Geweke's joint test (2004): where the data are drawn in turn with all else, draws have the prior."""
    expected = moments(drawn_in_sequence(kind, 20_000))
    with of_unknown_data(kind):
        step = pmd.BlockGibbs(["z", "y"], integrate=integrate)
        idata = pmd.sample(4000, tune=300, random_seed=1, dtype=precision, step=step, **QUIET)
    for name, found in moments(draws_of(idata)).items():
        own = expected[name]
        error = np.hypot(float(az.mcse(found, method="mean")), own.std() / np.sqrt(own.size))
        assert abs(found.mean() - own.mean()) < LARGEST_Z * error, name


def moments(draws):
    """{name: (...)} what Geweke's test compares, of draws (...) of a partition, its parameters and data."""
    z, y = draws["z"], draws["y"]
    k = (z[..., None] == np.arange(4)).any(axis=-2).sum(-1)
    together = z[..., 0] == z[..., 1]
    return {
        "clusters": k,
        "clusters squared": k**2,
        "together": together,
        "three together": together & (z[..., 2] == z[..., 0]),
        "data": y.sum(-1),
        "data squared": (y**2).sum(-1),
        "product": y[..., 0] * y[..., 1],
        "product within": together * y[..., 0] * y[..., 1],
        "largest data and clusters": y.max(-1) * k,
        "share": draws["share"][..., 0],
        "share squared": draws["share"][..., 0] ** 2,
        "share of the label of a site": np.take_along_axis(draws["share"], z, axis=-1)[..., 0] * y[..., 0],
        "parameter": draws["a"],
        "parameter squared": draws["a"] ** 2,
        "parameter and clusters": draws["a"] * k,
    } | ({"other parameter": draws["d"], "both": draws["d"] * draws["a"]} if "d" in draws else {})


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kind": "dp"}, ValueError, "kind of 'x' is one of 'crp', 'pitman-yor', 'mfm', got 'dp'"),
        ({"discount": 0.2}, TypeError, "kind 'crp', which has no discount, only concentration"),
        ({"concentration": None}, TypeError, "'x' is of kind 'crp', which needs concentration"),
        ({"kind": "pitman-yor"}, TypeError, "needs discount"),
        ({"concentration": 0.0}, ValueError, "concentration of 'x' must be above 0 and finite, got 0.0"),
        (
            {"kind": "pitman-yor", "discount": 0.2, "concentration": -0.2},
            ValueError,
            "concentration of 'x' must be above minus the discount and finite, got -0.2",
        ),
        (
            {"kind": "pitman-yor", "discount": 1.0},
            ValueError,
            "discount of 'x' must be at least 0 and below 1, got 1.0",
        ),
        ({"concentration": np.inf}, ValueError, "above 0 and finite, got inf"),
        ({"dims": "who", "shape": None}, ValueError, "no dimension 'who', that of 'x'. Add it to coords="),
        ({"observed": [0, 1, 1]}, ValueError, "'x' has 4 sites by its shape, and 3 observed"),
        ({"concentration": [1.0, 2.0]}, TypeError, "concentration of 'x' is one number, got 1 axes"),
        ({"shape": None}, ValueError, "'x' has an unknown number of sites. Pass a shape"),
        ({"shape": (2, 3)}, ValueError, "'x' is one partition, .* got 2 axes"),
        ({"shape": ()}, ValueError, "'x' is one partition, .* got 0 axes"),
        ({"dims": ("four", "four"), "shape": None}, ValueError, "'x' is one partition, .* got 2 axes"),
        ({"shape": 0}, ValueError, "'x' needs at least one site, got 0"),
        ({"shape": 300}, ValueError, "'x' may have up to 300 clusters, .*max_clusters=, .* may be 256"),
        ({"max_clusters": 0}, ValueError, "largest number of clusters of 'x' is an integer above 0, got 0"),
        ({"observed": [0, np.nan], "shape": None}, ValueError, "'x' is observed in part.*pm.Potential"),
        (
            {"observed": [0, 2], "shape": None},
            ValueError,
            r"observed as 2 at \(1,\), .*labels are 0, ..., 1",
        ),
        ({"observed": [0, 0.5], "shape": None}, ValueError, r"'x' is observed as 0.5 at \(1,\)"),
    ],
)
def test_refused(arguments, error, message):
    given = {"kind": "crp", "concentration": 1.0, "shape": 4} | arguments
    with pm.Model(coords={"four": range(4)}), pytest.raises(error, match=message):
        pmd.Partition("x", **given)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"components": lambda: pm.Poisson.dist(1)}, ValueError, r"may be 0 in number.*1 \+ pm.Poisson"),
        (
            {"components": lambda: pm.Poisson.dist(pm.Gamma("rate", 2, 2))},
            ValueError,
            "components of 'x' may be 0 in number",
        ),
        (
            {"components": lambda: pm.Poisson("t", 1)},
            ValueError,
            r"made by .dist\(\), .* or a vector of prob",
        ),
        ({"components": lambda: pm.Exponential.dist(1.0)}, TypeError, "'x' are a continuous distribution"),
        ({"components": lambda: pm.Geometric.dist([0.2, 0.3])}, TypeError, "'x' are a vector of distrib"),
        ({"components": lambda: 3}, ValueError, r"components of 'x' are a distribution .* made by .dist"),
        (
            {"components": lambda: pm.Geometric.dist(0.01)},
            ValueError,
            "above 504, where .* ends, with probability 0.0063",
        ),
        ({"components": lambda: np.eye(2)}, TypeError, "components of 'x' are .* got 2 axes"),
        ({"components": lambda: [0.5, 0.4]}, ValueError, "components of 'x' must be .* got the sum 0.9"),
        ({"components": lambda: [1.5, -0.5]}, ValueError, "components of 'x' must be none below 0"),
        (
            {"components": lambda: [0.5, 0.5], "max_clusters": 3},
            ValueError,
            "up to 3 .* has 2 components at most",
        ),
        ({"gamma": 0}, ValueError, "gamma of 'x' must be above 0, got 0.0"),
        ({"components": lambda: pt.dvector()}, ValueError, "length of the probabilities .* is unknown"),
    ],
)
def test_components_that_are_refused(arguments, error, message):
    given = {"components": lambda: pm.Geometric.dist(0.5), "shape": 4} | arguments
    with pm.Model(), pytest.raises(error, match=message):
        pmd.Partition("x", "mfm", **(given | {"components": given["components"]()}))


def test_random_probabilities_of_components():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pmd.Partition("z", "mfm", components=p, shape=4)
    states = list(itertools.product(range(3), repeat=4))
    logp = model.compile_logp(vars=[model["z"]], **FAST)
    point = model.initial_point()
    assert sum(math.exp(logp(point | {"z": np.array(z)})) for z in states) == pytest.approx(1)


def test_what_is_constant_is_computed_once():
    """The recursion over sites, unless the discount, or gamma, is unknown."""
    with pm.Model() as model:
        a = pm.Gamma("a", 2, 2)
        pmd.Partition("crp", "crp", concentration=a, shape=6, max_clusters=3)
        pmd.Partition("py", "pitman-yor", concentration=a, discount=0.2, shape=6, max_clusters=3)
        pmd.Partition("mfm", "mfm", components=pm.Geometric.dist(1 / (1 + a)), shape=6, max_clusters=3)
        pmd.Partition("known", "mfm", components=pm.Geometric.dist(0.3), gamma=0.2, shape=6, max_clusters=3)
    assert isinstance(model["known"].owner.op.dist_params(model["known"].owner)[2], Constant)
    assert not any(isinstance(v.owner.op, Scan) for v in ancestors([model.logp()]) if v.owner)


def test_a_number_of_components_that_is_cut_off_is_normalised():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, default_transform=None)
        pmd.Partition("z", "mfm", components=pm.Geometric.dist(p), shape=3)
    logp = model.compile_logp(vars=[model["z"]], **FAST)
    states = itertools.product(range(3), repeat=3)
    assert sum(math.exp(logp({"p": 0.005, "z": np.array(z)})) for z in states) == pytest.approx(1)
