"""Code in pages: its names exist, and models of docs/from_jags.md are those that they stand beside."""

import ast
import inspect
import re

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy import special, stats

import pymc_discrete as pmd
from benchmarks.jags import HMM_MATRIX, MODELS, occupancy_data
from pymc_discrete.sampling.options import SAID_INSTEAD
from tests.tools.processes import ROOT

pmx = pytest.importorskip("pymc_extras")  # which warns when it is imported
LIBRARIES = {"pm": pm, "pmd": pmd, "pmx": pmx, "pt": pt, "az": az}
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
FROM_JAGS = (ROOT / "docs/from_jags.md").read_text()
# {heading of docs/from_jags.md: (model of benchmarks/jags.py, the form of it in JAGS, data beside y)}
PAIRS = {
    "Mixture": ("B", "sorted means", {}),
    "N-mixture": ("E", "", {}),
    "Occupancy": ("occupancy", "", {name: occupancy_data()[name] for name in "xw"}),
    "Hidden Markov model": ("HMM", "sorted means", {"A": HMM_MATRIX}),
}
# two possible states of the discrete unknowns of each, given y
STATES = {
    "Mixture": (lambda y: {"z": 0 * y.astype(int)}, lambda y: {"z": np.arange(len(y)) % 3}),
    "N-mixture": (lambda y: {"N": y.max(axis=1)}, lambda y: {"N": y.max(axis=1) + np.arange(len(y))}),
    "Occupancy": (lambda y: {"z": y.max(axis=1)}, lambda y: {"z": np.ones(len(y), int)}),
    "Hidden Markov model": (lambda y: {"z": 0 * y.astype(int)}, lambda y: {"z": np.arange(len(y)) // 3 % 3}),
}
# Python computes the values of PyTensor, and nothing is compiled
PLAIN = Mode(linker="py", optimizer=None)


def code_of(page):
    """The pieces of Python in a page that can be parsed: blocks, cells, and code within lines."""
    blocks = re.findall(r"^```(?:python|\{code-cell\}[^\n]*)\n(.*?)^```", page, re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    for piece in [*blocks, *re.findall(r"`([^`\n]+)`", prose)]:
        try:
            yield ast.parse(re.sub(r"^:tags:.*$", "", piece, flags=re.M).strip())
        except SyntaxError:
            continue


def value_of(node):
    """What a name such as pm.math.dot stands for; None for what is no name of one of the libraries."""
    if isinstance(node, ast.Name):
        return LIBRARIES.get(node.id)
    if isinstance(node, ast.Attribute) and (parent := value_of(node.value)) is not None:
        return getattr(parent, node.attr)
    return None


def wrong_names(page):
    """Names of the libraries that do not exist, and options that functions of the package do not have."""
    for tree in code_of(page):
        for node in ast.walk(tree):
            try:
                function = value_of(node.func if isinstance(node, ast.Call) else node)
            except AttributeError as error:
                yield str(error)
                continue
            if isinstance(node, ast.Call) and getattr(function, "__module__", "").startswith("pymc_discrete"):
                parameters = inspect.signature(function).parameters
                if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                    named = {word.arg for word in node.keywords} - {None}
                    yield from (f"{ast.unparse(node.func)}({word}=)" for word in named - set(parameters))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_pages_exist(page):
    assert not list(wrong_names(page.read_text()))


def test_a_wrong_name_in_a_page_is_found():
    assert list(wrong_names("use `pmd.marginalise(model)`"))
    assert list(wrong_names("```python\nidata = pmd.relabel(idata, 'z', dimension='k')\n```"))
    assert not list(wrong_names("use `pmd.relabel(idata, 'z', dims='k')`, and `sample(3` is no Python"))


def log_of_program():
    """All that the package may say, as one text: its own strings of characters, whatever is put into them."""
    text = ""
    for path in (ROOT / "pymc_discrete").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text += node.value + "\n"
    return text


def test_messages_of_the_cheat_sheet_are_those_of_the_package():
    page = (ROOT / "docs/cheat_sheet.md").read_text()
    rows = page.split("says ...\n\n")[1].split("\n\n")[0].splitlines()[2:]
    messages = [m for row in rows for m in re.findall(r"`([^`]+)`", row.split("|")[1])]
    said = log_of_program()
    assert len(messages) > 10
    assert not [m for m in messages if m.removesuffix("...") not in said]


# ---------------------------------------------------------------- docs/sampler_argument.md
def sampler_of_the_page():
    """The class that the page has, and {option of pmd.sample: whose it is} by its table."""
    page = (ROOT / "docs/sampler_argument.md").read_text()
    names = {}
    exec(re.search(r"^```python\n(.*?)^```", page, re.M | re.S).group(1), names)
    rows = re.findall(r"^\| (`.*?) \| (run|algorithm|neither) \|", page, re.M)
    return names["Discrete"], {option: owner for row, owner in rows for option in re.findall(r"`(\w+)`", row)}


def options_of(function):
    return {p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD}


def test_options_of_the_sampler_are_those_of_pmd_sample():
    sampler, owner = sampler_of_the_page()
    assert set(owner) == options_of(pmd.sample)
    of = {who: {option for option in owner if owner[option] == who} for who in ("run", "algorithm")}
    assert options_of(sampler) == of["algorithm"]
    of_the_run = options_of(sampler.sample_from_init) - {"self"}
    assert of["run"] < of_the_run < options_of(pm.sample)
    assert of_the_run - of["run"] <= set(SAID_INSTEAD)
    for function in (sampler, sampler.sample_from_init):
        for option, parameter in inspect.signature(function).parameters.items():
            if option in owner and option not in ("tune", "chains", "self"):
                assert parameter.default == inspect.signature(pmd.sample).parameters[option].default


def test_the_sampler_of_the_page_draws_what_pmd_sample_draws():
    sampler, _ = sampler_of_the_page()
    with pm.Model() as model:
        pm.Bernoulli("z", 0.3, shape=3)
    run = {"draws": 4, "tune": 0, "chains": 2, "random_seed": 1, "compute_convergence_checks": False}
    step = lambda: pmd.BlockGibbs(["z"])
    found = sampler(step=step, thin=2).sample_from_init(model=model, quiet=True, **run)
    with model:
        expected = pmd.sample(step=step(), thin=2, progressbar=False, **run)
    np.testing.assert_array_equal(found.posterior["z"], expected.posterior["z"])
    assert found.posterior.sizes["draw"] == 4
    with pytest.raises(ValueError, match=r"has no use for cores, compile_kwargs"):
        sampler().sample_from_init(model=model, cores=2, compile_kwargs={"mode": "JAX"})


# ---------------------------------------------------------------- docs/from_jags.md
VALUES = {
    "p": 0.3, "w": np.array([0.2, 0.5, 0.3]), "n": 6, "lam": 1.7, "r": 2.5, "a": 0.5, "b": 2.0, "k": 4,
    "j": 5, "m": 0.7, "alpha": np.array([1.0, 2.0, 3.0]), "tau": 0.4, "v": 1.6,
}  # fmt: skip


def of_jags():
    """{distribution: (a value, its log density by JAGS's manual)}, with the parameters `VALUES`."""
    p, w, n, lam, r, a, b, k, j, m, alpha, tau, v = VALUES.values()
    sd = tau**-0.5
    return {
        "dbern(p)": (1, np.log(p)),
        "dcat(w)": (2, np.log(w[2])),  # the third value, which is 3 there
        "dbin(p, n)": (2, stats.binom.logpmf(2, n, p)),
        "dpois(lam)": (3, stats.poisson.logpmf(3, lam)),
        "dnegbin(p, r)": (4, stats.nbinom.logpmf(4, r, p)),
        "dbetabin(a, b, n)": (2, stats.betabinom.logpmf(2, n, a, b)),
        "dhyper(k, j, n, 1)": (3, stats.hypergeom.logpmf(3, k + j, k, n)),
        "dmulti(w, n)": (np.array([1, 3, 2]), stats.multinomial.logpmf([1, 3, 2], n, w)),
        "ddirch(alpha)": (w, stats.dirichlet.logpdf(w, alpha)),
        "dnorm(m, tau)": (1.2, 0.5 * np.log(tau / (2 * np.pi)) - 0.5 * tau * (1.2 - m) ** 2),
        "dnorm(0, tau) T(0, )": (1.2, np.log(2) + stats.norm.logpdf(1.2, 0, sd)),
        "dnorm(m, tau) T(a, b)": (1.2, stats.truncnorm.logpdf(1.2, (a - m) / sd, (b - m) / sd, m, sd)),
        "dt(m, tau, k)": (1.2, stats.t.logpdf(1.2, k, m, sd)),
        "dlnorm(m, tau)": (1.2, stats.lognorm.logpdf(1.2, sd, scale=np.exp(m))),
        "ddexp(m, r)": (1.2, np.log(r / 2) - r * abs(1.2 - m)),
        "dgamma(r, lam)": (1.2, stats.gamma.logpdf(1.2, r, scale=1 / lam)),
        "dexp(lam)": (1.2, np.log(lam) - 1.2 * lam),
        "dbeta(a, b)": (0.2, stats.beta.logpdf(0.2, a, b)),
        "dunif(a, b)": (1.2, -np.log(b - a)),
        "dweib(v, lam)": (1.2, np.log(v * lam) + (v - 1) * np.log(1.2) - lam * 1.2**v),
    }


def test_distributions_are_those_of_jags():
    rows = dict(re.findall(r"^\| `x ~ (.*?)` \| `(pm\..*?)` \|", FROM_JAGS, re.M))
    expected = of_jags()
    assert set(rows) == set(expected)
    found = {}
    for name, code in rows.items():
        with pm.Model():
            x = eval(code, {"pm": pm, **VALUES})
        found[name] = pm.logp(x, expected[name][0])
    values = pytensor.function([], list(found.values()), mode=PLAIN)()
    for name, value in zip(found, values, strict=True):
        np.testing.assert_allclose(value, expected[name][1], rtol=1e-7, err_msg=name)


def sections():
    """{heading: (code for JAGS, code for PyMC)} of the models that stand side by side."""
    parts = re.split(r"^### (.*)$", FROM_JAGS, flags=re.M)[1:]
    blocks = [dict(re.findall(r"^```(jags|python)\n(.*?)^```", part, re.M | re.S)) for part in parts[1::2]]
    return {name: (found["jags"], found["python"]) for name, found in zip(parts[::2], blocks, strict=True)}


def written(name):
    """The model that the page has under a heading, and that of the benchmark with the same data."""
    key, _, data = PAIRS[name]
    model, _ = MODELS[key].pymc()
    names = LIBRARIES | {"np": np, "y": observed(model), **data}
    exec(sections()[name][1], names)
    return names["model"], model


def observed(model):
    return model.rvs_to_values[model["y"]].data


def test_models_beside_those_of_jags_are_the_models_of_the_benchmark():
    assert set(sections()) == set(PAIRS)
    for name, (key, form, _) in PAIRS.items():
        assert sections()[name][0].strip() == MODELS[key].jags[form].strip()


@pytest.mark.parametrize("name", PAIRS)
def test_models_in_pymc_have_the_density_of_the_benchmark(name):
    """Up to a constant, which the states of a Markov chain have where a potential writes it."""
    page, benchmark = written(name)
    start = benchmark.initial_point()
    moved = {key: value + 0.1 for key, value in start.items() if value.dtype.kind == "f"}
    points = [
        values | states(observed(benchmark))
        for values, states in zip((start, start | moved), STATES[name], strict=True)
    ]
    densities = []
    for model in (page, benchmark):
        logp = pytensor.function(model.value_vars, model.logp(), mode=PLAIN)
        densities.append([logp(*(point[v.name] for v in model.value_vars)) for point in points])
    assert np.isfinite(densities).all()
    np.testing.assert_allclose(*np.diff(densities), rtol=1e-9)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.slow
def test_models_beside_those_of_jags_are_taken(name, monkeypatch):
    """Up to where the program of their chains would be made."""

    class Begun(Exception):
        pass

    def begin(*args, **options):
        raise Begun

    model, _ = written(name)
    monkeypatch.setattr("pymc_discrete.sampling.sample.Program", begin)
    with pytest.raises(Begun):
        pmd.sample(5, tune=5, chains=1, model=model, progressbar=False)


def test_numbers_beside_jags_are_those_of_the_table():
    text = (ROOT / "benchmarks/results/amd-epyc-2-cores-jags.md").read_text()
    rows = [
        [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in text.splitlines() if "| " in line
    ]
    head = rows[0]
    speed, before = head.index("ESS/s"), head.index("s before sampling")
    for name, (key, _, _) in PAIRS.items():
        mine = [row for row in rows if row[0] == key]
        ours = next(row for row in mine if row[1] == "pmd.sample")
        jags = max((row for row in mine if row[1] != "pmd.sample"), key=lambda row: float(row[speed]))
        line = re.search(rf"^\| {name} \| (.*) \|$", FROM_JAGS, re.M | re.I).group(1)
        shown = [float(number.replace(",", "")) for number in line.split("|")]
        assert shown == [float(row[column]) for column in (speed, before) for row in (ours, jags)]


def test_what_stan_sums_out_by_hand():
    """The blocks before the models: the sum that is written in Stan is the density of the model without z."""
    code = re.search(r"^```python\n(.*?)^```", FROM_JAGS, re.M | re.S).group(1)
    names = {"y": np.array([-2.5, 0.3, 4.0])}
    exec(code, names)
    model, summed_out = names["model"], names["summed_out"]
    assert not summed_out.discrete_value_vars
    point = model.initial_point()
    mu, w = point["mu"], np.ones(3) / 3  # the start of a Dirichlet
    by_hand = special.logsumexp(np.log(w) + stats.norm.logpdf(names["y"][:, None], mu), axis=1).sum()
    logp = pytensor.function(
        summed_out.value_vars,
        summed_out.logp(vars=summed_out.observed_RVs + summed_out.potentials),
        mode=PLAIN,
    )
    np.testing.assert_allclose(logp(*(point[v.name] for v in summed_out.value_vars)), by_hand, rtol=1e-9)
