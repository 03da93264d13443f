"""The choice of variables that are summed out by default: those that depend strongly on what NUTS moves.

Two variables are called *tied* if they mix slowly when they are drawn in turn, each given the other.

A count N that enters the arithmetic of a term together with a continuous unknown (a detection probability, a
rate) nearly determines that unknown, and the unknown nearly determines N: drawn in turn, the two move along a
ridge.

Labels whose probabilities are unknown, such as the weights of a mixture or an occupancy that covariates
explain, are tied to these probabilities: the labels determine the weights, and the weights the labels. Labels
are summed out where this takes only a few times the work: if they are independent given everything else, or
depend on one another in small groups. Where two or more parameters of each component are unknown as well,
such as means and standard deviations, the tie is stronger (a component that is wide draws in more points, and
so remains wide), and a sum may cost more. Labels and switches of known probability are mostly determined by
the data, and mix well.

Coefficients that are integrated out while sites move (`collapse.integrated`) are tied to nothing.
"""

import logging
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Cast, Identity, Switch
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pymc_discrete.collapse.collapsed import SHORTEST_STRETCH, Collapsed
from pymc_discrete.collapse.elements import refuse_many_states
from pymc_discrete.collapse.integrated import coefficients_to_integrate
from pymc_discrete.collapse.marginalize import reads
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.from_model import target_of
from pymc_discrete.integrals.integrate import QuadraticDegree
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.runtime.model_settings import width_of_models
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.space import Member, Space
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.ops.elementwise import SELECTORS
from pymc_discrete.structure.sums import all_summands

_log = logging.getLogger("pymc.discrete")

# Work is counted in evaluations of elements of the log density. All else that a draw does takes as long as
# this many evaluations of an element.
WORK_PER_DRAW = 1000
# With variables summed out, an evaluation of the log density may take at most this many times as much counted
# work, which is about a third as many times the time. An N-mixture needs 30 to 150 times fewer draws for an
# effective sample of the same size. A chain of 40 counts takes 55 times the work. An open population of 100
# sites over 5 years takes 106 times the work, and needs 140 times fewer draws.
MOST_TIMES_THE_WORK = 128.0
# The largest factor by which an evaluation of the log density may take more counted work, if all summed
# variables are labels that mix slowly only with the unknowns that their own probabilities depend on. A sum
# over five values of each label takes three to four times as long, and labels that the data nearly determine
# gain nothing.
MOST_TIMES_FOR_WEIGHTS = 8.0
# Labels are summed out only if, given all else, they depend on one another in groups of at most this many
# labels.
MOST_LABELS_TOGETHER = 8


def variables_to_sum_out(
    described: DescribedModel,
    names: Sequence[str],
    moved: Sequence[str],
    sampled_by: str = "collapse=False",
    summed_by: str = "collapse=True",
) -> Collapsed | None:
    """The model without the counts and labels that it pays to sum out; None if there are no such variables.

    A line of the log names these variables and the reason.

    Parameters
    ----------
    names : discrete variables that may be summed out
    moved : continuous variables that NUTS moves
    sampled_by, summed_by : the option, named in the log, by which the user has these variables sampled, or
        summed out
    """
    model = described.model
    try:
        density: Any = target_of(described, list(names), with_numbers=True).density
        integrated = coefficients_to_integrate(described, names, moved) if width_of_models() else []
    # If no density can be made, nothing is summed out: the step that samples the variables raises the error
    # that says why.
    except (NotImplementedError, ValueError):
        return None
    counts = tied_counts(density, moved, integrated)
    labels, weighted = tied_labels(density, moved)
    if integrated:
        weighted = {}
    why = ""
    # A discrete variable is tied to continuous variables if it mixes slowly with them. First a sum over all
    # tied variables is tried; then, if this takes too much work, sums over fewer of them.
    candidates = [counts | labels | weighted, counts | labels, counts]
    for n, found in enumerate(candidates):
        if not found or found in candidates[:n]:
            continue
        by = shown(sorted({name for partners in found.values() for name in partners}))
        kinds = " and ".join(
            kind
            for kind, some in (("counts", counts), ("labels", labels | weighted))
            if found.keys() & some.keys()
        )
        tied = f"{shown(found)}, {kinds} tied to {by}"
        # discrete variables whose distribution depends on summed variables, such as missing observations, are
        # summed out with them
        wanted = list(found)
        while more := [name for name in names if name not in wanted and reads(model[name], wanted, model)]:
            wanted += more
        wanted = [name for name in names if name in wanted]
        strong = bool(counts or labels)
        limit = MOST_TIMES_THE_WORK if strong else MOST_TIMES_FOR_WEIGHTS
        # Where all variables of `density` would be summed out, it shows already whether terms join too many
        # sites, before `Collapsed` makes another density.
        why = many_states(density) if wanted == density.names else ""
        collapsed, why = (None, why) if why else summed_if_it_pays(model, wanted, limit, summed_by)
        if collapsed is not None:
            rest = [name for name in wanted if name not in found]
            depending = f", with {shown(rest)}, which depend{'s' * (len(rest) == 1)} on them" if rest else ""
            if totals := collapsed.density.totals:
                depending += f"; in the place of {shown(totals)} stand totals"
            _log.info(f"Summed out while NUTS moves: {tied}{depending}. {sampled_by} draws them instead.")
            return collapsed
        if not strong:
            return None
    if why:
        _log.info(f"Not summed out: {tied}{why}")
    return None


