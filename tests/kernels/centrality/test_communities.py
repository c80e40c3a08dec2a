"""Communities: the twins against each other, modularity against NetworkX and igraph."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.csr import CSR
from penstock.kernels import community_rules as rules
from penstock.kernels.cpu import communities as cpu
from penstock.kernels.naive import communities as naive


def matrix_of(graph):
    """Return a graph of nodes 0, 1, ... for the kernels."""
    edges = [(a, b, w) for a, b, w in graph.edges(data="weight", default=1)]
    edges += [(b, a, w) for a, b, w in edges if a != b]
    table = np.array(edges, np.float64).reshape(-1, 3)
    ends = table[:, :2].astype(np.int64)
    csr = CSR.from_edges(ends[:, 0], ends[:, 1], len(graph), weights=table[:, 2])
    return rules.adjacency(csr.indptr, csr.indices, csr.weights)


@st.composite
def graphs(draw):
    size = draw(st.integers(1, 14))
    node = st.integers(0, size - 1)
    graph = nx.MultiGraph()
    graph.add_nodes_from(range(size))
    edges = st.lists(st.tuples(node, node, st.sampled_from([0, 1, 2.5])), max_size=30)
    graph.add_weighted_edges_from(draw(edges))
    return graph


@pytest.mark.parametrize("method", rules.METHODS)
@settings(max_examples=60, deadline=None)
@given(graph=graphs(), resolution=st.sampled_from([0.5, 1.0, 3.0]), seed=st.integers(0, 5))
def test_twins_agree_and_communities_hold_what_they_promise(method, graph, resolution, seed):
    matrix = matrix_of(graph)
    found = rules.communities(cpu, matrix, method, resolution=resolution, seed=seed)
    wanted = rules.communities(naive, matrix, method, resolution=resolution, seed=seed)
    np.testing.assert_array_equal(found, wanted)
    _, first = np.unique(found, return_index=True)
    assert (np.diff(first) > 0).all()  # numbered by their first nodes
    sets = [set(np.flatnonzero(found == label).tolist()) for label in np.unique(found)]
    value = rules.modularity(matrix, found, resolution=resolution)
    if matrix.strength.sum() == 0:
        assert value == 0
        return
    wanted = nx.community.modularity(graph, sets, resolution=resolution)
    assert value == pytest.approx(wanted, abs=1e-12)
    if method == "labels":
        return
    alone = rules.modularity(matrix, np.arange(len(graph)), resolution=resolution)
    assert value >= alone - 1e-9
    if method == "leiden":
        for each in sets:
            some = graph.edge_subgraph(
                (a, b, k)
                for a, b, k, w in graph.edges(keys=True, data="weight")
                if w > 0 and {a, b} <= each
            )
            assert len(each) == 1 or (set(some) == each and nx.is_connected(some))


@pytest.mark.parametrize(
    "graph",
    [
        nx.karate_club_graph(),
        nx.convert_node_labels_to_integers(nx.les_miserables_graph()),
        nx.barabasi_albert_graph(3000, 4, seed=1),
        nx.powerlaw_cluster_graph(3000, 5, 0.5, seed=2),
    ],
    ids=["karate", "miserables", "scale free", "clustered"],
)
def test_leiden_is_as_good_as_igraphs(graph):
    igraph = pytest.importorskip("igraph")
    matrix = matrix_of(graph)
    found = rules.communities(cpu, matrix, "leiden", seed=2)
    ours = rules.modularity(matrix, found)
    theirs = igraph.Graph.from_networkx(graph)
    weights = "weight" if "weight" in theirs.es.attributes() else None
    made = theirs.community_leiden("modularity", weights=weights, n_iterations=3)
    wanted = rules.modularity(matrix, np.array(made.membership))
    assert ours >= 0.99 * wanted
