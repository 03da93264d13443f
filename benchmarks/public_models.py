"""Public models with discrete unknowns, as their sources or communities state them, sampled by default.

The data of posteriordb and of the BUGS examples are one JSON file for each, in a folder that is named; those
of `benchmarks.community_models` need none.

python -m benchmarks.public_models --data FOLDER --models stagnant --out benchmarks/results/NAME-public
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks import community_models, harness

ordered = pm.distributions.transforms.ordered


@dataclass(frozen=True)
class Public:
    """A public model.

    Attributes
    ----------
    build : the data of its file, if it has one -> pm.Model, with the discrete unknowns in it
    file : the name of its file, without ".json"; empty if the model has its data
    watched : variables of which R-hat and effective draws are reported; all continuous ones by default
    labels : a variable of exchangeable labels and the dimensions of what belongs to them: they are relabelled
        before R-hat is computed. Empty by default
    """

    build: Callable[..., pm.Model]
    file: str = ""
    watched: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


# ---------------------------------------------------------------- changepoints
def stagnant(data):
    """BUGS, volume 2: two lines that meet at one of the observed x."""
    x, y = np.asarray(data["x"]), np.asarray(data["y"])
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 0, len(x) - 1)
        alpha, beta = pm.Normal("alpha", 0, 1000), pm.Normal("beta", 0, 1000, shape=2)
        tau = pm.Gamma("tau", 0.001, 0.001, initval=1.0)
        after = pt.cast(np.arange(len(x)) > k, "int64")
        mu = alpha + beta[after] * (x - pt.as_tensor(x)[k])
        pm.Normal("y", mu, tau=tau, observed=y)
    return model


# ---------------------------------------------------------------- mixtures and hidden Markov models
def hmm_gaussian(data, states=3):
    """posteriordb: three states, of which all is unknown."""
    y = np.asarray(data["y"])
    with pm.Model() as model:
        pi = pm.Dirichlet("pi", np.ones(states))
        A = pm.Dirichlet("A", np.ones((states, states)))
        mu = pm.Flat("mu", shape=states, transform=ordered, initval=np.quantile(y, [0.2, 0.5, 0.8]))
        sigma = pm.HalfFlat("sigma", shape=states)
        z0 = pm.Categorical("z0", pi)
        rest = pm.Categorical("z", p=np.ones(states) / states, shape=len(y) - 1)
        z = pt.concatenate([z0[None], rest])
        # uniform by itself, so that all states but the first have the prior that the transitions give
        pm.Potential("transitions", pt.log(A)[z[:-1], z[1:]].sum())
        pm.Normal("y", mu[z], sigma[z], observed=y)
    return model


def low_dim_gauss_mix_collapse(data):
    """posteriordb: two components whose labels may switch."""
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 2, shape=2), pm.HalfNormal("sigma", 2, shape=2)
        theta = pm.Beta("theta", 5, 5)
        z = pm.Bernoulli("z", theta, shape=len(data["y"]))
        pm.Normal("y", mu[1 - z], sigma[1 - z], observed=np.asarray(data["y"]))
    return model


def normal_5(data, components=5):
    """posteriordb: five components, whose labels may switch."""
    y = np.asarray(data["y"])
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.ones(components))
        mu = pm.Normal("mu", 0, 10, shape=components)
        sigma = pm.Uniform("sigma", 0, 10, shape=components)
        z = pm.Categorical("z", theta, shape=len(y))
        pm.Normal("y", mu[z], sigma[z], observed=y)
    return model


def eyes(data):
    """BUGS, volume 2: two groups of wavelengths, the second at an unknown distance above the first."""
    with pm.Model() as model:
        P = pm.Dirichlet("P", np.ones(2))
        first, theta = pm.Normal("first", 530, 1000, initval=535), pm.HalfNormal("theta", 1000, initval=5)
        tau = pm.Gamma("tau", 0.001, 0.001, initval=0.1)
        group = pm.Categorical("group", P, shape=len(data["y"]))
        pm.Normal("y", pt.stack([first, first + theta])[group], tau=tau, observed=np.asarray(data["y"]))
    return model


def lda(data, topics=5):
    """posteriordb: documents that mix topics; each word comes from one of them."""
    words, documents = np.asarray(data["w"]), np.asarray(data["doc"])
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.ones(topics), shape=(documents.max() + 1, topics))
        phi = pm.Dirichlet("phi", np.ones(words.max() + 1), shape=(topics, words.max() + 1))
        z = pm.Categorical("z", theta[documents])
        pm.Categorical("w", phi[z], observed=words)
    return model


# ---------------------------------------------------------------- unknown indicators
def cervix(data):
    """BUGS, volume 2: cases and controls, of whom most have the exposure x measured with errors only."""
    x = np.array([np.nan if v is None else v for v in data["x"]], float)
    d, w = np.asarray(data["d"]), np.asarray(data["w"])
    with pm.Model() as model:
        beta0, beta = pm.Normal("beta0", 0, 1000), pm.Normal("beta", 0, 1000)
        q, phi = pm.Uniform("q", 0, 1), pm.Uniform("phi", 0, 1, shape=(2, 2))
        exposed = pm.Bernoulli("x", q, observed=np.ma.masked_invalid(x))
        pm.Bernoulli("d", logit_p=beta0 + beta * exposed, observed=d)
        pm.Bernoulli("w", phi[exposed, d], observed=w)
    return model


def butterfly(data):
    """posteriordb: which of 50 species live where; 28 were seen."""
    X, K, S = np.asarray(data["X"]), data["K"], data["S"]
    seen = np.zeros((S, X.shape[1]), int)
    seen[: len(X)] = X
    with pm.Model() as model:
        alpha, beta = pm.Cauchy("alpha", 0, 2.5), pm.Cauchy("beta", 0, 2.5)
        omega, rho = pm.Beta("omega", 2, 2), pm.Beta("rho", 2, 2)
        sigma = pm.HalfCauchy("sigma", 2.5, shape=2)
        raw = pm.Normal("raw", shape=(S, 2))
        r = 2 * rho - 1
        u = alpha + sigma[0] * raw[:, 0]
        v = beta + sigma[1] * (r * raw[:, 0] + pt.sqrt(1 - r**2) * raw[:, 1])
        present = pm.Bernoulli("present", omega, shape=S)
        here = pm.Bernoulli("here", present[:, None] * pm.math.sigmoid(u)[:, None], shape=seen.shape)
        pm.Binomial("X", K, here * pm.math.sigmoid(v)[:, None], observed=seen)
    return model


def asia(data):
    """BUGS, volume 2: Lauritzen and Spiegelhalter's network of tests and diseases."""
    tables = {name: pt.as_tensor(np.asarray(p, float)) for name, p in data.items() if name.startswith("p_")}
    with pm.Model() as model:
        smoking = pm.Categorical("smoking", tables["p_smoking"])
        tuberculosis = pm.Categorical("tuberculosis", tables["p_tuberculosis"][data["asia"] - 1])
        lung = pm.Categorical("lung_cancer", tables["p_lung_cancer"][smoking])
        bronchitis = pm.Categorical("bronchitis", tables["p_bronchitis"][smoking])
        either = pt.maximum(tuberculosis, lung)
        pm.Categorical("xray", tables["p_xray"][either])
        answers = tables["p_dyspnoea"][either, bronchitis]
        pm.Categorical("dyspnoea", answers, observed=data["dyspnoea"] - 1)
    return model


