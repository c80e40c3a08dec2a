"""The vocabulary of a corpus: the ids that get a vector, and their counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import one_array, read_column, write_parquet
from penstock.errors import InputError
from penstock.files import save_npy
from penstock.sizes import format_count

if TYPE_CHECKING:
    import pyarrow as pa

IDS, COUNTS = "vocabulary.parquet", "vocabulary.counts.npy"


@dataclass(frozen=True)
class Vocabulary:
    """Words by falling count, words of equal count in their own order.

    ids     Arrow array; counts: (words,) int64
    """

    ids: pa.Array
    counts: Array

    @staticmethod
    def of(counted: pa.Table, *, what: str, min_count: int, max_vocab: int | None) -> Vocabulary:
        """Return the ids and counts that stay: frequent enough, and at most the maximal number.

        counted  columns id and count, each id once
        """
        import pyarrow.compute as pc

        if not counted.num_rows:
            raise empty(what)
        kept = counted.filter(pc.greater_equal(counted["count"], min_count))
        if not kept.num_rows:
            most = counted.take(pc.select_k_unstable(counted, 1, [("count", "descending")]))
            top = (most["id"][0].as_py(), most["count"][0].as_py())
            raise nothing_left(what, min_count, counted.num_rows, top)
        kept = kept.sort_by([("count", "descending"), ("id", "ascending")])
        if max_vocab is not None:
            kept = kept.slice(0, max_vocab)
        return Vocabulary(one_array(kept["id"]), kept["count"].to_numpy().astype(np.int64))

    def save(self, folder: Path) -> Path:
        """Write the vocabulary, before any record of it, and return the file of the counts."""
        import pyarrow as pa

        write_parquet(folder / IDS, [pa.table({"id": self.ids})], compression="snappy")
        save_npy(folder, COUNTS, self.counts)
        return folder / COUNTS


def load_ids(folder: Path) -> pa.Array:
    """Return the ids of a written vocabulary."""
    return one_array(read_column(folder / IDS, "id"))


def empty(what: str) -> InputError:
    """Return the error of a corpus without a word."""
    return InputError(
        f"{what} is an empty corpus: it has no words", expected="sentences with words"
    )


def nothing_left(what: str, min_count: int, words: int, top: tuple[Any, int]) -> InputError:
    """Return the error if no word is frequent enough; top: the most frequent and its count."""
    word, times = top
    return InputError(
        f"nothing in {what} is seen at least {min_count:,} times",
        expected=f"words seen --min-count {min_count} times or more",
        got=f"{format_count(words)} words, the most frequent {word!r}, {times:,} times",
        remedy=f"Give --min-count {times} or less",
    )


def merged(tables: list[pa.Table]) -> pa.Table:
    """Return the summed counts of several tables with columns id and count, each id once."""
    import pyarrow as pa

    if len(tables) == 1:
        return tables[0]
    grouped = pa.concat_tables(tables, promote_options="permissive")
    grouped = grouped.group_by("id").aggregate([("count", "sum")])
    return grouped.rename_columns(
        ["count" if name == "count_sum" else name for name in grouped.column_names]
    )
