"""Names of variables in messages: a few in full, many as a range."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

# PyMC's name for the value of a transformed variable, such as `p_logodds__`. The transforms log_exp_m1 and
# cholesky_corr are listed, since an underscore in their names would be taken for the one before the name.
TRANSFORMED = re.compile(r"(.+?)_(?:log_exp_m1|cholesky_corr|[^_]+)__")
ALIKE = 4  # smallest number of names, equal except for the numbers in them, that are shown as a range
MADE = "/"  # a character in all names that this package makes up; PyMC refuses it in names of variables
MOST_LISTED = 8  # the largest number of names or ranges that a list shows


def shown(names: Iterable[str | None], quoted: bool = True, what: str = "variables") -> str:
    """A list of the names for a message, with at most `MOST_LISTED` names or ranges, each as the user knows
    it.

    The result is, for example, `'a', 'b'`, or `z0 ... z149 (150 variables)` for many names that differ only
    in their numbers. The argument `what` is a word for the named things.
    """
    known = [part for name in names for part in str(name).split(MADE) if part or not name]
    all_names = list(dict.fromkeys(map(untransformed, known)))
    parts = [part for group in grouped_by_pattern(all_names) for part in entries(group, quoted, what)]
    if len(parts) <= MOST_LISTED:
        return ", ".join(parts)
    return f"{', '.join(parts[: MOST_LISTED - 1])}, ... {parts[-1]} ({len(all_names)} {what} in all)"


def made_name(names: Iterable[str]) -> str:
    """The name of one variable that several variables are joined into; in messages, `shown` replaces it by
    the names of the joined variables.
    """
    return MADE.join(names)


def untransformed(name: str) -> str:
    """The name of a variable as the user knows it: `p`, not PyMC's `p_logodds__`."""
    match = TRANSFORMED.fullmatch(name)
    return match[1] if match else name


def grouped_by_pattern(names: Iterable[str]) -> list[list[str]]:
    """The names in groups; the names in a group differ only in their numbers."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"\d+", "#", name), []).append(name)
    return list(groups.values())


def entries(group: list[str], quoted: bool, what: str) -> list[str]:
    """The text of a group of names in a list: each of a few names, or one range of many names."""
    if len(group) < ALIKE:
        return [repr(name) if quoted else name for name in group]
    ends = sorted(group, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
    return [f"{ends[0]} ... {ends[-1]} ({len(group)} {what})"]


def merged_texts(texts: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """[(variables, text)] from {variable: text}, where similar texts are merged.

    Texts that differ only in the names that they quote become one text that quotes all these names.
    """
    groups: dict[tuple[str, ...], list[tuple[str, list[str]]]] = {}
    for name, text in texts.items():
        between = re.split(r"'([^']*)'", text)
        groups.setdefault(tuple(between[::2]), []).append((name, between[1::2]))
    merged = []
    for template, members in groups.items():
        quoted = [
            shown(dict.fromkeys(at_place)) for at_place in zip(*(names for _, names in members), strict=True)
        ]
        text = "".join(part for pair in zip(template, [*quoted, ""], strict=True) for part in pair)
        merged.append(([name for name, _ in members], text))
    return merged


def element_name(name: str, labels: Sequence[Sequence[Any]], place: Sequence[Any]) -> str:
    """The name of an element in tables and messages: `z`, `z[0, 3]`, or `z[a, b]` with its coordinates.

    Parameters
    ----------
    labels : the labels along each axis
    place : the index along each axis
    """
    if not len(place):
        return name
    return f"{name}[{', '.join(str(of_axis[i]) for of_axis, i in zip(labels, place, strict=True))}]"


def labels_in(model: Any, name: str, shape: tuple[int, ...]) -> list[Sequence[Any]]:
    """For each axis of a variable of a model its coordinates, or the indices 0, 1, ... where it has none."""
    dims = model.named_vars_to_dims.get(name) or (None,) * len(shape)
    if len(dims) != len(shape):
        return [range(n) for n in shape]
    found = [model.coords.get(d) for d in dims]
    return [c if c is not None and len(c) == n else range(n) for c, n in zip(found, shape, strict=True)]


def element_of(model: Any, value: str, shape: tuple[int, ...], i: int | None) -> str:
    """The name of the element with flat index i of a value variable of a model; the variable's own name if i
    is None.
    """
    name = next((str(rv.name) for rv, v in model.rvs_to_values.items() if v.name == value), value)
    if i is None or not shape:
        return name
    return element_name(name, labels_in(model, name, shape), np.unravel_index(i, shape))
