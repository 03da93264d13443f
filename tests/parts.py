"""Parts beside the core: the tests of those that have not changed can wait for `.ci/run`."""

import ast
import subprocess
from collections.abc import Iterable
from pathlib import Path

# what the core does not import; each may import those before it
PARTS = ("plots", "evidence", "factor_graphs", "learning", "flows", "variational")
SHARED = (
    "pyproject.toml",
    "tests/conftest.py",
    "tests/models.py",
    "tests/parts.py",
    "tests/posteriors.py",
    "tests/tools/",
)


def not_changed(root: Path, chosen: Iterable[str] = ()) -> set[str]:
    """The parts of which nothing differs from the commit where this branch began, nor what they import.

    Parameters
    ----------
    chosen : paths that are given to pytest; a part with a path of its own counts as changed
    """
    changed = changed_files(root)
    if changed is None:
        return set()
    named = {folder for path in chosen for folder in Path(path.split("::")[0]).parts}
    return {
        part
        for part in PARTS
        if part not in named and not any(path.startswith(files_of(root, part)) for path in changed)
    }


def changed_files(root: Path) -> list[str] | None:
    """Files that differ from the commit where this branch left the main one; None where that is not known."""
    branches = ("origin/HEAD", "origin/main", "main")
    base = next((b for name in branches if (b := git(root, "merge-base", "HEAD", name))), None)
    if not base:
        return None
    return [
        *git(root, "diff", "--name-only", *base),
        *git(root, "ls-files", "--others", "--exclude-standard"),
    ]


def git(root: Path, *arguments: str) -> list[str]:
    """The lines that git answers, none where it fails or there is no git."""
    try:
        said = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return said.stdout.splitlines()


def files_of(root: Path, part: str) -> tuple[str, ...]:
    """The beginnings of paths: a part's own files and tests, what they share, and what its files import."""
    found = {f"pymc_discrete/{part}/", f"tests/{part}/", *SHARED}
    for path in (root / "pymc_discrete" / part).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pymc_discrete."):
                modules = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
                found |= {f"{module.replace('.', '/')}.py" for module in modules}
    return tuple(found)
