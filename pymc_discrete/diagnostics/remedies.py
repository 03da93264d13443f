"""Remedies for draws that mix slowly, given the steps in use and what is possible."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import pymc as pm
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, walk
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NEQ,
    Cast,
    Ceil,
    Floor,
    RoundHalfAwayFromZero,
    RoundHalfToEven,
    Trunc,
)
from pytensor.tensor.elemwise import Elemwise

from pymc_discrete.collapse.choice import MOST_TIMES_THE_WORK, summed_if_it_pays
from pymc_discrete.model.support import reason_refused
from pymc_discrete.runtime.names import shown

# scalar Ops through which a small change of a continuous value has no influence
STEPWISE = (Ceil, Floor, RoundHalfAwayFromZero, RoundHalfToEven, Trunc, EQ, NEQ, GE, GT, LE, LT)


class Remedies:
    """Remedies that suit a model, and are not in use already.

    Parameters
    ----------
    model : pm.Model
    used : {discrete variable: the attribute `described` of the step that draws it or the block that sums it
        out}
    """

    def __init__(self, model: pm.Model, used: Mapping[str, str]):
        self.model, self.used = model, used
        self._possible: dict[tuple[str, ...], bool] = {}

    def several_sites(self, names: Sequence[str]) -> str:
        """A step, not in use for any of the named variables, that changes several of their sites at once."""
        if any(map(self._by_long_paths, names)):
            return (
                "pmd.FlowStep, whose flow is fitted to these draws, or longer paths than those in use "
                "(path_length=)"
            )
        return "pmd.PathAuxiliary(path_length=5, recompute=True)"

    def by_site(self, names: Sequence[str]) -> str:
        """The name of a step that draws single sites exactly; "" if one draws a named variable already."""
        return "" if self._drawn_by(names, "BlockGibbs", "TreeGibbs", "SwendsenWang") else "pmd.BlockGibbs"

    def along_sums(self, names: Sequence[str]) -> str:
        """A clause that names the step for sites that cannot change alone because known sums tie them."""
        if self._drawn_by(names, "BlockGibbs"):
            return (
                "BlockGibbs moves several along known sums, where these are written as in "
                "docs/linear_constraints.md"
            )
        return "pmd.BlockGibbs moves several along known sums (docs/linear_constraints.md)"

    def of_rejected_moves(self, names: Sequence[str], exact: bool) -> str:
        """The end of a sentence: why hardly any move of the named variables is accepted, and what to try.

        Parameters
        ----------
        exact : whether the differences that choose the moves are exact, and not estimates by a gradient
        """
        options = [self.used.get(name, "").partition(";")[2] for name in names]
        barker = all("balancing=" in o and "balancing='barker'" not in o for o in options)
        if not exact:
            more = " or balancing='barker'" * barker
            return f"a gradient misleads it: try differences='exact'{more}."
        more = " Where changes are possible, try balancing='barker'." * barker
        return f"every change of a single site is impossible or improbable: {self.along_sums(names)}.{more}"

    def of_hard_proposal(self, names: Sequence[str], exact: bool) -> str:
        """A sentence that says what to try if even the smallest moves of a proposal are often rejected.

        Parameters
        ----------
        exact : whether the differences that choose the moves are exact, and not estimates by a gradient
        """
        tries = [
            f"{step}{'' if exact else "(differences='exact')"}" for step in [self.by_site(names)] if step
        ]
        if not any(map(self._by_long_paths, names)):
            tries.append(f"where several sites must change together, {self.several_sites(names)}")
        return f"Try {', or, '.join(tries)}."

    def _drawn_by(self, names: Sequence[str], *steps: str) -> bool:
        """Whether a step of one of the classes named `steps` draws one of the variables."""
        return any(self.used.get(name, "").startswith(tuple(f"{step}(" for step in steps)) for name in names)

    def _by_long_paths(self, name: str) -> bool:
        """Whether `PathAuxiliary` draws a variable, with differences computed after each move of a path."""
        return self._drawn_by([name], "PathAuxiliary") and "recompute=True" in self.used[name]

    def can_be_summed_out(self, names: Sequence[str]) -> bool:
        """Whether the named variables can be summed out while NUTS moves, for work that may pay."""
        key = tuple(names)
        if key not in self._possible:
            discrete = [str(v.name) for v in self.model.discrete_value_vars]
            sampled = set(names) <= set(discrete) and bool(self.model.continuous_value_vars)
            sampled &= [*names] == self.to_sum_out(names)
            ordered = [name for name in discrete if name in names]
            self._possible[key] = (
                sampled and summed_if_it_pays(self.model, ordered, MOST_TIMES_THE_WORK, "")[0] is not None
            )
        return self._possible[key]

    def summed_out(self, names: Sequence[str]) -> bool:
        """Whether one of the named variables is summed out already."""
        return self._drawn_by(names, "SummedOut", "CollapsedNUTS")

    def to_sum_out(self, names: Sequence[str]) -> list[str]:
        """The ones among some variables that are not yet summed out and whose elements can change alone."""
        return [
            name for name in names if not self.summed_out([name]) and reason_refused(self.model, name) is None
        ]

    def sum_out(self, names: Sequence[str]) -> str:
        """A sentence that advises to sum the named counts out, if that is possible, or else to draw more."""
        if self.summed_out(names):
            return "Draw more."
        if names and self.can_be_summed_out(names):
            moved = [str(v.name) for v in self.model.continuous_value_vars]
            some = len(names) < len(self.model.discrete_value_vars)
            of_step = f"[{shown([*moved, *names])}]" if some else ""
            return (
                f"Summed out they do not: pmd.sample(collapse=[{shown(names)}]), or "
                f"step=pmd.CollapsedNUTS({of_step})."
            )
        return "Draw more: to sum them out is not possible here, or takes too much work."

    def of_tie(self, names: Sequence[str], two_valued: bool) -> str:
        """A sentence that advises what to do if correlated counts, or sites with two values, move slowly."""
        if two_valued:
            return (
                "Where labels may swap or groups of sites turn together, several must change at once: try "
                f"{self.several_sites(names)}."
            )
        return self.sum_out(list(dict.fromkeys(names)))

    @cached_property
    def without_gradient(self) -> dict[str, str]:
        """{continuous variable: the function through which it has no gradient}, such as "round".

        A variable is left out if the same term of the log density also reads it outside of that function, for
        example if the sign of an argument chooses a formula.
        """
        found: dict[str, str] = {}
        random = set(self.model.basic_RVs)
        for term in [*self.model.basic_RVs, *self.model.potentials]:
            roots = term.owner.inputs if term in random else [term]
            read = [*walk(roots, lambda v: () if v in random else computed_from(v))]
            with_gradient = {
                *walk(roots, lambda v: () if v in random or step_function(v.owner) else computed_from(v))
            }
            for v in read:
                if v not in random and (called := step_function(v.owner)):
                    for rv in self._continuous_above(v.owner.inputs):
                        if rv not in with_gradient:
                            found.setdefault(str(rv.name), called)
        return found

    def _continuous_above(self, variables: Sequence[Variable]) -> list[Variable]:
        """The continuous variables of the model from which any real-valued one of `variables` is computed."""
        floats = [v for v in variables if str(getattr(v, "dtype", "")).startswith("float")]
        above = set(ancestors(floats, blockers=self.model.basic_RVs))
        return [rv for rv in self.model.free_RVs if rv in above and rv.dtype.startswith("float")]

    def slow(self, names: Sequence[str]) -> str:
        """A sentence with a remedy for continuous variables that mix slowly; "" if there is none."""
        stepwise = [name for name in names if name in self.without_gradient]
        if not stepwise:
            return ""
        through = ", ".join(dict.fromkeys(self.without_gradient[name] for name in stepwise))
        return (
            f" {shown(stepwise)} {'enters' if len(stepwise) == 1 else 'enter'} through {through}, which has "
            f"no gradient that NUTS could follow: step=pmd.ReparameterizedSlice([{shown(stepwise)}]) needs "
            "none."
        )


def computed_from(v: Variable) -> Sequence[Variable]:
    """The inputs that determine the value of a variable; of an assertion (`CheckAndRaise`), which passes its
    first input on, only this one.
    """
    if v.owner is None:
        return ()
    return v.owner.inputs[:1] if isinstance(v.owner.op, CheckAndRaise) else v.owner.inputs


def step_function(node: Apply | None) -> str:
    """The user's name for a node whose value changes in steps, without a gradient; "" for any other node."""
    if node is None or not isinstance(node.op, Elemwise):
        return ""
    op = node.op.scalar_op
    if isinstance(op, Cast) and str(node.outputs[0].dtype).startswith(("int", "uint", "bool")):
        return "integers"
    return called_as(op) if isinstance(op, STEPWISE) else ""


def called_as(op: object) -> str:
    """The name under which the user knows a scalar Op."""
    if isinstance(op, RoundHalfToEven | RoundHalfAwayFromZero):
        return "round"
    if isinstance(op, EQ | NEQ | GE | GT | LE | LT):
        return "a comparison"
    return type(op).__name__.lower()
