"""Random models by seed: programs of random lines, such as a user might write.

A program is the text of a model, which runs line by line while it is written: what fails is read, cut down
(`cut`) and pasted into a test as it is. A line may use what lines above it have named.
"""

import functools
import itertools
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

import pymc_discrete as pmd

MOST_STATES = 256  # of all discrete unknowns together
LENGTHS = {"a": 2, "b": 3}  # of the coordinates
COUNTED = 4  # the largest value of counts without a bound that is enumerated


class Expr(NamedTuple):
    """An expression: its text and shape, whether it is an integer, and its bounds where they are known."""

    text: str
    shape: tuple[int, ...] = ()
    integer: bool = True
    low: int | None = None
    high: int | None = None


@dataclass
class RandomModel:
    """A model and what enumerates it.

    Attributes
    ----------
    source : the program
    values : {name of the value variable: (S, *shape) its candidates}
        A box or a list that holds all values of positive probability, but for counts beyond `COUNTED`.
    support : {name: (lower, upper)} of distributions that do not say it
    counts : names of unknowns whose distributions have no upper bound
    unbounded : names of those that go on beyond `COUNTED`
    """

    source: str
    model: pm.Model
    values: dict[str, np.ndarray]
    support: dict[str, tuple[int, int]]
    counts: list[str]
    unbounded: list[str]


def run(lines: Iterable[str]) -> RandomModel:
    """The model of a program."""
    program = Program()
    for line in lines:
        program.line(line)
    return program.done()


def random_model(seed: int) -> RandomModel:
    """The model of a seed."""
    return Writer(seed).written()