MODELS = {
    "stagnant": Public(stagnant, "stagnant", ("k", "alpha", "beta", "tau")),
    "hmm_gaussian": Public(hmm_gaussian, "hmm_gaussian"),
    "low_dim_gauss_mix_collapse": Public(
        low_dim_gauss_mix_collapse,
        "low_dim_gauss_mix_collapse",
        ("mu", "sigma"),
        ("z", "mu_dim_0", "sigma_dim_0"),
    ),
    "normal_5": Public(
        normal_5,
        "normal_5",
        ("theta", "mu", "sigma"),
        ("z", "theta_dim_0", "mu_dim_0", "sigma_dim_0"),
    ),
    "eyes": Public(eyes, "eyes", ("P", "first", "theta", "tau")),
    "lda": Public(lda, "lda_three_docs1200", ("theta",), ("z", "theta_dim_1", "phi_dim_0")),
    "cervix": Public(cervix, "cervix", ("beta", "beta0", "phi", "q")),
    "butterfly": Public(butterfly, "butterfly", ("alpha", "beta", "omega", "sigma", "rho")),
    "asia": Public(asia, "asia", ("smoking", "tuberculosis", "lung_cancer", "bronchitis", "xray")),
    **{name: Public(build) for name, build in community_models.MODELS.items()},
}


