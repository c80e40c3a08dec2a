"""The edges of all splits, some at a time, and what of them is known of a query."""

import numpy as np
import pytest

from penstock import ClusterSpec, Graph, etl
from penstock.kernels.embed_rules import Side
from penstock.workers.embed.edges import all_edges, split_edges
from penstock.workers.embed.evaluation.ranking import known_answers
from penstock.workers.embed.layout.nodes import NodeLayout


@pytest.mark.parametrize("directed", [False, True])
def test_held_out_edges_are_known_as_directions_are(tmp_path, directed):
    """An undirected edge that is held out is listed once; it answers both of its ends."""
    rng = np.random.default_rng(0)
    pairs = {(int(min(e)), int(max(e))) for e in rng.integers(0, 12, (60, 2)) if e[0] != e[1]}
    (tmp_path / "edges.txt").write_text("".join(f"{a} {b}\n" for a, b in sorted(pairs)))
    etl(
        tmp_path / "edges.txt",
        tmp_path / "g",
        split_edges=(0.4, 0.3, 0.3),
        directed=directed,
        cluster=ClusterSpec(cluster="threads"),
    )
    graph = Graph.open(tmp_path / "g")
    ids = [int(name) for name in graph.user_ids().to_pylist()]
    true = {(ids.index(a), ids.index(b)) for a, b in pairs if a in ids and b in ids}
    true |= set() if directed else {(b, a) for a, b in true}
    asked = split_edges(graph, "test")
    assert asked.count > 3
    sides = (Side.TAIL, Side.HEAD)
    layout = NodeLayout.ranges(graph.num_nodes, 1)
    found = known_answers(all_edges(graph), asked, sides, layout, 1)
    for side in sides:
        known = found[side].of(slice(None))
        for i, given in enumerate(asked.heads if side == Side.TAIL else asked.tails):
            row = slice(known.indptr[i], known.indptr[i + 1])
            way = 1 if side == Side.TAIL else -1
            wanted = {pair[::way][1] for pair in true if pair[::way][0] == given}
            assert set(known.indices[row].tolist()) == wanted
