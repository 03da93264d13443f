"""The progress bar says what is being compiled, for how long, and then how the chains move."""

import io
import re

import nbclient
import nbformat
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


def test_a_saved_notebook_has_the_last_state_of_the_bar():
    """Without the package of widgets, which are empty in a notebook that is opened again."""
    cell = "\n".join(
        [
            "import time",
            "from pymc_discrete.sampling.progress import Progress",
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
