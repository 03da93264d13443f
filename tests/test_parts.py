"""Tests of a part beside the core run where it, or what it imports, has changed."""

import subprocess

import pytest

from tests import parts


@pytest.fixture
def branch(tmp_path):
    """A repository of two parts, on a branch that begins at main."""
    files = {
        "pymc_discrete/kernels/slice.py": "",
        "pymc_discrete/plots/moves.py": "from pymc_discrete.kernels import slice",
        "pymc_discrete/flows/step.py": "from pymc_discrete.plots.moves import x",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    for command in ("init -q -b main", "add .", "commit -q -m one", "switch -q -c branch"):
        who = ["-c", "user.name=one", "-c", "user.email=one@example.org"]
        subprocess.run(["git", "-C", tmp_path, *who, *command.split()], check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "some"),
    [
        ("pymc_discrete/kernels/slice.py", {"plots"}),  # imported by one
        ("pymc_discrete/plots/moves.py", {"plots", "flows"}),
        ("tests/flows/test_new.py", {"flows"}),
        ("pymc_discrete/kernels/metropolis.py", set()),
        ("tests/tools/oracle.py", {"plots", "flows"}),
    ],
)
def test_a_part_has_changed_where_what_it_imports_has(branch, file, some):
    assert parts.not_changed(branch) >= {"plots", "flows"}
    (branch / file).parent.mkdir(parents=True, exist_ok=True)
    (branch / file).write_text("# changed")
    assert {"plots", "flows"} - parts.not_changed(branch) == some


def test_a_part_that_is_named_counts_as_changed(branch):
    for path in ("tests/plots", "tests/plots/test_plots.py::test_one"):
        assert "plots" not in parts.not_changed(branch, [path])


def test_without_a_repository_all_parts_have_changed(tmp_path):
    assert parts.not_changed(tmp_path) == set()
