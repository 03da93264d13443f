"""The starting points of the chains: dispersed, and with a finite log density."""

import functools
from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.exceptions import SamplingError
from pymc.initial_point import make_initial_point_fn, make_initial_point_fns_per_chain
from pymc.logprob.transforms import IntervalTransform
from pytensor.graph.basic import Variable

from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.from_model import target_of
from pymc_discrete.engine.block import Block
from pymc_discrete.engine.points import Points
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.model.in_tensors import starts_by_name
from pymc_discrete.model.initial import for_long_chains
from pymc_discrete.model.support import known
from pymc_discrete.runtime.compiling import announced
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.reuse import collection_paused
from pymc_discrete.runtime.waiting import watched
from pymc_discrete.starts.not_finite import NOT_FOUND, impossible, not_finite, of_model_at
from pymc_discrete.starts.possible_start import possible_start, refuse_nan, say_moved
from pymc_discrete.starts.start import check_support, refusal, solved

# the supports of continuous variables, by the names of PyMC's transforms
SUPPORTS = {
    "log": "(0, inf)",
    "log_exp_m1": "(0, inf)",
    "logodds": "(0, 1)",
    "ordered": "increasing values",
    "simplex": "positive numbers that sum to 1",
}
RETRIES = 10  # the number of further points that are tried with each width of the jitter
HALVINGS = 8  # the number of times that the jitter is halved if no point is possible, before it is left out
# the widths of the jitter, in the order in which they are tried; 0 stands for no jitter
JITTERS = [*(0.5**n for n in range(HALVINGS + 1)), 0.0]


@watched("Finding where the chains start")
@collection_paused()
def starts(
    model: pm.Model,
    blocks: Sequence[Block],
    packing: Points,
    initvals: Any,
    chains: int,
    seed: np.random.SeedSequence,
    with_gradient: bool = False,
    still: Collection[str] = (),
) -> list[dict[str, np.ndarray]]:
    """A starting point {variable: value} for each chain.

    Continuous variables are jittered by U(-1, 1) as in `pm.sample`; discrete ones are dispersed, unless
    `initvals` or the model gives their starting value. If all points tried are impossible, even after a
    search among the states of the discrete variables, or have a discrete variable outside its support, the
    jitter is halved, and at last it is left out.

    Parameters
    ----------
    with_gradient : whether the gradient must be finite as well, if possible
    still : continuous variables that are not jittered

    Raises
    ------
    pymc.exceptions.SamplingError
        If no point with a finite log density was found. The message names the term that is not finite without
        jitter, or the variable that is outside its support.
    """
    given = initvals if isinstance(initvals, list | tuple) else [initvals] * chains
    fixed = {str(rv.name) for rv, value in model.rvs_to_initial_values.items() if value is not None}
    stay = [fixed | {getattr(k, "name", k) for k in (values or {})} for values in given]
    drawn = Jitter(model, initvals, chains, still)
    return starts_of_chains(model, blocks, drawn, stay, seed, with_gradient)


def starts_of_chains(
    model: pm.Model,
    blocks: Sequence[Block],
    drawn: "Jitter | Around",
    stay: Sequence[set[str]],
    seed: np.random.SeedSequence,
    with_gradient: bool = False,
) -> list[dict[str, np.ndarray]]:
    """A possible starting point {variable: value} for each chain, found as in `starts`.

    Parameters
    ----------
    drawn : a `Jitter` or an `Around`, from which points are drawn
    stay : for each chain, the discrete variables that are not dispersed

    Raises
    ------
    pymc.exceptions.SamplingError
        If no point with a finite log density was found.
    """
    points: list[dict[str, np.ndarray]] = []
    # an ordered set: variables that were moved because their start was impossible
    moved: dict[str, None] = {}
    for chain, child in enumerate(seed.spawn(len(stay))):
        rng = np.random.default_rng(child)
        point, names = start_of_chain(model, blocks, drawn, chain, stay[chain], rng, with_gradient)
        points.append(point)
        moved.update(dict.fromkeys(names))
    say_moved(list(moved))
    for block in blocks:
        with announced(f"{block.named()}: the log density and its changes, to check the starts"):
            block.check_starts(points)
    return points


