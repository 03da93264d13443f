"""Docstrings in numpydoc's form, taken apart and put together."""

import inspect
import re
from typing import Any

# the sections of a docstring, in the order of numpydoc
SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "Warns", "Notes", "References", "Examples")


def sections(documented: Any) -> dict[str, str]:
    """{heading: text} of a docstring in numpydoc's form; the text before the first heading has the key ""."""
    text = inspect.cleandoc(documented.__doc__ or "")
    parts = re.split(rf"^({'|'.join(SECTIONS)})\n-+\n", text, flags=re.MULTILINE)
    return {heading: body.strip("\n") for heading, body in zip(["", *parts[1::2]], parts[::2], strict=True)}


def written(parts: dict[str, str]) -> str:
    """The docstring in numpydoc's form with the given sections {heading: text}."""
    with_heading = [f"{name}\n{'-' * len(name)}\n{parts[name]}" for name in SECTIONS if parts.get(name)]
    return "\n\n".join([parts.get("", ""), *with_heading]) + "\n"


def items(section: str) -> dict[str, str]:
    """{name, or names before the colon: the lines about them} of a section such as "Parameters"."""
    found = re.split(r"^(?=\S)", section, flags=re.MULTILINE)
    return {item.split(":")[0].strip(): item.rstrip("\n") for item in found if item.strip()}