def many_states(density: ModelDensity) -> str:
    """The reason, for the log, why the variables of a density cannot be summed out: terms join too many of
    their sites. It is "" where this is not so.
    """
    space = density.space
    try:
        refuse_many_states(density, np.minimum(space.upper - space.lower + 1, SHORTEST_STRETCH))
    except NotImplementedError as error:
        return f". {str(error).splitlines()[0]}"
    return ""


def summed_if_it_pays(
    model: pm.Model, names: list[str], dearest: float, summed_by: str
) -> tuple[Collapsed | None, str]:
    """The model with variables summed out, or None where this does not pay; and, for the log, why it does
    not.

    Parameters
    ----------
    dearest : the largest factor by which an evaluation of the log density may take more work with the
        variables summed out
    """
    if not width_of_models():
        too_narrow = ": with 32 bits, sums over many states lose too much."
        return None, f'{too_narrow} dtype="float64" sums them out.'
    try:
        collapsed = Collapsed.of(model, names)
    except (NotImplementedError, ValueError) as error:
        return None, f". {str(error).splitlines()[0]}"
    if collapsed.parts():
        return None, (
            ": all sites together are too many, and parts of them in turn seldom pay. Those that are named, "
            "in collapse= or CollapsedNUTS, are summed out in parts."
        )
    factor = work(collapsed)
    if factor > dearest:
        return None, (
            f": an evaluation would be {factor:.0f} times the work. {summed_by} sums out all the same."
        )
    return collapsed, ""


def tied_counts(
    density: ModelDensity, moved: Sequence[str], integrated: Sequence[str] = ()
) -> dict[str, list[str]]:
    """{count: the continuous variables among `moved` that share a term with it, if the term computes with the
    count}.

    The prior of a count and terms of coefficients that can be integrated out are left out.
    """
    graph, space = density.graph, density.space
    numbers = ~space.nominal & (space.upper - space.lower > 1)
    counts = {m.name for m in space.members if numbers[m.start : m.start + m.size].any()}
    found: dict[str, list[str]] = {}
    for v in graph.values:
        for name in counts.intersection(graph.groups.get(v, [str(v.name)])):
            for term_name, term in graph.terms:
                if name in graph.written_as_one.get(term_name, [term_name]):
                    continue
                partners = moved_above([term], graph, moved)
                if (
                    partners
                    and not partners.intersection(integrated)
                    and v in set(ancestors([term]))
                    and by_amount(v, term)
                    and not gaussian(v, term, density)
                ):
                    found[name] = sorted({*found.get(name, []), *partners})
    return {name: found[name] for name in density.names if name in found}


