"""`--runslow` adds the statistical tests, and the cases of a test that its `by_default` mark does not name.

Compilation takes most of the time; settings make it cheaper. What belongs to a part beside the core, such as
plots, runs by default where the part has changed (`tests/parts.py`).
"""

import ctypes
import gc
import os
import sys
from pathlib import Path

import jax
import platformdirs
import pytensor
import pytest

from pymc_discrete.runtime import compiled
from pymc_discrete.runtime.compile_cache import LIMIT, processor, trim
from pymc_discrete.runtime.reuse import forget
from tests.parts import not_changed

# Read when JAX is first used, here and in the processes that tests start. Without optimisation XLA compiles
# in half the time, and without two passes that move code out of loops and into them in a seventh less. What
# several tests, processes or runs compile is compiled once: JAX finds it by the versions, the settings and
# the program.
LEFT_OUT = "while-loop-invariant-code-motion,while-loop-constant-sinking"
os.environ.setdefault("XLA_FLAGS", f"--xla_backend_optimization_level=0 --xla_disable_hlo_passes={LEFT_OUT}")
os.environ["PYMC_DISCRETE_CACHE"] = "off"  # what one test compiles is not loaded by another
# PyTensor would note with each node of a graph where it was made, which takes a twentieth of the tests' time.
pytensor.config.traceback__limit = 0
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    cache = platformdirs.user_cache_path("pymc-discrete") / f"tests-{processor()}"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    trim(cache, LIMIT)
    for name, value in {
        "jax_compilation_cache_dir": str(cache),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)

# To look for unreachable cycles takes a tenth of the time, since tracing makes millions of objects. Few of
# these become garbage: `free_memory` looks for them where a process has become large.
gc.disable()
# The bytes of a process beyond which it drops all that JAX has compiled: its share of half of the machine's
# memory. To look for garbage then takes ten seconds, and what is needed again is compiled again.
PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
MOST_MEMORY = 2.5 * 2**30
if sys.platform == "linux":
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
    MOST_MEMORY = max(MOST_MEMORY, min(half / PROCESSES, 6 * 2**30))

# failed assertions of what tests share show their values too
pytest.register_assert_rewrite("tests.models", "tests.tools")


LAST_FILE = pytest.StashKey()  # that of the test before, if it may leave something to the next


def free_memory():
    """Drop what JAX has compiled, where the process has become large; it would keep it to the end.

    Linux keeps the memory in the process until it is asked for it.
    """
    memory = Path("/proc/self/statm")
    if (
        sys.platform == "linux"
        and int(memory.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > MOST_MEMORY
    ):
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)


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
        free_memory()
    stash[LAST_FILE] = request.path if shares else None


def pytest_configure():
    """Methods of a density that a test calls outside of a program, mostly a few times, are not compiled."""
    from tests.tools.interpreted import interpreted_at_first  # late, for the values of its failed assertions

    compiled.jitted = interpreted_at_first


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="run the slow tests, and all cases of the others")
    parser.addoption("--all-parts", action="store_true", help="run tests of parts that have not changed, too")


def pytest_collection_modifyitems(config, items):
    unknown = unknown_cases(items)
    some = config.getoption("lf", default=False) or any("::" in argument for argument in config.args)
    if unknown and not some:
        raise pytest.UsageError(f"by_default names cases that do not exist: {', '.join(sorted(unknown))}")
    if config.getoption("--runslow"):
        return
    chosen = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
    unchanged = set() if config.getoption("--all-parts") else not_changed(config.rootpath, chosen)
    left_out = pytest.mark.skip(reason="slow, or one more case of a test; needs --runslow")
    of_part = pytest.mark.skip(reason="its part has not changed; needs --all-parts")
    for item in items:
        by_default = item.get_closest_marker("by_default")
        if any(item.nodeid == argument for argument in config.args):
            continue
        if "slow" in item.keywords or (by_default and item.callspec.id not in by_default.args):
            item.add_marker(left_out)
        elif item.nodeid.split("/")[1] in unchanged:
            item.add_marker(of_part)


def unknown_cases(items):
    """The names of cases in `by_default` marks that no collected test has."""
    named, found = set(), set()
    for item in items:
        for mark in item.iter_markers("by_default"):
            test = item.nodeid.split("[")[0]
            named |= {f"{test}[{case}]" for case in mark.args}
            found.add(f"{test}[{item.callspec.id}]")
    return named - found


def stand_for_nuts(patch):
    """A random walk stands for NUTS in compiled chains, in a test that is not about NUTS."""
    # imported here, since PyMC chooses the level of its log by what has been set up when it is imported
    from pymc_discrete.engine.nuts import NutsBlock
    from tests.tools.walk import walk

    patch.setattr(NutsBlock, "draw", walk)


@pytest.fixture
def walks(monkeypatch):
    """In `pmd.sample`, and in steps that make draws ahead, a random walk stands for NUTS."""
    stand_for_nuts(monkeypatch)


@pytest.fixture(scope="module")
def only_walks():
    """As `walks`, in all tests of a file, which may then share programs."""
    with pytest.MonkeyPatch.context() as patch:
        stand_for_nuts(patch)
        yield
