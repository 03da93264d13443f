"""What messages tell users to do: that it can be done, and that it runs."""

import ast
import functools
import inspect
import logging
import re
import warnings
from collections import Counter

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from tests.remedies import NOT_RUN, ROWS, by_positions
from tests.tools.processes import ROOT

# options that messages name and that are no parameters of this package or of pm.sample
OF_OTHERS = {
    "axis": "NumPy's and PyTensor's",
    "ignore_duplicates": "of PyTensor's increments",
    "minlength": "pt.bincount's",
    "drop": "xarray's isel",
    "draw": "xarray's isel",
    "logit_p": "a parameter of PyMC's distributions",
    "initval": "PyMC's, of a variable",
    "observed": "PyMC's, of a variable",
    "random": "pm.CustomDist's",
    "total_size": "PyMC's, of a variable",
    "transform": "PyMC's, of a variable",
    "key": "equinox's, of a network",
    "data": "an option of plots that take keywords",
    "style": "of the HTML of the progress bar",
    "turn": "an attribute of a flow's record",
}


@functools.cache
def texts():
    """[(file, text)], the sentences in the code of the package: no docstrings, and f-strings whole."""
    found = []
    for file in sorted((ROOT / "pymc_discrete").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        left_out = {n.value for n in nodes if isinstance(n, ast.Expr)}
        left_out |= {v for n in nodes if isinstance(n, ast.JoinedStr) for v in n.values}
        for n in nodes:
            if n in left_out:
                continue
            if isinstance(n, ast.Constant) and isinstance(n.value, str):
                text = n.value
            elif isinstance(n, ast.JoinedStr):
                text = "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in n.values)
            else:
                continue
            if " " in text:
                found.append((file.name, text))
    return found


NAME, OPTION = re.compile(r"\bpmd\.(\w+)"), re.compile(r"(?<![.\w])([a-z_]+)=(?!=)")


def parameters(of):
    try:
        return set(inspect.signature(of).parameters)
    except (TypeError, ValueError):
        return set()


def known_options():
    """The parameters of what is public, of the methods of public classes, and of pm.sample."""
    known, pending, seen = parameters(pm.sample), [getattr(pmd, name) for name in pmd.__all__], set()
    while pending:
        of = pending.pop()
        if id(of) in seen or not getattr(of, "__module__", getattr(of, "__name__", "")).startswith(
            "pymc_discrete"
        ):
            continue
        seen.add(id(of))
        known |= parameters(of)
        if inspect.isclass(of):
            known |= parameters(of.__init__)
        if inspect.isclass(of) or inspect.ismodule(of):
            pending += [v for k, v in vars(of).items() if not k.startswith("_")]
    return known


def test_what_messages_name_exists():
    known, missing = known_options(), []
    for file, text in texts():
        for name in NAME.findall(text):
            missing += [f"{file}: pmd.{name} in {text!r}"] * (not hasattr(pmd, name))
        for option in OPTION.findall(text):
            if option not in known and option not in OF_OTHERS:
                missing.append(f"{file}: {option}= in {text!r}")
    assert not missing, "\n".join(missing)


# ---------------------------------------------------------------- what they tell is done
def test_every_message_with_a_remedy_has_a_row():
    """A row that runs it, or a reason why not, and no row of a message that is no longer there."""
    keys = [row.message for row in ROWS] + [key for keys in NOT_RUN.values() for key in keys]
    assert [key for key, n in Counter(keys).items() if n > 1] == []
    named = [text for _, text in texts() if NAME.search(text) or OPTION.search(text)]
    without_row = [text for text in named if not any(key in text for key in keys)]
    assert not without_row, "add rows to tests/remedies.py"
    assert [key for key in keys if not any(key in text for _, text in texts())] == []


def patterns(message):
    """The regular expressions of the texts that a row is about."""
    return [
        re.compile(".*".join(map(re.escape, text.strip().split("{}"))), re.DOTALL)
        for _, text in texts()
        if message in text
    ]


def said(do, log):
    """What is raised, logged and warned of, and the exception."""
    log.clear()
    error = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            do()
        except Exception as raised:
            error = raised
    lines = [record.getMessage() for record in log.records] + [str(w.message) for w in warned]
    return [*lines, str(error)], error


SAID = {}  # {what a row tells one to do: what that says}, as several rows tell the same


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[row.message for row in ROWS])
def test_remedies_run(row, caplog):
    caplog.set_level(logging.INFO, logger="pymc")
    brings = lambda lines: any(p.search(line) for p in patterns(row.message) for line in lines)
    lines, _ = said(row.wrong, caplog)
    assert brings(lines), lines
    assert row.right
    for do in row.right:
        if do not in SAID:
            SAID[do] = said(do, caplog)
        lines, error = SAID[do]
        assert error is None
        assert not brings(lines)


def test_repeats_by_positions():
    counts = np.array([3, 0, 5])
    found = by_positions(pt.as_tensor([1.0, 2.0, 4.0]), pt.as_tensor(counts)).eval(mode="FAST_COMPILE")
    assert list(found) == list(np.repeat([1.0, 2.0, 4.0], counts))
