"""Whatever takes long is named in the log."""

import importlib
import logging
import threading

import pymc as pm
import pytest

import pymc_discrete as pmd
from pymc_discrete.runtime import waiting
from pymc_discrete.runtime.waiting import watched
from pymc_discrete.sampling import planned
from pymc_discrete.sampling import sample as sampling

LOG = logging.getLogger("pymc.discrete")


@pytest.fixture
def line(monkeypatch, caplog):
    """Waits for the next line of the log, whose text it gives."""
    caplog.set_level(logging.INFO, "pymc.discrete")
    monkeypatch.setattr("pymc_discrete.runtime.waiting.FIRST", 0.05)
    monkeypatch.setattr("pymc_discrete.runtime.waiting.NEXT", 0.1)
    lines, new = [], threading.Condition()

    class Note(logging.Handler):
        def emit(self, record):
            with new:
                lines.append(record.getMessage())
                new.notify_all()

    def wait():
        with new:
            seen = len(lines)
            assert new.wait_for(lambda: len(lines) > seen, timeout=60), "nothing was logged"
            return lines[-1]

    handler = Note()
    LOG.addHandler(handler)
    yield wait
    LOG.removeHandler(handler)


def threads():
    return [t for t in threading.enumerate() if t.name == "waiting"]


def test_the_innermost_is_named_again_and_again(line):
    with watched("Outer"):
        with watched(lambda: "Inner"):
            assert [line().split(":")[0] for _ in range(3)] == ["Inner"] * 3
        assert line().startswith("Outer: ")
    assert not threads()  # a process that is forked next has no thread but its own


def test_what_a_bar_shows_is_not_logged(line, caplog):
    with watched("Outer"), watched(None), watched("Inner"):
        threading.Event().wait(0.3)
        assert not caplog.records
    with pytest.raises(ValueError, match="in between"), watched("what fails"):
        raise ValueError("in between")
    assert not threads()


def test_a_process_forked_in_between_goes_on(line):
    with watched("Outer"):
        line()
        waiting._after_fork()  # the thread is not in the child; here it ends by itself
        with watched("Of the child"):
            assert line().startswith("Of the child: ")


def delay(monkeypatch, name, line):
    """Let a function wait for a line before it returns."""
    module, attribute = name.rsplit(".", 1)
    plain = getattr(importlib.import_module(module), attribute)

    def late(*args, **options):
        line()
        return plain(*args, **options)

    monkeypatch.setattr(name, late)


def small():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("z", p, shape=2)
    return model


@pytest.mark.slow
def test_whatever_takes_long_in_sampling_is_named(line, monkeypatch):
    """Functions that a step and `pmd.sample` call wait for a line, and so does the callback."""
    with small() as model:
        for name in ("steps.auto.block_of", "steps.base.block_of", "differences.from_model.density_of"):
            with monkeypatch.context() as patch:
                delay(patch, f"pymc_discrete.{name}", line)
                pmd.AutoStep()
    for name in ("steps_of", "blocks_of", "starts"):
        delay(monkeypatch, f"{planned.__name__}.{name}", line)
    for name in ("data_tree", "check_convergence"):
        delay(monkeypatch, f"{sampling.__name__}.{name}", line)
    with model:
        pmd.sample(
            10, tune=10, chains=1, random_seed=1, progressbar=True, callback=lambda draws, done: line()
        )
    assert not threads()
