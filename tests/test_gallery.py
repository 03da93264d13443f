"""The pages of docs/gallery run from top to bottom: their code, and what it makes of a few draws.

A random walk stands for NUTS, of which no page asks more than that its draws are there.
"""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import pymc_discrete as pmd
from docs.to_pymc_examples import cells_of
from tests.tools.processes import ROOT

GALLERY = ROOT / "docs/gallery"
FEW = 20  # draws, of tuning and kept, in place of those that a page asks for


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of so few draws
@pytest.mark.parametrize("page", [p.stem for p in sorted(GALLERY.glob("*.md")) if p.stem != "index"])
def test_pages_run(page, monkeypatch, walks):
    sample, results = pmd.sample, []

    def shortly(*_, **options):
        results.append(sample(**options | {"draws": FEW, "tune": FEW, "chains": 2}))
        return results[-1]

    monkeypatch.setattr(pmd, "sample", shortly)
    monkeypatch.chdir(GALLERY)
    names = {}
    for kind, code in cells_of((GALLERY / f"{page}.md").read_text()):
        if kind == "code":
            exec(code, names)
    plt.close("all")
    assert results
    for result in results:
        assert result["posterior"].sizes["draw"] == FEW
        assert np.isfinite(result["sample_stats"]["lp"]).all()
