"""Preparation of walks, on the GPU: names and meaning are naive/walk.py's.

Only this backend has ``pack``: it adds the records that walk/step.cuh reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import AnyArray, DeviceArray
from penstock.kernels.cuda.module import c_name, launch
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules

_FILE = "walk/tables"
_LONG = 2048  # rows with more edges take a block, others a warp
_PIECE = 1024  # kPiece of walk/relations.cu
_NONE = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Packed:
    """Records for one sampler, for walk/step.cuh; rows and edges are seen as int32.

    rows      (rows * groups, 4): the position of each row, and its largest weight
    adjacent  (nodes, 4): the same of ``WalkGraph.adjacency``, for second-order walks, else None
    edges     (edges, 2, 4 or 8): for REJECTION and ALIAS, else None
    """

    sampler: Sampler
    rows: DeviceArray
    adjacent: DeviceArray | None
    edges: DeviceArray | None


def check_weights(indptr: AnyArray, weights: DeviceArray) -> tuple[DeviceArray, int, int]:
    """Return the largest weight of each row, the first bad edge and the first row of only zeros."""
    bounds, first = _bounds(indptr, weights)
    edge, row = (-1 if place == _NONE else int(place) for place in cp.asnumpy(first))
    return bounds, edge, row


def _bounds(indptr: AnyArray, weights: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    bounds, first = cp.zeros(len(indptr) - 1, cp.float32), cp.full(2, _NONE, cp.int64)
    _by_row("row_bounds", "", indptr, [weights], [bounds, first])
    return bounds, first


def _by_row(kernel: str, ids: str, indptr: AnyArray, inputs: list[Any], outputs: list[Any]) -> None:
    long = cp.flatnonzero(cp.diff(indptr) > _LONG).astype(cp.int64)
    for size, listed, count in ((32, None, len(indptr) - 1), (256, long, len(long))):
        launch(
            _FILE,
            f"{kernel}<{size}{ids}>",
            count * size,
            indptr,
            *inputs,
            listed,
            cp.int64(count),
            cp.int64(_LONG),
            *outputs,
        )


def prefix_sums(indptr: AnyArray, weights: DeviceArray) -> DeviceArray:
    """Return the running sums of weights in each row: (edges,) float64."""
    prefix = cp.empty(len(weights), cp.float64)
    _by_row("prefix_sums", "", indptr, [weights], [prefix])
    return prefix


def alias_table(indptr: AnyArray, weights: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Return each slot's share for its own edge, and the place in the row of the other edge.

    Slots are paired differently from the naive twin; each edge's chance is the same.
    """
    edges = len(weights)
    chance, other = cp.empty(edges, cp.float32), cp.empty(edges, cp.int32)
    sums, places = cp.empty(edges, cp.float64), cp.empty(edges, cp.int32)
    _by_row("alias_tables", "", indptr, [weights], [sums, places, chance, other])
    return chance, other


def tables(rows: WalkGraph, rules: WalkRules) -> WalkGraph:
    """Return rows with the sampler's data."""
    weights: DeviceArray | None = rows.weights  # type: ignore[assignment]
    if weights is not None:
        rows = replace(rows, bounds=_bounds(rows.indptr, weights)[0], packed=None)
        if rules.sampler == Sampler.ITS:
            rows = replace(rows, prefix=prefix_sums(rows.indptr, weights))
        if rules.sampler == Sampler.ALIAS:
            chance, other = alias_table(rows.indptr, weights)
            rows = replace(rows, chance=chance, other=other)
    return rows if rules.sampler == Sampler.RESERVOIR else pack(replace(rows, packed=None), rules)


# -- records ---------------------------------------------------------------------------------------


def deciding(rows: WalkGraph, rules: WalkRules) -> Sampler:
    """Return the sampler whose code proposes: with weights, DIRECT becomes REJECTION."""
    if rows.weights is None:
        return Sampler.DIRECT
    return Sampler.REJECTION if rules.sampler == Sampler.DIRECT else rules.sampler


