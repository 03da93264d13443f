"""Runs that are cut off, in every way that ends a process, and go on to the same last bit."""

import os
from contextlib import nullcontext

import jax
import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_discrete as pmd
from pymc_discrete.engine.storage import (
    Checkpoint,
    CheckpointError,
    Memory,
    file_of,
    is_complete,
    lengthened,
)
from pymc_discrete.sampling.fingerprint import checksum
from tests.models import labels_and_count, spin_chain
from tests.tools.processes import run_python
from tests.tools.running import QUIET, assert_same_draws, sample_in_chunks, stop_after

pytestmark = pytest.mark.shares_programs


@pytest.mark.parametrize(
    ("build", "keep"), [(spin_chain, False), (labels_and_count, True)], ids=["spins", "mixed and its warm-up"]
)
@pytest.mark.by_default("mixed and its warm-up")
def test_resumed_run_is_the_whole_run(tmp_path, build, keep):
    options = {"build": build, "discard_tuned_samples": not keep}
    whole = sample_in_chunks(None, **options)
    with pytest.raises(ValueError, match="cut off"):
        sample_in_chunks(tmp_path, callback=stop_after(20), **options)
    assert_same_draws(whole, sample_in_chunks(tmp_path, **options))
    again = sample_in_chunks(tmp_path, **options)  # nothing is left to do
    assert_same_draws(whole, again)
    if keep:
        np.testing.assert_array_equal(whole["warmup_posterior"]["mu"], again["warmup_posterior"]["mu"])


def test_a_run_that_had_ended_goes_on_with_more_draws(tmp_path):
    """As if so many had been asked for at first, also when it is cut off; what was returned stays."""
    first = sample_in_chunks(tmp_path, build=labels_and_count)
    values = {name: np.array(v) for name, v in first["posterior"].data_vars.items()}
    for n, draws in enumerate((70, 95)):
        (tmp_path / "posterior-draws-mu.npy.new").write_bytes(b"of a process that was killed")
        if n:
            with pytest.raises(ValueError, match="cut off"):
                sample_in_chunks(tmp_path, labels_and_count, draws, callback=stop_after(80))
        whole = sample_in_chunks(None, labels_and_count, draws)
        assert_same_draws(whole, sample_in_chunks(tmp_path, labels_and_count, draws))
        assert is_complete(tmp_path)
    assert not [*tmp_path.glob("*.npy.new")]
    for name, value in values.items():
        np.testing.assert_array_equal(first["posterior"][name], value)


def test_a_file_may_have_room_for_more_draws_than_are_asked_for(tmp_path):
    """As of a process that was killed when it had made room for more."""
    written(tmp_path)
    lengthened(tmp_path / file_of("posterior", "draws", "x"), 32)
    store = Checkpoint(tmp_path, {"draws": 12}, {"posterior": 12})
    store.write("posterior", 4, {"draws": {"x": np.full((2, 4, 3), 2, np.int8)}}, lambda: {"a": np.zeros(3)})
    kept = store.read("posterior", "draws")["x"]
    np.testing.assert_array_equal(kept[:, :, 0], [np.repeat([0, 1, 2], 4)] * 2)


def test_checkpoint_refuses_another_run(tmp_path):
    sample_in_chunks(tmp_path)
    with (
        spin_chain(),
        pytest.raises(
            RuntimeError,
            match=r"holds a run with draws=40, and this one has draws=30\. Ask for as many or more",
        ),
    ):
        pmd.sample(30, tune=60, chains=2, random_seed=5, checkpoint=tmp_path, **QUIET)
    with spin_chain() as changed:
        pm.Potential("more", 0.1 * changed["x"].sum())
    with changed, pytest.raises(RuntimeError, match="holds a run with model and data="):
        pmd.sample(40, tune=60, chains=2, random_seed=5, checkpoint=tmp_path, **QUIET)
    with spin_chain():
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
    with spin_chain() as started:
        started.set_initval(started["x"], np.ones(8, int))
        with pytest.raises(RuntimeError, match="holds a run with initvals="):
            pmd.sample(40, tune=60, chains=2, random_seed=5, checkpoint=tmp_path, **QUIET)
    with spin_chain(), pytest.raises(RuntimeError, match="another random_seed"):
        pmd.sample(40, tune=60, chains=2, random_seed=6, checkpoint=tmp_path, **QUIET)


