"""The log lines about the draws of a run when it ends: the findings of all checks, one line each."""

import importlib
import logging
import threading
from collections.abc import Callable, Mapping

import pymc as pm
from pymc.stats.convergence import SamplerWarning, log_warnings
from xarray import DataTree

from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.findings import CHECKS, Check
from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.diagnostics.registration import import_files
from pymc_discrete.runtime.names import shown

import_files("pymc_discrete.diagnostics.checks")

_log = logging.getLogger("pymc.discrete")


def checks_in_order() -> list[tuple[str, Check]]:
    """All checks, in the order in which their findings are logged."""
    return sorted(CHECKS.items(), key=lambda item: item[1].place)


def import_meanwhile() -> None:
    """Begin to import the modules that `check_convergence` needs, in a thread, while compiled chains run.

    The import takes a third of a second.
    """
    ahead = threading.Thread(target=importlib.import_module, args=["arviz_stats.base"], name="import")
    ahead.start()


def check_convergence(
    tree: DataTree,
    model: pm.Model,
    leaving: Callable[[], dict[str, Leaving]] | None = None,
    finished: bool = False,
    used: Mapping[str, str] | None = None,
) -> None:
    """Log warnings about the draws of a run, one line each.

    Parameters
    ----------
    tree : DataTree, to which the group `conditionals` is added if `leaving` was called
    leaving : () -> {discrete variable: Leaving}, optional
        How probable it is that the sites of each variable change, at the last points of the chains. The
        function is called only if some element stood still or moved rarely, or chains are in different modes.
    finished
        Whether the draws are read from the folder of a finished run, which has already said at length that
        labels are switched.
    used : {discrete variable: the attribute `described` of the step that draws it or the block that sums it
        out}
    """
    facts = Facts(tree, model, leaving, used)
    for name, check in checks_in_order():
        if facts.draws == 1 and not check.of_one_draw:
            continue
        found = check.find(facts)
        if finished and name == "switched_labels":
            if names := facts.switched.names:
                _log.info(f"The labels of {shown(names)} are switched: pmd.relabel puts them in one order.")
            continue
        for line in check.say(found, facts):
            if isinstance(line, SamplerWarning):
                log_warnings([line])
            else:
                _log.warning(line)
    if facts.conditionals is not None:
        tree["conditionals"] = DataTree(facts.conditionals)
