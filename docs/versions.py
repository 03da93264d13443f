"""Writes the list of the versions whose pages are in a site: those of main, and a folder for each release.

python docs/versions.py SITE
"""

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def entries(releases: list[str]) -> list[dict[str, str | bool]]:
    """The entries of the menu: main, and releases such as "0.1.0", the newest first and preferred."""
    site = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Documentation"]
    found: list[dict[str, str | bool]] = [{"version": "dev", "name": "development", "url": site}]
    for n, one in enumerate(sorted(releases, key=lambda v: [int(i) for i in v.split(".")], reverse=True)):
        found.append({"version": one, "url": f"{site}{one}/", "preferred": n == 0})
    return found


if __name__ == "__main__":
    site = Path(sys.argv[1])
    releases = [one.name for one in site.iterdir() if re.fullmatch(r"\d+(\.\d+)+", one.name)]
    (site / "_static/switcher.json").write_text(json.dumps(entries(releases), indent=2) + "\n")
