"""Readable sizes, and checks that a job fits before it starts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from penstock.errors import CapacityError, UsageError
from penstock.limits import available_memory

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str | int) -> int:
    """Return bytes: accepts ``1500000000``, ``"1.5GB"``, ``"512MiB"`` and ``"2g"``."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([kmgt]?i?)b?\s*", text.lower())
    if match is not None and match[2] in _UNITS:
        return int(float(match[1]) * _UNITS[match[2]])
    raise UsageError(f"{text!r} is not a size", expected="something like 1.5GB or 512MiB")


def checked_size(text: str) -> str:
    """Return a text that ``parse_bytes`` accepts; else raise ValueError, which names the option.

    For the types and validators of options.
    """
    try:
        parse_bytes(text)
    except UsageError as error:
        raise ValueError(error.expected) from None
    return text


def format_bytes(count: float) -> str:
    """Return a size for people: 1234567 -> ``1.2 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB" if count < 999.5 else f"{count:.0f} TB"


def format_count(count: float) -> str:
    """Return a count for people: 2400000 -> ``2.4 M``."""
    for unit in ("", "k", "M"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}".rstrip()
        count /= 1000
    return f"{count:.3g} G" if count < 999.5 else f"{count:,.0f} G"


def plural(count: int, noun: str) -> str:
    """Return a count of things for people: ``1 epoch``, ``2,000 epochs``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def listed(values: Iterable[object], most: int = 10, sep: str = ", ") -> str:
    """Return the first of some names: ``a, b and 3 more``."""
    names = [*map(str, values)]
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return sep.join(names[:most]) + more


def were_there(count: int, noun: str) -> str:
    """Return how many pieces an interrupted run had done: ``1 file was there ...``."""
    return f"{plural(count, noun)} {'was' if count == 1 else 'were'} there from the run before"


def free_disk(folder: Path) -> int:
    """Return the free bytes of the disk of ``folder``, which need not exist."""
    there = folder
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free


def does_not_fit(what: str, where: str, needs: int, has: int, *, remedy: str) -> CapacityError:
    """Return the error of everything that is too large: what it needs, what there is."""
    expected, got = f"about {format_bytes(needs)}", format_bytes(has)
    return CapacityError(f"{what} does not fit {where}", expected=expected, got=got, remedy=remedy)


def too_large_for_disk(folder: Path, size: int, purpose: str) -> CapacityError | None:
    """Return the error unless ``folder``'s disk has ``size`` bytes free."""
    free = free_disk(folder) if size else 0
    if free >= size:
        return None
    remedy = "Free some space or write to another disk"
    return does_not_fit(purpose, f"on the disk of {folder}", size, free, remedy=remedy)


def need_disk(folder: Path, size: int, purpose: str) -> None:
    """Raise CapacityError unless ``folder``'s disk has ``size`` bytes free."""
    if (error := too_large_for_disk(folder, size, purpose)) is not None:
        raise error


def too_large(
    size: int, purpose: str, *, remedy: str, limit: int | None = None
) -> CapacityError | None:
    """Return the error of data that does not fit into ``limit`` bytes (default: those
    available)."""
    available = available_memory() if limit is None else limit
    if size <= available:
        return None
    return does_not_fit(purpose, "in memory", size, available, remedy=remedy)


def need_memory(size: int, purpose: str, *, remedy: str, limit: int | None = None) -> None:
    """Raise CapacityError unless ``size`` bytes fit into ``limit`` (default: what is available)."""
    if (error := too_large(size, purpose, remedy=remedy, limit=limit)) is not None:
        raise error
