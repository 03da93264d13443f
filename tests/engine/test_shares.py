"""Chains over threads, devices and processes: they draw what one thread on one device draws."""

import socket
import threading
from concurrent.futures import Future

import jax
import numpy as np
import pytest

import pymc_discrete as pmd
from pymc_discrete.engine.program import Program
from pymc_discrete.engine.shares import Share, chains_of_shares
from tests.models import labels_and_count, spin_chain
from tests.tools.processes import output_of, run_python, start_python
from tests.tools.running import QUIET, assert_same_draws, draws_of, sample_in_chunks, stop_after

SCRIPT = """
import os
import jax, numpy as np
{first}
from tests.models import labels_and_count
from tests.tools.running import QUIET
import pymc_discrete as pmd
with labels_and_count():
    for name, options in {runs}.items():
        options = {{key: (eval(v) if key == "devices" else v) for key, v in options.items()}}
        idata = pmd.sample(20, tune=60, random_seed=5, **options, **QUIET)
        if jax.process_index() == 0:
            np.savez({file!r} + name, **{{k: v.values for k, v in idata["posterior"].data_vars.items()}})
"""


def script(tmp_path, first, runs):
    return SCRIPT.format(first=first, runs=runs, file=f"{tmp_path}/")


def drawn(tmp_path, name):
    with np.load(tmp_path / f"{name}.npz") as file:
        return dict(file)


def same(a, b, chains=slice(None)):
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name][chains], err_msg=name)


@pytest.mark.slow
def test_eight_devices_and_any_number_of_chains(tmp_path):
    runs = {
        "one": {"chains": 8, "devices": "jax.devices()[:1]"},
        "alone": {"chains": 1},
        "many": {"chains": 16},  # two on each of the eight
    }
    run_python(script(tmp_path, "", runs), XLA_FLAGS="--xla_force_host_platform_device_count=8")
    one = drawn(tmp_path, "one")
    same(one, drawn(tmp_path, "many"), slice(8))
    same(drawn(tmp_path, "alone"), one, slice(1))


@pytest.mark.slow
def test_two_processes(tmp_path):
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    first = 'jax.distributed.initialize("localhost:{port}", num_processes=2, process_id={n})'
    runs = {"both": {"chains": 4}, "kept": {"chains": 4, "checkpoint": str(tmp_path / "run")}}
    started = [start_python(script(tmp_path, first.format(port=port, n=n), runs)) for n in range(2)]
    for process in started:
        output_of(process)
    with labels_and_count():
        here = pmd.sample(20, tune=60, random_seed=5, chains=4, devices=jax.devices()[:1], **QUIET)
    for name in runs:
        same(draws_of(here), drawn(tmp_path, name))


# ---------------------------------------------------------------- threads on the one device of a CPU
def test_equal_shares(monkeypatch):
    assert chains_of_shares(4, single=True).tolist() == [[0], [1], [2], [3]]
    assert chains_of_shares(3, single=False).tolist() == [[0, 1, 2]]
    monkeypatch.setattr("pymc_discrete.engine.shares.MOST_SHARES", 3)
    assert chains_of_shares(3, single=True).tolist() == [[0], [1], [2]]
    assert chains_of_shares(7, single=True).tolist() == [[0, 1, 2], [3, 4, 5], [6, 6, 6]]


@pytest.fixture
def watched(monkeypatch):
    """On a machine of four cores: {program: the threads that ran it}, and how many programs were compiled
    ahead.
    """
    threads, begin, lowered = {}, Program.begin, jax.stages.Lowered.compile
    count = []

    def watch(self, what, *args, **static):
        future, watched = begin(self, what, *args, **static), Future()

        def call(*args):
            threads.setdefault(what, set()).add(threading.current_thread().name)
            return future.result()(*args)

        watched.set_result(call)
        return watched

    def counted(self, *args, **options):
        count.append(self)
        return lowered(self, *args, **options)

    monkeypatch.setattr(Program, "begin", watch)
    monkeypatch.setattr(jax.stages.Lowered, "compile", counted)
    monkeypatch.setattr("pymc_discrete.runtime.devices.cores", lambda: 4)
    return threads, count


@pytest.mark.slow
def test_every_core_is_used_though_jax_runs(watched, monkeypatch):
    """Each share has a thread, and all threads one program, which settles bad starts too."""
    threads, programs = watched
    assert len(jax.devices()) == 1  # JAX runs, and has one device
    monkeypatch.setattr("pymc_discrete.kernels.adaptation.STUCK_DRAWS", 0)
    found = []
    for devices, names in (
        (None, {"chains-0_0", "chains-1_0", "chains-2_0", "chains-3_0"}),
        (jax.devices(), {"MainThread"}),
    ):
        threads.clear()
        programs.clear()
        with spin_chain():
            step = pmd.BlockGibbs()
            found.append(
                pmd.sample(
                    30, tune=60, chains=7, chunk=10, step=step, random_seed=5, devices=devices, **QUIET
                )
            )
        assert threads == {"run": names, "settle": names}
        assert len(programs) == 2
    assert_same_draws(*found)


@pytest.mark.slow
def test_threads_share_what_pooled_chains_learn(watched):
    threads, programs = watched
    options = {"tune": 40, "chains": 3, "nuts": {"pooled": True}, "random_seed": 5, **QUIET}
    with labels_and_count():
        several, one = (pmd.sample(10, devices=d, **options) for d in (None, jax.devices()))
    assert_same_draws(several, one)
    assert len(threads["run"]) == 4  # three, and the one that computes on a given device
    assert threads["pool"] == {"MainThread"}
    # the chains, in shares and together; and the pooling at the end of a window and at that of tuning
    assert len(programs) == 4


@pytest.mark.slow
def test_a_checkpoint_does_not_know_of_threads(tmp_path, watched):
    whole = sample_in_chunks(None, devices=jax.devices())
    with pytest.raises(ValueError, match="cut off"):
        sample_in_chunks(tmp_path, callback=stop_after(20))
    assert_same_draws(whole, sample_in_chunks(tmp_path, devices=jax.devices()))


@pytest.mark.slow
def test_what_a_thread_raises_is_raised(watched, monkeypatch):
    submit = Share.submit

    def failing(self, compiled, *args):
        def fail(*args):
            raise MemoryError("no room")

        return submit(self, fail if self.identities.chain[0] else compiled, *args)

    monkeypatch.setattr(Share, "submit", failing)
    with spin_chain(), pytest.raises(MemoryError, match="no room"):
        pmd.sample(10, tune=10, chains=2, random_seed=5, **QUIET)
