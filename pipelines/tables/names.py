"""Columns by their names; a name that several columns have is an error."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InputError
from penstock.sizes import listed

# The usual names of columns of both ends.
SOURCES = ("src", "source", "from", "head", "u", "subject")
TARGETS = ("dst", "target", "to", "tail", "v", "object")


def find_column(
    names: Sequence[str],
    asked: str | None,
    path: str,
    option: str,
    *,
    known: Sequence[str] = (),
    position: int | None = None,
    there: str = "",
) -> int | None:
    """Return the number of the column that ``option`` asks for, by name or by number from 0.

    known     names of which the first counts, in any case, if none is asked for
    position  of the column if no name does
    there     the columns to list in the message [default: by name]
    """
    plain = names if asked is not None else [name.strip().lower() for name in names]
    for wanted in known if asked is None else (asked,):
        numbers = [number for number, name in enumerate(plain) if name == wanted]
        if len(numbers) > 1:
            raise InputError(
                f"{path} has several columns named {names[numbers[0]]}",
                expected=f"one column, which {option} names",
                got=f"columns {', '.join(map(str, numbers))}, counted from 0",
                remedy=f"Give {option} the number instead of the name, or rename the columns",
            )
        if numbers:
            return numbers[0]
    if asked is None:
        return position
    if asked.isdecimal() and int(asked) < len(names):
        return int(asked)
    raise InputError(
        f"{path} has no column {asked!r}, which {option} names",
        got=there or f"columns {listed(names, 20)}",
        remedy="Name one of these columns, or give its number from 0",
    )


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
