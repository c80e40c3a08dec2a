"""``--share`` of a warm start: the rows of a graph that are trained further."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.formats import Format
from penstock.graph import Graph
from penstock.graph_changes import RowPrints
from penstock.pipelines.walk.starts import share

if TYPE_CHECKING:
    from penstock.pipelines.embed.options import EmbedOptions
    from penstock.pipelines.word2vec.options import Word2vecOptions


def rows_to_train(
    graph: Graph,
    columns: list[str],
    options: EmbedOptions | Word2vecOptions,
    kind: Format,
    about: dict[str, Any] | None,
    among: Array | None = None,
) -> tuple[RowPrints, Array]:
    """Return the rows of a graph, and which of them differ from those of --init, also by the user's
    id of a neighbour, or are drawn, the same ones for the same graph: (nodes,) bool.

    columns  of the edges that count
    kind     of the manifest of --init; about: its entry of the rows
    among    nodes that may be chosen; None: all
    """
    init, fraction = options.init, options.share
    assert init is not None
    assert fraction is not None
    if about is None:
        raise UsageError(f"{init} does not know which edges it was trained on, as --share needs")
    with kind.reading(init):
        before = RowPrints.load(init, about)
    rows = RowPrints.of(graph, columns)
    chosen = rows.changed_since(before, init) | _beside(graph, rows.replaced(before))
    drawn = (options.seed + int(graph.digest[:15], 16)) % 2**63
    chosen[share(graph.num_nodes, fraction, drawn)] = True
    if among is not None:
        chosen &= np.isin(np.arange(graph.num_nodes), among)
    if not graph.degrees[chosen].any():
        raise UsageError(
            f"no row differs from those that {init} was trained on, and a share of {fraction:g} of "
            "the others has no edge",
            remedy="Use a larger --share",
        )
    return rows, chosen


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
