"""`--runslow` adds the statistical tests, and the cases of a test that its `by_default` mark does not name.

Compilation takes most of the time; settings make it cheaper.
"""

import gc
import os
import tempfile

import pytest

from pymc_discrete.runtime.reuse import forget

# Read when JAX is first used, here and in the processes that tests start. Without optimisation XLA compiles
# in half the time, and what several tests or processes compile is compiled once.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    cache = tempfile.TemporaryDirectory(prefix="jax-cache-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = cache.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# By default Python looks for unreachable cycles after every 700 new objects, of which tracing makes millions.
gc.set_threshold(20_000, 20, 50)

# failed assertions of what tests share show their values too
pytest.register_assert_rewrite("tests.models", "tests.tools")


LAST_FILE = pytest.StashKey()  # that of the test before, if it may leave something to the next


@pytest.fixture(autouse=True)
def nothing_kept(request):
    """What one test has analysed and compiled is not used by the next, which may change how it is made.

    In a file that is marked `shares_programs` it is: there many tests sample the same models. A test that
    takes `monkeypatch` begins with nothing all the same, and leaves nothing, unless the mark says
    `patched=True`: that what the file's tests patch is no part of an analysis or a compiled program.
    """
    mark, stash = request.node.get_closest_marker("shares_programs"), request.config.stash
    shares = bool(mark) and ("monkeypatch" not in request.fixturenames or mark.kwargs.get("patched", False))
    if not shares or stash.get(LAST_FILE, None) != request.path:
        forget()
    stash[LAST_FILE] = request.path if shares else None


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="run the slow tests, and all cases of the others")


def pytest_collection_modifyitems(config, items):
    unknown = unknown_cases(items)
    some = config.getoption("lf") or any("::" in argument for argument in config.args)
    if unknown and not some:
        raise pytest.UsageError(f"by_default names cases that do not exist: {', '.join(sorted(unknown))}")
    if config.getoption("--runslow"):
        return
    left_out = pytest.mark.skip(reason="slow, or one more case of a test; needs --runslow")
    for item in items:
        chosen = item.get_closest_marker("by_default")
        if any(item.nodeid == argument for argument in config.args):
            continue
        if "slow" in item.keywords or (chosen and item.callspec.id not in chosen.args):
            item.add_marker(left_out)


def unknown_cases(items):
    """The names of cases in `by_default` marks that no collected test has."""
    named, found = set(), set()
    for item in items:
        for mark in item.iter_markers("by_default"):
            test = item.nodeid.split("[")[0]
            named |= {f"{test}[{case}]" for case in mark.args}
            found.add(f"{test}[{item.callspec.id}]")
    return named - found
