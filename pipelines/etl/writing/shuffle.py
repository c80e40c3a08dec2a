"""Edges go to the bin of their row: every batch leaves a segment for every bin."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import id_dtype, offsets_of
from penstock.kernels import kernel
from penstock.pipelines.etl.nodes.encode import Numbering
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.merge import with_direction
from penstock.workers.resources.device import to_device, to_host

_PLAIN = 1 << 20  # up to this many edges, NumPy is faster than loading Numba


@dataclass(frozen=True)
class Shape:
    """How edges are packed, and the bin of each row; known once all ids are."""

    nodes: int
    starts: tuple[int, ...]  # first row of each bin, then the number of nodes
    target_bits: int
    relation_bits: int
    time_type: str | None  # dtype of the times, if there are any
    weighted: bool

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.starts) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of node ids."""
        return id_dtype(self.nodes)

    def rows(self, number: int) -> int:
        """The number of rows of a bin."""
        return self.starts[number + 1] - self.starts[number]

    def payloads(self) -> list[tuple[str, str]]:
        """Return the columns that travel with the keys: names and dtypes."""
        columns = [("weights", "float32")] if self.weighted else []
        return columns + ([("times", self.time_type)] if self.time_type else [])


def make_shape(
    bounds: Array,
    relations: int,
    *,
    bin_edges: int,
    weighted: bool,
    time_type: str | None,
    cuts: Sequence[int] = (),
) -> Shape:
    """Cut rows into bins of at most ``bin_edges`` edges, given a bound of every row's degree.

    cuts  ascending rows at which a bin begins; so that bins stay, they may have half as many more
    """
    nodes = len(bounds)
    target_bits = max(nodes - 1, 1).bit_length()
    relation_bits = max(relations - 1, 0).bit_length() if relations > 1 else int(relations > 0)
    most_rows = 1 << min(61 - target_bits - relation_bits, 40)  # a bit is for the direction
    before = offsets_of(bounds)
    starts, ends = [0], [*(cut for cut in cuts if 0 < cut < nodes), nodes]
    while starts[-1] < nodes:
        start, end = starts[-1], ends[bisect_right(ends, starts[-1])]
        stop = end
        if before[end] - before[start] > bin_edges * (1.5 if end < nodes else 1):
            stop = int(np.searchsorted(before, before[start] + bin_edges, side="right")) - 1
        starts.append(min(max(stop, start + 1), start + most_rows, end))
    if nodes == 0:
        starts.append(0)
    return Shape(nodes, tuple(starts), target_bits, relation_bits, time_type, weighted)


@dataclass(frozen=True)
class Edges:
    """Edges of a batch by internal id, with their columns."""

    sources: Array
    targets: Array
    relations: Array | None
    columns: dict[str, Array]

    def arrays(self) -> dict[str, Array]:
        """Return all columns by name."""
        typed = {} if self.relations is None else {"relations": self.relations}
        return {"sources": self.sources, "targets": self.targets, **typed, **self.columns}

    def where(self, keep: Array) -> Edges:
        """Return the edges that ``keep`` marks."""
        return Edges(
            self.sources[keep],
            self.targets[keep],
            None if self.relations is None else self.relations[keep],
            {name: values[keep] for name, values in self.columns.items()},
        )


def read_batch(folder: Path, number: int, rows: int, shape: Shape, numbering: Numbering) -> Edges:
    """Return the edges of a spilled batch by internal id; ``number`` is its position among all.

    Those are left out whose nodes were dropped, or that cannot exist in the base of changes.
    """
    ids = numbering.ids(number, shape.dtype)
    codes = spill.take(folder, "codes", np.int32)
    relations = None
    if numbering.relations:
        position = {name: i for i, name in enumerate(numbering.relations)}
        names = SortedIds.load(folder, "relation_names").to_list()
        table = np.array([position.get(name, -1) for name in names], np.int32)
        relations = table[spill.take(folder, "relations", np.int32)]
    columns = {name: spill.take(folder, name, dtype) for name, dtype in shape.payloads()}
    edges = Edges(ids[codes[:rows]], ids[codes[rows:]], relations, columns)
    known = (edges.sources >= 0) & (edges.targets >= 0)
    if relations is not None:
        known &= relations >= 0
    return edges if known.all() else edges.where(known)


def bin_edges(
    edges: Edges, shape: Shape, *, both_ways: bool, keep_loops: bool, plain: int = 0
) -> tuple[Any, Any, Any]:
    """Return the edges' keys, bin after bin, the edge of each, and the offsets of the bins."""
    relations = edges.relations
    if both_ways:
        relations = with_direction(edges.sources, edges.targets, relations)
    found: tuple[Any, Any, Any] = kernel("csr", edges.sources, plain=plain).bin_edges(
        edges.sources,
        edges.targets,
        relations,
        np.asarray(shape.starts, np.int64),
        shape.target_bits,
        shape.relation_bits + both_ways,
        both_ways=both_ways,
        keep_loops=keep_loops,
    )
    return found


def write_segments(
    edges: Edges, shape: Shape, folder: Path, *, both_ways: bool, keep_loops: bool
) -> dict[str, Any]:
    """Leave the edges' keys and columns, bin after bin; return ``offsets`` of the bins."""
    relations = None if edges.relations is None else to_device(edges.relations)
    there = Edges(to_device(edges.sources), to_device(edges.targets), relations, {})
    how = {"both_ways": both_ways, "keep_loops": keep_loops}
    keys, order, offsets = bin_edges(there, shape, plain=_PLAIN, **how)
    spill.put(folder, "keys", to_host(keys))
    if edges.columns:
        order = to_host(order)
        for name, values in edges.columns.items():
            spill.put(folder, name, values[order])
    return {"offsets": to_host(offsets).tolist()}


def shuffle_batch(
    batch: Path,
    number: int,
    rows: int,
    shape: Shape,
    numbering: Numbering,
    folder: Path,
    *,
    both_ways: bool,
    keep_loops: bool,
) -> dict[str, Any]:
    """Send a batch's edges to their bins; a step for ``once``."""

    def make(folder: Path) -> dict[str, Any]:
        edges = read_batch(batch, number, rows, shape, numbering)
        loops = int(np.count_nonzero(edges.sources == edges.targets))
        result = write_segments(edges, shape, folder, both_ways=both_ways, keep_loops=keep_loops)
        return result | {"loops": loops, "unknown": rows - len(edges.sources)}

    result = spill.once(folder, make)
    spill.drop(batch, "codes", "weights", "times", "relations")
    return result
