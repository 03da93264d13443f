"""The pages of docs/gallery run from top to bottom: their code, and what it makes of a few draws."""

import matplotlib.pyplot as plt
import pytest

import pymc_discrete as pmd
from docs.to_pymc_examples import cells_of
from tests.tools.processes import ROOT

GALLERY = ROOT / "docs/gallery"
FEW = 20  # draws of a page here, each half of tuning and half kept, where its own would only take longer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of so few draws
@pytest.mark.parametrize("page", [p.stem for p in sorted(GALLERY.glob("*.md")) if p.stem != "index"])
def test_pages_run(page, monkeypatch):
    sample = pmd.sample

    def shortly(*_, **options):
        return sample(**options | {"draws": FEW, "tune": FEW})

    monkeypatch.setattr(pmd, "sample", shortly)
    monkeypatch.chdir(GALLERY)
    names = {}
    for kind, code in cells_of((GALLERY / f"{page}.md").read_text()):
        if kind == "code":
            exec(code, names)
    plt.close("all")
