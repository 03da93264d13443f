"""Runs that are cut off, in every way that ends a process, and go on to the same last bit."""

import os
import subprocess
import sys

import numpy as np
import pymc as pm
import pytest
from test_sample import QUIET, mixed, same

import pymc_discrete as pmd
from pymc_discrete.sampling.storage import Checkpoint, CheckpointError, Memory


def spins():
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.full(8, 0.4))
        pm.Potential("e", 0.5 * (x[1:] * x[:-1]).sum())
    return model


def kept(folder, build=spins, **options):
    with build():
        return pmd.sample(
            40, tune=60, chains=2, chunk=10, random_seed=5, checkpoint=folder, **QUIET, **options
        )


def stopping(after):
    def stop(draws, done):
        if done >= after:
            raise ValueError("cut off")

    return stop


@pytest.mark.parametrize(
    ("build", "keep"), [(spins, False), (mixed, True)], ids=["spins", "mixed and its warm-up"]
)
def test_resumed_run_is_the_whole_run(tmp_path, build, keep):
    options = {"build": build, "discard_tuned_samples": not keep}
    whole = kept(None, **options)
    with pytest.raises(ValueError, match="cut off"):
        kept(tmp_path, callback=stopping(20), **options)
    same(whole, kept(tmp_path, **options))
    again = kept(tmp_path, **options)  # nothing is left to do
    same(whole, again)
    if keep:
        np.testing.assert_array_equal(whole["warmup_posterior"]["mu"], again["warmup_posterior"]["mu"])


def test_checkpoint_refuses_another_run(tmp_path):
    kept(tmp_path)
    with spins(), pytest.raises(RuntimeError, match="holds a run with draws=40, and this one has draws=50"):
        pmd.sample(50, tune=60, chains=2, random_seed=5, checkpoint=tmp_path, **QUIET)
    with spins() as changed:
        pm.Potential("more", 0.1 * changed["x"].sum())
    with changed, pytest.raises(RuntimeError, match="holds a run with model and data="):
        pmd.sample(40, tune=60, chains=2, random_seed=5, checkpoint=tmp_path, **QUIET)
    with spins():
        first, other = pmd.GibbsWithGradients(), pmd.GibbsWithGradients(balancing="barker")
        pmd.sample(40, tune=60, chains=2, random_seed=5, checkpoint=tmp_path / "gwg", step=first, **QUIET)
        with pytest.raises(
            RuntimeError, match=r"holds a run with steps=.*balancing='sqrt'.*balancing='barker'"
        ):
            pmd.sample(40, tune=60, chains=2, random_seed=5, checkpoint=tmp_path / "gwg", step=other, **QUIET)
    settings = {"variables": [f"z{n}" for n in range(150)]}
    written(tmp_path / "many", settings)
    with pytest.raises(
        CheckpointError, match=r"holds a run with variables=\['z149'\], and this one has variables=\['k'\]\."
    ):
        Checkpoint(tmp_path / "many", {"variables": [*settings["variables"][:-1], "k"]}, {"posterior": 8})
    with spins() as started:
        started.set_initval(started["x"], np.ones(8, int))
        with pytest.raises(RuntimeError, match="holds a run with initvals="):
            pmd.sample(40, tune=60, chains=2, random_seed=5, checkpoint=tmp_path, **QUIET)
    with spins(), pytest.raises(RuntimeError, match="another random_seed"):
        pmd.sample(40, tune=60, chains=2, random_seed=6, checkpoint=tmp_path, **QUIET)


def test_damaged_chunk(tmp_path):
    whole = kept(None)
    with pytest.raises(ValueError, match="cut off"):
        kept(tmp_path, callback=stopping(30))
    file = tmp_path / "posterior-draws-x.npy"
    data = bytearray(file.read_bytes())
    row = 8
    data[len(data) - 15 * row] ^= 1  # within draws 20 to 30 of the last chain
    file.write_bytes(bytes(data))
    with pytest.raises(RuntimeError, match=r"Draws 20 to 30 .* rename progress-before.json to progress.json"):
        kept(tmp_path)
    (tmp_path / "progress-before.json").replace(tmp_path / "progress.json")
    same(whole, kept(tmp_path))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("progress.json", lambda data: b"[]", "progress.json is damaged: .* rename progress-before.json"),
        ("progress.json", lambda data: data[:40], "progress.json is damaged"),
        ("posterior-draws-x.npy", lambda data: data[:140], "is missing or cut short: .* delete the folder"),
        ("posterior-draws-x.npy", None, "is missing or cut short"),
        ("state-*.npz", lambda data: data[:100], "is missing or damaged: .* rename progress-before.json"),
        ("state-*.npz", None, "is missing or damaged"),
    ],
)
def test_damaged_files(tmp_path, file, change, message):
    store = written(tmp_path)
    for path in tmp_path.glob(file):
        data = path.read_bytes()
        path.unlink()
        if change is not None:
            path.write_bytes(change(data))
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(tmp_path, store.settings, store.lengths).load_state({"a": np.zeros(3)})


