"""The vocabulary of a corpus: the ids that get a vector, and their counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrow import one_array, read_column, write_parquet
from penstock.errors import InputError
from penstock.files import FileEntry, file_entry, save_npy
from penstock.sizes import format_count

if TYPE_CHECKING:
    import pyarrow as pa

IDS, COUNTS = "vocabulary.parquet", "vocabulary.counts.npy"


@dataclass(frozen=True)
class Vocabulary:
    """The words of a corpus, by number: the ids in column ``id`` of a Parquet file."""

    words: int
    file: Path

    def ids(self) -> pa.Array:
        """Return the user's ids of the words."""
        return one_array(read_column(self.file, "id"))


def save_vocabulary(
    folder: Path, counted: pa.Table, *, what: str, min_count: int, max_vocab: int | None
) -> list[FileEntry]:
    """Write ids that are frequent enough, and at most the maximal number, and their counts.

    Words are in the order of falling counts, words of equal count in their own order.

    counted  columns id and count, each id once
    """
    import pyarrow.compute as pc

    if not counted.num_rows:
        raise empty(what)
    kept = counted.filter(pc.greater_equal(counted["count"], min_count))
    if not kept.num_rows:
        most = counted.take(pc.select_k_unstable(counted, 1, [("count", "descending")]))
        word, times = most["id"][0].as_py(), most["count"][0].as_py()
        raise InputError(
            f"nothing in {what} is seen at least {min_count:,} times",
            expected=f"words seen --min-count {min_count} times or more",
            got=f"{format_count(counted.num_rows)} words, the most frequent {word!r}, "
            f"{times:,} times",
            remedy=f"Give --min-count {times} or less",
        )
    kept = kept.sort_by([("count", "descending"), ("id", "ascending")])
    if max_vocab is not None:
        kept = kept.slice(0, max_vocab)
    write_parquet(folder / IDS, [kept.select(["id"])], compression="snappy")
    counts = kept["count"].to_numpy().astype(np.int64)
    return [file_entry(folder, IDS), save_npy(folder, COUNTS, counts)]


def empty(what: str) -> InputError:
    """Return the error of a corpus without a word."""
    return InputError(
        f"{what} is an empty corpus: it has no words", expected="sentences with words"
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
