"""Compiled programs on disk, in processes of their own."""

import os
import re

import jax
import pytest

from pymc_discrete.runtime.compile_cache import SETTING, open_to_others, processor, trim, use_disk_cache
from tests.tools.processes import output_of, start_python

RUN = """
import jax
from jax import monitoring
hits = []
monitoring.register_event_listener(lambda name, **_: hits.extend([name] * name.endswith("cache_hits")))
from pymc_discrete.runtime.jax_settings import jitted
found = float(jitted(lambda x: jax.numpy.sin(x) + 1)(0.3)) + float(jitted(lambda x: jax.numpy.exp(x))(0.3))
print(found, len(hits), jax.config.jax_compilation_cache_dir)
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
    entries[0].write_bytes(b"damaged")
    again = start_python(RUN, **environment(tmp_path))
    output, errors = again.communicate(timeout=300)
    assert again.returncode == 0
    assert len({output.split()[0] for output in [*first, output]}) == 1
    assert hits_of(output) == len(entries) - 1
    assert errors.count("Error reading persistent compilation cache entry") == 1


@pytest.fixture
def unset(monkeypatch):
    """JAX's settings of its cache as they are at first, for a test that changes them."""
    first = {"jax_compilation_cache_dir": None, "jax_persistent_cache_min_compile_time_secs": 1.0}
    before = {name: getattr(jax.config, name) for name in [*first, "jax_enable_compilation_cache"]}
    for name, value in first.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize(
    "name", ["off", "JAX's own", "JAX's is off", "unusable folder", "read-only folder", "nothing"]
)
def test_what_the_user_configured_stays(name, tmp_path, monkeypatch):
    """And a cache is begun where nothing is configured."""
    ours, own = tmp_path / "ours", str(tmp_path / "own")
    monkeypatch.setenv(SETTING, "off" if name == "off" else str(ours))
    if name == "JAX's own":
        jax.config.update("jax_compilation_cache_dir", own)
    elif name == "JAX's is off":
        jax.config.update("jax_enable_compilation_cache", False)
    elif name == "read-only folder":  # permissions do not bind root, which tests may run as
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    elif name == "unusable folder":  # a file where the folder should be: also root cannot write there
        ours.write_text("")
    use_disk_cache()
    expected = {"JAX's own": own, "nothing": str(ours / f"jax-{processor()}")}
    assert jax.config.jax_compilation_cache_dir == expected.get(name)
    assert jax.config.jax_persistent_cache_min_compile_time_secs == (0.1 if name == "nothing" else 1.0)


@pytest.mark.usefixtures("unset")
def test_what_is_written_is_what_the_user_says(tmp_path, monkeypatch):
    monkeypatch.setenv(SETTING, str(tmp_path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 3.0)
    use_disk_cache()
    assert jax.config.jax_compilation_cache_dir
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 3.0


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
