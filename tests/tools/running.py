"""Running steps and samplers, and comparing what two runs drew."""

import numpy as np
import pymc as pm
import xarray

import pymc_discrete as pmd
from tests.models import spin_chain

QUIET = {"progressbar": False, "compute_convergence_checks": False}
# what PyMC itself computes is run by PyTensor's interpreter: for few draws its compiler takes longer
FAST = {"compile_kwargs": {"mode": "FAST_COMPILE"}}


def assert_same_draws(a, b):
    for group in ("posterior", "sample_stats"):
        assert set(a[group].data_vars) == set(b[group].data_vars)
        for name in a[group].data_vars:
            np.testing.assert_array_equal(a[group][name].values, b[group][name].values, err_msg=name)


def saved_and_loaded(idata, folder):
    """A result after a way through a file, in which nothing of it changes."""
    idata.to_netcdf(folder / "run.nc")
    with xarray.open_datatree(folder / "run.nc") as loaded:
        xarray.testing.assert_identical(idata, loaded.load())
    return loaded


def sample_with_pymc(
    model, step, draws=40, tune=20, chains=2, cores=1, random_seed=1, progressbar=False, **options
):
    with model:
        step = step() if callable(step) else step
        return pm.sample(
            draws,
            tune=tune,
            chains=chains,
            cores=cores,
            step=step,
            random_seed=random_seed,
            progressbar=progressbar,
            compute_convergence_checks=False,
            **(FAST | options),
        )


def draws_of(idata):
    return {name: np.asarray(v.values) for name, v in idata["posterior"].data_vars.items()}


def same_draws(a, b):
    a, b = (v if isinstance(v, dict) else draws_of(v) for v in (a, b))
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def walk(step, point, n=5):
    """n draws, and the statistics of each."""
    out = []
    for _ in range(n):
        point, (stats,) = step.step(point)
        out.append((point, stats))
    return out


def equal_walks(a, b):
    return all(
        p.keys() == q.keys() and all(np.array_equal(p[k], q[k]) for k in p) and s == t
        for (p, s), (q, t) in zip(a, b, strict=True)
    )


def logp_of(model, idata):
    """(chain, draw) float, nats: PyMC's own log density at the draws."""
    f = model.compile_logp(mode="FAST_COMPILE")
    draws = draws_of(idata)
    if "s" in draws:
        draws["s_log__"] = np.log(draws.pop("s"))
    chains, n = next(iter(draws.values())).shape[:2]
    return np.array(
        [[float(f({k: v[c, i] for k, v in draws.items()})) for i in range(n)] for c in range(chains)]
    )


def lp_of(idata):
    """The log density that the last step reports: PyMC keeps one column per step that declares it, and drops
    all but the last.
    """
    lp = idata["sample_stats"]["lp"].values
    return lp[..., -1] if lp.ndim == 3 else lp


# ---------------------------------------------------------------- runs with checkpoints
def sample_in_chunks(folder, build=spin_chain, draws=40, **options):
    with build():
        return pmd.sample(
            draws, tune=60, chains=2, chunk=10, random_seed=5, checkpoint=folder, **QUIET, **options
        )


def stop_after(after):
    def stop(draws, done):
        if done >= after:
            raise ValueError("cut off")

    return stop