def test_states_of_another_version(tmp_path):
    store = written(tmp_path)
    with pytest.raises(
        CheckpointError,
        match="has 1 arrays where the chains have 2: another version of pymc_discrete wrote it",
    ):
        store.load_state({"a": np.zeros(3), "b": np.zeros(3)})


def test_an_interrupted_write_leaves_whole_draws():
    class Interrupting:
        def swapaxes(self, *_):
            raise KeyboardInterrupt

    store, chunk = Memory(), np.arange(24).reshape(2, 4, 3)
    store.write("posterior", 4, {"draws": {"x": chunk, "y": chunk}}, None)
    with pytest.raises(KeyboardInterrupt):
        store.write("posterior", 4, {"draws": {"x": chunk + 24, "y": Interrupting()}}, None)
    for name, kept in store.read("posterior", "draws").items():
        np.testing.assert_array_equal(kept, chunk, err_msg=name)


def written(folder, settings=None):
    """A store with two chunks of draws of two chains."""
    store = Checkpoint(folder, settings or {"draws": 8}, {"posterior": 8})
    for n in range(2):
        draws = {"x": np.full((2, 4, 3), n, np.int8)}
        store.write("posterior", 4, {"draws": draws}, {"a": np.arange(3.0) + n})
    return store


def test_any_name_of_a_variable(tmp_path):
    names = ["x" * 300, "x" * 299 + "y", "ä" * 130, "π" * 130, "a/b", "a%2f.b", "..", "a b", "", "model::x"]
    store = Checkpoint(tmp_path, {"draws": 2}, {"posterior": 2})
    store.write(
        "posterior",
        2,
        {"draws": {name: np.full((1, 2), n) for n, name in enumerate(names)}},
        {"a": np.zeros(1)},
    )
    for n, (name, kept) in enumerate(
        Checkpoint(tmp_path, {"draws": 2}, {"posterior": 2}).read("posterior", "draws").items()
    ):
        assert name == names[n]
        assert (kept == n).all()
    assert all(path.name.isascii() and len(path.name) < 200 for path in tmp_path.iterdir())


def test_full_disk(tmp_path, monkeypatch):
    whole = kept(None)
    with pytest.raises(ValueError, match="cut off"):
        kept(tmp_path, callback=stopping(20))

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr("pymc_discrete.sampling.storage.os.fsync", full)
        with pytest.raises(
            RuntimeError,
            match=r"could not be written .* No space left on device. Those before are kept; make room",
        ):
            kept(tmp_path)
    same(whole, kept(tmp_path))


KILLED = """
import os, random, signal, sys, time
sys.path[:0] = {path!r}
import numpy as np
import pymc as pm
import pymc_discrete as pmd
from test_sample import QUIET

def run(checkpoint, file=None):
    with pm.Model():
        x = pm.Bernoulli("x", np.full(30, 0.4))
        k = pm.Poisson("k", 2.0)
        pm.Potential("e", 0.5 * (x[1:] * x[:-1]).sum() + 0.1 * k * x[0])
        step = [pmd.DiscreteLangevin("x"), pmd.BlockGibbs("k")]
        idata = pmd.sample({draws}, tune=200, chains=2, chunk=10, random_seed=7, step=step, checkpoint=checkpoint, **QUIET)
    if file:
        for group in ("posterior", "sample_stats"):
            np.savez(file + group, **{{name: a.values for name, a in idata[group].data_vars.items()}})

def forked(*args):  # JAX has not started here, and starts in each child
    pid = os.fork()
    if pid == 0:
        try:
            run(*args)
            os._exit(0)
        finally:
            os._exit(1)
    return pid

begin = time.time()
assert os.waitpid(forked(None, {file!r} + "whole-"), 0)[1] == 0
took, dead = time.time() - begin, 0
random.seed({seed})
for _ in range({kills}):
    pid = forked({folder!r})
    time.sleep(random.uniform(0.3, 0.9) * took)
    os.kill(pid, signal.SIGKILL)
    dead += os.waitpid(pid, 0)[1] != 0
assert os.waitpid(forked({folder!r}, {file!r} + "resumed-"), 0)[1] == 0
print("killed", dead)
"""


@pytest.mark.slow
def test_kills_lose_nothing(tmp_path):
    """`kill -9` at random moments; PYMC_DISCRETE_KILLS says how many."""
    kills = int(os.environ.get("PYMC_DISCRETE_KILLS", "4"))
    code = KILLED.format(
        path=[p for p in sys.path if p],
        draws=40 * (kills + 5),
        seed=1,
        kills=kills,
        folder=str(tmp_path / "run"),
        file=f"{tmp_path}/",
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "killed 0" not in done.stdout
    for group in ("posterior", "sample_stats"):
        whole, resumed = (np.load(tmp_path / f"{name}-{group}.npz") for name in ("whole", "resumed"))
        assert set(whole.files) == set(resumed.files)
        for name in whole.files:
            np.testing.assert_array_equal(whole[name], resumed[name], err_msg=name)
