"""Compiled programs on disk, in processes of their own."""

import os
import re

import jax
import pytest

from pymc_discrete.runtime.compile_cache import SETTING, open_to_others, trim, use_disk_cache
from tests.tools.processes import output_of, run_python, start_python

RUN = """
import jax
from jax import monitoring
hits = []
monitoring.register_event_listener(lambda name, **_: hits.extend([name] * name.endswith("cache_hits")))
import pymc as pm
import pymc_discrete as pmd
with pm.Model() as model:
    x = pm.Bernoulli("x", 0.3, shape=4)
    pm.Potential("e", (x[1:] * x[:-1]).sum())
target = pmd.target_from_model(model)
print(float(target.logdensity([1, 1, 0, 1])), len(hits), jax.config.jax_compilation_cache_dir)
"""


def environment(folder, **more):
    """Environment for a process that uses our cache and stores even programs that compile fast."""
    return {
        "PYMC_DISCRETE_CACHE": str(folder),
        "JAX_COMPILATION_CACHE_DIR": "",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        **more,
    }


def hits_of(output: str) -> int:
    return int(output.split()[1])


@pytest.mark.slow
def test_a_second_process_compiles_nothing_again(tmp_path):
    """Two processes at once write the same entries; the next one reads them, and survives a damaged one."""
    both = [start_python(RUN, **environment(tmp_path)) for _ in range(2)]
    first = [output_of(process) for process in both]
    entries = [file for file in tmp_path.rglob("*") if file.name.endswith("-cache")]
    assert entries
    again = run_python(RUN, **environment(tmp_path))
    assert hits_of(again) == len(entries)
    assert len({output.split()[0] for output in [*first, again]}) == 1
    entries[0].write_bytes(b"damaged")
    damaged = start_python(RUN, **environment(tmp_path))
    output, errors = damaged.communicate(timeout=300)
    assert damaged.returncode == 0
    assert output.split()[0] == again.split()[0]
    assert hits_of(output) == len(entries) - 1
    assert errors.count("Error reading persistent compilation cache entry") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["off", "JAX's own", "unusable folder", "read-only folder"])
def test_what_the_user_configured_stays(name, tmp_path):
    own, given, before = str(tmp_path / "own"), environment(tmp_path / "ours"), ""
    if name == "off":
        given["PYMC_DISCRETE_CACHE"] = "off"
    elif name == "JAX's own":
        given["JAX_COMPILATION_CACHE_DIR"] = own
    elif name == "read-only folder":  # permissions do not bind root, which tests may run as
        before = "import os\nos.access = lambda path, mode: mode != os.W_OK\n"
    else:  # a file where the folder should be: also root cannot write there
        (tmp_path / "ours").write_text("")
    configured = run_python(before + RUN, **given).split()[2:]
    assert configured == ([own] if name == "JAX's own" else [])
    assert not [file for file in tmp_path.glob("ours/**/*") if file.is_file()]


def test_the_oldest_files_are_deleted_beyond_the_limit(tmp_path):
    for n in range(5):
        (tmp_path / f"{n}-cache").write_bytes(bytes(100))
        os.utime(tmp_path / f"{n}-cache", (n, n))
    (tmp_path / "of XLA").mkdir()
    trim(tmp_path, 250)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["3-cache", "4-cache", "of XLA"]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="users and modes are those of POSIX")
@pytest.mark.parametrize(
    ("mode", "of", "why"),
    [
        (0o700, ".", ""),
        (0o755, ".", ""),
        (0o770, ".", "other users may write to .*cache"),
        (0o707, ".", "other users may write to .*cache"),
        (0o777, "..", "other users may write to .*above, and put another folder in its place"),
        (0o1777, "..", ""),
    ],
)
def test_a_folder_that_others_can_write_to(tmp_path, mode, of, why):
    folder = tmp_path / "above" / "cache"
    folder.mkdir(mode=0o700, parents=True)
    (folder / of).resolve().chmod(mode)
    assert re.fullmatch(why, open_to_others(folder))


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="users and modes are those of POSIX")
def test_a_folder_of_another_user(tmp_path, monkeypatch, caplog):
    """It is not used, and one line says so."""
    monkeypatch.setenv(SETTING, str(tmp_path))
    user, before = os.getuid(), jax.config.jax_compilation_cache_dir
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        use_disk_cache()
        assert not jax.config.jax_compilation_cache_dir
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    (record,) = caplog.records
    said = "belongs to another user, and programs .* would be run.* PYMC_DISCRETE_CACHE"
    assert re.search(said, record.message)
