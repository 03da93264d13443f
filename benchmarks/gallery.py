"""The pages of the gallery: the time that pmd.sample and other tools take, and how good their draws are.

python -m benchmarks.gallery --out benchmarks/results/NAME-gallery [--pages raters] [--tools pmd.sample JAGS]

A page is docs/gallery/PAGE.md. Its cells with the tag `model` are run one after another and must leave a
variable `model`. Those with the tag `by-hand`, which are run after them, leave `by_hand`: the model with its
discrete unknowns summed out, as one would have written it before. Every row has a process of its own and
begins without anything compiled. What a page has for JAGS, and what its draws are judged by where that is not
each unknown by itself, is listed in PAGES.
"""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks import harness, scores
from benchmarks.jags_program import JagsModel, run_jags

GALLERY = harness.ROOT / "docs" / "gallery"
CHAINS, TUNE, DRAWS = 4, 1000, 1000
SECONDS = 10  # of sampling, of JAGS
SIGMAS = 5.0
QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


# ---------------------------------------------------------------- pages
@dataclass(frozen=True)
class Page:
    """What a page needs beside its cells.

    Attributes
    ----------
    summaries : posterior (Dataset) -> {name: (chains, draws)}, what draws are judged by; by default each
        element of each unknown
    jags : {name: value} of what the cells left -> JagsModel of one form
    collapse : of pmd.sample, as on the page; where it is True, AutoStep gives way to CollapsedNUTS
    """

    summaries: Callable | None = None
    jags: Callable | None = None
    collapse: bool | str = "auto"


RATERS = """model {
  share ~ ddirch(a)
  for (j in 1:5) { for (k in 1:4) {
    answers[j, k, 1:4] ~ ddirch(b[k, ])
    right[4 * (j - 1) + k] <- answers[j, k, k]
  } }
  for (i in 1:45) { z[i] ~ dcat(share) }
  for (n in 1:315) { y[n] ~ dcat(answers[rater[n], z[patient[n]], 1:4]) }
}"""


def raters_in_jags(page):
    names = [f"answers[{r}, {k}, {k}]" for r in "ABCDE" for k in range(1, 5)]
    return jags_model(
        RATERS,
        {"share": (4,), "right": (20,)},
        lambda a: elements("share", range(1, 5), a["share"]) | dict(zip(names, a["right"].T, strict=True)),
        {
            "a": page["share_prior"],
            "b": page["answers_prior"],
            "rater": page["rater"] + 1,
            "patient": page["patient"] + 1,
            "y": page["answer"] + 1,
        },
    )


COAL = """model {
  switchpoint ~ dcat(p)
  early ~ dexp(1)
  late ~ dexp(1)
  for (t in 1:111) {
    rate[t] <- ifelse(t <= switchpoint, early, late)
    y[t] ~ dpois(rate[t])
  }
}"""


def coal_in_jags(page):
    return jags_model(
        COAL,
        {"switchpoint": (), "early": (), "late": ()},
        lambda a: {"early": a["early"], "late": a["late"], "switchpoint": a["switchpoint"] + 1850},
        {"p": np.full(111, 1 / 111), "y": page["disasters"]},
    )


SPRINKLER = """model {
  cloudy ~ dbeta(1, 1)
  for (k in 1:2) { sprinkler[k] ~ dbeta(1, 1) }
  for (k in 1:2) { rain[k] ~ dbeta(1, 1) }
  for (k in 1:4) { wet[k] ~ dbeta(1, 1) }
  for (i in 1:n) {
    y[i, 1] ~ dbern(cloudy)
    y[i, 2] ~ dbern(sprinkler[y[i, 1] + 1])
    y[i, 3] ~ dbern(rain[y[i, 1] + 1])
    y[i, 4] ~ dbern(wet[2 * y[i, 2] + y[i, 3] + 1])
  }
}"""


def sprinkler_in_jags(page):
    def summaries(a):
        wet = {f"p_wet[{k // 2}, {k % 2}]": a["wet"][:, k] for k in range(4)}
        two = elements("p_sprinkler", range(2), a["sprinkler"]) | elements("p_rain", range(2), a["rain"])
        return {"p_cloudy": a["cloudy"]} | two | wet

    return jags_model(
        SPRINKLER,
        {"cloudy": (), "sprinkler": (2,), "rain": (2,), "wet": (4,)},
        summaries,
        {"n": len(page["days"]), "y": page["days"].to_numpy()},
    )