def tied_labels(
    density: ModelDensity, moved: Sequence[str]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Labels that, given everything else, depend on few other labels, with the variables among `moved` that
    they mix slowly with.

    Returns
    -------
    labels : {labels of unknown probabilities that index two or more variables: these variables}
    weighted : {other labels of unknown probabilities: the variables that these probabilities depend on}
    """
    graph, space = density.graph, density.space
    nominal = {m.name for m in space.members if m.size > 1 and is_label(space, m)}
    nominal -= in_large_groups(density, nominal)
    labels: dict[str, list[str]] = {}
    weighted: dict[str, list[str]] = {}
    for v in graph.values:
        for name in nominal.intersection(graph.groups.get(v, [str(v.name)])):
            weights, chosen_from = set(), set()
            for term_name, term in graph.terms:
                if v not in set(ancestors([term])):
                    continue
                if name in graph.written_as_one.get(term_name, [term_name]):
                    weights |= moved_above([term], graph, moved)
                else:
                    chosen_from |= moved_above(tables_of(v, term), graph, moved)
            if weights and len(chosen_from - weights) > 1:
                labels[name] = sorted(chosen_from)
            elif weights:
                weighted[name] = sorted(weights)
    return labels, weighted


def in_large_groups(density: ModelDensity, names: set[str]) -> set[str]:
    """The named variables with a site that, given everything else, depends on many of the other sites.

    The skills of one person are a small group, and the skills of many persons are many small groups. The
    states of a hidden Markov chain are a large group, as is a vector that one term reads as a whole. If there
    are few groups, a joint draw of a group's sites is as good as a sum over them, so that a group also counts
    as large if it has more sites than there are groups.
    """
    space, plan = density.space, density.plan
    among, of_site = np.zeros(space.d, bool), space.names
    for m in space.members:
        among[m.start : m.start + m.size] = m.name in names
    pairs = [np.zeros((0, 2), int)]
    for term in plan.sparse:
        sites = plan.dependence.sparse(term.var)
        for one, other in combinations(range(sites.shape[1]), 2):
            pair = sites[:, [one, other]]
            pairs.append(pair[(pair >= 0).all(axis=1) & among[pair].all(axis=1)])
    joined = np.concatenate(pairs)
    graph = coo_array((np.ones(len(joined)), joined.T), shape=(space.d, space.d))
    _, group = connected_components(graph, directed=False)
    size = np.bincount(group)
    together = size[group] > 1
    groups = len(np.unique(group[together]))
    large = together & (size[group] > min(MOST_LABELS_TOGETHER, groups))
    above = set(ancestors([term.var for term in plan.dense]))
    dense = {
        name
        for v in density.graph.values
        if v in above
        for name in density.graph.groups.get(v, [str(v.name)])
    }
    return names & {*of_site[large], *dense}


def is_label(space: Space, member: Member) -> bool:
    """Whether the values of each element of a variable are categories, or two neighbouring integers."""
    sites = slice(member.start, member.start + member.size)
    return bool((space.nominal[sites] | (space.upper[sites] - space.lower[sites] == 1)).all())


def tables_of(value: Variable, term: Variable) -> list[Variable]:
    """The tensors of a term that are indexed by a variable."""
    found = []
    depends = Depends([value])
    for node in toposort([term], blockers=[value]):
        op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
        if isinstance(op, AdvancedSubtensor) and any(i in depends for i in node.inputs[1:]):
            found.append(node.inputs[0])
    return found


def moved_above(variables: Sequence[Variable], graph: LogpGraph, moved: Sequence[str]) -> set[str]:
    """The names among `moved` of variables from which at least one of the tensors `variables` is computed."""
    above = set(ancestors(variables))
    return {
        each
        for other in graph.others
        if other in above
        for each in graph.groups.get(other, [str(other.name)])
        if each in moved
    }


def by_amount(value: Variable, term: Variable) -> bool:
    """Whether a term does arithmetic with a variable, rather than only compare it or use it as an index."""
    same = {value}  # tensors of the variable's own values, as they are, cast or rearranged
    for node in toposort([term], blockers=[value]):
        here = [i in same for i in node.inputs]
        if not any(here):
            continue
        op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
        if isinstance(op, Elemwise):
            scalar = op.scalar_op
            if isinstance(scalar, Cast | Identity):
                same.update(node.outputs)
            elif isinstance(scalar, Switch):
                same.update(node.outputs if any(here[1:]) else ())
            elif not isinstance(scalar, SELECTORS):
                return True
        elif isinstance(op, CAReduce | Dot):
            return True
        elif here[0] or not isinstance(op, Subtensor | AdvancedSubtensor):
            same.update(node.outputs)
    return False


def gaussian(value: Variable, term: Variable, density: ModelDensity) -> bool:
    """Whether a term is quadratic in a variable, as if the variable was measured with a Normal error.

    The measurement then determines the variable by itself, whatever the other unknowns of the term are.
    """
    joined = Depends(density.graph.others)
    degree = QuadraticDegree([value])
    degrees = [degree.of(t) for t in all_summands(term, density.graph) if t in joined]
    return max(degrees, default=0) == 2


def work(collapsed: Collapsed) -> float:
    """The factor by which an evaluation of the log density takes more work with the variables summed out."""
    plain = sum(len(g.sites) for g in collapsed.sums.elements.groups)
    evaluated = collapsed.sums.repeats or collapsed.sums
    summed = evaluated.elements.entries
    return (WORK_PER_DRAW + summed + evaluated.entries) / (WORK_PER_DRAW + plain)
