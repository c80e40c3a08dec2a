"""The edges of many small graphs in memory become rows: one sort for all graphs together.

Nodes are numbered graph after graph, so that a graph is a run of rows and no edge leaves it. The
rules for dropping and merging, and their order, are those of one large graph.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from penstock.csr import CSR, offsets_of
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.writing.merge import Merging, rows_of_keys
from penstock.pipelines.etl.writing.shuffle import Edges, Shape, bin_edges
from penstock.pipelines.etl.writing.trim import Renumbering

# Rows sorted at a time: few enough that their keys fit the cache.
BIN_ROW_BITS = 16


def build_csr(edges: Edges, rows: int, options: EtlOptions) -> tuple[CSR, dict[str, int]]:
    """Return the rows of edges given in input order, ids below ``rows``, and counts.

    merged  directed edges that became part of another
    pairs   edges that are listed in both directions
    """
    target_bits, relation_bits = max(rows - 1, 1).bit_length(), 0
    if edges.relations is not None:
        relation_bits = max(int(edges.relations.max(initial=0)).bit_length(), 1)
    # Row, target, relation and direction share one 64-bit key.
    row_bits = min(BIN_ROW_BITS, 61 - target_bits - relation_bits)
    starts = (*range(0, max(rows, 1), 1 << row_bits), rows)
    shape = Shape(rows, starts, target_bits, relation_bits, None, False)
    both_ways, loops = not options.directed, options.self_loops == "keep"
    keys, order, offsets = bin_edges(edges, shape, both_ways=both_ways, keep_loops=loops)
    built: list[CSR] = []
    pairs = 0
    for number in range(shape.bins):
        part = slice(offsets[number], offsets[number + 1])
        columns = {n: partial(np.take, a, order[part]) for n, a in edges.columns.items()}
        rows_built, found = rows_of_keys(
            keys[part],
            shape.rows(number),
            target_bits,
            relation_bits,
            columns,
            Merging.of(options),
        )
        built.append(rows_built)
        pairs += found
    whole = CSR.concatenate(built)
    return whole, {"merged": len(keys) - whole.edges, "pairs": pairs // 2}


def only(csr: CSR, chosen: Renumbering) -> CSR:
    """Return the rows of the nodes that stay, in the same order; ``csr`` holds all their edges."""
    stays = chosen.new_id >= 0
    keep = np.repeat(stays, csr.degrees()) & stays[csr.indices]
    columns: dict[str, Any] = {name: values[keep] for name, values in csr.columns()}
    indices = chosen.new_id[csr.indices[keep]].astype(csr.indices.dtype)
    return CSR(offsets_of(chosen.bounds), indices, **columns)
