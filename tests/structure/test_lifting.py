"""Tables, classes and covariances as users write them: exact differences, the step that is chosen, and
planted errors that are seen.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import toposort

import pymc_discrete as pmd
from pymc_discrete.runtime.reuse import forget
from pymc_discrete.structure import lifting
from pymc_discrete.structure.bounds import IntegerBounds
from pymc_discrete.structure.ops import elementwise, linear_algebra, reductions, subtensors
from tests.tools.oracle import compare

# PyMC's own, of the initial point of an LKJCholeskyCov
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
R = np.random.default_rng(0)
STATES = np.ones(3) / 3


def dirichlet(name, *shape):
    return pm.Dirichlet(name, np.ones(shape))


# ---------------------------------------------------------------- tables chosen from by unknowns
def parents():
    """A network by tables: one parent, two, a scalar, a matrix."""
    a, b = pm.Bernoulli("a", 0.4, shape=4), pm.Categorical("b", p=STATES, shape=4)
    c = pm.Categorical("c", p=dirichlet("C", 2, 3, 3)[a, b], shape=4)
    d = pm.Categorical("d", p=dirichlet("D", 3, 4)[c], shape=4)
    root = pm.Categorical("root", p=STATES)
    leaf = pm.Categorical("leaf", p=dirichlet("L", 3, 2)[root])
    pm.Normal("y", d + leaf, 1.0, observed=R.normal(size=4))
    first = pm.Categorical("first", p=STATES, shape=(2, 2))
    pm.Categorical("second", p=pt.as_tensor(R.dirichlet(np.ones(3), size=3))[first], shape=(2, 2))
    return "TreeGibbs"


def taken():
    """`take`, `take_along_axis`, an index of an index, one-hot rows, a table for each time."""
    P, z = dirichlet("P", 3, 4), pm.Categorical("z", p=STATES, shape=5)
    pm.Categorical("c", p=pt.take(P, z, axis=0), shape=5)
    q = pt.take_along_axis(dirichlet("Q", 5, 3), z[:, None], axis=1)[:, 0]
    k = pm.Bernoulli("k", q, shape=5)
    mu = pm.Normal("mu", shape=3)
    pm.Normal(
        "y",
        mu[z[np.array([0, 1, 4, 1])]] + pt.dot(pt.eye(3)[z], mu)[:4] * k[1:],
        1.0,
        observed=R.normal(size=4),
    )
    T = dirichlet("T", 2, 2, 2)
    s = [pm.Bernoulli("s0", 0.5, shape=3)]
    for t in range(2):
        s.append(pm.Categorical(f"s{t + 1}", p=T[t][s[-1]], shape=3))
    return "TreeGibbs"


def raters():
    """Dawid and Skene 1979, and rows of classes through softmax."""
    J, K = 3, 2
    ability, z = (
        pm.Dirichlet("ability", np.ones((J, K, K)) + np.eye(K)),
        pm.Categorical("z", p=dirichlet("w", K), shape=4),
    )
    who, what = np.tile(np.arange(J), 4), np.repeat(np.arange(4), J)
    pm.Categorical("y", p=ability[who, z[what]], observed=R.integers(0, K, 4 * J))
    beta, x = pm.Normal("beta", 0, 1, shape=(2, 3)), R.normal(size=4)
    pm.Categorical("v", p=pm.math.softmax(beta[z] * x[:, None], axis=1), observed=R.integers(0, 3, 4))
    pm.Categorical("u", logit_p=beta[z], observed=R.integers(0, 3, 4))
    return "BlockGibbs"


def indexed_by_a_mixture():
    """An unknown index into unknowns: one of a group."""
    x, j = pm.Bernoulli("x", [0.2, 0.4, 0.6], shape=3), pm.Categorical("j", p=STATES, shape=2)
    k = pm.DiscreteUniform("k", 0, 9)
    pm.Normal("y", 2.0 * x[j] - 1.0, 0.6, observed=[0.4, -0.2])
    wide = (k + np.arange(12))[pm.Categorical("w", p=np.ones(12) / 12)]
    pm.Normal("v", wide, 5.0, observed=9.0)
    return "TreeGibbs"


# ---------------------------------------------------------------- batched linear algebra
def shared_factor():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(2, shape=2))
    mu, z = pm.Normal("mu", 0, 2, shape=(3, 2)), pm.Categorical("z", p=STATES, shape=4)
    pm.MvNormal("y", mu=mu[z], chol=chol, observed=R.normal(size=(4, 2)))
    return "BlockGibbs"


def factors_of_classes():
    sd = pm.HalfNormal.dist(2, shape=2)
    chols = pt.stack([pm.LKJCholeskyCov(f"chol{k}", n=2, eta=2, sd_dist=sd)[0] for k in range(3)])
    z = pm.Categorical("z", p=STATES, shape=4)
    pm.MvStudentT(
        "y", nu=4, mu=pm.Normal("mu", shape=(3, 2))[z], chol=chols[z], observed=R.normal(size=(4, 2))
    )
    return "BlockGibbs"


def covariances_of_classes():
    """A series of 12 times: a group of 144; two indices; a covariance that is no selection but computed from
    one.
    """
    t, length = np.arange(12.0), pm.HalfNormal("length", 2, shape=2)
    K = pt.exp(-0.5 * (t[:, None] - t) ** 2 / (length[:, None, None] + 1) ** 2) + 0.1 * pt.eye(12)
    z, k = pm.Bernoulli("z", 0.4, shape=3), pm.Bernoulli("k", 0.4, shape=3)
    pm.MvNormal("y", mu=np.zeros(12), cov=K[z], observed=R.normal(size=(3, 12)))
    M = R.normal(size=(2, 2, 2, 2))
    pm.MvNormal(
        "v",
        mu=np.zeros(2),
        cov=pt.as_tensor(M @ M.swapaxes(-1, -2) + np.eye(2))[k, z],
        observed=R.normal(size=(3, 2)),
    )
    s = pm.Bernoulli("s", 0.5)
    pm.MvNormal("u", mu=np.zeros(3), cov=pt.eye(3) * (1.0 + s) + 0.2 * s, observed=R.normal(size=3))
    pm.MvNormal(
        "x",
        mu=np.zeros(2),
        cov=pt.eye(2) * (1.0 + z)[:, None, None] + 0.3 * k[:, None, None],
        observed=R.normal(size=(3, 2)),
    )
    return "TreeGibbs"


def of_matrices():
    """Solve, inverse, determinants, products; entries whose elements are read in any order."""
    z, b = pm.Bernoulli("z", 0.4, shape=3), pm.Normal("b", 0, 1, shape=2)
    A = pt.as_tensor([[[2.0, 0.0], [0.0, 2.0]], [[3.0, 1.0], [1.0, 2.0]]]) + b[0] ** 2 * np.eye(2)
    chosen = A[z]
    sizes = pt.log(pt.linalg.det(chosen)) + pt.linalg.slogdet(chosen)[1]
    inverse = pt.linalg.inv(chosen + 0.1 * z[:, None, None] * np.eye(2))
    pm.Potential(
        "p",
        -(pt.linalg.solve(chosen, b[:, None]) ** 2).sum()
        + sizes.sum()
        + (inverse[:, ::-1, 0] * inverse[:, 1]).sum(),
    )
    w, x = pm.Normal("w", 0, 1, shape=(2, 2, 2)), R.normal(size=(3, 2))
    pm.Normal(
        "y",
        pt.matmul(w[z], x[:, :, None])[:, :, 0] + pt.einsum("nd,nd->n", w[z][:, 0], x)[:, None],
        1.0,
        observed=x,
    )
    return "BlockGibbs"


def along_an_axis():
    z = pm.DiscreteUniform("z", 0, 3, shape=(3, 2))
    order = (
        pt.sort(z, axis=1)[:, 1]
        - pt.argmax(z, axis=1)
        + pt.cumsum(z, axis=1)[:, 1]
        + pt.special.log_softmax(0.3 * z, axis=1)[:, 0]
    )
    pm.Normal("y", order, 1.0, observed=R.normal(size=3))
    pm.Normal(
        "added",
        pt.inc_subtensor(pt.ones(3)[np.array([0, 2])], 0.5 * z[:2, 0]),
        1.0,
        observed=R.normal(size=3),
    )
    return "TreeGibbs"


MODELS = [parents, taken, raters, indexed_by_a_mixture]
MODELS += [shared_factor, factors_of_classes, covariances_of_classes, of_matrices, along_an_axis]


def built(build):
    with pm.Model() as model:
        step = build()
    return model, step


ASKED = np.eye(4, 5, dtype=int) + np.eye(4, 5, 1, dtype=int)  # two skills for each item


@pytest.mark.parametrize(
    "able",
    [
        lambda a: pt.prod(a[:, None] ** ASKED, axis=-1),
        lambda a: pt.prod(a[:, None] ** (1.0 * ASKED), axis=-1),
        lambda a: pt.prod(1 - ASKED + ASKED * a[:, None], axis=-1),
        lambda a: pt.switch(ASKED, a[:, None], 1).min(axis=-1),
        lambda a: pt.all(pt.eq(a[:, None], 1) | (ASKED == 0), axis=-1),
        lambda a: pt.any(pt.eq(a[:, None], 0) & (ASKED == 1), axis=-1),
        lambda a: pt.eq(pt.dot(a, ASKED.T), ASKED.sum(axis=1)),
        lambda a: pt.all(a[:, None] >= ASKED, axis=-1),
        lambda a: 1 - pt.any(1.0 * a[:, None] < 1.0 * ASKED, axis=-1),
        lambda a: pt.all(pt.invert(a[:, None] < ASKED), axis=-1),
        lambda a: pt.switch(2 * a[:, None] - 2 >= 2 * ASKED - 2, 1, a[:, None]).min(axis=-1),
        lambda a: pt.all(
            pt.neq(a[:, None] + ASKED, 1) | pt.lt(a[:, None], ASKED - 1) | (ASKED == 0), axis=-1
        ),
        lambda a: pt.all((a[:, None] >= ASKED) | (a[:, None] > ASKED - 1), axis=-1),
    ],
)
def test_what_a_constant_decides_is_not_read(able):
    """An answer depends on the skills that its item asks for, and not on those with an exponent of 0."""
    with pm.Model() as model:
        a = pm.Bernoulli("a", 0.4, shape=(3, 5))
        pm.Bernoulli("y", p=0.2 + 0.6 * able(a), observed=R.integers(0, 2, (3, 4)))
    density = pmd.target_from_model(model).density
    assert density.plan.dependence.of(dict(density.graph.terms)["y"]).shape == (12, 2)
    compare(model, ["a"])


@pytest.mark.parametrize(
    ("written", "compare_values"),
    [
        (pt.eq, np.equal),
        (pt.neq, np.not_equal),
        (pt.lt, np.less),
        (pt.le, np.less_equal),
        (pt.gt, np.greater),
        (pt.ge, np.greater_equal),
    ],
)
@pytest.mark.parametrize("constant_first", [False, True])
def test_what_bounds_decide(written, compare_values, constant_first):
    """A comparison is decided by bounds where it has the same outcome at all values within them."""
    x, others = pt.lscalar("x"), np.arange(-2, 5)
    node = written(*((others, x) if constant_first else (x, others))).owner
    for low in range(-1, 3):
        for high in range(low, 4):
            at = np.array(
                [
                    compare_values(*((others, value) if constant_first else (value, others)))
                    for value in range(low, high + 1)
                ]
            )
            wanted = np.where(at.all(0), 1.0, np.where(at.any(0), np.nan, 0.0))
            graph: Any = SimpleNamespace(bounds=IntegerBounds({x: (float(low), float(high))}))
            found = elementwise.outcome(node.op.scalar_op, node.inputs, graph)
            np.testing.assert_array_equal(found, wanted, err_msg=f"{low}..{high}")


def test_what_bounds_do_not_decide():
    """Comparisons of floats, which may be nan, and of integers that floats do not hold."""
    x, y = pt.lscalar("x"), pt.dscalar("y")
    graph: Any = SimpleNamespace(bounds=IntegerBounds({x: (0.0, 2.0**53), y: (0.0, 1.0)}))
    for compared in (pt.clip(y, 0, 1) >= 0, x < np.array([2**53 + 1])):
        found = elementwise.outcome(compared.owner.op.scalar_op, compared.owner.inputs, graph)
        assert found is None or np.isnan(found).all()


@pytest.mark.parametrize("build", MODELS, ids=[b.__name__ for b in MODELS])
@pytest.mark.by_default("along_an_axis")
def test_exact_and_on_the_right_step(build):
    model, chosen = built(build)
    names = [str(v.name) for v in model.discrete_value_vars]
    target, *_ = compare(model, names)
    assert {row["way"] for row in target.describe().values()} == {"exact"}
    with model:
        assert type(pmd.AutoStep(names)).__name__ == chosen


def moving(graph):
    """The variables between the block and the log density."""
    nodes = toposort([term for _, term in graph.terms])
    return [out for node in nodes for out in node.outputs if graph.depends(out)]


def test_covariances_are_factored_once_for_each_class():
    """And not for every element at every value: the factors are selected, as are the checks that PyMC puts
    around a p.
    """
    model, _ = built(raters)
    graph = pmd.target_from_model(model).density.graph
    assert max(graph.size(v) for v in moving(graph)) <= 4 * 3 * 3
    with pm.Model() as model:
        z = pm.Categorical("z", p=STATES, shape=50)
        scale = pm.HalfNormal("scale", shape=3)
        pm.MvNormal(
            "y", mu=np.zeros(2), cov=(scale[:, None, None] * (np.eye(2) + 0.2))[z], observed=np.zeros((50, 2))
        )
    graph = pmd.target_from_model(model).density.graph
    assert not [v for v in moving(graph) if v.owner is not None and "Cholesky" in str(v.owner.op)]


# ---------------------------------------------------------------- planted errors
def another_entry(monkeypatch):
    """Every entry of a batch reads the next one's."""
    contiguous = linear_algebra.contiguous

    def shifted(sizes, count):
        entry, place = contiguous(sizes, count)
        return [np.roll(e, 1) for e in entry], place

    monkeypatch.setattr(linear_algebra, "contiguous", shifted)


