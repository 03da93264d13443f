"""The number of clusters of partitions: whether chains agree on it, and whether there are enough labels."""

from collections.abc import Sequence

from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.findings import Finding, check
from pymc_discrete.diagnostics.labels.clusters import number_name
from pymc_discrete.diagnostics.verdicts import effective_per_chain, slow
from pymc_discrete.distributions.partition import labels_and_clusters

FEW_LABELS, SLOW = "too few labels", "mixes slowly"


def said_of_clusters(found: Sequence[Finding], facts: Facts) -> list[str]:
    return [{FEW_LABELS: too_few_labels, SLOW: slow_number}[one.kind](one) for one in found]


def slow_number(found: Finding) -> str:
    return (
        f"The number of clusters of {found.names[0]!r} mixes slowly: R-hat is "
        f"{found.measured['rhat']:.2f}, and there are "
        f"{found.measured['effective draws per chain']:.0f} effective draws per chain. Draw more."
    )


def too_few_labels(found: Finding) -> str:
    most, labels = found.measured["most"], found.measured["labels"]
    return (
        f"{found.names[0]!r} has up to {most} clusters in a draw, and {labels} labels: its prior is that "
        f"given at most {labels} clusters, and leaves out larger numbers that may be probable. Pass a larger "
        "max_clusters=."
    )


@check(place=65, say=said_of_clusters)
def number_of_clusters(facts: Facts) -> list[Finding]:
    """Partitions whose chains disagree about the number of clusters, or that have too few labels.

    | `The number of clusters of 'z' mixes slowly` | clusters are split and merged seldom | more draws; a
    conjugate prior of what belongs to clusters, which is integrated out by default |

    | `'z' has up to 19 clusters in a draw, and 20 labels` | the prior is that given at most 20 clusters, and
    the posterior would have more | a larger `max_clusters=` |
    """
    found = []
    for name in facts.partitions:
        number, (labels, possible) = number_name(name), labels_and_clusters(facts.model[name])
        most = int(facts.judge.all[number].max())
        if 1 < labels < possible and most >= labels - 1:
            found.append(Finding(FEW_LABELS, (name,), measured={"most": most, "labels": labels}))
        rhat, ess = (float(facts.judge.of(number).columns[c][0]) for c in ("rhat", "ess"))
        each = effective_per_chain(ess, rhat, facts.chains)
        if facts.compared and slow(each):
            measured = {"rhat": rhat, "effective draws per chain": ess / facts.chains}
            found.append(Finding(SLOW, (name,), measured=measured))
    return found
