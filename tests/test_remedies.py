"""What messages tell users to do: that it can be done, and that it runs."""

import ast
import inspect
import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from tests.tools.processes import ROOT

# options that messages name and that are no parameters of this package or of pm.sample
OF_OTHERS = {
    "axis": "NumPy's and PyTensor's",
    "ignore_duplicates": "of PyTensor's increments",
    "minlength": "pt.bincount's",
    "drop": "xarray's isel",
    "draw": "xarray's isel",
    "logit_p": "a parameter of PyMC's distributions",
    "initval": "PyMC's, of a variable",
    "observed": "PyMC's, of a variable",
    "random": "pm.CustomDist's",
    "total_size": "PyMC's, of a variable",
    "transform": "PyMC's, of a variable",
    "key": "equinox's, of a network",
    "data": "an option of plots that take keywords",
    "style": "of the HTML of the progress bar",
    "turn": "an attribute of a flow's record",
}


def texts(file):
    """The strings of a file that are no docstrings, those of f-strings whole."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    left_out = {n.value for n in nodes if isinstance(n, ast.Expr)}
    left_out |= {v for n in nodes if isinstance(n, ast.JoinedStr) for v in n.values}
    for n in nodes:
        if n in left_out:
            continue
        if isinstance(n, ast.Constant) and isinstance(n.value, str):
            yield n.value
        elif isinstance(n, ast.JoinedStr):
            yield "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in n.values)


def parameters(of):
    try:
        return set(inspect.signature(of).parameters)
    except (TypeError, ValueError):
        return set()


def known_options():
    """The parameters of what is public, of the methods of public classes, and of pm.sample."""
    known, pending, seen = parameters(pm.sample), [getattr(pmd, name) for name in pmd.__all__], set()
    while pending:
        of = pending.pop()
        if id(of) in seen or not getattr(of, "__module__", getattr(of, "__name__", "")).startswith(
            "pymc_discrete"
        ):
            continue
        seen.add(id(of))
        known |= parameters(of)
        if inspect.isclass(of):
            known |= parameters(of.__init__)
        if inspect.isclass(of) or inspect.ismodule(of):
            pending += [v for k, v in vars(of).items() if not k.startswith("_")]
    return known


def test_what_messages_name_exists():
    known, missing = known_options(), []
    for file in (ROOT / "pymc_discrete").rglob("*.py"):
        for text in texts(file):
            if " " not in text:
                continue
            for name in re.findall(r"\bpmd\.(\w+)", text):
                missing += [f"{file.name}: pmd.{name} in {text!r}"] * (not hasattr(pmd, name))
            for option in re.findall(r"(?<![.\w])([a-z_]+)=(?!=)", text):
                if option not in known and option not in OF_OTHERS:
                    missing.append(f"{file.name}: {option}= in {text!r}")
    assert not missing, "\n".join(missing)


# ---------------------------------------------------------------- what they tell is done
def described(model, **options):
    return pmd.target_from_model(model, **options).describe()


def labels(count):
    def build():
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=6)
        pm.Normal("y", count(z), 1.0, observed=[1.0, 2.0, 3.0])

    return build


def repeated(write):
    """Values repeated by counts of a fixed total."""

    def build():
        counts = pm.Multinomial("counts", n=8, p=[0.2, 0.3, 0.5])
        pm.Normal("y", write(pt.as_tensor([1.0, 2.0, 4.0]), counts), 1.0, observed=np.ones(8))

    return build


def by_positions(values, counts, n=8):
    index = pt.ge(np.arange(n)[:, None], pt.cumsum(counts)).sum(axis=1)
    return values[pt.clip(index, 0, 3 - 1)]


def changepoint(write):
    def build():
        k = pm.DiscreteUniform("k", 1, 5)
        pm.Potential("p", write(k, pt.as_tensor(np.linspace(-1, 1, 6))))

    return build


def totals(build_counts):
    def build():
        x = build_counts()
        pm.Normal("y", x * 1.0, 5.0, observed=[2.0, 3.0, 5.0])

    return build


P = np.array([0.2, 0.3, 0.5])


def missing_counts():
    x = pm.Multinomial("x", n=5, p=P, initval=[1, 2, 2])
    pm.Potential("known", pt.switch(pt.eq(x[1], 2), 0.0, -np.inf))


def unlike(name, lower, upper):
    """A truncated count as its message writes it."""
    return lower + pm.Categorical(
        f"{name}_", logit_p=pm.logp(pm.Geometric.dist(0.3), np.arange(lower, upper + 1))
    )


def counts_of_a_custom_distribution():
    pm.CustomDist("k", logp=lambda value: -0.5 * value, dtype="int64")


REMEDIES = {
    "bincount": (
        labels(pt.bincount),
        {},
        r"minlength= above .*pt\.eq\(z\[:, None\], np\.arange\(n\)\)\.sum\(axis=0\)",
        [
            (labels(lambda z: pt.bincount(z, minlength=3)), {}),
            (labels(lambda z: pt.eq(z[:, None], np.arange(3)).sum(axis=0)), {}),
        ],
    ),
    "repeat": (
        repeated(pt.repeat),
        "step",
        r"write values\[pt\.clip\(pt\.ge\(np\.arange\(n\)",
        [(repeated(by_positions), "step")],
    ),
    "unique": (
        labels(lambda z: pt.unique(z)),
        {},
        r"pt\.eq\(z\[:, None\], np\.arange\(n\)\)\.any\(axis=0\)",
        [(labels(lambda z: pt.eq(z[:, None], np.arange(3)).any(axis=0) * 1.0), {})],
    ),
    "range": (
        changepoint(lambda k, a: pt.arange(k).sum() * a[0]),
        {},
        r"pt\.switch\(np\.arange\(n\) < k, a, b\)",
        [(changepoint(lambda k, a: pt.switch(np.arange(6) < k, a, 0.0).sum()), {})],
    ),
    "selection": (
        changepoint(lambda k, a: a[pt.nonzero(a * k > 0.5)[0]].sum()),
        {},
        r"pt\.switch\(z > 0, a, b\)",
        [(changepoint(lambda k, a: pt.switch(a * k > 0.5, a, 0.0).sum()), {})],
    ),
    "largest integer of a slice": (
        changepoint(lambda k, a: pt.as_tensor(np.arange(6))[:k].max() * 1.0),
        {},
        r"pt\.cast\(x, 'float64'\)\[:k\]\.max\(\)",
        [(changepoint(lambda k, a: pt.cast(np.arange(6), "float64")[:k].max()), {})],
    ),
    "unknown total": (
        totals(lambda: pm.Multinomial("x", n=pm.Poisson("n", 10.0), p=P)),
        "step",
        r"Give n as a number.*pm\.Poisson with the means lam \* p.* with vars=",
        [
            (totals(lambda: pm.Multinomial("x", n=10, p=P)), "step"),
            (totals(lambda: pm.Poisson("x", 10.0 * P)), "step"),
        ],
    ),
    "missing counts": (
        lambda: pm.Multinomial(
            "x", n=[5, 4], p=P, observed=np.ma.masked_array([[1, 2, 2], [0, 0, 0]], [[0, 0, 1], [0, 0, 1]])
        ),
        "step",
        r"hold what is known of it with pm\.Potential",
        [(missing_counts, "step")],
    ),
    "counts that PyMC writes in floats": (
        lambda: pm.Truncated("x", pm.Geometric.dist(0.3), lower=1, upper=4),
        "step",
        r"lower \+ pm\.Categorical\('x', logit_p=pm\.logp\(pm\.Geometric\.dist",
        [(lambda: pm.Deterministic("x", unlike("x", 1, 4)), "step")],
    ),
    "unknown support": (
        counts_of_a_custom_distribution,
        {},
        r"support=",
        [(counts_of_a_custom_distribution, {"support": {"k": (0, None)}})],
    ),
    "sum without a bound": (
        lambda: pm.Poisson("n", 3.0),
        pmd.marginalize,
        r"truncate=\{'n': \(0, 200\)\}",
        [(lambda: pm.Poisson("n", 3.0), lambda model: pmd.marginalize(model, truncate={"n": (0, 200)}))],
    ),
    "one site of counts": (
        totals(lambda: pm.Multinomial("x", n=10, p=P)),
        lambda model: pmd.DiscreteLangevin("x", model=model),
        r"pmd\.BlockGibbs or pmd\.AutoStep.* or write it as Categorical draws",
        [
            (totals(lambda: pm.Multinomial("x", n=10, p=P)), "step"),
            (totals(lambda: pm.Multinomial("x", n=10, p=P)), lambda model: pmd.AutoStep("x", model=model)),
            (labels(lambda z: pt.eq(z[:, None], np.arange(3)).sum(axis=0)), {}),
        ],
    ),
    "one site of a permutation": (
        lambda: pmd.Permutation("x", 4),
        lambda model: pmd.DiscreteLangevin("x", model=model),
        r"Sample it with pmd\.BlockGibbs or pmd\.AutoStep",
        [
            (lambda: pmd.Permutation("x", 4), "step"),
            (lambda: pmd.Permutation("x", 4), lambda model: pmd.AutoStep("x", model=model)),
        ],
    ),
    "a continuous variable": (
        lambda: pm.Normal("a") + pm.Bernoulli("z", 0.5),
        lambda model: pmd.BlockGibbs(["a", "z"], model=model),
        r"'a' is continuous .*: sample it with NUTS, and leave it out of vars",
        [(lambda: pm.Normal("a") + pm.Bernoulli("z", 0.5), lambda model: pmd.BlockGibbs(["z"], model=model))],
    ),
}


def asked(build, how):
    with pm.Model() as model:
        build()
    if callable(how):
        return how(model)
    return pmd.BlockGibbs(model=model).target.describe() if how == "step" else described(model, **how)


@pytest.mark.parametrize(("wrong", "how", "message", "right"), REMEDIES.values(), ids=list(REMEDIES))
@pytest.mark.filterwarnings("ignore:Data in .* contains missing values")
def test_remedies_run(wrong, how, message, right):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        asked(wrong, how)
    for build, options in right:
        assert asked(build, options)


def test_repeats_by_positions():
    counts = np.array([3, 0, 5])
    found = by_positions(pt.as_tensor([1.0, 2.0, 4.0]), pt.as_tensor(counts)).eval(mode="FAST_COMPILE")
    assert list(found) == list(np.repeat([1.0, 2.0, 4.0], counts))
