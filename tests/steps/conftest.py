"""A random walk that stands for NUTS, in tests that are not about it."""

import pytest


def stand_in(patch):
    # imported here, since PyMC chooses the level of its log by what has been set up when it is imported
    from pymc_discrete.engine.nuts import NutsBlock
    from tests.tools.walk import walk

    patch.setattr(NutsBlock, "draw", walk)


@pytest.fixture
def walks(monkeypatch):
    """In `pmd.sample`, and in steps that make draws ahead, a random walk stands for NUTS."""
    stand_in(monkeypatch)


@pytest.fixture(scope="module")
def only_walks():
    """As `walks`, in all tests of a file, which may then share programs."""
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        yield
