"""The progress bar says what is being compiled, for how long, and then how the chains move."""

import io
import re
from typing import get_args

import nbclient
import nbformat
import numpy as np
import pymc as pm
import pytest
from pymc.progress_bar import default_progress_theme
from pymc.progress_bar.progress import ProgressBarOptions
from rich.console import Console

import pymc_discrete as pmd
from pymc_discrete.runtime.compiling import announced, being_compiled
from pymc_discrete.runtime.progress import Progress, check_bar

pytestmark = pytest.mark.shares_programs


def test_what_is_being_compiled():
    assert being_compiled() is None
    with announced("the chains: NUTS for 'mu'"):
        assert being_compiled() == "compiling the chains: NUTS for 'mu', 0 s"
        with announced("the log density"):
            assert being_compiled() == "compiling the chains: NUTS for 'mu' and 1 more, 0 s"
    with pytest.raises(ValueError, match="in between"), announced("what fails"):
        raise ValueError("in between")
    assert being_compiled() is None


@pytest.mark.slow
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


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_bar_has_one_line(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    bar = Progress(2_000_000, 128, shown=True)
    paper = Console(file=io.StringIO(), width=width, theme=default_progress_theme)
    with bar:
        bar.divergences = 10_000
        bar.advance(1000, 0.01, {"diverging": np.zeros(2), "acceptance_rate": np.ones(2)}, tuning=False)
        with paper.capture() as captured:
            paper.print(bar._bar.get_renderable())
    lines = captured.get().rstrip().splitlines()
    assert len(lines) == 1
    assert "128 chains" in lines[0]
    assert "sampling, 12,800,000 draws/s" in lines[0] or width < 80


def test_what_the_bar_is_asked_for():
    for word in (True, False, np.True_, *get_args(ProgressBarOptions)):
        check_bar(word)
    with pm.Model() as model:
        pm.Bernoulli("z", 0.3)
    for call in (pmd.sample, pmd.fit_flow, pmd.log_evidence):
        with pytest.raises(
            ValueError, match=r"progressbar must be True, False, or, as in pm\.sample, one of"
        ):
            call(model=model, progressbar="fancy")
    with pytest.raises(ValueError, match=r"got 'splt'\. Did you mean 'split'\?"):
        check_bar("splt")


def test_misspelt_options():
    with pm.Model():
        pm.Bernoulli("z", 0.3)
        for call, message in (
            (lambda: pmd.sample(chians=2), r"no option 'chians'\. Did you mean 'chains'\?"),
            (lambda: pmd.sample(dtype="flaot32"), r"Did you mean 'float32'\?"),
            (lambda: pmd.sample(nuts={"max_tree_depth": 5}), r"Did you mean 'max_treedepth'\?"),
            (lambda: pmd.BlockGibbs(transition=2), r"Did you mean 'transitions'\?"),
            (lambda: pmd.BlockGibbs(transitions="atuo"), r"Did you mean 'auto'\?"),
            (lambda: pmd.BlockGibbs(differences="Exact"), r"Did you mean 'exact'\?"),
            (lambda: pmd.PathAuxiliary(balancng="sqrt"), r"Did you mean 'balancing'\?"),
            (lambda: pmd.AutoStep(windw=2), r"Did you mean 'window'\?"),
            (lambda: pmd.CollapsedNUTS(target_acept=0.9), r"Did you mean 'target_accept'\?"),
            (lambda: pmd.CustomStep("z", step=len, intit=len), r"Did you mean 'init'\?"),
        ):
            with pytest.raises((TypeError, ValueError), match=message):
                call()


@pytest.mark.slow
def test_a_saved_notebook_has_the_last_state_of_the_bar():
    """Without the package of widgets, which are empty in a notebook that is opened again."""
    cell = "\n".join(
        [
            "import time",
            "from pymc_discrete.runtime.progress import Progress",
            "with Progress(20, 2, True) as bar:",
            "    print('compiled')",
            "    for _ in range(4):",
            "        bar.advance(5, 0.1, {}, tuning=False)",
            "        time.sleep(0.15)",  # the bar is also drawn anew by a thread
            "print('done')",
        ]
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    nbclient.NotebookClient(notebook, timeout=120).execute()
    outputs = notebook.cells[0].outputs
    (bar,) = [o for o in outputs if o.output_type == "display_data"]
    assert re.search(r"^2 chains \S+ 100%\s+sampling, 100 draws/s\s", bar.data["text/plain"])
    assert "<pre" in bar.data["text/html"]
    assert "100%" in bar.data["text/html"]
    streams = [o for o in outputs if o.output_type == "stream"]
    assert "".join(o.text for o in streams if o.name == "stdout") == "compiled\ndone\n"
    assert len(outputs) - len(streams) == 1