def sorted_components(posterior):
    """Means and weights of a mixture in the order of the means, which no labels enter."""
    mu, w = (posterior[name].transpose("chain", "draw", ...).to_numpy() for name in ("mu", "w"))
    order = mu.argsort(axis=2)
    return {
        f"{name}, component {k + 1}": np.take_along_axis(values, order, axis=2)[..., k]
        for name, values in (("mu", mu), ("w", w))
        for k in range(mu.shape[2])
    }


OCCUPANCY = """model {
  for (k in 1:4) { b[k] ~ dnorm(0, 1 / 1.5^2) }
  for (k in 1:2) { a[k] ~ dnorm(0, 1 / 1.5^2) }
  for (i in 1:267) {
    logit(psi[i]) <- b[1] + b[2] * forest[i] + b[3] * elevation[i] + b[4] * elevation[i]^2
    z[i] ~ dbern(psi[i])
  }
  for (j in 1:n) {
    logit(p[j]) <- a[1] + a[2] * day[j]
    y[j] ~ dbern(z[square[j]] * p[j])
  }
  occupied <- sum(z)
}"""


def occupancy_in_jags(page):
    def summaries(a):
        found = elements("occupancy", page["coords"]["of occupancy"], a["b"])
        found |= elements("detection", page["coords"]["of detection"], a["a"])
        return found | {"occupied": a["occupied"]}

    data = {name: page[name] for name in ("forest", "elevation", "day", "y")}
    return jags_model(
        OCCUPANCY,
        {"b": (4,), "a": (2,), "occupied": ()},
        summaries,
        data | {"n": len(page["y"]), "square": page["square"] + 1},
        {"z": page["ever_seen"]},
    )


CAPTURES = """model {
  for (k in 1:2) { survival[k] ~ dbeta(1, 1) }
  capture ~ dbeta(1, 1)
  for (i in 1:n) {
    z[i, first[i]] <- 1
    for (t in (first[i] + 1):7) {
      z[i, t] ~ dbern(z[i, t - 1] * survival[kind[t - 1]])
      y[i, t] ~ dbern(z[i, t] * capture)
    }
  }
}"""


def captures_in_jags(page):
    known = page["first"] < 6  # birds ringed in the last year say nothing
    first, last = page["first"][known], page["last"][known]
    year = np.arange(7)
    start = np.where(year > first[:, None], (year <= last[:, None]).astype(float), np.nan)
    return jags_model(
        CAPTURES,
        {"survival": (2,), "capture": ()},
        lambda a: elements("survival", ["ordinary", "flood"], a["survival"]) | {"capture": a["capture"]},
        {"n": known.sum(), "first": first + 1, "kind": page["flood"] + 1, "y": page["caught"][known]},
        {"z": start},
    )


BIRDS = """model {
  for (k in 1:2) { b[k] ~ dnorm(0, 1 / 1.5^2) }
  for (k in 1:2) { a[k] ~ dnorm(0, 1 / 1.5^2) }
  for (i in 1:100) {
    N[i] ~ dpois(exp(b[1] + b[2] * vegetation[i]))
    for (j in 1:3) { y[i, j] ~ dbin(ilogit(a[1] + a[2] * wind[i, j]), N[i]) }
  }
  total <- sum(N)
}"""


def birds_in_jags(page):
    def summaries(a):
        found = elements("abundance", ["intercept", "vegetation"], a["b"])
        return found | elements("detection", ["intercept", "wind"], a["a"]) | {"total": a["total"]}

    return jags_model(
        BIRDS,
        {"b": (2,), "a": (2,), "total": ()},
        summaries,
        {"vegetation": page["vegetation"], "wind": page["wind"], "y": page["counts"]},
        {"N": page["most"] + 2},
    )


SELECTION = """model {
  share ~ dbeta(1, 9)
  slab ~ dnorm(0, 4)T(0,)
  noise ~ dnorm(0, 1)T(0,)
  for (k in 1:64) {
    counts[k] ~ dbern(share)
    effect[k] ~ dnorm(0, 1 / slab^2)
    b[k] <- counts[k] * effect[k]
  }
  for (i in 1:442) { y[i] ~ dnorm(inprod(X[i, ], b), 1 / noise^2) }
}"""