# ---------------------------------------------------------------- rows
def rows(args, records):
    return (harness.Row({"model": name, "seed": seed}) for name in args.models for seed in args.seeds)


def measure(args, model, seed):
    """The model sampled by default, with four chains."""
    import arviz as az

    import pymc_discrete as pmd

    public = MODELS[model]
    files = [args.data / f"{public.file}.json"] if public.file else []
    built = public.build(*(json.loads(file.read_text()) for file in files))
    start = time.process_time()
    tree = pmd.sample(args.draws, args.draws, model=built, random_seed=seed, progressbar=False)
    seconds = time.process_time() - start
    if public.labels:
        z, *dims = public.labels
        tree = pmd.relabel(tree, z, dims)
    discrete = {str(v.name) for v in built.discrete_value_vars}
    names = list(public.watched) or [n for n in tree["posterior"].data_vars if n not in discrete]
    posterior = tree["posterior"].to_dataset()[names].astype(float)
    rhat, ess = ({n: of[n].to_numpy() for n in names} for of in (az.rhat(posterior), az.ess(posterior)))
    slowest = min(names, key=lambda n: ess[n].min())
    stats = tree["sample_stats"]
    return {
        "rhat": float(max(a.max() for a in rhat.values())),
        "ess": float(ess[slowest].min()),
        "slowest": slowest,
        "diverging": int(stats["diverging"].sum()) if "diverging" in stats else 0,
        "seconds": seconds,
        "steps": tree["posterior"].attrs["steps"],
        "draws": args.draws,
    }


# ---------------------------------------------------------------- the table
COLUMNS = [
    "model",
    "seed",
    "draws of a chain",
    "R-hat",
    "effective draws",
    "slowest",
    "divergences",
    "processor seconds",
    "steps",
]


def markdown(args, records):
    lines = [
        "# Public models, sampled by default",
        "",
        __doc__.splitlines()[0],
        "",
        "- four chains, with as many draws of tuning as after it",
        "- R-hat and effective draws (bulk) are the worst of all that is watched",
        "- seconds of the processor, compiling and tuning included",
        *(
            f"- {name}: after `pmd.relabel`"
            for name in dict.fromkeys(r["model"] for r in records)
            if MODELS[name].labels
        ),
        *(f"- {line}" for line in harness.origins(records)),
        "",
    ]
    cells = [
        [
            r["model"],
            r["seed"],
            *(
                [
                    r["draws"],
                    f"{r['rhat']:.3f}",
                    round(r["ess"]),
                    r["slowest"],
                    r["diverging"],
                    round(r["seconds"]),
                    r["steps"],
                ]
                if r["status"] == "ok"
                else [f"{r['status']}: {r['reason']}"]
            ),
        ]
        for r in records
    ]
    return "\n".join([*lines, *harness.table(COLUMNS, cells)]) + "\n"


def options(p):
    harness.choice(p, "--models", MODELS)
    p.add_argument("--data", type=Path, default=Path("."), help="the folder with the JSON files")
    p.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    p.add_argument("--draws", type=int, default=1000, help="per chain, after as many of tuning")
    p.add_argument("--limit", type=float, default=600, help="seconds that a row may take")


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            doc=__doc__,
            rows=rows,
            measure=measure,
            markdown=markdown,
            progress=lambda r: (
                f"R-hat {r['rhat']:.3f}, {r['ess']:.0f} effective draws, {r['diverging']} divergences, "
                f"{r['seconds']:.0f} s"
            ),
            options=options,
            short={"seeds": [1], "draws": 50},
            keeps_other_rows=True,
        )
    )
