"""The most probable states of discrete variables, against all states and against the algorithm of Viterbi."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_base import from_dict

import pymc_discrete as pmd

pytestmark = pytest.mark.usefixtures("interpreted_sums")
pmx = pytest.importorskip("pymc_extras")  # which warns when it is imported

R = np.random.default_rng(11)
Y = R.normal(size=4)
CHAINS, DRAWS = 2, 2


def hidden_markov():
    """A chain of three states with unknown means, some of whose states are known."""
    P = R.dirichlet(np.ones(3), size=3)
    P[0] = [0.5, 0.5, 0.0]
    with pm.Model(coords={"time": range(2000, 2004)}) as model:
        mu = pm.Normal("mu", 0, 2, shape=3)
        first = pm.Categorical.dist(np.array([0.2, 0.3, 0.5]))
        z = pmx.DiscreteMarkovChain("z", P=P, init_dist=first, dims="time", steps=3)
        pm.Potential("known", pt.switch(pt.eq(z[2], 1), 0.0, -np.inf))
        pm.Normal("y", mu[z], 0.7, observed=Y)
    return model, {"mu": (3,)}, {"z": ((4,), range(3))}


def third_order():
    with pm.Model() as model:
        slope = pm.Normal("slope")
        z = pmx.DiscreteMarkovChain(
            "z",
            P=R.dirichlet(np.ones(2), size=(2, 2, 2)),
            init_dist=pm.Categorical.dist([0.4, 0.6]),
            n_lags=3,
            shape=(5,),
        )
        pm.Normal("y", slope * z[1:], 1.0, observed=Y)
    return model, {"slope": ()}, {"z": ((5,), range(2))}


def labels_and_a_count():
    """Variables of several kinds, of which one has values from 1 on and another is beside the rest."""
    with pm.Model() as model:
        rate = pm.Normal("rate")
        k = pm.DiscreteUniform("k", 1, 4)
        z = pm.Bernoulli("z", pm.math.invlogit(rate), shape=(2, 2))
        pm.Normal("y", (z * np.array([[1.0], [1.7]])).sum(axis=0) * k, 1.5, observed=Y[:2])
        pm.Bernoulli("alone", 0.3)
    return model, {"rate": ()}, {"k": ((), range(1, 5)), "z": ((2, 2), range(2)), "alone": ((), range(2))}


def enumerated(model, values, point):
    """(states (S, d), probabilities (S,)) at the values of all other variables."""
    sizes = [int(np.prod(shape)) for shape, _ in values.values()]
    ranges = [[of] * size for size, (_, of) in zip(sizes, values.values(), strict=True)]
    states = np.array([*itertools.product(*itertools.chain(*ranges))])
    logp = model.compile_logp(mode="FAST_COMPILE")
    parts = [np.split(state, np.cumsum(sizes)[:-1]) for state in states]
    found = [
        logp(
            {
                **point,
                **{n: a.reshape(shape) for a, (n, (shape, _)) in zip(part, values.items(), strict=True)},
            }
        )
        for part in parts
    ]
    weights = np.exp(np.array(found) - np.max(found))
    return states, weights / weights.sum()


@pytest.mark.parametrize("build", [hidden_markov, third_order, labels_and_a_count])
@pytest.mark.by_default("hidden_markov", "labels_and_a_count")
def test_against_all_states(build):
    model, shapes, values = build()
    draws = {name: R.normal(size=(CHAINS, DRAWS, *shape)) for name, shape in shapes.items()}
    found = pmd.most_probable(from_dict({"posterior": draws}), model, probabilities=True)
    means = dict.fromkeys(values, 0.0)
    for c, n in itertools.product(range(CHAINS), range(DRAWS)):
        at = {"chain": c, "draw": n}
        states, p = enumerated(model, values, {name: a[c, n] for name, a in draws.items()})
        best, start = states[p.argmax()], 0
        joint = found["most_probable"].isel(at)
        assert float(joint["log_probability"]) == pytest.approx(np.log(p.max()), abs=1e-6)
        for name, (shape, _) in values.items():
            here = slice(start, start + int(np.prod(shape)))
            np.testing.assert_array_equal(joint[name].values.reshape(-1), best[here])
            each = found["site_probabilities"].isel(at)[name]
            axis = each.coords[f"{name} value"].values
            want = np.array([[p[states[:, i] == v].sum() for v in axis] for i in range(len(states[0]))[here]])
            np.testing.assert_allclose(each.values.reshape(want.shape), want, atol=1e-6)
            means[name] = means[name] + want / (CHAINS * DRAWS)
            start = here.stop
    for name in values:
        axis = found["site_probabilities"].coords[f"{name} value"].values
        modes = found["site_modes"]
        np.testing.assert_array_equal(modes[name].values.reshape(-1), axis[means[name].argmax(1)])
        np.testing.assert_allclose(
            modes[f"{name} probability"].values.reshape(-1), means[name].max(1), atol=1e-6
        )
        assert modes[name].dtype.kind == "i"
        assert found["most_probable"][name].dtype.kind == "i"


def test_given_means():
    model, _, values = hidden_markov()
    draws = R.normal(size=(CHAINS, DRAWS, 3))
    idata = from_dict({"posterior": {"mu": draws}})
    found = pmd.most_probable(idata, model, given="means", probabilities=True)
    states, p = enumerated(model, values, {"mu": draws.mean((0, 1))})
    np.testing.assert_array_equal(found["most_probable"]["z"], states[p.argmax()])
    assert float(found["most_probable"]["log_probability"]) == pytest.approx(np.log(p.max()), abs=1e-6)
    assert found["most_probable"]["z"].dims == found["site_modes"]["z"].dims == ("time",)
    assert found["site_probabilities"]["z"].dims == ("time", "z value")
    np.testing.assert_array_equal(found["most_probable"].coords["time"], range(2000, 2004))
    assert "site_probabilities" not in pmd.most_probable(idata, model).children
    assert "most_probable" not in idata.children


def viterbi(log_first, log_P, log_likelihood):
    """The path of Rabiner 1989, section III B."""
    T, best, back = len(log_likelihood), log_first + log_likelihood[0], []
    for t in range(1, T):
        scores = best[:, None] + log_P
        back.append(scores.argmax(0))
        best = scores.max(0) + log_likelihood[t]
    path = [int(best.argmax())]
    for arrow in back[::-1]:
        path.append(int(arrow[path[-1]]))
    return path[::-1]


def test_a_long_hidden_markov_chain_has_the_path_of_viterbi():
    r, T, K = np.random.default_rng(0), 300, 4
    P = 0.8 * np.eye(K) + 0.2 * r.dirichlet(np.ones(K), K)
    first, y = r.dirichlet(np.ones(K)), r.normal(0, 2, T)
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=K)
        z = pmx.DiscreteMarkovChain("z", P=P, init_dist=pm.Categorical.dist(first), shape=(T,))
        pm.Normal("y", mu[z], 1.0, observed=y)
    draws = r.normal(0, 2, (1, 2, K))
    found = pmd.most_probable(from_dict({"posterior": {"mu": draws}}), model)
    for n, mu in enumerate(draws[0]):
        path = viterbi(np.log(first), np.log(P), -0.5 * (y[:, None] - mu) ** 2)
        np.testing.assert_array_equal(found["most_probable"]["z"][0, n], path)


def test_the_modes_of_sites_may_be_impossible_together():
    """Two states are never neighbours, and each is the likeliest where the other one is, too."""
    with pm.Model() as model:
        pm.Normal("unused")
        p = np.array([0.4, 0.3, 0.3])
        a = pm.Categorical("a", p)
        pm.Categorical("b", pt.as_tensor([[0.0, 0.5, 0.5], [0.9, 0.05, 0.05], [0.9, 0.05, 0.05]])[a])
    found = pmd.most_probable(from_dict({"posterior": {"unused": np.zeros((1, 1))}}), model)
    assert (int(found["site_modes"]["a"]), int(found["site_modes"]["b"])) == (0, 0)
    assert int(found["most_probable"]["a"].squeeze()) in (1, 2)
    assert int(found["most_probable"]["b"].squeeze()) == 0


def test_a_count_without_bounds_and_one_that_stays_as_it_is():
    with pm.Model() as model:
        lam = pm.Gamma("lam", 3, 1)
        N = pm.Poisson("N", lam)
        pm.Poisson("m", N + 1.0)
        pm.Binomial("seen", N, 0.4, observed=2)
    draws = {"lam": np.full((1, 1), 9.5), "N": np.full((1, 1), 5), "m": np.full((1, 1), 7)}
    idata = from_dict({"posterior": draws})
    found = pmd.most_probable(idata, model, ["N"])["most_probable"]
    logp = model.compile_logp(mode="FAST_COMPILE")
    point = {"lam_log__": np.log(9.5), "m": 7}
    scores = [float(logp({**point, "N": n})) for n in range(60)]
    assert int(found["N"].squeeze()) == np.argmax(scores)
    assert "m" not in found
    with pytest.raises(ValueError, match="the mean of 'm', which is discrete"):
        pmd.most_probable(idata, model, ["N"], given="means")
    assert int(pmd.most_probable(idata, model, truncate={"N": (0, 4)})["most_probable"]["N"].squeeze()) == 4


def all_joined():
    with pm.Model() as model:
        J = pm.Normal("J")
        x = pm.Bernoulli("x", 0.5, shape=24)
        pm.Potential("e", J * pt.eq(x[:, None], x).sum())
    return model


def test_what_is_refused():
    idata = from_dict({"posterior": {"J": np.zeros((1, 1))}})
    with pytest.raises(ValueError, match=r"The most probable states.*sites of 'x'.*Or name fewer in vars="):
        pmd.most_probable(idata, all_joined())
    model, _, _ = hidden_markov()
    with pytest.raises(ValueError, match=r"posterior has no 'mu', on which 'z' depends"):
        pmd.most_probable(idata, model)
    with pytest.raises(ValueError, match=r"given must be one of 'draws', 'means', got 'mean'"):
        pmd.most_probable(idata, model, given="mean")
    with pytest.raises(ValueError, match="probabilities must be True or False"):
        pmd.most_probable(idata, model, probabilities="z")
    with pm.Model() as model:
        pm.Normal("J")
    with pytest.raises(ValueError, match="no discrete free variable to find states of"):
        pmd.most_probable(idata, model)