def selection_in_jags(page):
    def summaries(a):
        names = ("share", "slab", "noise")
        return {name: a[name] for name in names} | elements("effect", page["columns"], a["effect"])

    return jags_model(
        SELECTION,
        {"share": (), "slab": (), "noise": (), "effect": (64,)},
        summaries,
        {"X": page["X"], "y": page["y"]},
    )


RABBITS = """model {
  psi ~ dbeta(1, 1)
  mu ~ dnorm(0, 1 / 4)
  spread ~ dnorm(0, 1)T(0,)
  for (i in 1:n) {
    own[i] ~ dnorm(0, 1)
    z[i] ~ dbern(psi)
    y[i] ~ dbin(z[i] * ilogit(mu + spread * own[i]), 18)
  }
  N <- sum(z)
}"""


def rabbits_in_jags(page):
    return jags_model(
        RABBITS,
        {"psi": (), "mu": (), "spread": (), "N": ()},
        lambda a: {"psi": a["psi"], "mean": a["mu"], "spread": a["spread"], "N": a["N"]},
        {"n": page["listed"], "y": page["captures"]},
        {"z": (page["captures"] > 0).astype(int)},
    )


def named(*names):
    """A function of the posterior that gives the elements of these variables, as far as it has them."""

    def summaries(posterior):
        present = [name for name in names if name in posterior]
        return {k: v for name in present for k, v in of_elements(posterior[name]).items()}

    return summaries


PAGES = {
    "capture_recapture": Page(named("survival", "capture", "number alive"), captures_in_jags),
    "changepoints": Page(jags=coal_in_jags),
    "data_augmentation": Page(named("psi", "mean", "spread", "N"), rabbits_in_jags, collapse=True),
    "missing_data": Page(jags=sprinkler_in_jags),
    "mixtures": Page(summaries=sorted_components),
    "n_mixture": Page(named("abundance", "detection", "total"), birds_in_jags),
    "occupancy": Page(named("occupancy", "detection", "occupied"), occupancy_in_jags, collapse=True),
    "raters": Page(jags=raters_in_jags),
    "variable_selection": Page(jags=selection_in_jags),
}


def of_page(page):
    return PAGES.get(page, Page())


def jags_model(text, watched, summaries, data, start=None):
    return JagsModel(
        title="",
        pymc=lambda: None,
        summaries=lambda a: a,
        jags={"": text},
        watched=watched,
        jags_summaries=summaries,
        start=lambda y: start or {},
        data=data,
    )


def elements(name, labels, draws):
    """{name[label]: (draws,)} of draws (draws, labels)."""
    return {f"{name}[{label}]": draws[:, k] for k, label in enumerate(labels)}


def cells(page, tag):
    """The code of the cells of a page that have a tag, in their order."""
    from myst_nb.core.read import read_myst_markdown_notebook

    notebook = read_myst_markdown_notebook((GALLERY / f"{page}.md").read_text())
    return [c.source for c in notebook.cells if c.cell_type == "code" and tag in c.metadata.get("tags", ())]


def run_cells(page, *tags):
    """What the cells of a page with these tags leave, {name: value}; paths in them start in the gallery."""
    left = {}
    with contextlib.chdir(GALLERY):
        for tag in tags:
            for number, source in enumerate(cells(page, tag)):
                exec(compile(source, f"{page}.md, {tag} {number}", "exec"), left)
    return left


# ---------------------------------------------------------------- tools
# each: page -> (seconds from the call to the result, by processor and clock, DataTree, names of unknowns)
def now():
    """Seconds of the processor, with those of processes that have ended, and of the clock."""
    return np.array([sum(os.times()[:4]), time.perf_counter()])


def of_pymc(page, tags, name, sample):
    left = run_cells(page, *tags)
    with left[name] as model:
        begin = now()
        tree = sample()
        seconds = now() - begin
    return seconds, tree, [rv.name for rv in model.free_RVs]


def with_ours(page):
    import pymc_discrete as pmd

    options = QUIET | {"collapse": of_page(page).collapse}
    return of_pymc(page, ["model"], "model", lambda: pmd.sample(DRAWS, TUNE, CHAINS, **options))


def again(page):
    import pymc_discrete as pmd

    left, options = run_cells(page, "model"), QUIET | {"collapse": of_page(page).collapse}
    with left["model"]:
        pmd.sample(DRAWS, TUNE, CHAINS, **options)
        begin = now()
        tree = pmd.sample(DRAWS, TUNE, CHAINS, **options | {"random_seed": 2})
        seconds = now() - begin
    return seconds, tree, [rv.name for rv in left["model"].free_RVs]


