"""The edges of many small graphs in memory become rows: one sort for all graphs together.

Nodes are numbered graph after graph, so that a graph is a run of rows and no edge leaves it. The
rules for dropping and merging, and their order, are those of one large graph.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, offsets_of
from penstock.kernels import kernel
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.writing.merge import Merging, rows_of_keys, with_direction

# Rows sorted at a time: few enough that their keys fit the cache.
BIN_ROW_BITS = 16


def build_csr(
    sources: Array,
    targets: Array,
    rows: int,
    relations: Array | None,
    columns: dict[str, Array],
    options: EtlOptions,
) -> tuple[CSR, dict[str, int]]:
    """Return the rows of edges given in input order, and counts.

    merged  directed edges that became part of another
    pairs   edges that are listed in both directions

    sources, targets  (m,) int32 below ``rows``
    relations         (m,) int32, or None
    columns           those of ``weights`` and ``times`` that exist: (m,)
    """
    target_bits = max(rows - 1, 1).bit_length()
    relation_bits = 0 if relations is None else _bits(relations)
    # Row, target, relation and direction share one 64-bit key.
    row_bits = min(BIN_ROW_BITS, 61 - target_bits - relation_bits)
    starts = np.append(np.arange(0, rows, 1 << row_bits), rows)
    csr, both_ways = kernel("csr", sources), not options.directed
    keys, edges, offsets = csr.bin_edges(
        sources,
        targets,
        with_direction(sources, targets, relations) if both_ways else relations,
        starts,
        target_bits,
        relation_bits + both_ways,
        both_ways=both_ways,
        keep_loops=options.self_loops == "keep",
    )
    built: list[CSR] = []
    pairs = 0
    for number in range(len(starts) - 1):
        part = edges[offsets[number] : offsets[number + 1]]
        rows_built, found = rows_of_keys(
            keys[offsets[number] : offsets[number + 1]],
            int(starts[number + 1] - starts[number]),
            target_bits,
            relation_bits,
            {name: partial(np.take, values, part) for name, values in columns.items()},
            Merging.of(options),
        )
        built.append(rows_built)
        pairs += found
    whole = CSR.concatenate(built) if built else _no_rows(relations, columns)
    return whole, {"merged": len(keys) - whole.edges, "pairs": pairs // 2}


def keep_nodes(csr: CSR, options: EtlOptions) -> tuple[CSR, Array | None]:
    """Apply ``min_degree`` and ``drop_isolated``; ``csr`` holds all edges of its nodes.

    -> the rows of the nodes that stay, and the mask of these nodes (None: all stay)
    """
    kept: Array | None = None
    if options.min_degree > 0:
        kept = _degrees(csr, bool(options.directed)) >= options.min_degree
        csr = _rows_where(csr, kept)
    if options.drop_isolated:
        touched = _degrees(csr, bool(options.directed)) > 0
        csr = _rows_where(csr, touched)
        if kept is None:
            kept = touched
        else:
            kept[np.flatnonzero(kept)] = touched
    return csr, kept


def _degrees(csr: CSR, directed: bool) -> Array:
    degrees = csr.degrees()
    if directed:
        degrees = degrees + np.bincount(csr.indices, minlength=csr.rows)
    return degrees


def _rows_where(csr: CSR, kept: Array) -> CSR:
    if kept.all():
        return csr
    number = np.cumsum(kept, dtype=csr.indices.dtype) - 1
    keep_edge = np.repeat(kept, csr.degrees()) & kept[csr.indices]
    before = offsets_of(keep_edge)
    # A dropped row has lost all its edges, so its end is its beginning.
    indptr = np.append(before[csr.indptr[:-1][kept]], before[-1])
    columns: dict[str, Any] = {name: values[keep_edge] for name, values in csr.columns()}
    return replace(csr, indptr=indptr, indices=number[csr.indices[keep_edge]], **columns)


def _bits(relations: Array) -> int:
    most = int(relations.max()) if len(relations) else 0
    return max(most.bit_length(), 1)


def _no_rows(relations: Array | None, columns: dict[str, Array]) -> CSR:
    empty: dict[str, Any] = {name: values[:0] for name, values in columns.items()}
    if relations is not None:
        empty["relations"] = relations[:0]
    return CSR(np.zeros(1, np.int64), np.empty(0, np.int32), **empty)