@pytest.mark.slow
def test_checkpoint_sees_numbers_inside_of_a_scan(tmp_path):
    """And those of a step of the user: neither a run that was cut off nor a finished one is another's."""

    def build(weight=0.5):
        weights = np.diag([weight, 1.0])
        with pm.Model() as model:
            z = pm.Bernoulli("z", 0.3, shape=2)
            ends = pytensor.scan(lambda x: weights @ x, outputs_info=z + 0.0, n_steps=2, return_updates=False)
            pm.Potential("e", ends.sum())
        return model

    def by(probability):
        def step(key, point, state):
            return {"z": jax.random.bernoulli(key, probability, (2,)).astype(int)}, state

        return step

    for folder, cut_off in (("finished", {}), ("cut off", {"callback": stop_after(20)})):
        with pytest.raises(ValueError, match="cut off") if cut_off else nullcontext():
            sample_in_chunks(tmp_path / folder, build, **cut_off)
        with pytest.raises(CheckpointError, match="holds a run with model and data="):
            sample_in_chunks(tmp_path / folder, lambda: build(0.9))
    steps = [pmd.CustomStep("z", by(p), model=build()) for p in (0.5, 0.5, 0.9)]
    options = [checksum("the steps", step.options()) for step in steps]
    assert options[0] == options[1] != options[2]


def test_damaged_chunk(tmp_path):
    whole = sample_in_chunks(None)
    with pytest.raises(ValueError, match="cut off"):
        sample_in_chunks(tmp_path, callback=stop_after(30))
    file = tmp_path / "posterior-draws-x.npy"
    data = bytearray(file.read_bytes())
    row = 8
    data[len(data) - 15 * row] ^= 1  # within draws 20 to 30 of the last chain
    file.write_bytes(bytes(data))
    with pytest.raises(RuntimeError, match=r"Draws 20 to 30 .* rename progress-before.json to progress.json"):
        sample_in_chunks(tmp_path)
    (tmp_path / "progress-before.json").replace(tmp_path / "progress.json")
    assert_same_draws(whole, sample_in_chunks(tmp_path))


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
    store.write("posterior", 4, {"draws": {"x": chunk, "y": chunk}}, lambda: None)
    with pytest.raises(KeyboardInterrupt):
        store.write("posterior", 4, {"draws": {"x": chunk + 24, "y": Interrupting()}}, lambda: None)
    for name, kept in store.read("posterior", "draws").items():
        np.testing.assert_array_equal(kept, chunk, err_msg=name)


def written(folder, settings=None):
    """A store with two chunks of draws of two chains."""
    store = Checkpoint(folder, settings or {"draws": 8}, {"posterior": 8})
    for n in range(2):
        draws = {"x": np.full((2, 4, 3), n, np.int8)}
        store.write("posterior", 4, {"draws": draws}, lambda n=n: {"a": np.arange(3.0) + n})
    return store


def test_any_name_of_a_variable(tmp_path):
    names = ["x" * 300, "x" * 299 + "y", "ä" * 130, "π" * 130, "a/b", "a%2f.b", "..", "a b", "", "model::x"]
    store = Checkpoint(tmp_path, {"draws": 2}, {"posterior": 2})
    store.write(
        "posterior",
        2,
        {"draws": {name: np.full((1, 2), n) for n, name in enumerate(names)}},
        lambda: {"a": np.zeros(1)},
    )
    for n, (name, kept) in enumerate(
        Checkpoint(tmp_path, {"draws": 2}, {"posterior": 2}).read("posterior", "draws").items()
    ):
        assert name == names[n]
        assert (kept == n).all()
    assert all(path.name.isascii() and len(path.name) < 200 for path in tmp_path.iterdir())


def test_full_disk(tmp_path, monkeypatch):
    whole = sample_in_chunks(None)
    with pytest.raises(ValueError, match="cut off"):
        sample_in_chunks(tmp_path, callback=stop_after(20))

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr("pymc_discrete.engine.storage.os.fsync", full)
        with pytest.raises(
            RuntimeError,
            match=r"could not be written .* No space left on device. Those before are kept; make room",
        ):
            sample_in_chunks(tmp_path)
    assert_same_draws(whole, sample_in_chunks(tmp_path))


KILLED = """
import os, random, signal, time
import numpy as np
import pymc as pm
import pymc_discrete as pmd
from tests.tools.running import QUIET

def run(checkpoint, file=None):
    with pm.Model():
        x = pm.Bernoulli("x", np.full(30, 0.4))
        k = pm.Poisson("k", 2.0)
        pm.Potential("e", 0.5 * (x[1:] * x[:-1]).sum() + 0.1 * k * x[0])
        step = [pmd.DiscreteLangevin("x"), pmd.BlockGibbs("k")]
        options = dict(tune=200, chains=2, chunk=10, random_seed=7, step=step, **QUIET)
        idata = pmd.sample({draws}, checkpoint=checkpoint, **options)
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
        draws=40 * (kills + 5),
        seed=1,
        kills=kills,
        folder=str(tmp_path / "run"),
        file=f"{tmp_path}/",
    )
    assert "killed 0" not in run_python(code, timeout=300 + 60 * kills)
    for group in ("posterior", "sample_stats"):
        whole, resumed = (np.load(tmp_path / f"{name}-{group}.npz") for name in ("whole", "resumed"))
        assert set(whole.files) == set(resumed.files)
        for name in whole.files:
            np.testing.assert_array_equal(whole[name], resumed[name], err_msg=name)