def in_pm_sample(tags, name, step=lambda page: None):
    def run(page):
        import pymc as pm

        def sample():
            return pm.sample(DRAWS, tune=TUNE, chains=CHAINS, step=step(page), **QUIET)

        return of_pymc(page, tags, name, sample)

    return run


def our_step(page):
    import pymc_discrete as pmd

    return pmd.CollapsedNUTS() if of_page(page).collapse is True else pmd.AutoStep()


JAGS, BY_HAND = "JAGS", "by hand"
TOOLS = {
    "pmd.sample": with_ours,
    "pmd.sample, again": again,
    "pm.sample, AutoStep": in_pm_sample(["model"], "model", our_step),
    "pm.sample": in_pm_sample(["model"], "model"),
    BY_HAND: in_pm_sample(["model", "by-hand"], "by_hand"),
}
OURS = "pmd.sample"


# ---------------------------------------------------------------- how good draws are
def judged(page, tree, names):
    """{summary: {"ess", "rhat"}}, and moments {summary: ...} of what is no category, of a DataTree."""
    summaries = of_page(page).summaries
    posterior = tree["posterior"].to_dataset()
    if summaries:
        return judged_arrays(summaries(posterior))
    discrete = [n for n in names if n in posterior and posterior[n].dtype.kind in "iub"]
    others = [n for n in names if n in posterior and n not in discrete]
    found, moments = judged_arrays({k: v for n in others for k, v in of_elements(posterior[n]).items()})
    if discrete:
        import pymc_discrete as pmd

        table = pmd.summary(tree, discrete)
        # of a value that is nearly certain there are too few changes to count effective draws
        uncertain = table[table["P(mode)"] <= 0.95]
        found |= {
            name: {"ess": float(np.nan_to_num(row["ess"])), "rhat": float(row["rhat"])}
            for name, row in uncertain.iterrows()
        }
    return found, moments


def of_elements(draws):
    from pymc_discrete.diagnostics.summary import row_names

    values = draws.transpose("chain", "draw", ...).to_numpy()
    flat = values.reshape(*values.shape[:2], -1)
    return {name: flat[..., i] for i, name in enumerate(row_names(draws.transpose("chain", "draw", ...)))}


def judged_arrays(summaries):
    import arviz as az

    moments = scores.moments(summaries)
    rhat = {n: float(az.rhat(v)) if np.ptp(v) else np.inf for n, v in summaries.items()}
    return {n: {"ess": m["ess"], "rhat": rhat[n]} for n, m in moments.items()}, moments


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--pages", sorted(path.stem for path in GALLERY.glob("*.md") if path.stem != "index"))
    harness.choice(p, "--tools", [*TOOLS, JAGS])
    p.add_argument("--limit", type=float, default=600, help="seconds for a row")


def rows(args, records):
    for page in args.pages:
        for tool in args.tools:
            if tool == BY_HAND and not cells(page, "by-hand"):
                continue
            if tool == JAGS and not (page in PAGES and PAGES[page].jags):
                continue
            with harness.empty_pytensor_cache() as env:
                yield harness.Row({"page": page, "tool": tool}, env)


def measure(args, page, tool):
    if tool == JAGS:
        spec = PAGES[page].jags(run_cells(page, "model"))
        summaries, sampling, before, details = run_jags(spec, spec.jags[""], (), SECONDS, 1, CHAINS, TUNE)
        seconds, draws = before + sampling, CHAINS * next(iter(summaries.values())).shape[1]
        found, moments = judged_arrays(summaries)
    else:
        seconds, tree, names = TOOLS[tool](page)
        draws = tree["posterior"].sizes["chain"] * tree["posterior"].sizes["draw"]
        found, moments = judged(page, tree, names)
        details = {}
    worst = min(found, key=lambda n: found[n]["ess"])
    rhats = [f["rhat"] for f in found.values()]
    return {
        "seconds": float(seconds[0]),
        "clock_seconds": float(seconds[1]),
        "draws": draws,
        "judged": len(found),
        "min_ess": found[worst]["ess"],
        "worst": worst,
        "rhat": float(np.nanmax(rhats)) if not np.isnan(rhats).all() else np.nan,
        "summaries": moments,
        **details,
    }


