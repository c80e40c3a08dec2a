"""Columns by their names; a name that several columns have is an error."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InputError

# The usual names of columns of both ends.
SOURCES = ("src", "source", "from", "head", "u", "subject")
TARGETS = ("dst", "target", "to", "tail", "v", "object")


def only_column(names: Sequence[str], name: str, path: str, option: str) -> int:
    """Return the number of the column that ``option`` names; raise if several have that name."""
    numbers = [number for number, other in enumerate(names) if other == name]
    if len(numbers) > 1:
        raise InputError(
            f"{path} has several columns named {name}",
            expected=f"one column, which {option} names",
            got=f"columns {', '.join(map(str, numbers))}, counted from 0",
            remedy="Give the number instead of the name, or rename the columns",
        )
    return numbers[0]


def known_column(
    names: Sequence[str], known: Sequence[str], role: str, path: str, option: str
) -> int | None:
    """Return the column of the first known name, in any case; raise if several have it."""
    lower = [name.strip().lower() for name in names]
    for name in known:
        numbers = [number for number, other in enumerate(lower) if other == name]
        if len(numbers) > 1:
            raise InputError(
                f"{path} has several columns that may be the {role}: "
                + ", ".join(names[number] for number in numbers),
                remedy=f"Choose one with {option}, by its number from 0, or rename the columns",
            )
        if numbers:
            return numbers[0]
    return None


def check_features(names: Sequence[str], numbers: Sequence[int], path: str) -> None:
    """Raise if two columns of features have the same name: models identify features by name."""
    chosen = [names[number] for number in numbers]
    twice = next((name for name in chosen if chosen.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{path} has several columns named {twice}, which --feature-columns takes",
            expected="features with different names, which models identify them by",
            remedy="Rename the columns",
        )
