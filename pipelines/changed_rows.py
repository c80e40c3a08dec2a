"""``--share`` of a warm start: the rows of a graph that are trained further."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.graph_changes import RowPrints
from penstock.pipelines.walk.starts import share


def rows_to_train(
    graph: Graph,
    rows: RowPrints,
    before: RowPrints,
    init: Path,
    fraction: float,
    seed: int,
    among: Array | None = None,
) -> Array:
    """Return which rows differ from those of ``before``, also by the user's id of a neighbour, or
    are drawn: (nodes,) bool.

    init      the output that has ``before``, for errors
    fraction  of the other rows that is drawn: the same ones for the same graph
    among     nodes that may be chosen; None: all
    """
    chosen = rows.changed_since(before, init) | _beside(graph, rows.replaced(before))
    drawn = (seed + int(graph.digest[:15], 16)) % 2**63
    chosen[share(graph.num_nodes, fraction, drawn)] = True
    if among is not None:
        chosen &= np.isin(np.arange(graph.num_nodes), among)
    if not graph.degrees[chosen].any():
        raise UsageError(
            f"no row differs from those that {init} was trained on, and a share of {fraction:g} of "
            "the others has no edge",
            remedy="Use a larger --share",
        )
    return chosen


def _beside(graph: Graph, nodes: Array) -> Array:
    """Return which rows have a neighbour among some nodes: (nodes,) bool.

    nodes  (nodes,) bool
    """
    found = np.zeros(graph.num_nodes, bool)
    for number in range(graph.num_shards if nodes.any() else 0):
        shard = graph.shard(number)
        at = np.flatnonzero(nodes[shard.indices])
        found[shard.first_row + np.searchsorted(shard.indptr, at, side="right") - 1] = True
    return found
