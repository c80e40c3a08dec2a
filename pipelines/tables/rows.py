"""Rows of a table: their columns, their positions, and which of them cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

KEPT = 10  # bad rows that are kept for messages; all are counted
SKIP = "Correct the row, or give --on-bad-rows skip to leave such rows out"
# Rows at once: few enough that they, with their codes and sort buffers, stay under 300 MB.
BATCH_ROWS = 1 << 22
Column = str | int  # by its name, or by its position in a text without names


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used, and why."""

    path: str
    row: int  # from 1, like lines in an editor; in files other than text: rows
    reason: str
    text: str  # the row, shortened


@dataclass(frozen=True)
class RowSource:
    """The origin of rows, for messages about one of them."""

    path: str
    number: Callable[[int], int]  # a row of these -> its row in the file, from 1
    text: Callable[[int], str]
    file: Callable[[int], str] | None = None  # the file of a row, if ``path`` is a folder of them

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row, and its number there."""
        return self.path if self.file is None else self.file(row), self.number(row)

    @staticmethod
    def of(path: str, before: Callable[[], int], columns: Mapping[Any, pa.Array]) -> RowSource:
        """Return the rows of Arrow columns; ``before`` is the number of rows before them."""
        shown_columns = list(columns.items())[:6]

        def text(row: int) -> str:
            return ", ".join(f"{name}={shown(column[row])}" for name, column in shown_columns)

        return RowSource(path, lambda row: before() + row + 1, text)


@dataclass(frozen=True)
class Rows:
    """Some rows of a table."""

    columns: Mapping[Any, pa.Array]  # those that were asked for
    checks: RowChecks  # faults found so far, such as a wrong number of columns
    source: RowSource

    @classmethod
    def of(
        cls, path: str, before: int | Callable[[], int], columns: Mapping[Any, pa.Array]
    ) -> Rows:
        """Return rows of Arrow columns, and the number of rows of the file before them."""
        known: Callable[[], int] = (lambda: before) if isinstance(before, int) else before
        checks = RowChecks(len(next(iter(columns.values()))))
        return cls(columns, checks, RowSource.of(path, known, columns))

    def __len__(self) -> int:
        return self.checks.count


@dataclass(frozen=True)
class _Fault:
    mask: Array
    reason: Callable[[int], str]
    remedy: str


class RowChecks:
    """Faults of the rows of one batch; of several faults of a row the first counts."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._faults: list[_Fault] = []
        self._bad: Array | None = None

    def fail(self, mask: Array, reason: str | Callable[[int], str], remedy: str = SKIP) -> None:
        """Mark the rows of ``mask`` as bad; ``reason`` may depend on the row."""
        if not mask.any():
            return
        said: Callable[[int], str] = (lambda _: reason) if isinstance(reason, str) else reason
        self._faults.append(_Fault(mask, said, remedy))
        self._bad = mask.copy() if self._bad is None else self._bad | mask

    def fail_rows(self, reasons: Mapping[int, str]) -> None:
        """Mark some rows as bad."""
        mask = np.zeros(self.count, bool)
        mask[list(reasons)] = True
        self.fail(mask, reasons.__getitem__)

    def take(self, other: RowChecks, *, except_for: Array) -> None:
        """Copy another's faults, except those of excused rows."""
        for fault in other._faults:
            self.fail(fault.mask & ~except_for, fault.reason, fault.remedy)

    @property
    def bad(self) -> Array | None:
        """Mask of the bad rows; None if all rows are good."""
        return self._bad

    def report(
        self, rows: RowSource, on_bad_rows: str, *, can_skip: bool = True
    ) -> tuple[tuple[BadRow, ...], int]:
        """Return the first bad rows and the number of all; with ``error`` raise the first."""
        if self._bad is None:
            return (), 0
        where = np.flatnonzero(self._bad)
        if on_bad_rows == "error":
            row = int(where[0])
            fault, (path, number) = self._first_fault(row), rows.place(row)
            raise InputError(
                f"{path}, row {number}: {fault.reason(row)}",
                got=shorten(rows.text(row)),
                remedy=fault.remedy if can_skip or fault.remedy != SKIP else None,
            )
        kept = []
        for row in map(int, where[:KEPT]):
            reason, text = self._first_fault(row).reason(row), shorten(rows.text(row))
            kept.append(BadRow(*rows.place(row), reason, text))
        return tuple(kept), len(where)

    def _first_fault(self, row: int) -> _Fault:
        return next(fault for fault in self._faults if fault.mask[row])


def shown(scalar: Any) -> str:
    """Return an Arrow value for a message."""
    try:
        return shorten(str(scalar.as_py()), 40)
    except (OverflowError, ValueError):  # a date that Python's calendar does not reach
        return str(getattr(scalar, "value", "?"))


def shorten(text: str, limit: int = 120) -> str:
    """Return text for a message: one line, shortened."""
    text = text.rstrip("\r\n")
    shown = text if text.isprintable() else repr(text)[1:-1]
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
