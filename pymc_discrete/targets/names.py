"""How messages show the names of variables: all of a few, and of many no more than tells which they are."""

import re
from collections.abc import Iterable, Mapping

ALIKE = 4  # names that differ in their numbers only are shown as a range from so many on
LISTED = 8  # entries of a list that are shown


def shown(names: Iterable[str | None], quoted: bool = True) -> str:
    """`'a', 'b'`; `z0 ... z149 (150 variables)` where many differ in their numbers only; at most `LISTED`
    entries.
    """
    every = list(map(str, names))
    parts = [part for group in alike(every) for part in entries(group, quoted)]
    if len(parts) <= LISTED:
        return ", ".join(parts)
    return f"{', '.join(parts[: LISTED - 1])}, ... {parts[-1]} ({len(every)} variables in all)"


def alike(names: Iterable[str]) -> list[list[str]]:
    """The names in groups that differ in their numbers only."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"\d+", "#", name), []).append(name)
    return list(groups.values())


def entries(group: list[str], quoted: bool) -> list[str]:
    """One for each of a few names, one for many."""
    if len(group) < ALIKE:
        return [repr(name) if quoted else name for name in group]
    return [f"{group[0]} ... {group[-1]} ({len(group)} variables)"]


def said_alike(texts: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """[(variables, text)] of {variable: text}.

    Texts that differ only in the names that they quote become one, which quotes all these names.
    """
    groups: dict[tuple[str, ...], list[tuple[str, list[str]]]] = {}
    for name, text in texts.items():
        between = re.split(r"'([^']*)'", text)
        groups.setdefault(tuple(between[::2]), []).append((name, between[1::2]))
    merged = []
    for template, members in groups.items():
        quoted = [shown(dict.fromkeys(place)) for place in zip(*(names for _, names in members), strict=True)]
        text = "".join(part for pair in zip(template, [*quoted, ""], strict=True) for part in pair)
        merged.append(([name for name, _ in members], text))
    return merged
