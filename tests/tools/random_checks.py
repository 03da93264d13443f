"""Random models against enumeration: what the package says of them, against PyMC's own log density.

    python -m tests.tools.random_checks --models 2000 [--first 0] [--draws 20] [--evidence 20] [--cut]

checks models by hand, prints those that fail or are refused, and counts the reasons. `--draws 20` also
samples the smallest of every 20th, `--evidence 20` estimates their evidence, `--cut` prints those lines of a
model that fails without which it does not fail.
"""

import argparse
import collections
import itertools
import linecache
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pymc as pm
from scipy.special import logsumexp

import pymc_discrete as pmd
from pymc_discrete.differences.from_model import target_of
from pymc_discrete.distributions.permutation import WeightedPermutationRV
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.runtime.reuse import forget
from tests.tools.interpreted import interpreted
from tests.tools.oracle import unrewritten
from tests.tools.random_models import RandomModel, cut, random_model, run
from tests.tools.running import QUIET
from tests.tools.statistics import LARGEST_Z, zs_of_proportions

MOST_EVALUATED = 40  # states of a model at which PyMC's log density is evaluated to see which are possible
MOST_SUMMED = 100  # states of a model that is summed out, or sampled
STATES = (2, 1)  # at which differences are compared, at each of two values of the continuous unknowns
GRID = np.linspace(
    -7, 7, 57
)  # values of a continuous unknown over which it is summed, nearly exact if smooth
OTHERS = 12  # states, possible or not, at which equations are looked at
STEPS = np.array([-2, -1, 0, 1, 2])  # changes of the first of two counts that change together
# PyTensor takes logarithms of small integer constants, such as the n of a Binomial, in single precision.
TOLERANCE = 1e-6


class LeftOut(Exception):
    """The check does not apply: no state of positive density was found, or there are too many."""


class Refused(Exception):
    """The package says why it does not take this model."""


