"""Chains over devices and processes: they draw what one device draws."""

import socket
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = """
import os, sys
sys.path[:0] = {path!r}
import jax, numpy as np
{first}
from test_sample import QUIET, mixed
import pymc_discrete as pmd
with mixed():
    for name, options in {runs}.items():
        options = {{key: (eval(v) if key == "devices" else v) for key, v in options.items()}}
        idata = pmd.sample(20, tune=60, random_seed=5, **options, **QUIET)
        if jax.process_index() == 0:
            np.savez({file!r} + name, **{{k: idata["posterior"][k].values for k in idata["posterior"].data_vars}})
"""


def script(tmp_path, first, runs):
    return SCRIPT.format(path=[p for p in sys.path if p], first=first, runs=runs, file=f"{tmp_path}/")


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
        "eight": {"chains": 8},
        "alone": {"chains": 1},
        "many": {"chains": 64},  # on all eight
    }
    first = 'os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"'
    subprocess.run([sys.executable, "-c", script(tmp_path, first, runs)], check=True)
    one = drawn(tmp_path, "one")
    same(one, drawn(tmp_path, "eight"))
    same(one, drawn(tmp_path, "many"), slice(8))
    same(drawn(tmp_path, "alone"), one, slice(1))


@pytest.mark.slow
def test_two_processes(tmp_path):
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    first = 'jax.distributed.initialize("localhost:{port}", num_processes=2, process_id={n})'
    runs = {"both": {"chains": 4}, "kept": {"chains": 4, "checkpoint": str(tmp_path / "run")}}
    started = [
        subprocess.Popen([sys.executable, "-c", script(tmp_path, first.format(port=port, n=n), runs)], stderr=subprocess.PIPE, text=True)
        for n in range(2)
    ]
    for process in started:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error[-3000:]
    single = {"alone": {"chains": 4, "devices": "jax.devices()[:1]"}}
    subprocess.run([sys.executable, "-c", script(tmp_path, "", single)], check=True)
    same(drawn(tmp_path, "alone"), drawn(tmp_path, "both"))
    same(drawn(tmp_path, "alone"), drawn(tmp_path, "kept"))
