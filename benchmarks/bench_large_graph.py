"""One large graph on all cores, compared with igraph and NetworKit.

    python -P benchmarks/bench_large_graph.py [--quick] [--cpu] [--scale 20]

The graph is R-MAT with GAP's parameters, undirected, made by ``penstock generate``. Penstock starts
from the mapped files of a directory; peers have the graph in their own form, whose making is not
timed. Ranks change by at most 1e-6 in the last step, as a sum; igraph's PRPACK has no such
limit and goes further. Results must be equal: ranks to 1e-5 of their sum, components and triangles
exactly; communities must reach 99 % of igraph's modularity.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, installed, main

import penstock
from penstock import Graph, generate
from penstock.kernels import community_rules
from penstock.limits import cores

CHANGE = 1e-6  # of the ranks in a step


def made(path: Path, scale: int) -> Graph:
    if not path.exists():
        generate("rmat", path, scale=scale, quiet=True)
    return Graph.open(path)


def once(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return each edge once."""
    csr = graph.csr()
    sources, targets = np.asarray(csr.sources()), np.asarray(csr.indices)
    chosen = sources <= targets
    return sources[chosen], targets[chosen]


def networkit_graph(graph: Graph) -> Any:
    import networkit

    networkit.setNumberOfThreads(cores())
    ends = tuple(each.astype(np.uint64) for each in once(graph))
    return networkit.GraphFromCoo(ends, n=graph.num_nodes)


def igraph_graph(graph: Graph) -> Any:
    import igraph

    return igraph.Graph(n=graph.num_nodes, edges=np.stack(once(graph), 1))


def ranks_by_networkit(graph: Any) -> np.ndarray:
    import networkit

    found = networkit.centrality.PageRank(graph, 0.85, CHANGE)
    found.norm = networkit.centrality.Norm.L1_NORM
    found.run()
    ranks = np.array(found.scores())
    return ranks / ranks.sum()


def components_by_networkit(graph: Any) -> np.ndarray:
    import networkit

    found = networkit.components.ParallelConnectedComponents(graph, False)
    found.run()
    return np.array(found.getPartition().getVector(), np.int64)


def communities_by_networkit(graph: Any) -> np.ndarray:
    import networkit

    found = networkit.community.PLM(graph, True)
    found.run()
    return np.array(found.getPartition().getVector(), np.int64)


def check_ranks(values: dict[str, Any]) -> None:
    for name, ranks in values.items():
        assert np.abs(np.asarray(ranks) - values["ours"]).sum() < 1e-5, name


def check_numbers(labels: np.ndarray) -> None:
    """Check that groups are numbered by their first nodes."""
    np.testing.assert_array_equal(labels, community_rules.numbered(labels))


def check_components(values: dict[str, Any]) -> None:
    check_numbers(values["ours"])
    for name, labels in values.items():
        pairs = np.unique(np.stack([values["ours"], np.asarray(labels)]), axis=1).shape[1]
        assert pairs == len(np.unique(labels)) == len(np.unique(values["ours"])), name


def check_clustering(values: dict[str, Any]) -> None:
    for found in values.values():
        np.testing.assert_allclose(found, values["ours"], rtol=1e-9, atol=1e-12)


def check_communities(graph: Graph, values: dict[str, Any]) -> dict[str, float]:
    check_numbers(values["ours"])
    csr = graph.csr()
    matrix = community_rules.adjacency(csr.indptr, csr.indices, None)
    found = {}
    for name, labels in values.items():
        numbers = np.unique(np.asarray(labels), return_inverse=True)[1]
        found[f"modularity, {name}"] = community_rules.modularity(matrix, numbers)
    for name, value in found.items():
        least = 0.99 if "igraph" in name else 0.97
        assert found["modularity, ours"] >= least * value, (name, found)
    return found


def cases(given: argparse.Namespace) -> Iterator[Case]:
    folder = given.scratch if given.graphs == "" else Path(given.graphs)
    large = made(folder / f"r{given.scale}", given.scale)
    small = made(folder / f"r{given.small}", given.small)
    needs = {"networkit": [installed("networkit")], "igraph": [installed("igraph")]}
    there = {name: need[0]() is None for name, need in needs.items()}

    def side(name: str, function: Any, graph: Any, *ratios: float | None) -> Side:
        run = partial(function, graph) if there[name] else list
        return Side(run, *ratios, needs=needs[name], once=True)

    networkit = networkit_graph(large) if there["networkit"] else None
    yield Case(
        f"PageRank, R-MAT {given.scale}",
        lambda: penstock.pagerank(large, tol=CHANGE / large.num_nodes),
        check_ranks,
        {"networkit": side("networkit", ranks_by_networkit, networkit, 3.1, 4)},
        (large.num_edges, "edges"),
        rounds=3,
    )
    yield Case(
        f"connected components, R-MAT {given.scale}",
        lambda: penstock.components(large),
        check_components,
        {"networkit": side("networkit", components_by_networkit, networkit, 8.8)},
        (large.num_edges, "edges"),
        rounds=3,
    )
    networkit = networkit_graph(small) if there["networkit"] else None
    igraph = igraph_graph(small) if there["igraph"] else None
    yield Case(
        f"PageRank, R-MAT {given.small}",
        lambda: penstock.pagerank(small, tol=CHANGE / small.num_nodes),
        check_ranks,
        {"igraph": side("igraph", lambda g: np.array(g.pagerank()), igraph, 3.9, 5)},
        (small.num_edges, "edges"),
        rounds=3,
    )
    yield Case(
        f"clustering, R-MAT {given.small}",
        lambda: penstock.clustering(small),
        check_clustering,
        {
            "igraph": side(
                "igraph",
                lambda g: np.array(g.transitivity_local_undirected(mode="zero")),
                igraph,
                2.7,
                1.7,
            )
        },
        (small.num_edges, "edges"),
        rounds=3,
    )
    yield Case(
        f"communities, R-MAT {given.small}",
        lambda: penstock.communities(small),
        partial(check_communities, small),
        {
            "igraph": side(
                "igraph",
                lambda g: np.array(g.community_leiden("modularity", n_iterations=3).membership),
                igraph,
                2.4,
                1.7,
            ),
            "networkit": side("networkit", communities_by_networkit, networkit, 0.5),
        },
        (small.num_edges, "edges"),
        rounds=3,
    )


if __name__ == "__main__":
    sizes = Option("--scale", 20, 14, "of the large graph"), Option("--small", 16, 13, "of others")
    folder = Option("--graphs", "", "", "a folder to keep graphs in, r22 and so on")
    sys.exit(main(__doc__, cases, *sizes, folder))
