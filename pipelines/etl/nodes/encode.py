"""The user's ids become 0, 1, 2, ... in ascending order, without ever holding all of them.

1. ``encode_batch`` keeps the distinct ids of a batch of the input, sorted, and its edges as 32-bit
   codes into them.
2. ``merge_ids`` takes one range of the ids from every batch, makes them distinct, and leaves for
   each batch the rank of each of its ids within the range.
3. A batch's code -> rank -> internal id is then two look-ups (``Numbering``).

Internal ids follow the order of the user's ids, for any pieces, ranges and workers. If nodes have
types, a batch's ids are stored type after type, a range holds ids of one type, and internal ids are
ordered by type first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.graph import load_npy
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds, encode_ids, encode_typed
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.writing import spill

_TIMES = 1025  # of a batch: a split by time is as exact as these lie


def _spread(times: Array) -> tuple[int, list[Any]]:
    """Return how many times there are, and some that lie evenly among them, ascending."""
    ranks = np.unique(np.linspace(0, len(times) - 1, _TIMES).astype(np.int64))
    return len(times), np.sort(times)[ranks].tolist()


def encode_batch(
    table: pa.Table, folder: Path, options: EtlOptions
) -> tuple[dict[str, Any], set[Any]]:
    """Keep a batch with codes for ids; return times, if edges are split by them, and relations."""
    rows = table.num_rows
    ends = [table.column("source"), table.column("target")]
    distinct, codes = _encode(ends, _types_of_ends(table, options), folder)
    begins, arrives = (
        np.bincount(half, minlength=distinct) for half in (codes[:rows], codes[rows:])
    )
    # The number of edges that begin at an id bounds its degree: later steps cut rows by it.
    spill.put(folder, "counts", begins if options.directed else begins + arrives)
    spill.put(folder, "ends", (begins > 0) + 2 * (arrives > 0).astype(np.uint8))
    names = table.column_names
    spill.put(folder, "weights", column(table, "weight", np.float32) if "weight" in names else None)
    spill.put(folder, "times", column(table, "time", None) if "time" in names else None)
    kept = {}
    if options.split_edges_by == "time" and rows:
        kept["times"] = _spread(column(table, "time", None))
    if "relation" not in names:
        return kept, set()
    relations, relation_codes = encode_ids([table.column("relation")])
    relations.save(folder, "relation_names")
    spill.put(folder, "relations", relation_codes)
    return kept, {*relations.to_list()}


def _encode(
    columns: list[pa.ChunkedArray], types: pa.DictionaryArray | None, folder: Path
) -> tuple[int, Array]:
    """Leave ``ids``, ``codes`` and ``types.json``; return the number of ids, and the codes."""
    if types is None:
        distinct, codes = encode_ids(columns)
    else:
        distinct, codes, ranges = encode_typed(columns, types)
        (folder / "types.json").write_text(json.dumps(ranges))
    distinct.save(folder)
    spill.put(folder, "codes", codes)
    return len(distinct), codes


def _types_of_ends(table: pa.Table, options: EtlOptions) -> pa.DictionaryArray | None:
    """Return the types of a batch's sources and targets, one after the other."""
    if options.source_type is None:
        return None
    parts = []
    for end in ("source_type", "target_type"):
        if end in table.column_names:
            parts += table.column(end).dictionary_encode().chunks
        else:
            parts.append(type_of_all(getattr(options, end), table.num_rows))
    return pa.chunked_array(parts).unify_dictionaries().combine_chunks()


def type_of_all(name: str, count: int) -> pa.DictionaryArray:
    """Return ``count`` times one type."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([name]))


def types_in(batch: Path) -> dict[str | None, tuple[int, int]]:
    """Return the type of each of a batch's ranges of ids; None if the graph has no types."""
    path = batch / "types.json"
    return (
        json.loads(path.read_text()) if path.exists() else {None: (0, len(SortedIds.load(batch)))}
    )


