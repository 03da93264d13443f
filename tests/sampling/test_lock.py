"""One run writes to a checkpoint at a time, and a process that has died holds nothing."""

import json
import os
import signal
import threading

import pytest

import pymc_discrete as pmd
from pymc_discrete import learning
from pymc_discrete.engine.storage import PROGRESS, CheckpointError
from pymc_discrete.sampling.lock import folder_held, holding
from tests.models import spin_chain
from tests.tools.processes import start_python
from tests.tools.running import QUIET

pytestmark = pytest.mark.shares_programs

HOLDS = """
import time
from pymc_discrete.sampling.lock import folder_held
with folder_held({folder!r}):
    print("holds", flush=True)
    time.sleep(60)
"""


def test_another_process(tmp_path):
    process = start_python(HOLDS.format(folder=str(tmp_path)))
    try:
        assert process.stdout.readline() == "holds\n"
        in_use = rf"is in use: process {process.pid} on .*, since 2.* Wait until it ends, or give another"
        with pytest.raises(CheckpointError, match=in_use), spin_chain():
            pmd.sample(10, tune=10, chains=1, checkpoint=tmp_path, **QUIET)
        # a run that is complete is only read
        whole = {"settings": {"draws": 8}, "done": {"posterior": 8}}
        (tmp_path / PROGRESS).write_text(json.dumps(whole))
        with folder_held(tmp_path):
            pass
        (tmp_path / PROGRESS).unlink()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
        process.communicate()
    assert (tmp_path / "in-use.json").exists()  # it was killed; this is no obstacle
    with folder_held(tmp_path):
        with pytest.raises(CheckpointError, match="another call in this process"):
            folder_held(tmp_path).__enter__()
        assert json.loads((tmp_path / "in-use.json").read_text())["process"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_a_fit(tmp_path):
    file = tmp_path / "fit.npz"
    with (
        holding(file.with_name("fit.npz.in-use"), file),
        pytest.raises(CheckpointError, match=r"fit\.npz' is in use: another call in this process"),
    ):
        learning.fit(learning.Ising(3), {"x": [[0, 1, 1]]}, iterations=1, checkpoint=file, progressbar=False)


def test_one_of_many_threads(tmp_path):
    """Of threads that want it at the same time, one has it, also while others delete the file."""
    inside, most, refused = [0], [0], [0]
    count = threading.Lock()

    def many_times():
        for _ in range(200):
            try:
                with folder_held(tmp_path):
                    with count:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                    with count:
                        inside[0] -= 1
            except CheckpointError:
                refused[0] += 1

    threads = [threading.Thread(target=many_times) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 1
    assert refused[0] < 800


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("pymc_discrete.sampling.lock.lock", none)
    with folder_held(tmp_path), folder_held(tmp_path):
        pass