def cut(lines: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """The lines of a program that fails without those that the failure does not need."""
    again = True
    while again:
        again = False
        for i in reversed(range(len(lines))):
            fewer = lines[:i] + lines[i + 1 :]
            try:
                still = fails(fewer)
            except Exception:  # the line is needed by another one
                still = False
            if still:
                lines, again = fewer, True
    return lines


@dataclass
class Program:
    """Lines that have been run, one after another, in the context of one model."""

    lines: list[str] = field(default_factory=list)
    scope: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = pm.Model(coords={name: range(n) for name, n in LENGTHS.items()})
        self.scope |= {"np": np, "pm": pm, "pytensor": pytensor, "pt": pt, "pmd": pmd, "model": self.model}
        self.scope |= {"support": {}, "values": {}, "counts": [], "unbounded": [], "box": box}

    def line(self, text: str) -> None:
        with self.model, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyMC's own, where it imputes
            exec(text, self.scope)
        self.lines.append(text)

    def done(self) -> RandomModel:
        known = {str(v.name) for v in self.model.value_vars}
        values = {k: v for k, v in self.scope["values"].items() if k in known}
        lists = (self.scope[name] for name in ("support", "counts", "unbounded"))
        return RandomModel("\n".join(self.lines), self.model, values, *lists)


def box(low: Any, high: Any, shape: tuple[int, ...] = ()) -> np.ndarray:
    """(S, *shape) all arrays with elements from `low` to `high`."""
    ranges = [
        range(a, b + 1)
        for a, b in zip(np.broadcast_to(low, shape).flat, np.broadcast_to(high, shape).flat, strict=True)
    ]
    return np.array(list(itertools.product(*ranges)), dtype=np.int64).reshape(-1, *shape)


class Writer(Program):
    """Writes the program of a seed."""

    def __init__(self, seed: int):
        super().__init__()
        self.seed, self.r = seed, np.random.default_rng([41, seed])
        self.pool: list[Expr] = []  # what lines may use
        self.discrete = 0
        self.states = 1
        self.dims = bool(self.r.random() < 0.5)
        self.data = bool(self.r.random() < 0.4)
        self.count: dict[str, int] = {}

    def written(self) -> RandomModel:
        r = self.r
        before, after = sorted(r.integers(0, 4, 2))[0], int(r.integers(0, 2))
        for _ in range(before):
            self.continuous()
        many, tried = int(r.integers(2, 7)), 0
        while self.discrete < many and tried < 30:
            tried += 1
            self.unknown()
            if r.random() < 0.25:
                self.operate()
        if before + after <= 3:
            for _ in range(after):
                self.continuous()
        for _ in range(r.integers(1, 5)):
            self.operate()
        for _ in range(r.integers(1, 3)):
            self.term()
        self.ratio()
        return self.done()

    def ratio(self) -> None:
        """In some models a probability that is 0 / 0 in some states, which PyMC then says are impossible."""
        r = np.random.default_rng([43, self.seed])  # of its own, so that the other lines stay as they were
        integers = [e for e in self.pool if e.integer and e.shape == ()]
        if len(integers) > 1 and r.random() < 0.5:
            a, b = (integers[i].text for i in r.choice(len(integers), 2, replace=False))
            limited = f"pt.clip({a} / {b}, 0.101, 0.901)"
            if r.random() < 0.5:
                limited = f"pt.minimum(pt.maximum({a} / {b}, 0.101), 0.901)"
            self.line(f'pm.Bernoulli("ratio", {limited}, observed={r.integers(0, 2)})')

    # ------------------------------------------------------------ words
    def pick(self, items: Iterable[Any]) -> Any:
        items = list(items)
        return items[self.r.integers(len(items))]

    def new(self, stem: str) -> str:
        self.count[stem] = self.count.get(stem, -1) + 1
        return f"{stem}{self.count[stem]}"

    def number(self, low: float, high: float) -> float:
        """A number that no float of 32 bits holds: PyTensor makes constants of others single precision."""
        return round(round(float(self.r.uniform(low, high)), 2) + 0.001, 3)

    def numbers(self, shape: tuple[int, ...], low: float, high: float) -> str:
        """An array of numbers as a constant or as data."""
        text = repr(np.round(np.round(self.r.uniform(low, high, shape), 2) + 0.001, 3).tolist())
        if self.data and self.r.random() < 0.5:
            name = self.new("data")
            self.line(f'{name} = pm.Data("{name}", np.array({text}){self.named(shape)})')
            return name
        return f"pt.as_tensor({text})"

    def shares(self, n: int, k: int) -> list[list[float]]:
        """n vectors of k probabilities."""
        rows = np.round(self.r.dirichlet(np.full(k, 2.0), n) * 0.9 + 0.1 / k, 3)
        rows[:, -1] = np.round(1 - rows[:, :-1].sum(axis=-1), 3)
        return rows.tolist()

    def named(self, shape: tuple[int, ...]) -> str:
        """The argument `dims=` of a shape, where there are dimensions of these lengths."""
        names = {n: name for name, n in LENGTHS.items()}
        if not self.dims or not shape or any(n not in names for n in shape) or len(set(shape)) < len(shape):
            return ""
        return f", dims={[names[n] for n in shape]}"

    def shaped(self, shape: tuple[int, ...]) -> str:
        return self.named(shape) or (f", shape={shape}" if shape else "")

    def shape(self) -> tuple[int, ...]:
        return self.pick([(), (), (), (2,), (2,), (3,), (3,), (1,), (2, 3)])

    def add(self, stem: str, expr: Expr) -> Expr:
        """A line that gives an expression a name."""
        name = self.new(stem)
        self.line(f"{name} = {expr.text}")
        return self.keep(expr._replace(text=name))

    def keep(self, expr: Expr) -> Expr:
        """What lines below may use: PyTensor broadcasts a length of 1 only where it knows that it is 1."""
        if expr.shape != (1,) or self.scope[expr.text].type.shape == (1,):
            self.pool.append(expr)
        return expr

    def among(self, ok: Callable[[Expr], bool]) -> Expr | None:
        """An expression written before, of those that are `ok`; later ones more often."""
        found = [e for e in self.pool if ok(e)]
        if not found:
            return None
        weights = np.arange(1.0, len(found) + 1)
        return found[self.r.choice(len(found), p=weights / weights.sum())]

    def fitting(self, shape: tuple[int, ...], ok: Callable[[Expr], bool] = lambda e: True) -> Expr | None:
        """An expression that broadcasts to a shape."""
        return self.among(lambda e: e.shape in ((), (1,) if shape else (), shape) and ok(e))

    def integer(self, shape: tuple[int, ...], low: int, high: int) -> Expr | None:
        """An integer expression from `low` to `high`, of a shape or a scalar."""
        e = self.fitting(shape, lambda e: e.integer)
        if e is None:
            return None
        if e.low is not None and e.high is not None and low <= e.low and e.high <= high:
            return e
        text = self.pick(
            [
                f"pt.clip({e.text}, {low}, {high})",
                f"({low} + pt.abs({e.text}) % {high - low + 1})",
                f"pt.minimum({high}, pt.maximum({e.text}, {low}))",
            ]
        )
        return e._replace(text=text, low=low, high=high)

    def real(self, shape: tuple[int, ...]) -> str:
        """A number of moderate size, which may depend on what was written before."""
        r, e = self.r, self.fitting(shape)
        if e is None or r.random() < 0.2:
            return f"{self.number(-1, 1)}" if r.random() < 0.5 or not shape else self.numbers(shape, -1, 1)
        ways = [f"{self.number(-0.8, 0.8)} * {e.text}"]
        index = self.integer(shape, 0, 3)
        if index is not None:
            ways += [f"{self.numbers((4,), -1, 1)}[{index.text}]"] * 3
        ways += [f"pt.tanh({e.text})", f"{self.number(-0.5, 0.5)} + {self.number(-0.5, 0.5)} * {e.text}"]
        other = self.fitting(shape)
        ways += [f"{self.number(-0.3, 0.3)} * {e.text} * {other.text}"]
        ways += [
            f"pt.switch({self.condition(shape)}, {self.number(-1, 1)}, {self.number(-0.5, 0.5)} * {e.text})"
        ]
        return self.pick(ways)

    def condition(self, shape: tuple[int, ...]) -> str:
        e = self.fitting(shape)
        if e is None:
            return "pt.gt(1, 0)"
        other = self.fitting(shape, lambda o: o.integer)
        if other is None or not e.integer:
            return f"({e.text} > {self.number(-0.5, 0.5)})"
        ways = [f"({e.text} {self.pick(['>', '>=', '<', '<='])} {self.r.integers(0, 3)})"]
        ways += [f"pt.eq({e.text}, {other.text})", f"pt.neq({e.text}, {self.r.integers(0, 3)})"]
        ways += [f"({e.text} {self.pick(['>', '>=', '<', '<='])} {other.text})"]
        return self.pick(ways)

    def probability(self, shape: tuple[int, ...]) -> str:
        r = self.r
        if r.random() < 0.5:
            return (
                f"{self.number(0.2, 0.8)}" if r.random() < 0.5 or not shape else self.numbers(shape, 0.2, 0.8)
            )
        index = self.integer(shape, 0, 2)
        if index is not None and r.random() < 0.5:
            return f"{self.numbers((3,), 0.1, 0.9)}[{index.text}]"
        return f"pm.math.sigmoid({self.real(shape)})"

    def rate(self, shape: tuple[int, ...]) -> str:
        return f"{self.number(0.4, 1.8)}" if self.r.random() < 0.5 else f"pt.exp({self.real(shape)})"

    # ------------------------------------------------------------ discrete unknowns
    def unknown(self) -> None:
        """One discrete unknown of a random kind, if the states of all do not become too many."""
        name = self.new("x")
        made = self.pick(UNKNOWNS)(self, name, self.shape())
        states = eval(made.listed, self.scope)
        if self.states * len(states) > MOST_STATES:
            return
        self.states *= len(states)
        value = f"{name}_unobserved" if made.imputed else name
        self.line(f"{name} = {made.text}")
        self.line(f'values["{value}"] = {made.listed}')
        if made.say:
            self.line(f'support["{name}"] = {(made.low, made.high)}')
        ends = True
        if made.endless:
            self.line(f'counts.append("{value}")')
            ends = self.r.random() < 0.5
            bound = f"pt.switch({name} > {made.high}, -np.inf, 0.0).sum()"
            self.line(f'pm.Potential("{name} is small", {bound})' if ends else f'unbounded.append("{value}")')
        self.discrete += 1
        self.keep(Expr(name, made.shape, True, made.low, made.high if ends else None))

    # ------------------------------------------------------------ continuous unknowns
    def continuous(self) -> None:
        name = self.new("c")
        shape = self.pick([(), (), (), (2,), (3,)])
        s = self.shaped(shape)
        ways = [
            f'pm.Normal("{name}", {self.real(shape)}, 1.3{s})',
            f'pm.HalfNormal("{name}", 1.2{s})',
            f'pm.Beta("{name}", 2.1, 3.3{s})',
            f'pm.Gamma("{name}", 2.1, {self.rate(shape)}{s})',
            f'pm.Uniform("{name}", -1, {self.upper(shape)}{s})',
            f'pm.Uniform("{name}", -{self.upper(shape)}, 1.7{s})',
            f'pm.TruncatedNormal("{name}", {self.real(shape)}, 1.1, upper={self.upper(shape)}{s})',
            f'pm.Exponential("{name}", {self.rate(shape)}{s})',
            f'pm.StudentT("{name}", nu=4.1, mu={self.real(shape)}, sigma=0.9{s})',
        ]
        text, shape = self.pick([*((w, shape) for w in ways), (f'pm.Dirichlet("{name}", np.ones(3))', (3,))])
        self.line(f"{name} = {text}")
        self.keep(Expr(name, shape, False))

    def upper(self, shape: tuple[int, ...]) -> str:
        """A positive number, which may depend on another variable."""
        return self.pick(
            ["1.3", f"(1.1 + pt.abs({self.real(shape)}))", f"(0.7 + pt.exp({self.real(shape)}))"]
        )

    # ------------------------------------------------------------ what is computed of them
    def operate(self) -> None:
        for _ in range(20):
            made = self.pick(OPERATIONS)(self)
            if made is not None:
                self.add("v", made)
                return

    # ------------------------------------------------------------ data and potentials
    def term(self) -> None:
        for _ in range(20):
            text = self.pick(TERMS)(self, self.new("y"))
            if text is not None:
                self.line(text)
                return


# ---------------------------------------------------------------- kinds of discrete unknowns
class Made(NamedTuple):
    """A discrete unknown.

    Attributes
    ----------
    text, shape : of the random variable
    low, high : bounds of its elements
    listed : the text of the array (S, *shape) of its candidates
    endless : whether the distribution has no upper bound
    say : whether the support is to be said
    imputed : whether only some elements are unknown
    """

    text: str
    shape: tuple[int, ...]
    low: int
    high: int
    listed: str
    endless: bool = False
    say: bool = False
    imputed: bool = False


UNKNOWNS: list[Callable[[Writer, str, tuple[int, ...]], Made]] = []


def in_box(text: str, shape: tuple[int, ...], low: int, high: int, **options: Any) -> Made:
    """An unknown with elements from `low` to `high`."""
    return Made(text, shape, low, high, f"box({low}, {high}, {shape})", **options)


def kind(weight: int = 1):
    """Register a kind of discrete unknown, as many times as `weight` says."""

    def register(make):
        UNKNOWNS.extend([make] * weight)
        return make

    return register


@kind(3)
def bernoulli(w, name, shape):
    how = w.pick([f"p={w.probability(shape)}", f"logit_p={w.real(shape)}"])
    return in_box(f'pm.Bernoulli("{name}", {how}{w.shaped(shape)})', shape, 0, 1)


@kind(3)
def categorical(w, name, shape):
    k = int(w.r.integers(2, 4))
    rows = w.shares(3, k)
    index = w.integer(shape, 0, 2)
    ways = [f"p={rows[0]}", f"logit_p={np.round(w.r.normal(size=k), 2).tolist()}"]
    if index is not None and index.shape in ((), shape):
        ways += [f"p=pt.as_tensor({rows})[{index.text}]"] * 2
    ways.append(f"p=pt.special.softmax({w.numbers((k,), -1, 1)} * {w.number(0.5, 1.2)})")
    return in_box(f'pm.Categorical("{name}", {w.pick(ways)}{w.shaped(shape)})', shape, 0, k - 1)


@kind(2)
def discrete_uniform(w, name, shape):
    low = int(w.r.integers(-2, 2))
    width = int(w.r.integers(0, 3))
    other = w.integer(shape, 0, 2)
    if other is not None and w.r.random() < 0.5:
        if w.r.random() < 0.5:
            text = f'pm.DiscreteUniform("{name}", {low}, {low} + {other.text}{w.shaped(shape)})'
        else:
            text = f'pm.DiscreteUniform("{name}", {low} - {other.text}, {low}{w.shaped(shape)})'
            return in_box(text, shape, low - 2, low)
        return in_box(text, shape, low, low + 2)
    return in_box(
        f'pm.DiscreteUniform("{name}", {low}, {low + width}{w.shaped(shape)})', shape, low, low + width
    )


def total(w, shape):
    """A number of trials, which may be another unknown, and its largest value."""
    e = w.integer(shape, 0, int(w.r.integers(1, 4))) if w.r.random() < 0.6 else None
    n = int(w.r.integers(1, 4))
    return (f"{n}", n) if e is None else (e.text, e.high)


@kind(3)
def binomial(w, name, shape):
    n, high = total(w, shape)
    return in_box(f'pm.Binomial("{name}", {n}, {w.probability(shape)}{w.shaped(shape)})', shape, 0, high)


@kind()
def beta_binomial(w, name, shape):
    n, high = total(w, shape)
    text = f'pm.BetaBinomial("{name}", n={n}, alpha={w.rate(shape)}, beta=1.3{w.shaped(shape)})'
    return in_box(text, shape, 0, high)


@kind()
def hypergeometric(w, name, shape):
    total, good, drawn = 5, int(w.r.integers(1, 4)), int(w.r.integers(1, 4))
    text = f'pm.HyperGeometric("{name}", N={total}, k={good}, n={drawn}{w.shaped(shape)})'
    return in_box(text, shape, 0, min(good, drawn))


def counts(w, name, shape, text, low=0):
    return in_box(text, shape, low, COUNTED, endless=True)


@kind(2)
def poisson(w, name, shape):
    return counts(w, name, shape, f'pm.Poisson("{name}", {w.rate(shape)}{w.shaped(shape)})')


@kind()
def negative_binomial(w, name, shape):
    return counts(
        w, name, shape, f'pm.NegativeBinomial("{name}", mu={w.rate(shape)}, alpha=1.7{w.shaped(shape)})'
    )


@kind()
def geometric(w, name, shape):
    return counts(w, name, shape, f'pm.Geometric("{name}", {w.probability(shape)}{w.shaped(shape)})', 1)


@kind()
def discrete_weibull(w, name, shape):
    text = f'pm.DiscreteWeibull("{name}", q={w.probability(shape)}, beta=1.3{w.shaped(shape)})'
    return counts(w, name, shape, text)


@kind()
def zero_inflated_poisson(w, name, shape):
    text = f'"{name}", psi={w.probability(shape)}, mu={w.number(0.4, 1.8)}{w.shaped(shape)})'
    return counts(w, name, shape, f"pm.ZeroInflatedPoisson({text}")


@kind()
def zero_inflated_binomial(w, name, shape):
    n, high = total(w, shape)
    text = f'pm.ZeroInflatedBinomial("{name}", psi=0.6, n={n}, p={w.probability(shape)}{w.shaped(shape)})'
    return in_box(text, shape, 0, high)


@kind()
def hurdle_poisson(w, name, shape):
    text = f'pm.HurdlePoisson("{name}", psi={w.probability(shape)}, mu={w.number(0.4, 1.8)}{w.shaped(shape)})'
    return counts(w, name, shape, text)


@kind()
def ordered(w, name, shape):
    cuts = [-0.71, 0.63]
    which = w.pick(["OrderedLogistic", "OrderedProbit"])
    eta = w.real(shape)
    text = f'pm.{which}("{name}", eta={eta}, cutpoints={cuts}, compute_p=False{w.shaped(shape)})'
    return in_box(text, shape, 0, 2)


@kind()
def mixture(w, name, shape):
    parts = w.pick(
        [
            f"[pm.Binomial.dist(2, {w.number(0.2, 0.8)}), pm.DiscreteUniform.dist(1, 3)]",
            f"[pm.DiracDelta.dist(2), pm.Binomial.dist(3, {w.number(0.2, 0.8)})]",
        ]
    )
    return in_box(f'pm.Mixture("{name}", w=[0.37, 0.63], comp_dists={parts}{w.shaped(shape)})', shape, 0, 3)


@kind()
def censored(w, name, shape):
    low, high = w.pick([(0, 2), (1, 3), (1, 2)])
    base = w.pick([f"pm.Poisson.dist({w.number(0.6, 2)})", f"pm.Binomial.dist(2, {w.number(0.3, 0.7)})"])
    text = f'pm.Censored("{name}", {base}, lower={low}, upper={high}{w.shaped(shape)})'
    return in_box(text, shape, low, high)


@kind()
def truncated(w, name, shape):
    low, high = w.pick([(0, 2), (1, 3), (1, 2)])
    base = w.pick([f"pm.Poisson.dist({w.number(0.6, 2)})", f"pm.Binomial.dist(3, {w.number(0.3, 0.7)})"])
    text = f'pm.Truncated("{name}", {base}, lower={low}, upper={high}{w.shaped(shape)})'
    return in_box(text, shape, low, high)


@kind(2)
def imputed(w, name, shape):
    """Binomials or categories of which some were not observed."""
    n = w.pick([2, 3])
    seen = w.r.integers(0, 3, n)
    missing = w.r.random(n) < 0.6
    missing[w.r.integers(n)] = True
    if missing.all():
        missing[0] = False
    data = f"np.ma.masked_array({seen.tolist()}, {missing.tolist()})"
    if w.r.random() < 0.5:
        text = f'pm.Binomial("{name}", 2, {w.probability((n,))}, observed={data}{w.named((n,))})'
    else:
        text = f'pm.Categorical("{name}", [0.31, 0.42, 0.27], observed={data}{w.named((n,))})'
    return Made(text, (n,), 0, 2, f"box(0, 2, ({int(missing.sum())},))", imputed=True)


@kind()
def multinomial(w, name, shape):
    n = int(w.r.integers(1, 4))
    p = w.pick(["[0.21, 0.33, 0.46]", f"pt.special.softmax({w.numbers((3,), -1, 1)})"])
    text = w.pick(
        [
            f'pm.Multinomial("{name}", {n}, {p}{w.named((3,))})',
            f'pm.DirichletMultinomial("{name}", {n}, [0.7, 1.3, 2.1]{w.named((3,))})',
        ]
    )
    return Made(text, (3,), 0, n, f"np.array([v for v in box(0, {n}, (3,)) if v.sum() == {n}])")


@kind()
def permutation(w, name, shape):
    weights = "" if w.r.random() < 0.5 else f", np.array({np.round(w.r.normal(size=(3, 3)), 2).tolist()})"
    text = f'pmd.Permutation("{name}", 3{weights}{w.named((3,))})'
    return Made(text, (3,), 0, 2, "np.array([v for v in box(0, 2, (3,)) if len(set(v)) == 3])")


@kind()
def markov_chain(w, name, shape):
    """A chain of two states, whose matrix may depend on another unknown."""
    n, lags = w.pick([(2, 1), (3, 1), (3, 2)])
    which = w.integer((), 0, 1)
    index = which.text if which is not None and w.r.random() < 0.6 else w.r.integers(2)
    odds = f"{w.numbers((2,) * (lags + 2), -1, 1)}[{index}]"
    first = f"pm.Categorical.dist({w.shares(1, 2)[0]}{f', shape={lags}' if lags > 1 else ''})"
    options = f"P=pt.special.softmax({odds}, axis=-1), init_dist={first}, n_lags={lags}"
    w.line("from pymc_extras import DiscreteMarkovChain")
    return in_box(f'DiscreteMarkovChain("{name}", {options}{w.shaped((n,))})', (n,), 0, 1)


@kind()
def custom(w, name, shape):
    """A log density of one's own, whose support is said beside it."""
    high = int(w.r.integers(1, 3))
    density = (
        f"lambda value, a: pt.switch((value >= 0) & (value <= {high}), a * value - 0.1 * value**2, -np.inf)"
    )
    text = f'pm.CustomDist("{name}", {w.number(-1, 1)}, logp={density}, dtype="int64"{w.shaped(shape)})'
    return in_box(text, shape, 0, high, say=True)


# ---------------------------------------------------------------- operations
OPERATIONS: list[Callable[[Writer], Expr | None]] = []
joined = np.broadcast_shapes


def operation(function):
    OPERATIONS.append(function)
    return function


def vector(w, ok=lambda e: True):
    return w.among(lambda e: len(e.shape) == 1 and e.shape[0] > 1 and ok(e))


@operation
def affine(w):
    e = w.among(lambda e: e.integer)
    return e and Expr(f"{w.r.integers(-2, 3)} + {w.pick([-2, -1, 2, 3])} * {e.text}", e.shape)


@operation
def between_two(w):
    a = w.among(lambda e: e.integer)
    b = a and w.fitting(a.shape, lambda e: e.integer)
    if not b:
        return None
    text = w.pick(["{a} + {b}", "{a} - {b}", "{a} * {b}", "pt.maximum({a}, {b})", "pt.minimum({a}, {b})"])
    return Expr(text.format(a=a.text, b=b.text), joined(a.shape, b.shape))


@operation
def of_many(w):
    """A sum, product or extreme of three or four."""
    first = w.among(lambda e: True)
    if first is None:
        return None
    more = [w.fitting(first.shape) for _ in range(w.r.integers(2, 4))]
    words = ", ".join(e.text for e in (first, *more))
    shape = joined(*(e.shape for e in (first, *more)))
    whole = all(e.integer for e in (first, *more))
    scale = "" if whole else "0.3 * "
    ways = [f"{scale}pt.add({words})", f"{scale}pt.mul({words})"]
    ways.append(" + ".join(e.text for e in (first, *more)))
    ways.append(functools.reduce(lambda a, b: f"pt.maximum({a}, {b})", [e.text for e in (first, *more)]))
    return Expr(w.pick(ways), shape, whole)


@operation
def chosen(w):
    a = w.among(lambda e: True)
    b = a and w.fitting(a.shape, lambda e: e.integer == a.integer)
    if not b:
        return None
    name = w.pick(["pt.switch", "pt.where"])
    shape = joined(a.shape, b.shape)
    return (
        Expr(f"{name}({w.condition(shape)}, {a.text}, {b.text})", a.shape, a.integer)
        if shape == a.shape
        else None
    )


@operation
def of_many_by_branch(w):
    """Branches that are sums or products of different numbers of factors."""
    a = w.among(lambda e: True)
    if a is None:
        return None
    words = [w.fitting(a.shape) for _ in range(4)]
    shape = joined(a.shape, *(e.shape for e in words))
    one = w.pick([" + ", " * "]).join([a.text, words[0].text])
    other = w.pick([" + ", " * "]).join(e.text for e in words[1:])
    if shape != a.shape:
        return None
    return Expr(f"0.3 * pt.switch({w.condition(shape)}, {one}, {other})", shape, False)


@operation
def clipped(w):
    e = w.among(lambda e: e.integer)
    low = int(w.r.integers(-1, 2))
    high = low + int(w.r.integers(0, 4))
    return e and Expr(f"pt.clip({e.text}, {low}, {high})", e.shape, True, low, high)


@operation
def clipped_by_another(w):
    e = w.among(lambda e: e.integer)
    other = e and w.fitting(e.shape, lambda o: o.integer and o is not e)
    return other and Expr(f"pt.clip({e.text}, 0, {other.text})", joined(e.shape, other.shape))


@operation
def sorted_(w):
    e = vector(w)
    return e and Expr(w.pick(["pt.sort({})", "pt.sort({})[::-1]"]).format(e.text), e.shape, e.integer)


@operation
def order(w):
    e = vector(w, lambda e: e.integer)
    n = e and e.shape[0]
    return e and Expr(f"pt.argsort({e.text} * {n} + np.arange({n}))", e.shape, True, 0, n - 1)


@operation
def running(w):
    e = vector(w)
    text = w.pick(["pt.cumsum({})", "pt.cumsum({}[::-1])[::-1]", "0.2 * pt.cumprod(1 + {})"]) if e else ""
    return e and Expr(text.format(e.text), e.shape, e.integer and "0.2" not in text)


@operation
def reduced(w):
    e = w.among(lambda e: e.shape != ())
    text = w.pick(["{}.sum()", "{}.max()", "{}.min()", "pt.prod({})", "{}.mean()"])
    return e and Expr(text.format(e.text), (), e.integer and "mean" not in text)


@operation
def along_an_axis(w):
    e = w.among(lambda e: len(e.shape) == 2)
    axis = int(w.r.integers(2))
    text = w.pick([f"{{}}.sum(axis={axis})", f"{{}}.max(axis={axis})", f"pt.prod({{}}, axis={axis})"])
    return e and Expr(text.format(e.text), (e.shape[1 - axis],), e.integer)


@operation
def truth(w):
    e = w.among(lambda e: e.shape != ())
    if e is None:
        return None
    condition = w.condition(e.shape)
    text = w.pick([f"pt.any({condition})", f"pt.all({condition})", f"({condition}).sum()"])
    return Expr(f"pt.cast({text}, 'int64')", (), True, 0, None if "sum" in text else 1)


@operation
def compared(w):
    e = w.among(lambda e: True)
    return e and Expr(f"pt.cast({w.condition(e.shape)} & pt.ge({e.text}, -9), 'int64')", e.shape, True, 0, 1)


@operation
def power(w):
    e = w.among(lambda e: e.integer)
    if e is None:
        return None
    n = w.integer(e.shape, 0, 2)
    ways = [(f"{e.text} ** 2", True), (f"0.05 * {e.text} ** 3", False)]
    if n is not None and joined(n.shape, e.shape) == e.shape:
        ways += [(f"pt.clip({e.text}, -3, 3) ** {n.text}", True), (f"1.3 ** pt.clip({e.text}, -3, 3)", False)]
    text, whole = w.pick(ways)
    return Expr(text, e.shape, whole)


@operation
def divided(w):
    e = w.among(lambda e: e.integer)
    text = w.pick(["{} // 2", "{} % 3", "pt.abs({})", "pt.sgn({})", "pt.sqr({})", "{} / 3"])
    return e and Expr(text.format(e.text), e.shape, "/ 3" not in text)


@operation
def looked_up(w):
    e = w.among(lambda e: e.integer)
    index = e and w.integer(e.shape, 0, 3)
    if not index:
        return None
    whole = w.r.random() < 0.4
    table = f"pt.as_tensor({w.r.integers(0, 4, 4).tolist()})" if whole else w.numbers((4,), -1, 1)
    at = w.pick([index.text, f"-1 - {index.text}"])
    return Expr(f"{table}[{at}]", index.shape, whole, *((0, 3) if whole else ()))


@operation
def looked_up_in_two(w):
    e = w.among(lambda e: e.integer)
    i, j = (e and w.integer(e.shape, 0, 2) for _ in range(2))
    return (i and j) and Expr(
        f"{w.numbers((3, 3), -1, 1)}[{i.text}, {j.text}]", joined(i.shape, j.shape), False
    )


@operation
def indexed_by_an_unknown(w):
    e = vector(w)
    index = e and w.among(lambda i: i.integer and len(i.shape) < 2)
    if not index:
        return None
    n = e.shape[0]
    index = w.integer(index.shape, 0, n - 1)
    if index is None:
        return None
    return Expr(f"{e.text}[{index.text}]", index.shape, e.integer, e.low, e.high)


@operation
def sliced(w):
    e = vector(w)
    if e is None:
        return None
    n = e.shape[0]
    text, shape = w.pick(
        [
            (f"{e.text}[::-1]", (n,)),
            (f"{e.text}[-1]", ()),
            (f"{e.text}[{w.r.integers(0, n, 3).tolist()}]", (3,)),
            (f"{e.text}[None, :] * pt.ones((2, 1), dtype='int64')", (2, n)),
            (f"pt.roll({e.text}, 1)", (n,)),
        ]
    )
    return Expr(text, shape, e.integer, *((e.low, e.high) if "ones" not in text else ()))


@operation
def neighbours(w):
    """Of vectors of three: the length 1 is not known to PyTensor where the other lengths are not."""
    e = vector(w, lambda e: e.shape[0] > 2)
    text = w.pick(["{e}[1:]", "{e}[1:] - {e}[:-1]", "pt.diff({e})", "{e}[1:] * {e}[:-1]"])
    return e and Expr(text.format(e=e.text), (e.shape[0] - 1,), e.integer)


@operation
def with_elements_set(w):
    e = vector(w)
    value = w.among(lambda v: e and v.shape == () and (v.integer or not e.integer))
    if not value:
        return None
    n = e.shape[0]
    place = w.integer((), 0, n - 1) if w.r.random() < 0.6 else None
    at = str(int(w.r.integers(n))) if place is None else place.text
    text = w.pick(
        [
            f"pt.set_subtensor({e.text}[{at}], {value.text})",
            f"pt.inc_subtensor({e.text}[{at}], {value.text})",
            f"{e.text}[1:].set({value.text})",
            f"{e.text}[1:].inc({value.text})",
        ]
    )
    return Expr(text, e.shape, e.integer)


def values_to_count(w, n):
    """A vector of integers from 0 to n - 1; None where there is nothing to make it of."""
    e = w.among(lambda e: e.integer and len(e.shape) == 1)
    index = e and w.integer(e.shape, 0, n - 1)
    return index if index and len(index.shape) == 1 else None


@operation
def counted(w):
    """How often each value is taken, by increments of zeros."""
    n = int(w.r.integers(2, 4))
    index = values_to_count(w, n)
    if index is None:
        return None
    once = w.r.random() < 0.3  # where a value is taken several times, it is counted once
    at = f"pt.zeros({n}, dtype='int64')[{index.text}]"
    return Expr(f"pt.inc_subtensor({at}, 1{', ignore_duplicates=True' if once else ''})", (n,))


@operation
def counted_by_bincount(w):
    n = int(w.r.integers(2, 4))
    index = values_to_count(w, n)
    if index is None:
        return None
    if w.r.random() < 0.5:
        return Expr(f"pt.bincount({index.text}, minlength={n})", (n,))
    return Expr(f"pt.bincount({index.text}, {w.numbers(index.shape, -1, 1)}, minlength={n})", (n,), False)


@operation
def recursion(w):
    """Over a vector, from a scalar; linear in the vector or not."""
    e = vector(w)
    first = e and w.among(lambda s: s.shape == ())
    if not first:
        return None
    step = w.pick(
        ["0.5 * s + a", "0.8 * s - 0.3 * a", "pt.tanh(s + 0.4 * a)", "pt.switch(a > 0, 0.6 * s, s + 0.3)"]
    )
    start = f"outputs_info=0.3 * {first.text}, return_updates=False"
    text = f"pytensor.scan(lambda a, s: {step}, sequences=[pt.as_tensor({e.text})], {start})"
    return Expr(*w.pick([(text, e.shape), (f"{text}[-1]", ())]), False)


@operation
def narrow(w):
    """An integer of another size, as data and indices often are."""
    e = w.integer(w.pick([(), (2,), (3,)]), -3, 5)
    return e and e._replace(text=f"pt.cast({e.text}, '{w.pick(['int8', 'int16', 'int32'])}')")


@operation
def selected(w):
    """Reductions of what is selected."""
    e = vector(w)
    if e is None:
        return None
    n = e.shape[0]
    stop = w.integer((), 0, n)
    ways = [f"{e.text}[{w.condition(e.shape)} & pt.ge({e.text}, -9)].sum()"]
    if stop is not None and stop.shape == ():
        ways += [f"{e.text}[:{stop.text}].sum()", f"{e.text}[{stop.text}:].sum()"]
    return Expr(w.pick(ways), (), e.integer)


@operation
def stacked(w):
    parts = [w.among(lambda e: e.shape == ()) for _ in range(3)]
    if None in parts:
        return None
    words, whole = ", ".join(e.text for e in parts), all(e.integer for e in parts)
    return Expr(f"pt.stack([{words}])", (3,), whole)


@operation
def concatenated(w):
    a, b = (w.among(lambda e: len(e.shape) == 1) for _ in range(2))
    if not a or a.shape[0] + b.shape[0] > 4:
        return None
    return Expr(f"pt.concatenate([{a.text}, {b.text}])", (a.shape[0] + b.shape[0],), a.integer and b.integer)


@operation
def mapped(w):
    e = vector(w)
    n = e and e.shape[0]
    if not e:
        return None
    if e.integer and w.r.random() < 0.4:
        return Expr(f"pt.dot(np.array({w.r.integers(-1, 3, (2, n)).tolist()}), {e.text})", (2,))
    return Expr(f"pt.dot({w.numbers((2, n), -1, 1)}, {e.text})", (2,), False)


@operation
def smooth(w):
    e = w.among(lambda e: True)
    text = w.pick(
        ["pt.exp(0.2 * {})", "pt.softplus({})", "pt.sqrt(1.1 + pt.abs({}))", "pt.log1p(pt.abs({}))"]
    )
    return e and Expr(text.format(e.text), e.shape, False)


@operation
def softmax(w):
    e = vector(w)
    return e and Expr(f"pt.special.softmax(0.3 * {e.text})", e.shape, False)


@operation
def product_of_all(w):
    e = vector(w)
    return e and Expr(f"0.1 * {e.text}[:, None] * {e.text}[None, :]", (e.shape[0], e.shape[0]), False)


@operation
def deterministic(w):
    e = w.among(lambda e: True)
    return e and Expr(f'pm.Deterministic("{w.new("d")}", 1 * {e.text})', e.shape, e.integer)


# ---------------------------------------------------------------- terms
TERMS: list[Callable[[Writer, str], str | None]] = []


def end(function):
    TERMS.append(function)
    return function


def data(w, shape, text, low, high, whole=False):
    """Observed data from `low` to `high` of a distribution, whose text lacks them."""
    seen = w.r.integers(low, high + 1, shape) if whole else np.round(w.r.uniform(low, high, shape), 2)
    return f"{text}, observed={seen.tolist()}{w.named(shape)})"


@end
def potential(w, name):
    e = w.among(lambda e: True)
    text = w.pick(["pt.tanh(0.3 * {e}).sum()", "(-0.05 * pt.sqr({e})).sum()", "pt.softplus(0.4 * {e}).sum()"])
    return e and f'pm.Potential("{name}", {text.format(e=e.text)})'


@end
def potential_of_several(w, name):
    e = w.among(lambda e: True)
    return e and f'pm.Potential("{name}", pt.tanh({w.real(e.shape)} + {w.real(e.shape)}).sum())'


@end
def impossible(w, name):
    e = w.among(lambda e: True)
    if e is None:
        return None
    return (
        f'pm.Potential("{name}", pt.switch({w.condition(e.shape)}, 0.0, {w.pick(["-np.inf", "-1.7"])}).sum())'
    )


@end
def known_sum(w, name):
    """An equation between counts."""
    e = vector(w, lambda e: e.integer and e.low is not None)
    return (
        e and f'pm.Potential("{name}", pt.switch(pt.eq({e.text}.sum(), {e.low + e.shape[0]}), 0.0, -np.inf))'
    )


@end
def known_sums(w, name):
    """Equations of an unknown, whose name `Check.equations` knows."""
    e = w.among(lambda e: e.shape != () and e.text in w.scope["values"])
    if e is None:
        return None
    some = w.pick(w.scope["values"][e.text])
    if len(e.shape) == 2:
        sums = f"pt.concatenate([{e.text}.sum(axis=0), {e.text}.sum(axis=1)])"
        seen = np.concatenate([some.sum(axis=0), some.sum(axis=1)])
    else:
        matrix = w.r.integers(-1, 3, (w.pick([1, 2]), *e.shape))
        sums, seen = f"pt.dot(np.array({matrix.tolist()}), {e.text})", matrix @ some
    name, y = w.new("sums"), f"np.array({seen.tolist()})"
    conditions = [
        f"pt.switch(pt.all(pt.eq({sums}, {y})), 0.0, -np.inf)",
        f"pt.switch(pt.any(pt.neq({y}, {sums})), -np.inf, 0.0)",
        f"pt.switch(pt.eq({sums}, {y}), 0.0, -np.inf)",
    ]
    dirac = f'pm.DiracDelta("{name}", {sums}, observed={y})'
    return w.pick([dirac, *(f'pm.Potential("{name}", {c})' for c in conditions)])


@end
def normal(w, name):
    e = w.among(lambda e: True)
    sd = w.pick(["0.9", "1.4", f"(0.7 + pt.exp({w.real(e.shape)}))"])
    return data(w, e.shape, f'pm.Normal("{name}", {e.text}, {sd}', -1, 3)


@end
def bernoulli_data(w, name):
    e = w.among(lambda e: True)
    text = f'pm.Bernoulli("{name}", logit_p={w.real(e.shape)} + 0.2 * {e.text}'
    return data(w, e.shape, text, 0, 1, whole=True)


@end
def poisson_data(w, name):
    e = w.among(lambda e: True)
    return data(w, e.shape, f'pm.Poisson("{name}", pt.exp(pt.tanh({e.text}))', 0, 3, whole=True)


@end
def binomial_data(w, name):
    e = w.among(lambda e: e.integer)
    n = e and w.fitting(e.shape, lambda n: n.integer)
    if not n or joined(n.shape, e.shape) != e.shape:
        return None
    text = f'pm.Binomial("{name}", n={n.text} + {w.r.integers(0, 3)}, p={w.probability(e.shape)}'
    return data(w, e.shape, text, 0, 1, whole=True)


@end
def categorical_data(w, name):
    e = w.among(lambda e: e.integer and len(e.shape) < 2)
    index = e and w.integer(e.shape, 0, 2)
    if not index or index.shape != e.shape:
        return None
    text = f'pm.Categorical("{name}", p=pt.as_tensor({w.shares(3, 3)})[{index.text}]'
    return data(w, e.shape, text, 0, 2, whole=True)


@end
def mixture_data(w, name):
    """Data whose component is an unknown."""
    e = w.among(lambda e: e.integer and len(e.shape) == 1)
    index = e and w.integer(e.shape, 0, 1)
    means = w.among(lambda m: len(m.shape) == 1 and m.shape[0] >= 2)
    if not index or not means or index.shape != e.shape:
        return None
    return data(w, e.shape, f'pm.Normal("{name}", {means.text}[{index.text}], 1.2', -1, 2)
