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
from pymc_discrete.runtime.devices import Layout
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


LONG = """
import jax, logging, numpy as np, pymc as pm, sys
import pymc_discrete as pmd
from pymc_discrete.engine.shares import RunningChains
from tests.tools.running import QUIET

logging.getLogger("pymc.discrete").addHandler(logging.StreamHandler(sys.stdout))
divided = []  # whether several devices had parts of the points of the chains, at the end of each run
close = RunningChains.close


def closed(self):
    points = jax.tree.leaves(self.shares[0].state.point)
    divided.append(not all(a.sharding.is_fully_replicated for a in points))
    close(self)


RunningChains.close = closed
y = np.random.default_rng(1).normal(np.repeat([-2.0, 2.0], [3000, 1103]))
with pm.Model() as uneven:  # 4,103 labels, which four devices cannot divide evenly
    mu = pm.Normal("mu", 0, 5, initval=1.5)
    z = pm.Bernoulli("z", 0.3, shape=len(y))
    pm.Normal("y", mu * (2 * z - 1), 1, observed=y)
with pm.Model() as lattice:
    x = pm.Bernoulli("x", 0.5, shape=(64, 64))
    pm.Potential("pairs", 0.8 * (pm.math.eq(x[1:], x[:-1]).sum() + pm.math.eq(x[:, 1:], x[:, :-1]).sum()))
with pm.Model() as short:
    pm.Bernoulli("b", 0.4, shape=9)
for model, n, step in ((uneven, 1, None), (lattice, 2, pmd.BlockGibbs), (short, 1, None)):
    with model:
        step = step and step()
        one, four = (
            pmd.sample(5, tune=5, random_seed=5, chains=n, step=step, devices=jax.devices()[:d], **QUIET)
            for d in (1, 4)
        )
    one, four = one["posterior"], four["posterior"]
    for name in one:
        np.testing.assert_allclose(four[name], one[name], rtol=1e-9)
    print(len(np.unique(one[name])) > 1)
    print(f"{divided[-1]=}")
"""


@pytest.mark.slow
def test_several_devices_share_a_chain():
    """To rounding, since the sums over rows are added up in another order."""
    said = run_python(LONG, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert said.count("True\n") == 3 + 1
    assert said.count("divided[-1]=True") == 1  # the lattice, which four devices divide evenly
    assert said.count("4 devices share each chain, but no array of the model has the 4,096 elements") == 1


@pytest.mark.parametrize(
    ("shape", "of_data", "of_chains"),
    [
        ((), (), ("chains",)),
        ((4095,), (None,), ("chains", None)),
        ((4096,), ("rows",), ("chains", "rows")),
        ((4097,), (None,), ("chains", None)),  # four devices cannot have equal parts
        ((3, 2000), (None, "rows"), ("chains", None, "rows")),
        ((64, 64), ("rows", None), ("chains", "rows", None)),
    ],
)
def test_layout_of_arrays(shape, of_data, of_chains):
    layout = Layout.__new__(Layout)  # of four devices that share each chain, without the devices
    layout.devices = np.empty((1, 4), object)
    layout.mesh = jax.sharding.AbstractMesh((1, 4), ("chains", "rows"))
    assert tuple(layout.of_data(shape).spec) == of_data
    assert tuple(layout.of_chains((2, *shape)).spec) == of_chains


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