def refusal(error: BaseException) -> str | None:
    """The message of an error that the package raised on purpose, without names and numbers, or None."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    ours = "/pymc_discrete/" in frame.filename and line.startswith("raise ")
    if not ours or not isinstance(error, ValueError | NotImplementedError | TypeError):
        return None
    return re.sub(r"'[^']*'|\"[^\"]*\"|-?\d+", "_", str(error))[:160]


def or_refused(function: Callable, *arguments: Any, **options: Any) -> Any:
    """What a function returns; raises `Refused` for errors that explain themselves."""
    try:
        return function(*arguments, **options)
    except Exception as error:
        if (text := refusal(error)) is not None:
            raise Refused(text) from error
        raise


def check_model(
    given: RandomModel, seed: int = 0, checks: tuple[str, ...] = ("differences", "equations", "sums")
) -> list[str]:
    """Check a model; returns why the package refused it, if it did.

    Parameters
    ----------
    checks : names of methods of `Check`

    Raises
    ------
    LeftOut
        Where no state of positive density was found.
    AssertionError, or any error that is no refusal
    """
    forget()
    checked, refused = Check(given, seed), []
    for check in checks:
        try:
            getattr(checked, check)()
        except Refused as error:
            refused.append(str(error))
        except LeftOut:
            pass
    return refused


class Check:
    """A random model, and PyMC's log density at some of its states.

    Attributes
    ----------
    points : list of (point, numbers of states, their log densities)
        Random values of the continuous unknowns, with states that are possible there.
    """

    def __init__(self, given: RandomModel, seed: int = 0):
        self.given, self.model, self.seed = given, given.model, seed
        self.r = np.random.default_rng(seed)
        self.names = list(given.values)
        self.sizes = [len(v) for v in given.values.values()]
        self.count = int(np.prod(self.sizes))
        self.logp = unrewritten(self.model)
        self.start = {k: np.asarray(v) for k, v in self.model.initial_point().items()}
        tried = (self.random_point() for _ in range(8))
        self.points = list(itertools.islice((p for p in tried if len(p[1])), len(STATES)))
        if not self.points:
            raise LeftOut

    def random_point(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        start = self.start
        jitter = {k: 0.6 * self.r.normal(size=v.shape) for k, v in start.items() if k not in self.names}
        point = start | {k: start[k] + by for k, by in jitter.items()}
        numbers = np.arange(self.count)
        if self.count > MOST_EVALUATED:
            numbers = self.r.choice(self.count, MOST_EVALUATED, replace=False)
        return point, *self.possible(point, numbers)

    def possible(self, point, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those states that are possible, and their log densities."""
        logp = np.array([self.logp(point | self.state(n)) for n in numbers])
        return numbers[np.isfinite(logp)], logp[np.isfinite(logp)]

    def state(self, number: int) -> dict[str, np.ndarray]:
        """The values of the discrete unknowns in a state."""
        indices = np.unravel_index(number, self.sizes)
        return {name: self.given.values[name][i] for name, i in zip(self.names, indices, strict=True)}

    # ------------------------------------------------------------ targets
    def differences(self) -> None:
        """Supports, log densities, and what single sites and pairs change.

        Models of even seeds are asked for differences, those of odd seeds for what Gibbs sampling reads.
        """
        support = self.given.support or None
        target = or_refused(
            pmd.target_from_model, self.model, self.names, support=support, initial_point=self.start
        )
        self.supports(target)
        ask = of_rows_alone if self.seed % 2 else of_all_sites
        program = interpreted(lambda inputs, x: ask(target.with_inputs(inputs), x))
        for (point, numbers, _), n in zip(self.points, STATES, strict=False):
            before = None
            for number in self.r.choice(numbers, min(n, len(numbers)), replace=False):
                here = point | self.state(number)
                x, inputs, _ = target.density.split(here)
                at, base = target.at(here)[1], self.logp(here)
                with target.density.running(traced=False):
                    density, rows, pairs = program(inputs, x)
                if before is not None:
                    self.close(density - before[0], base - before[1], f"log density at {x}")
                before = density, base
                self.compare(at, x, base, zip(rows_of(target, ask), rows, strict=True))
                self.compare_pairs(at, x, base, zip(pairs_of(target, x), pairs, strict=True))

    def equations(self) -> None:
        """Linear equations are a constraint of the space, and no longer a term of the log density."""
        if not any(name.startswith("sums") for name in self.model.named_vars):
            raise LeftOut
        target = or_refused(
            target_of,
            DescribedModel(self.model, self.start),
            self.names,
            support=self.given.support or None,
            with_numbers=False,
            constrained=True,
            equations=True,
        )
        space = target.space
        found = [(slice(start, start + v.size), v.constraint) for start, v in space.blocks if v.constraint]
        program = interpreted(lambda inputs, x: target.with_inputs(inputs).logdensity(x))
        for point, possible, _ in self.points:
            others = self.r.choice(self.count, min(self.count, OTHERS), replace=False)
            before = None
            for number in [*possible[:OTHERS], *others]:
                x, inputs, _ = target.density.split(point | self.state(number))
                want = self.logp(point | self.state(number))
                met = all(np.all(constraint.met(x[sites])) for sites, constraint in found)
                met &= bool(((space.lower <= x) & (x <= space.upper)).all())
                with target.density.running(traced=False):
                    got = float(program(inputs, x)) if met else -np.inf
                before = (got, want) if before is None else before
                self.close(got - before[0], want - before[1], f"log density, given the equations, at {x}")

    def supports(self, target) -> None:
        """Every possible state is one of the space."""
        low, high = target.space.lower, target.space.upper
        where = {m.name: slice(m.start, m.start + m.size) for m in target.space.members}
        for number in {n for _, numbers, _ in self.points for n in numbers}:
            for name, value in self.state(number).items():
                least, most = low[where[name]], high[where[name]]
                inside = (least <= np.ravel(value)) & (np.ravel(value) <= most)
                assert inside.all(), f"{name} = {value} is possible, and outside of {least} to {most}"

    def compare(self, at, x, base, found) -> None:
        """Differences, log odds or log conditional probabilities of single sites."""
        space = at.space
        values, inside = (np.asarray(a) for a in space.neighbours(x))
        for (n, sites), rows in found:
            start, v = space.blocks[n]
            for site, row in zip(start + np.asarray(sites), rows, strict=True):
                if v.constraint is not None:
                    continue
                what = f"{space.sites[site]} at {x}"
                assert not np.isnan(row).any(), f"nan in the differences of {what}"
                if not at.exact:
                    continue
                want = np.full(v.K, -np.inf)
                for k in np.flatnonzero(inside[site, : v.K]):
                    y = x.copy()
                    y[site] = values[site, k]
                    want[k] = self.logp(at.point(y)) - base
                got = row[: v.K]
                if v.finite and len(got) < v.K:  # the log odds of the upper value
                    want = want[1:] - want[:1]
                elif v.finite:  # up to a constant
                    got, want = got - got.max(), want - want.max()
                for k, (d, true) in enumerate(zip(got, want, strict=True)):
                    self.close(d, true, f"difference {k} of {what}")

    def compare_pairs(self, at, x, base, found) -> None:
        """Differences of two sites that change together."""
        space = at.space
        for (n, pairs, candidates), rows in found:
            for pair, of_pair, row in zip(space.starts[n] + pairs, candidates, rows, strict=True):
                for candidate, d in zip(of_pair, row, strict=True):
                    within = (space.lower[pair] <= candidate) & (candidate <= space.upper[pair])
                    y = x.copy()
                    y[pair] = candidate
                    want = self.logp(at.point(y)) - base if within.all() else -np.inf
                    what = f"difference of sites {pair} -> {candidate} at {x}"
                    assert not np.isnan(d), what
                    if at.exact:
                        self.close(d, want, what)

    def close(self, got: float, want: float, what: str) -> None:
        assert np.isclose(got, want, rtol=TOLERANCE, atol=TOLERANCE), f"{what}: {got} for {want}"

    # ------------------------------------------------------------ sums
    def sums(self) -> None:
        """The log density of the model without its discrete unknowns, at two values of the others."""
        if self.count > MOST_SUMMED:
            raise LeftOut
        kinds = {str(v.name): type(rv.owner.op).__name__ for rv, v in self.model.rvs_to_values.items()}
        alone = [name for name in self.names if not re.search("Multinomial|Permutation", kinds[name])]
        values = self.given.values
        truncate = {name: (int(values[name].min()), int(values[name].max())) for name in self.given.counts}
        marginal = or_refused(
            pmd.marginalize, self.model, alone, truncate=truncate | self.given.support or None
        )
        logp = unrewritten(marginal)
        for point, *_ in self.points:
            numbers, densities = self.possible(point, np.arange(self.count))
            # vectors that cannot be summed out stay where one of the possible states has them
            kept = {k: v for k, v in self.state(self.r.choice(numbers)).items() if k not in alone}
            same = [all((self.state(n)[k] == v).all() for k, v in kept.items()) for n in numbers]
            rest = {str(v.name): (point | kept)[str(v.name)] for v in marginal.value_vars}
            self.close(logp(rest), logsumexp(densities[same]), f"log density without {alone}")

    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """All states (S, d) and their log densities (S,), a continuous unknown summed over a grid."""
        if self.count > MOST_SUMMED or self.given.unbounded:
            raise LeftOut
        point = self.start
        rest = [name for name in point if name not in self.names]
        if sum(np.size(point[name]) for name in rest) > 1:
            raise LeftOut
        every = [self.state(n) for n in range(self.count)]
        states = np.array([np.concatenate([np.ravel(s[name]) for name in self.names]) for s in every])
        if not rest:
            return states, np.array([self.logp(point | s) for s in every])
        (name,) = rest
        on_grid = [[self.logp(point | s | {name: np.full_like(point[name], v)}) for v in GRID] for s in every]
        return states, logsumexp(on_grid, axis=1) + np.log(GRID[1] - GRID[0])

    def draws(self) -> None:
        """Draws of `pmd.sample`, by default and with sums on and off, and of `AutoStep` in `pm.sample`."""
        states, logp = self.posterior()
        prob = np.exp(logp - logsumexp(logp))
        options = {"tune": 300, "chains": 4, "random_seed": self.seed} | QUIET
        support = {"support": self.given.support} if self.given.support else {}
        with self.model:
            runs: dict[str, Callable] = {
                "AutoStep": lambda: pm.sample(1000, step=pmd.AutoStep(**support), cores=1, **options),
                "by default": lambda: pmd.sample(1000, **options),
                "collapse=False": lambda: pmd.sample(1000, collapse=False, **options),
                "collapse=True": lambda: pmd.sample(1000, collapse=True, **options),
            }
            if support:
                runs = {"AutoStep": runs["AutoStep"]}
            for how, sample in runs.items():
                try:
                    posterior = or_refused(sample)["posterior"]
                except Refused as error:
                    print(f"--- {self.seed} {how}: refused: {error}", flush=True)
                    continue
                of = [posterior[name].values for name in self.names]
                flat = np.concatenate([a.reshape(*a.shape[:2], -1) for a in of], axis=2)
                zs = np.abs(zs_of_proportions(flat, states[prob > 0], prob[prob > 0]))
                assert zs.max(initial=0) < LARGEST_Z, f"draws by {how}: z = {zs.max()}"

    def evidence(self) -> None:
        """The log evidence."""
        want = logsumexp(self.posterior()[1]) - log_constants(self.model)
        with self.model:
            got = or_refused(pmd.log_evidence, chains=200, random_seed=self.seed, progressbar=False)
        error = 0.02 + LARGEST_Z * got.error
        assert abs(got.value - want) < error, f"log evidence: {got.value} ± {got.error} for {want}"


