"""Columns by their names: a name that several columns have says none of them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InputError

# What columns of both ends are usually called.
SOURCES = ("src", "source", "from", "head", "u", "subject")
TARGETS = ("dst", "target", "to", "tail", "v", "object")


def only_column(names: Sequence[str], name: str, path: str, option: str) -> int:
    """Return the number of the column that ``option`` names; raise where it is not the only one."""
    numbers = [number for number, other in enumerate(names) if other == name]
    if len(numbers) > 1:
        raise InputError(
            f"{path} has several columns named {name}",
            expected=f"one, as {option} names it",
            got=f"columns {', '.join(map(str, numbers))}, counted from 0",
            remedy="Give the number instead of the name, or rename the columns",
        )
    return numbers[0]


def known_column(
    names: Sequence[str], known: Sequence[str], role: str, path: str, option: str
) -> int | None:
    """Return the column of the first known name, in whatever case; raise if several have it."""
    lower = [name.strip().lower() for name in names]
    for name in known:
        numbers = [number for number, other in enumerate(lower) if other == name]
        if len(numbers) > 1:
            raise InputError(
                f"{path} has several columns that may be the {role}: "
                + ", ".join(names[number] for number in numbers),
                remedy=f"Say which with {option}, by its number from 0, or rename the columns",
            )
        if numbers:
            return numbers[0]
    return None


def check_features(names: Sequence[str], numbers: Sequence[int], path: str) -> None:
    """Raise where two columns of features have one name, by which a model would know them."""
    chosen = [names[number] for number in numbers]
    twice = next((name for name in chosen if chosen.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{path} has several columns named {twice}, which --feature-columns takes",
            expected="features of different names, by which a model knows them again",
            remedy="Rename the columns",
        )