def encode_nodes(
    ids: pa.ChunkedArray, folder: Path, types: pa.DictionaryArray | None = None
) -> Path:
    """Spill the ids of a node table like one more batch of edges, without any edge."""

    def make(folder: Path) -> dict[str, Any]:
        distinct, _ = _encode([ids], types, folder)
        spill.put(folder, "counts", np.zeros(distinct, np.int64))
        spill.put(folder, "ends", np.zeros(distinct, np.uint8))
        return {}

    spill.once(folder, make)
    return folder


def merge_ids(
    batches: list[Path], kind: str | None, low: Any, high: Any, folder: Path
) -> dict[str, Any]:
    """Make ids in [low, high) (None: no bound) of a type distinct; a step for ``once``.

    Leaves ``ids``; ``counts`` (bound of each id's degree); ``ranks`` (of each id of each batch in
    turn); ``offsets`` (the beginning of each batch's ranks).
    """

    def make(folder: Path) -> dict[str, Any]:
        slices, counts, ends = [], [], []
        offsets = np.zeros(len(batches) + 1, np.int64)
        for number, batch in enumerate(batches):
            first, last = types_in(batch).get(kind, (0, 0))
            ids = SortedIds.load(batch).part(first, last)
            start, stop = ids.position(low), ids.position(high, end=True)
            slices.append(ids.part(start, stop).to_arrow())
            where = {"start": first + start, "count": stop - start}
            counts.append(spill.take(batch, "counts", np.int64, **where))
            ends.append(spill.take(batch, "ends", np.uint8, **where))
            offsets[number + 1] = offsets[number] + stop - start
        distinct, ranks = encode_ids(slices)
        distinct.save(folder)
        totals = np.bincount(ranks, weights=np.concatenate(counts), minlength=len(distinct))
        spill.put(folder, "counts", totals.astype(np.int64))
        spill.put(folder, "ranks", ranks)
        spill.put(folder, "offsets", offsets)
        seen = np.zeros(len(distinct), np.uint8)
        for (start, stop), which in zip(pairwise(offsets.tolist()), ends, strict=True):
            seen[ranks[start:stop]] |= which  # a batch has an id once
        return {"ids": len(distinct), "both": int(np.count_nonzero(seen == 3))}

    return spill.once(folder, make)


@dataclass(frozen=True)
class Numbering:
    """From the codes of a batch to internal ids.

    ranges       the folders that ``merge_ids`` left; bases: the internal id of the first id of each
    relations    all relations, by number
    permutation  a file: (nodes,) the ids that these become, -1: the node was dropped
    """

    ranges: tuple[Path, ...] = ()
    bases: tuple[int, ...] = ()
    relations: tuple[Any, ...] = ()
    permutation: Path | None = None

    def ids(self, batch: int, dtype: Any = np.int64) -> Array:
        """Return the internal id of each distinct id of a batch: (distinct,) ``dtype``."""
        parts = []
        for folder, base in zip(self.ranges, self.bases, strict=True):
            start, stop = spill.take(folder, "offsets", np.int64, start=batch, count=2).tolist()
            ranks = spill.take(folder, "ranks", np.int32, start=start, count=stop - start)
            parts.append(ranks.astype(dtype) + np.dtype(dtype).type(base))
        found = np.concatenate(parts)
        if self.permutation is not None:
            found = load_npy(self.permutation)[found].astype(dtype)
        return found


def choose_splitters(batches: list[Path], kind: str | None, ranges: int) -> list[Any]:
    """Return ``ranges - 1`` ids that cut all ids of a type into about equal ranges."""
    if ranges <= 1:
        return []
    samples: list[Any] = []
    for batch in batches:
        if kind in (types := types_in(batch)):
            samples += SortedIds.load(batch).part(*types[kind]).sample(256)
    samples.sort()
    cuts = [samples[len(samples) * i // ranges] for i in range(1, ranges)]
    return sorted(set(cuts))


def column(table: pa.Table, name: str, dtype: Any) -> Array:
    """Return a column without nulls as a NumPy array."""
    return np.asarray(as_numpy(table.column(name)), dtype)