def log_constants(model: pm.Model) -> float:
    """What the log densities of weighted permutations lack: logarithms of the permanents of exp(weights)."""
    total = 0.0
    for rv in model.free_RVs:
        if isinstance(rv.owner.op, WeightedPermutationRV):
            weights = rv.owner.inputs[-1].eval()
            places = np.arange(len(weights))
            total += logsumexp([weights[places, order].sum() for order in itertools.permutations(places)])
    return total


# ---------------------------------------------------------------- what targets are asked for
def of_all_sites(target, x):
    d = target.differences(x)
    return target.logdensity(x), [d[a : a + v.size] for a, v in target.space.blocks], of_pairs(target, x)


def of_rows_alone(target, x):
    """What Gibbs sampling reads: log odds of each colour, and differences of the sites that are scanned."""
    variables = target.space.variables
    found = [
        (target.logits if variables[n].finite else target.rows)(n, sites)(x)
        for n, sites in target.interactions.colours
    ]
    carried = target.carried(x)
    for n, sites in target.interactions.scanned:
        for place, site in enumerate(sites):
            found.append(target.row(n, np.asarray(site), x, carried))
            v = variables[n]
            if v.finite and place % 2:  # the same at candidates, here the values from the last to the first
                values = (v.lower[site] + np.arange(v.K))[None, ::-1]
                found[-1] = target.row(n, np.asarray(site), x, carried, jnp.asarray(values))[:, ::-1]
    return target.logdensity(x), found, of_pairs(target, x)