def another_place(monkeypatch):
    """Within an entry elements are mistaken for their neighbours."""
    contiguous = linear_algebra.contiguous
    monkeypatch.setattr(
        linear_algebra,
        "contiguous",
        lambda sizes, count: (contiguous(sizes, count)[0], [p[::-1] for p in contiguous(sizes, count)[1]]),
    )


def another_of_the_group(monkeypatch):
    one_of = subtensors.one_of
    wrong = lambda group, place: one_of(group, (place + 1) % group.shape[-2])
    monkeypatch.setattr(subtensors, "one_of", wrong)


def indices_exchanged(monkeypatch):
    """`x[i][j, k]` is taken for `x[i[j], 0 * k]`."""
    composed = lifting.composed

    def wrong(node, inputs, moving):
        new = composed(node, inputs, moving)
        if new is None or len(new.owner.inputs) < 3:
            return new
        x, first, *rest = new.owner.inputs
        return new.owner.op(
            x, first, *(0 * i if hasattr(i.type, "ndim") and i in moving else i for i in rest)
        )

    monkeypatch.setattr(lifting, "composed", wrong)


def rows_of_another_axis(monkeypatch):
    of_row = reductions.of_row
    monkeypatch.setattr(reductions, "of_row", lambda *args: None if of_row(*args) is None else 0)