def pack(rows: WalkGraph, rules: WalkRules) -> WalkGraph:
    """Return rows with the records for walks of these rules, made if missing."""
    sampler, packed = deciding(rows, rules), rows.packed
    fits = isinstance(packed, Packed) and packed.sampler == sampler
    if fits and (packed.adjacent is not None or not rules.second_order):
        return rows
    needed = {Sampler.ITS: rows.prefix, Sampler.ALIAS: rows.chance}.get(sampler, rows.bounds)
    if rows.weights is not None and (rows.bounds is None or needed is None):
        return tables(rows, rules)
    records = _row_records(rows.indptr, rows.bounds if rows.weights is not None else None)
    adjacent = None
    if rules.second_order:
        apart = rows.neighbours is not None
        adjacent = _row_records(rows.adjacency[0], None) if apart else records
    edges = None
    if sampler == Sampler.REJECTION:
        edges = _records(rows, rows.indices.itemsize // 2)
        count = cp.int64(len(rows.indices))
        instance = f"pack_edges<{c_name(rows.indices)}>"
        launch(_FILE, instance, len(edges), rows.indices, rows.weights, count, edges)
    if sampler == Sampler.ALIAS:
        edges = _records(rows, rows.indices.itemsize)
        inputs = [rows.indices, rows.chance, rows.other]
        _by_row("pack_slots", f", {c_name(rows.indices)}", rows.indptr, inputs, [edges])
    return replace(rows, packed=Packed(sampler, records, adjacent, edges))


def _records(rows: WalkGraph, words: int) -> DeviceArray:
    return cp.empty((len(rows.indices), words), cp.int32)


def _row_records(indptr: AnyArray, bounds: AnyArray | None) -> DeviceArray:
    records = cp.empty((len(indptr) - 1, 4), cp.int32)
    count = cp.int64(len(records))
    launch(_FILE, "pack_rows", len(records), indptr, bounds, count, records)
    return records


# -- rows in another order -------------------------------------------------------------------------


def rows_by_relation(rows: WalkGraph, wanted: Any) -> WalkGraph:
    """Return rows with one group per distinct relation of ``wanted``, and no other edges."""
    wanted = cp.asnumpy(wanted)
    groups, nodes = len(wanted), len(rows.indptr) - 1
    groups_of = np.full(int(wanted.max(initial=-1)) + 1, -1, np.int32)
    groups_of[wanted] = np.arange(groups, dtype=np.int32)
    pieces = cp.maximum((cp.diff(rows.indptr) + (_PIECE - 1)) // _PIECE, 1)
    first_piece = cp.zeros(nodes + 1, cp.int64)
    first_piece[1:] = cp.cumsum(pieces)
    many = int(first_piece[-1])
    row_of_piece = cp.empty(many, cp.int32)
    launch("walk/relations", "list_pieces", nodes, first_piece, cp.int64(nodes), row_of_piece)
    counts = cp.zeros(many * groups, cp.int32)
    sizes = cp.int32(len(groups_of)), cp.int32(groups)
    inputs = (rows.indptr, rows.relations, cp.asarray(groups_of), *sizes, first_piece, row_of_piece)
    launch("walk/relations", "count_groups", many * 32, *inputs, cp.int64(many), counts)
    ends = cp.zeros(many * groups + 1, cp.int64)
    ends[1:] = cp.cumsum(counts, dtype=cp.int64)
    kept = int(ends[-1])
    picked: dict[str, Any] = {
        name: None if (column := getattr(rows, name)) is None else cp.empty(kept, column.dtype)
        for name in ("indices", "weights", "times", "relations")
    }
    launch(
        "walk/relations",
        f"pick_groups<{c_name(rows.indices)}>",
        many * 32,
        *inputs,
        cp.int64(many),
        counts,
        ends[1:],
        rows.indices,
        rows.weights,
        rows.times,
        *picked.values(),
    )
    cells = first_piece[:-1, None] * groups + cp.arange(groups)[None, :] * pieces[:, None]
    indptr = cp.empty(nodes * groups + 1, cp.int64)
    indptr[:-1], indptr[-1] = ends[cells].ravel(), kept
    return replace(
        rows, neighbours=rows.adjacency, groups=groups, indptr=indptr, packed=None, **picked
    )


def rows_by_time(rows: WalkGraph) -> WalkGraph:
    """Return rows whose edges ascend in time; equal times keep their order."""
    times: DeviceArray = rows.times  # type: ignore[assignment]
    order = order_in_rows(rows.indptr, times)
    picked: dict[str, Any] = {
        name: None if (column := getattr(rows, name)) is None else column[order]
        for name in ("indices", "weights", "times", "relations")
    }
    return replace(rows, neighbours=rows.adjacency, packed=None, **picked)


def order_in_rows(indptr: AnyArray, keys: DeviceArray) -> DeviceArray:
    """Return the edges by their keys in each row; equal keys keep their order: int64."""
    edge = cp.arange(len(keys), dtype=cp.int64)
    if not len(keys):
        return edge
    order = cp.argsort(keys, kind="stable")
    row = (cp.searchsorted(indptr, edge, side="right") - 1).astype(cp.int32)
    return order[cp.argsort(row[order], kind="stable")]
