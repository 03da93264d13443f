"""Whether every chain visits the modes that many long chains know: selection among 300 correlated columns.

python -m benchmarks.modes --out benchmarks/results/NAME-modes
"""

import time

import numpy as np

from benchmarks import harness
from benchmarks.tied import SPECS

FREQUENT = 0.02  # the least probability of a mode: of a pattern of a block's five indicators
SHORT = (250, 500, 1000, 2000)  # draws


def patterns(g):
    """(chains, draws, blocks) int, which of the five columns of each block are active, as bits."""
    return g.reshape(*g.shape[:-1], -1, 5) @ 2 ** np.arange(5)


def visits(of, modes):
    """(chains, modes) bool, whether each chain has been at each mode.

    of : (chains, draws, blocks) int
    modes : [(block, pattern)]
    """
    return np.stack([(of[:, :, block] == pattern).any(1) for block, pattern in modes], axis=1)


# ---------------------------------------------------------------- rows
def options(p):
    p.add_argument("--chains", type=int, default=20)
    p.add_argument("--draws", type=int, default=2000)
    p.add_argument("--limit", type=float, default=1500, help="seconds")


def rows(args, records):
    yield harness.Row({"model": "A'"})


def measure(args, model):
    import pymc_discrete as pmd

    begin = time.process_time()
    built, _ = SPECS[model].pymc()
    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    tree = pmd.sample(args.draws, tune=500, chains=args.chains, model=built, **quiet)
    seconds = time.process_time() - begin
    of = patterns(tree["posterior"]["g"].values)
    blocks = range(of.shape[-1])
    modes = [
        (b, int(k)) for b in blocks for k in np.unique(of[:, :, b]) if (of[:, :, b] == k).mean() >= FREQUENT
    ]
    share = np.stack([(of[:, :, block] == pattern).mean(1) for block, pattern in modes], axis=1)
    short = [n for n in SHORT if n <= args.draws]
    missed = {n: (~visits(of[:, :n], modes)).sum(1).tolist() for n in short}
    return {
        "chains": args.chains,
        "draws": args.draws,
        "seconds": seconds,
        "modes": len(modes),
        "of several": len({b for b, _ in modes if sum(b == c for c, _ in modes) > 1}),
        "missed": {str(n): m for n, m in missed.items()},
        "apart": float(np.abs(share - share.mean(0)).max()),
    }


def progress(r):
    return f"{r['modes']} modes, missed {r['missed']}"


def markdown(args, records):
    lines = [
        [n, str(sum(k == 0 for k in missed)), str(max(missed))]
        for r in records
        if r["status"] == "ok"
        for n, missed in r["missed"].items()
    ]
    said = [
        f"- {r['chains']} chains of {r['draws']} draws after 500 tuning draws, {r['seconds']:.0f} seconds of "
        f"the processor, together know {r['modes']} modes; {r['of several']} of 60 blocks have several. "
        f"The share of a mode in a chain differs from that in all chains by at most {r['apart']:.3f}."
        for r in records
        if r["status"] == "ok"
    ]
    return "\n".join(
        [
            "# Modes among correlated columns",
            "",
            *harness.origins(records),
            "",
            *harness.table(
                ["first draws of each chain", "chains that visit all modes", "most modes missed"], lines
            ),
            "",
            "- 200 rows, 300 columns in blocks of five, correlated 0.9; one column of six blocks matters.",
            "  Noise, scale and share of active columns are unknown; coefficients are integrated out.",
            "- A mode: which of a block's five columns are active, where all chains together are there in",
            f"  {FREQUENT:.0%} of the draws or more.",
            *said,
        ]
    )


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__, rows, measure, markdown, progress, options, short={"chains": 2, "draws": 250}
        )
    )
