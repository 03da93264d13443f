"""`--runslow` adds the statistical tests. Compilation takes most of the time; settings make it cheaper."""

import os
import tempfile

import pytest

# Read when JAX is first used, here and in the processes that tests start. Without optimisation XLA compiles
# in half the time, and what several tests or processes compile is compiled once.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    cache = tempfile.TemporaryDirectory(prefix="jax-cache-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = cache.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# failed assertions of what tests share show their values too
pytest.register_assert_rewrite("tests.models", "tests.tools")


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="run the statistical tests too")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--runslow"):
        return
    left_out = pytest.mark.skip(reason="statistical; needs --runslow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(left_out)
