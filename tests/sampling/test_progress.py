"""The progress bar says what is being compiled, for how long, and then how the chains move."""

import io
import re

import pymc as pm
import pytest
from rich.console import Console

import pymc_discrete as pmd
from pymc_discrete.sampling.progress import Progress
from pymc_discrete.steps.compiling import announced, being_compiled


def test_what_is_being_compiled():
    assert being_compiled() is None
    with announced("the chains: NUTS for 'mu'"):
        assert being_compiled() == "compiling the chains: NUTS for 'mu', 0 s"
        with announced("the log density"):
            assert being_compiled() == "compiling the chains: NUTS for 'mu' and 1 more, 0 s"
    with pytest.raises(ValueError, match="in between"), announced("what fails"):
        raise ValueError("in between")
    assert being_compiled() is None


def test_the_bar_of_a_run(monkeypatch):
    """What a terminal gets: the model is prepared, compiled, and sampled."""
    shown = Console(file=io.StringIO(), force_terminal=True, width=200)
    init = Progress.__init__

    def on_paper(self, *args):
        init(self, *args)
        self._bar.live.console = shown

    monkeypatch.setattr(Progress, "__init__", on_paper)
    with pm.Model():
        pm.Bernoulli("z", 0.3)
        pm.Normal("mu")
        pmd.sample(10, tune=10, chains=2, random_seed=1, compute_convergence_checks=False)
    text = shown.file.getvalue()
    assert re.search(r"preparing the model|compiling", text)
    assert re.search(r"compiling the chains: NUTS for 'mu'; BlockGibbs for 'z'.*, \d+ s", text)
    assert re.search(r"sampling, [\d,]+ draws/s, 0 divergences, accept", text)