def start_of_chain(
    model: pm.Model,
    blocks: Sequence[Block],
    drawn: "Jitter | Around",
    chain: int,
    stay: set[str],
    rng: np.random.Generator,
    with_gradient: bool,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """A possible starting point of one chain, and the variables that were moved since their starting value
    was impossible.

    Parameters
    ----------
    drawn : a `Jitter` or an `Around`, from which points are drawn
    chain : its index
    stay : the discrete variables that are not dispersed

    Raises
    ------
    pymc.exceptions.SamplingError
        If no point with a finite log density was found.
    """
    for jitter in drawn.jitters:
        for _ in range(RETRIES + 1 if jitter else 1):
            point = given = drawn(chain, jitter, rng)
            for block in blocks:
                point = block.dispersed(point, stay, rng)
            if refused := outside(blocks, point):
                continue
            logp, possible = can_start(blocks, point, with_gradient)
            if possible:
                return point, [n for n in point if n in stay and not np.array_equal(point[n], given[n])]
        refuse_nan(model)
        if not refused and np.isneginf(logp):
            before = point
            for block in blocks:
                point = block.possible(point, rng)
            point = possible_together(model, blocks, point, rng)
            refused = outside(blocks, point)
            logp, possible = can_start(blocks, point, with_gradient)
            if possible and not refused:
                return point, [n for n in point if not np.array_equal(point[n], before[n])]
    if refused:
        raise SamplingError(refused)
    if np.isfinite(logp) or (np.isneginf(logp) and any(block.leaves_impossible for block in blocks)):
        return point, []
    if not np.isneginf(logp):
        for block in blocks:  # a block's own check may raise an error that is more specific
            block.check_starts([point])
        raise SamplingError(not_finite(of_model_at(model, point), logp))
    names = [str(v.name) for v in model.discrete_value_vars or model.value_vars]
    raise SamplingError(impossible(model, point, names, NOT_FOUND))


def possible_together(
    model: pm.Model, blocks: Sequence[Block], point: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """A point of positive density, found by moving all discrete variables of the model together.

    A search among the variables of one block at a time fails if two variables of different blocks must change
    together. The result is the given point if its density is positive, if one block has all discrete
    variables, or if the search finds nothing.
    """
    alone = sum(block.space is not None for block in blocks) < 2
    if alone or can_start(blocks, point, False)[0] > -np.inf:
        return point
    try:
        described = DescribedModel(model, point)
        target = target_of(described, constrained=True, equations=True, with_numbers=False)
    except (NotImplementedError, ValueError, TypeError):  # such as for a support that only a step knows
        return point
    density = cast(ModelDensity, target.density)
    x, inputs, _ = density.split(point)
    return target.at(point)[1].point(possible_start(density, solved(target.space, x), inputs, rng))


def can_start(
    blocks: Sequence[Block], point: dict[str, np.ndarray], with_gradient: bool
) -> tuple[float, bool]:
    """The log density of a point, and whether it is finite, as well as the gradient if this is asked for."""
    judge = next((block for block in blocks if not block.start_program), blocks[0])
    logp = judge.logdensity(point)
    follows = not with_gradient or all(block.gradient_is_finite(point) for block in blocks)
    return logp, bool(np.isfinite(logp)) and follows


def outside(blocks: Sequence[Block], point: dict[str, np.ndarray]) -> str | None:
    """The error message for a point {variable: value} with a discrete variable outside its support; else
    None.
    """
    spaces = [block.space for block in blocks if block.space is not None]
    return next((why for space in spaces if (why := refusal(space, space.ravel(point)))), None)


class Jitter:
    """Starting points with continuous variables jittered.

    Parameters
    ----------
    initvals : starting values that the user gave, as in `pmd.sample`
    chains : number of chains
    still : continuous variables that are not jittered

    Attributes
    ----------
    jitters : the widths of the jitter, in the order in which they are tried; 0 stands for no jitter
    """

    def __init__(self, model: pm.Model, initvals: Any, chains: int, still: Collection[str] = ()):
        self._model, self._initvals, self._chains = model, initvals, chains
        moved = [rv for rv in model.free_RVs if rv.name not in still]
        self._jittered = {rv for rv in moved if rv.dtype.startswith("float")}
        self._values = {str(model.rvs_to_values[rv].name) for rv in self._jittered}
        self.jitters = JITTERS if self._jittered else JITTERS[:1]
        self._full = self._functions(self._jittered)

    def _functions(self, jittered: set[Variable]) -> list[Any]:
        with for_long_chains(self._model):
            return make_initial_point_fns_per_chain(
                model=self._model, overrides=self._initvals, jitter_rvs=jittered, chains=self._chains
            )

    @functools.cached_property
    def _without(self) -> list[Any]:
        return self._functions(set())

    def __call__(self, chain: int, jitter: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """A point {value variable: value}, with U(-jitter, jitter) added to continuous variables."""
        function = (self._full if jitter == 1.0 else self._without)[chain]
        point = {name: np.asarray(value) for name, value in function(int(rng.integers(2**30))).items()}
        return point if jitter == 1.0 else jittered_point(point, self._values, jitter, rng)


class Around:
    """Starting points near a given point.

    Parameters
    ----------
    point : {value variable: value}
    names : the continuous value variables that are jittered

    Attributes
    ----------
    jitters : the widths of the jitter, in the order in which they are tried; 0 stands for no jitter
    """

    def __init__(self, point: dict[str, np.ndarray], names: Sequence[str]):
        self._point, self._names = point, set(names)
        self.jitters = JITTERS if names else JITTERS[-1:]

    def __call__(self, chain: int, jitter: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """A point {value variable: value}, with U(-jitter, jitter) added to the variables of `names`."""
        return jittered_point(self._point, self._names, jitter, rng)


def jittered_point(
    point: dict[str, np.ndarray], names: set[str], jitter: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """The point with U(-jitter, jitter) added to the named value variables."""
    return {
        name: np.asarray(value + rng.uniform(-jitter, jitter, value.shape), value.dtype)
        if jitter and name in names
        else value
        for name, value in point.items()
    }


def by_name(model: pm.Model, initvals: Any) -> Any:
    """The argument `initvals` of `pmd.sample` in plain tensors, with names in place of variables."""
    if isinstance(initvals, list | tuple):
        return [by_name(model, values) for values in initvals]
    return starts_by_name(model, initvals) if isinstance(initvals, dict) else initvals


def without_starts_of(initvals: Any, names: Collection[str]) -> Any:
    """The argument `initvals` without the starting values of some variables."""
    if isinstance(initvals, list | tuple):
        return [without_starts_of(values, names) for values in initvals]
    return initvals and {k: v for k, v in initvals.items() if str(getattr(k, "name", k)) not in names}


def check_initvals(model: pm.Model, initvals: Any, points: int, of: str = "chain") -> None:
    """Refuse `initvals` of the wrong type, length or shape, outside a support, or of unknown variables.

    Parameters
    ----------
    points, of : the number of starts, and a word for the things that start at each of them
    """
    several = isinstance(initvals, list | tuple)
    if several and len(initvals) != points:
        raise ValueError(
            f"initvals has {len(initvals)} entries for {points} {of}s. Give one dictionary, or one for each "
            f"{of}."
        )
    if all(values is None for values in (initvals if several else [initvals])):
        return  # nothing has to be compared with the shapes of variables, which take long to compute
    discrete = {str(v.name) for v in model.discrete_value_vars}
    known = {str(v.name): v for v in [*model.free_RVs, *model.value_vars]}
    shapes = model.eval_rv_shapes()
    for values in initvals if several else [initvals]:
        if values is not None and not isinstance(values, dict):
            raise TypeError(
                f"initvals must be a dictionary {{variable: value}}, or a list with one for each chain, got "
                f"{values!r}."
            )
        for key, value in (values or {}).items():
            name = str(getattr(key, "name", key))
            if name not in known:
                raise ValueError(
                    f"initvals names {name!r}, which is no free variable of the model. It has {shown(known)}."
                )
            # A value "prior" or "support_point", or a PyTensor expression, has nothing to check.
            if isinstance(value, str | Variable):
                continue
            number = np.asarray(value)
            if name in discrete and not (whole := np.isfinite(number) & (number == np.round(number))).all():
                place = np.argwhere(~whole)[0]
                at = f" as element {place.tolist()}" if number.ndim else ""
                raise ValueError(f"initvals[{name!r}] must hold integers, got {number[tuple(place)]:g}{at}.")
            shape = tuple(int(n) for n in shapes.get(name, number.shape))
            if number.shape != shape:
                remedy = f" Pass np.full({shape}, {value!r})." if not number.ndim else ""
                raise ValueError(
                    f"initvals[{name!r}] has the shape {number.shape}, and the variable {shape}.{remedy}"
                )
        check_inside(model, values or {})


def check_inside(model: pm.Model, values: dict[Any, Any]) -> None:
    """Refuse starting values of continuous variables outside their support, at which a transform is nan.

    Raises
    ------
    ValueError
    """
    numbers = given_numbers(values)
    given = [rv for rv in model.free_RVs if rv.name in numbers and rv.dtype.startswith("float")]
    if not given:
        return
    with for_long_chains(model):
        point = make_initial_point_fn(model=model, overrides=values, return_transformed=True)(0)
    for rv in given:
        name, value = str(rv.name), np.asarray(numbers[str(rv.name)], float)
        outside = ~np.isfinite(np.asarray(point[str(model.rvs_to_values[rv].name)]))
        if not outside.any():
            continue
        which = f"is {value}"
        if value.ndim and outside.shape == value.shape:
            place = np.argwhere(outside)[0]
            which = f"has {value[tuple(place)]:g} as element {place.tolist()}"
        support = support_of_transform(rv, model, outside)
        raise ValueError(
            f"initvals[{name!r}] {which}, which is outside its support, {support}. "
            "Pass values inside it, not at its ends."
        )


def check_supports(blocks: Sequence[Block], point: dict[str, np.ndarray], initvals: Any) -> None:
    """Refuse starting values of discrete variables outside their support.

    Parameters
    ----------
    point : {value variable: array}, the starting point of the model without the user's `initvals`

    Raises
    ------
    pymc.exceptions.SamplingError
    """
    for values in initvals if isinstance(initvals, list | tuple) else [initvals]:
        given = given_numbers(values or {})
        for block in blocks:
            if block.space is not None:
                check_support(block.space, block.space.ravel(point | given), given)


def given_numbers(values: dict[Any, Any]) -> dict[str, Any]:
    """{name: value} of the starting values that are numbers, and no words or expressions."""
    return {
        str(getattr(key, "name", key)): value
        for key, value in values.items()
        if not isinstance(value, str | Variable)
    }


def support_of_transform(rv: Variable, model: pm.Model, outside: np.ndarray) -> str:
    """The support of a continuous variable, judged by its transform, for the first element that is
    `outside`."""
    transform = model.rvs_to_transforms[rv]
    if transform is None:
        return "the finite numbers"
    if not isinstance(transform, IntervalTransform):
        return SUPPORTS.get(transform.name, f"what its transform ({transform.name}) takes")
    ends = []
    for bound, none in zip(transform.args_fn(*rv.owner.inputs), ("-inf", "inf"), strict=True):
        value = None if bound is None else known(pt.as_tensor(bound))
        if bound is not None and value is None:
            return "between bounds that depend on other variables"
        ends.append(none if value is None else f"{np.broadcast_to(value, outside.shape)[outside][0]:g}")
    return f"({', '.join(ends)})"