def matrices():
    z = pm.Bernoulli("z", 0.4, shape=3)
    matrix = pt.eye(2) * (1.0 + z)[:, None, None] + np.array([[0.0, 0.2], [0.1, 0.5]])
    pm.Potential("p", (pt.linalg.inv(matrix)[:, 0] * np.array([[1.0, 2.0], [0.5, -1.0], [0.3, 1.0]])).sum())


def one_of_some():
    x, j = pm.Bernoulli("x", [0.2, 0.4, 0.6], shape=3), pm.Categorical("j", p=STATES)
    pm.Potential("p", 2.0 * x[j] * (1 + j))


def two_tables():
    z, k = pm.Categorical("z", p=STATES, shape=3), pm.Categorical("k", p=STATES, shape=3)
    pm.Potential("p", pt.as_tensor(R.normal(size=(3, 3)))[z][np.arange(3), k].sum())


def rows():
    z = pm.Categorical("z", p=STATES, shape=3)
    pm.Potential("p", pt.exp(pt.as_tensor(R.normal(size=(3, 3)))[z].sum(axis=1)).sum())


PLANTED = [
    (another_entry, matrices),
    (another_place, matrices),
    (another_of_the_group, one_of_some),
    (indices_exchanged, two_tables),
    (rows_of_another_axis, rows),
]


@pytest.mark.parametrize(("plant", "build"), PLANTED, ids=[p.__name__ for p, _ in PLANTED])
@pytest.mark.by_default("another_place", "indices_exchanged")
def test_planted_errors_are_found(plant, build, monkeypatch):
    model, _ = built(build)
    compare(model)
    forget()
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="Not equal"):
        compare(model)
