"""Draws docs/images/gallery_PAGE.png, the pictures of the gallery's index: figures of its pages, small.

python docs/draw_gallery.py [PAGE ...]
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parent
PIXELS = 360  # of the width of a picture
# which figure of each page, counted from 0
FIGURES = {
    "raters": 0,
    "mixtures": 0,
    "clusters": 1,
    "hidden_markov": 0,
    "changepoints": 0,
    "missing_data": 0,
    "ising": 0,
    "occupancy": 1,
    "capture_recapture": 0,
    "n_mixture": 1,
    "data_augmentation": 0,
    "network": 0,
    "variable_selection": 0,
    "logistic_selection": 0,
}


def draw(page: str) -> None:
    """Run the cells of a page up to its figure, and draw that."""
    cells = re.findall(
        r"```\{code-cell\}[^\n]*\n(.*?)```", (DOCS / f"gallery/{page}.md").read_text(), re.DOTALL
    )
    names: dict[str, Any] = {}
    os.chdir(DOCS / "gallery")  # where the data are that pages read
    for cell in cells:
        exec(re.sub(r"^:[^\n]*\n", "", cell, flags=re.MULTILINE), names)  # without the options of the cell
        figures = plt.get_fignums()
        if len(figures) > FIGURES[page]:
            figure = plt.figure(figures[FIGURES[page]])
            path = DOCS / f"images/gallery_{page}.png"
            figure.savefig(path, dpi=PIXELS / figure.get_figwidth())
            return
    raise ValueError(f"{page} has no figure {FIGURES[page]}.")


if __name__ == "__main__":
    for one in sys.argv[1:] or FIGURES:
        draw(one)
        plt.close("all")