def progress(r):
    return f"{r['seconds']:.1f} s, least ESS {r['min_ess']:.0f} of {r['worst']}, R-hat {r['rhat']:.3f}"


# ---------------------------------------------------------------- tables
COLUMNS = ["tool", "processor seconds", "draws", "least ESS", "of", "R-hat", "ESS/s"]


def markdown(args, records):
    versions = next((r["jags"] for r in records if "jags" in r), "not run")
    heads = harness.origins([r | {"versions": r["versions"] | {JAGS: versions}} for r in records])
    lines = ["# The gallery's pages", "", *FOOTNOTE, ""]
    order = [*TOOLS, JAGS]
    for page in sorted({r["page"] for r in records}):
        mine = sorted((r for r in records if r["page"] == page), key=lambda r: order.index(r["tool"]))
        # comments mark what the page itself shows
        lines += [f"## {page}", "", f"<!-- begin {page} -->", "", *harness.table(COLUMNS, map(row, mine)), ""]
        lines += [*notes(mine), f"<!-- end {page} -->", ""]
    # rows are measured one page at a time, from many commits
    return "\n".join([*lines, "## Machine, date and versions", "", *(f"- {head}" for head in heads), ""])


def row(r):
    name = harness.label(r["tool"], r["tool"] == OURS)
    if r["status"] != "ok":
        return [name, r["reason"] if r["reason"].startswith(harness.NO_RESULT) else r["status"]]
    rhat = "infinite" if np.isinf(r["rhat"]) else f"{r['rhat']:.3f}"
    per_second = r["min_ess"] / r["seconds"]
    speed = f"{per_second:.3g}" if per_second < 100 else f"{per_second:,.0f}"
    return [
        name,
        f"{r['seconds']:.1f}",
        f"{r['draws']:,}",
        f"{r['min_ess']:,.0f}",
        f"`{r['worst']}`",
        rhat,
        speed,
    ]


def notes(records):
    """Lines on rows that failed, and on means that differ from those of pmd.sample."""
    found = []
    ok = {r["tool"]: r for r in records if r["status"] == "ok"}
    for r in records:
        if r["status"] != "ok":
            found.append(f"- {r['tool']}: {r['reason']}")
        elif OURS in ok and r is not ok[OURS]:
            found += disagreements(r, ok[OURS])
    return [*found, ""] if found else []


def disagreements(r, ours):
    shared = [n for n in r["summaries"] if n in ours["summaries"]]
    for name in shared:
        a, b = r["summaries"][name], ours["summaries"][name]
        z = (a["mean"] - b["mean"]) / np.hypot(a["mcse_mean"], b["mcse_mean"])
        if min(a["ess"], b["ess"]) >= 50 and abs(z) > SIGMAS:
            yield f"- {r['tool']}: the mean of `{name}` **differs** from that of {OURS} (z = {z:.1f})."


FOOTNOTE = f"""- Seconds of the processor, all its cores together, from the call to the result, with nothing
  compiled before; "pmd.sample, again" is the second call in one process. They depend little on what else the
  machine does; the clock shows less where chains run side by side. {CHAINS} chains of {TUNE:,}
  tuning draws and {DRAWS:,} draws.
- Where a page says collapse=True (occupancy, data_augmentation), so do the rows of pmd.sample, and AutoStep
  is CollapsedNUTS.
- pm.sample: PyMC's own steps, as many chains at a time as there are cores. by hand: the page's model with
  its discrete unknowns summed out, by PyMC's NUTS; it draws no discrete unknowns.
- JAGS: without its module glm, {TUNE:,} draws of adaptation and as many of burn-in, then draws for
  {SECONDS} s. It is judged by the continuous unknowns, and by discrete ones where the model has only one.
- Least ESS: bulk ESS (ArviZ) of each element of each continuous unknown; of each element of a discrete one
  whose commonest value has a probability of at most 95 %, the ESS of its categories (`pmd.summary`). R-hat:
  the largest of the same. Of mixtures: of means and weights in the order of the means.
- Means of continuous unknowns that differ from those of pmd.sample by more than {SIGMAS:.0f} Monte Carlo
  errors would be listed.""".splitlines()


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__,
            rows,
            measure,
            markdown,
            progress,
            options,
            short={"pages": ["changepoints"], "tools": ["pmd.sample"]},
            keeps_other_rows=True,
        )
    )
