"""The user's ids become 0, 1, 2, ... in ascending order, without ever holding all of them.

1. ``encode_piece`` reads a piece of the input batch by batch. Each batch keeps its distinct ids,
   sorted, and its edges as 32-bit codes into them.
2. ``merge_ids`` takes one range of the ids from every batch, makes them distinct, and leaves for
   each batch the rank of each of its ids within the range.
3. A batch's code -> rank -> internal id is then two look-ups (``internal_ids``).

Internal ids follow the order of the user's ids, whatever the pieces, ranges and workers were.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds, encode_ids
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.batch import Batch, Layout, Piece
from penstock.pipelines.etl.writing import spill

if TYPE_CHECKING:
    import pyarrow as pa


def encode_piece(piece: Piece, layout: Layout, options: EtlOptions, folder: Path) -> dict[str, Any]:
    """Read a piece and spill it as coded batches ``folder/000``, ...; a step for ``once``."""
    from penstock.pipelines.etl.reading.read import read_piece

    def make(folder: Path) -> dict[str, Any]:
        result: dict[str, Any] = {"rows": [], "bad": [], "bad_count": 0, "filtered": 0}
        relations: set[str | int] = set()
        for number, batch in enumerate(read_piece(piece, layout, options)):
            target = folder / f"{number:03d}"
            target.mkdir()
            relations |= _encode_batch(batch, options, target)
            result["rows"].append(batch.table.num_rows)
            result["bad"] += [vars(bad) for bad in batch.bad]
            result["bad_count"] += batch.bad_count
            result["filtered"] += batch.filtered
            del batch  # before the next is read
        result["relations"] = sorted(relations)
        return result

    return spill.once(folder, make)


def _encode_batch(batch: Batch, options: EtlOptions, folder: Path) -> set[str | int]:
    table, rows = batch.table, batch.table.num_rows
    distinct, codes = encode_ids([table.column("source"), table.column("target")])
    distinct.save(folder)
    spill.put(folder, "codes", codes)
    # How often an id begins an edge bounds its degree: later steps cut rows by it.
    spill.put(
        folder,
        "counts",
        np.bincount(codes[:rows] if options.directed else codes, minlength=len(distinct)),
    )
    names = table.column_names
    spill.put(folder, "weights", column(table, "weight", np.float32) if "weight" in names else None)
    spill.put(folder, "times", column(table, "time", None) if "time" in names else None)
    if "relation" not in names:
        return set()
    relations, relation_codes = encode_ids([table.column("relation")])
    relations.save(folder, "relation_names")
    spill.put(folder, "relations", relation_codes)
    return set(relations.to_list())


def encode_nodes(ids: pa.ChunkedArray, folder: Path) -> dict[str, Any]:
    """Spill the ids of a node table like one more batch of edges, without any edge."""

    def make(folder: Path) -> dict[str, Any]:
        target = folder / "000"
        target.mkdir()
        distinct, codes = encode_ids([ids])
        distinct.save(target)
        spill.put(target, "codes", codes)
        spill.put(target, "counts", np.zeros(len(distinct), np.int64))
        return {"rows": [len(ids)], "distinct": len(distinct)}

    return spill.once(folder, make)


def merge_ids(batches: list[Path], low: Any, high: Any, folder: Path) -> dict[str, Any]:
    """Make the ids in [low, high) of all batches distinct (None: no bound); a step for ``once``.

    Leaves ``ids``; ``counts`` (bound of each id's degree); ``ranks``: for each batch in turn, the
    rank of each of its ids; ``offsets``: where each batch's ranks begin.
    """

    def make(folder: Path) -> dict[str, Any]:
        slices, counts = [], []
        offsets = np.zeros(len(batches) + 1, np.int64)
        for number, batch in enumerate(batches):
            ids = SortedIds.load(batch)
            start, stop = ids.position(low), ids.position(high, end=True)
            slices.append(ids.slice(start, stop))
            counts.append(spill.take(batch, "counts", np.int64, start=start, count=stop - start))
            offsets[number + 1] = offsets[number] + stop - start
        distinct, ranks = encode_ids(slices)
        distinct.save(folder)
        totals = np.bincount(ranks, weights=np.concatenate(counts), minlength=len(distinct))
        spill.put(folder, "counts", totals.astype(np.int64))
        spill.put(folder, "ranks", ranks)
        spill.put(folder, "offsets", offsets)
        return {"ids": len(distinct)}

    return spill.once(folder, make)


def internal_ids(batch: int, ranges: list[Path], bases: list[int], dtype: Any) -> Array:
    """Return the internal id of each distinct id of a batch: (distinct,) ``dtype``."""
    parts = []
    for folder, base in zip(ranges, bases, strict=True):
        start, stop = spill.take(folder, "offsets", np.int64, start=batch, count=2)
        ranks = spill.take(folder, "ranks", np.int32, start=int(start), count=int(stop - start))
        parts.append(ranks.astype(dtype) + dtype.type(base))
    return np.concatenate(parts)


def choose_splitters(batches: list[Path], ranges: int) -> list[Any]:
    """Return ``ranges - 1`` ids that cut all ids into about equal ranges."""
    if ranges <= 1:
        return []
    samples: list[Any] = []
    for batch in batches:
        samples += SortedIds.load(batch).sample(256)
    samples.sort()
    cuts = [samples[len(samples) * i // ranges] for i in range(1, ranges)]
    return sorted(set(cuts))


def column(table: pa.Table, name: str, dtype: Any) -> Array:
    """Return a column without nulls as a NumPy array."""
    return np.asarray(table.column(name).to_numpy(), dtype)
