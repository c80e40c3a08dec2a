"""Sentences of files, one piece per task: lists of ids in Parquet or Arrow IPC, or text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.csr import offsets_of
from penstock.errors import InputError
from penstock.pipelines.tables.parquet import plain
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.read import read_rows
from penstock.pipelines.tables.rows import Rows
from penstock.pipelines.tables.text import TextShape
from penstock.pipelines.tables.words import read_words

if TYPE_CHECKING:
    import pyarrow as pa

_NO_TEXT = TextShape((), "")


class Sentences(NamedTuple):
    """Some sentences: their ids one after the other, and offsets, (sentences + 1,) int64.

    where  returns the file and row of a position in the ids
    """

    ids: pa.Array
    offsets: Array
    where: Callable[[int], str]


@dataclass(frozen=True)
class Part:
    """The input of one task: a piece of a file, and its column of lists; None: text.

    ids  an approximate bound of its number of ids
    """

    piece: Piece
    column: str | None
    ids: int

    @property
    def name(self) -> str:
        """The name of its pieces."""
        return f"piece-{self.piece.number:05d}"

    def read(self, longest: int) -> Iterator[Sentences]:
        """Yield its sentences; those of more than ``longest`` ids are cut."""
        return self._lines(longest) if self.column is None else self._lists(self.column, longest)

    def _lists(self, column: str, longest: int) -> Iterator[Sentences]:
        import pyarrow.compute as pc

        for rows in read_rows(self.piece, {column: "list"}, _NO_TEXT):
            lists = rows.columns[column]
            lengths = as_numpy(pc.fill_null(pc.list_value_length(lists), 0))  # null counts as empty
            ids, offsets = lists.flatten(), offsets_of(lengths.astype(np.int64))
            where = _place(rows, offsets)
            if ids.null_count:
                raise InputError(
                    f"{self.piece.path} has a list that contains a null",
                    got=where(int(np.argmax(as_numpy(ids.is_null())))),
                    remedy="Leave such rows out",
                )
            yield Sentences(plain(ids), cut(offsets, longest), where)

    def _lines(self, longest: int) -> Iterator[Sentences]:
        import pyarrow as pa

        held = pa.array([], pa.string())
        for more, ends in read_words(self.piece):
            words = pa.concat_arrays([held, more.cast(pa.string())])
            last = len(held) + int(ends[-1]) if len(ends) else 0
            # The last line continues: only the part that is not cut yet is kept.
            whole = len(words) - (len(words) - last) % longest
            offsets = np.unique(np.concatenate([[0], len(held) + ends, [whole]]))
            yield Sentences(words[:whole], cut(offsets, longest), lambda _: self.piece.path)
            held = words[whole:]
        yield Sentences(held, np.unique([0, len(held)]), lambda _: self.piece.path)


def cut(offsets: Array, longest: int) -> Array:
    """Return the offsets of sentences after those longer than ``longest`` are cut."""
    lengths = np.diff(offsets)
    if not len(lengths) or lengths.max() <= longest:
        return offsets
    parts = np.maximum(-(-lengths // longest), 1)
    ends = np.repeat(offsets[:-1], parts)
    inside = np.arange(len(ends)) - np.repeat(np.cumsum(parts) - parts, parts)
    return np.append(ends + inside * longest, offsets[-1])


def _place(rows: Rows, offsets: Array) -> Callable[[int], str]:
    def where(place: int) -> str:
        row = int(np.searchsorted(offsets, place, side="right")) - 1
        number, value = rows.source.number(row), place - int(offsets[row]) + 1
        return f"{rows.source.path}, row {number}, value {value}"

    return where