def rows_of(target, ask: Callable) -> list[tuple[int, np.ndarray]]:
    """(number of a variable, its sites) of what `ask` finds."""
    if ask is of_all_sites:
        return [(n, np.arange(v.size)) for n, v in enumerate(target.space.variables)]
    scanned = [(n, np.array([site])) for n, sites in target.interactions.scanned for site in sites]
    return [(n, np.asarray(sites)) for n, sites in target.interactions.colours] + scanned


def pairs_of(target, x) -> Iterator[tuple[int, np.ndarray, Any]]:
    """(number of a variable, pairs (P, 2) of sites that change together, candidates (P, C, 2))."""
    for n, (start, v) in enumerate(target.space.blocks):
        if v.constraint is not None:
            pairs = v.constraint.pairs
            now = x[start + pairs]
            swapped, moved = now[:, None, ::-1], now[:, None] + np.stack([STEPS, -STEPS], axis=-1)
            broken = now[:, None] + np.array([1, 0])  # no sum and no permutation stays as it is
            yield n, pairs, jnp.concatenate([swapped if v.swaps else moved, broken], axis=1)


def of_pairs(target, x) -> list[Any]:
    found = list(pairs_of(target, x))
    carried = target.carried(x) if found else None
    return [target.joint_differences(n, pairs, values, x, carried) for n, pairs, values in found]


# ---------------------------------------------------------------- by hand
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    for name in ("draws", "evidence"):
        parser.add_argument(f"--{name}", type=int, metavar="N", help="of every N-th model")
    parser.add_argument("--cut", action="store_true", help="print the fewest lines of a model that fail")
    options = parser.parse_args()
    reasons: collections.Counter[str] = collections.Counter()
    failed, left_out, begun = [], 0, time.process_time()
    warnings.simplefilter("ignore")
    for seed in range(options.first, options.first + options.models):
        checks = ("differences", "equations", "sums")
        checks += tuple(
            name for name in ("draws", "evidence") if (n := getattr(options, name)) and seed % n == 0
        )
        given = random_model(seed)
        try:
            for reason in check_model(given, seed, checks):
                reasons[reason] += 1
                print(f"--- {seed} refused: {reason}", flush=True)
        except LeftOut:
            left_out += 1
        except Exception as error:
            failed.append(seed)
            lines, kind = given.source.split("\n"), type(error)
            if options.cut:
                lines = cut(lines, lambda lines: outcome(lines, seed, checks) is kind)  # noqa: B023
            print(f"--- {seed}: {type(error).__name__}: {error}", *lines, sep="\n", flush=True)
    print(f"{options.models} models, {len(failed)} fail: {failed}; {left_out} have no possible state")
    for reason, n in reasons.most_common():
        print(f"{n:5d} refused: {reason}")
    print(f"{time.process_time() - begun:.0f} s of a processor")


def outcome(lines: list[str], seed: int, checks: tuple[str, ...]) -> type | None:
    """The class of the error with which a program fails."""
    try:
        check_model(run(lines), seed, checks)
    except Exception as error:
        return type(error)
    return None


if __name__ == "__main__":
    main()
