"""The warnings of PyMC's own checks, and the elements that they are about."""

from collections.abc import Sequence

from pymc.stats.convergence import SamplerWarning, WarningType

from pymc_discrete.diagnostics.checks.ties import called, slowest
from pymc_discrete.diagnostics.draws import labels_in_draws
from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.findings import SHOWN, Finding, check


def said_by_pymc(found: Sequence[Finding], facts: Facts) -> list[SamplerWarning]:
    warnings = with_tree_depth_in_one([one.measured["warning"] for one in found], facts.chains)
    untuned = facts.posterior.attrs.get("tuning_steps") == 0
    return [asking_for_tuning(w) for w in warnings] if untuned else warnings


@check(place=40, say=said_by_pymc, of_one_draw=True)
def warnings_of_pymc(facts: Facts) -> list[Finding]:
    """Divergences, tree depth, R-hat and few effective draws, as PyMC reports them.

    | `There were 119 divergences after tuning. Nothing was tuned ...` | with `tune=0` NUTS keeps the step
    size it began with | `tune=1000`. PyMC's own message, after `pm.sample`, says to increase `target_accept`,
    which changes nothing without tuning |
    """
    return [Finding(w.kind.name.lower(), (), measured={"warning": w}) for w in facts.of_pymc.warnings]


def said_of_slowest(found: Sequence[Finding], facts: Facts) -> list[str]:
    return [
        f"Slow, the slowest first: {', '.join(one.measured['series'])}. pmd.summary and az.summary have a "
        f"row for each element.{one.remedy}"
        for one in found
    ]


@check(place=50, say=said_of_slowest)
def slowest_elements(facts: Facts) -> list[Finding]:
    """The elements that PyMC's checks are about, since PyMC's messages name none.

    | `Slow, the slowest first: 'tau' ... enters through round, which has no gradient that NUTS could follow`
    | NUTS sees the prior only, and rejects much of what it proposes |
    `step=pmd.ReparameterizedSlice(['tau'])` |
    """
    continuous = [str(name) for name in facts.posterior.data_vars if str(name) not in facts.discrete]
    worst = slowest(facts.per_chain, continuous)[:SHOWN]
    if not worst:
        return []
    names = tuple(dict.fromkeys(name for name, _ in worst))
    series = [called(name, labels_in_draws(facts.posterior[name]), i) for name, i in worst]
    return [Finding("slow", names, measured={"series": series}, remedy=facts.remedies.slow(names))]


def with_tree_depth_in_one(warnings: list[SamplerWarning], chains: int) -> list[SamplerWarning]:
    """The warnings, where a single warning replaces the warnings of many chains about their tree depth."""
    deep = [w for w in warnings if w.kind is WarningType.TREEDEPTH]
    if len(deep) <= SHOWN:
        return warnings
    text = (
        f"{len(deep)} of {chains} chains reached the maximum tree depth. Increase "
        f"nuts={{'max_treedepth': ...}} or target_accept."
    )
    return [w for w in warnings if w not in deep] + [SamplerWarning(WarningType.TREEDEPTH, text, "warn")]


def asking_for_tuning(warning: SamplerWarning) -> SamplerWarning:
    """The warning; if it is about trajectories of NUTS and nothing was tuned, its remedy becomes tuning."""
    if warning.kind not in (WarningType.DIVERGENCES, WarningType.TREEDEPTH):
        return warning
    found = warning.message.split(" Increase")[0]
    text = f"{found} Nothing was tuned, neither step size nor mass matrix: pass tune=1000 in place of tune=0."
    return SamplerWarning(warning.kind, text, warning.level)
