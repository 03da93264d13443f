"""Draws for PyMC's processes, which the process of the step makes: messages, keys, what is left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pymc_discrete.engine.source import ChainOrder, Chunk
from pymc_discrete.runtime.messages import decoded, encoded
from pymc_discrete.steps import served
from tests.tools.processes import ROOT, run_python

CHUNK = Chunk(
    3,
    {"z": np.arange(6, dtype=np.int8).reshape(2, 3), "mu": np.array([0.1, np.nan])},
    {"lp": np.array([-1.0, -np.inf]), "accept": np.ones((2, 2))},
    [(-1, ["lp"]), (0, ["accept", "lp"])],
)


class Still:
    """A source that hands out one chunk, and says what it was asked for."""

    def __init__(self, said):
        self.said = said

    def begin(self, order, point):
        self.said.append((order, {name: a.tolist() for name, a in point.items()}))
        return CHUNK

    def next(self):
        raise ValueError("no more draws, since this is a test.")

    def close(self):
        self.said.append("closed")


def same_chunks(a, b):
    same = a.first == b.first and a.blocks == b.blocks
    pairs = [(a.draws, b.draws), (a.stats, b.stats)]
    return same and all(
        x.keys() == y.keys()
        and all(x[n].dtype == y[n].dtype and np.array_equal(x[n], y[n], equal_nan=True) for n in x)
        for x, y in pairs
    )


def test_messages():
    sent = {
        "chunk": CHUNK, "text": "ä", "none": None, "flags": [True, 2, 0.5], "last": {"z": b"\x00\xff"},
        "scalar": np.float32(0.1), "empty": np.zeros((0, 3)),
    }  # fmt: skip
    got = decoded(encoded(sent))
    assert same_chunks(served.as_chunk(got["chunk"]), CHUNK)
    assert (got["text"], got["none"], got["flags"], got["last"]) == ("ä", None, [True, 2, 0.5], sent["last"])
    assert got["scalar"].dtype == np.float32
    assert got["empty"].shape == (0, 3)


def test_a_client_is_served_until_it_ends():
    said = []
    step = served.Served(lambda: Still(said))
    remote = served.Remote.at(step.address())
    order = ChainOrder(2, 3, True, 2**62, [])
    assert same_chunks(remote.begin(order, {"z": np.array([1, 0])}), CHUNK)
    assert said == [(order, {"z": [1, 0]})]
    with pytest.raises(ValueError, match="no more draws"):
        remote.next()
    with pytest.raises(ValueError, match="'close' is nothing that can be asked"):
        remote._ask("close")
    remote.close()
    for _ in range(200):
        if said[-1] == "closed":
            break
        time.sleep(0.01)
    assert said[-1] == "closed"
    del step  # what is gone is not served
    assert (
        served.Remote.at(
            served.Address(served.server_of_process().place, served.server_of_process().key, "gone")
        )
        is None
    )


def test_nobody_is_served_without_the_key():
    step = served.Served(lambda: Still([]))
    place, key, name = step.address()
    assert served.Remote.at(served.Address(place, bytes(len(key)), name)) is None
    stranger = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET)
    stranger.connect(place)
    stranger.sendall(bytes(40))
    stranger.settimeout(5)
    assert stranger.recv(8) + stranger.recv(32)  # the challenge
    assert stranger.recv(1) == b""
    stranger.close()
    known = served.Remote.at(step.address())
    known.close()


RUN = """
import logging, os, sys, threading, time
import numpy as np
import pymc as pm
import pymc_discrete as pmd
logging.getLogger("pymc").setLevel(logging.ERROR)

def run(draws, **options):
    with pm.Model():
        x = pm.Bernoulli("x", np.array([0.3, 0.6, 0.55]))
        pm.Normal("y", x.sum(), 1.0, observed=[0.3, 1.2])
        quiet = dict(progressbar=False, compute_convergence_checks=False)
        return pm.sample(draws, tune=20, chains=2, step=pmd.BlockGibbs(), random_seed=1, **quiet, **options)

if __name__ == "__main__":
    what, ctx = sys.argv[1:]
    if what == "again":
        for _ in range(2):
            found = run(20, cores=2, mp_ctx=ctx)
            one = run(20, cores=1)
            same = np.array_equal(found["posterior"]["x"], one["posterior"]["x"])
            print(same, flush=True)
    else:
        print("started", flush=True)
        run(10**7, cores=2, mp_ctx=ctx)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(RUN)
    return path


def started(script, *arguments):
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, str(script), *arguments], start_new_session=True, env=environment, **quiet
    )


@pytest.mark.slow
def test_calls_in_turn(script):
    """As in a notebook: with processes, then JAX in this one, then with processes again."""
    with started(script, "again", "fork") as run:
        try:
            out, err = run.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # its workers hold the pipes too
            out, err = run.communicate()
    assert out.split() == ["True"] * 2, err[-3000:]
    assert "multithreaded" not in err


def children(pid):
    """The processes that a process has started, by Linux's table of them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def wait_for(condition, seconds=60):
    begin = time.monotonic()
    while not condition() and time.monotonic() - begin < seconds:
        time.sleep(0.05)
    return condition()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("who", ["worker", "parent"])
def test_nothing_is_left_behind(script, who):
    run = started(script, "long", "fork")
    try:
        assert run.stdout.readline() == "started\n"
        assert wait_for(lambda: len(children(run.pid)) == 2)
        workers = children(run.pid)
        time.sleep(2)  # in the middle of tuning or drawing
        os.kill(run.pid if who == "parent" else workers[0], signal.SIGKILL)
        assert wait_for(lambda: run.poll() is not None), "the parent goes on without its worker"
        assert wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
        assert f"pymc-discrete-{run.pid}" not in Path("/proc/net/unix").read_text()
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


ENDS = """
import threading, time
import jax, jax.numpy as jnp
from pymc_discrete.steps import served
from pymc_discrete.engine.source import ChainOrder

class Busy:
    def begin(self, order, point):
        asked.set()
        end = time.monotonic() + 1
        while time.monotonic() < end:
            jax.jit(lambda x: jnp.sin(x) + 1.0)(1.0)
        print("answered", flush=True)
        raise ValueError("no draws, since this is a test.")

    def close(self):
        pass

asked = threading.Event()
step = served.Served(Busy)
remote = served.Remote.at(step.address())
threading.Thread(target=remote.begin, args=(ChainOrder(2, 3, True, 1, []), {}), daemon=True).start()
asked.wait()
"""


@pytest.mark.slow
def test_a_process_does_not_end_within_an_answer():
    """Python would end the thread in the middle of JAX's code, and the process with it, by a signal."""
    assert run_python(ENDS) == "answered\n"


FORKS = """
import os, warnings
import jax
import pymc as pm
import pymc_discrete as pmd
with pm.Model():
    pm.Bernoulli("x", 0.3)
    step = pmd.BlockGibbs()
step.engines  # as when the first chunk begins
jax.devices()
with warnings.catch_warnings(record=True) as said:
    if child := os.fork():
        os.waitpid(child, 0)
    else:
        os._exit(0)
print("forked", *(w for w in said if "JAX" in str(w.message)))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_no_warning_of_forks_from_the_first_chunk_on():
    """A call that was interrupted while its first chunk was made is followed by one that forks."""
    assert run_python(FORKS) == "forked\n"


def test_the_listener_is_not_a_file():
    place = served.Served(lambda: Still([])).address().place
    assert sys.platform != "linux" or place.startswith("\0")
    json.dumps(place)
