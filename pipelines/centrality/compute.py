"""From a batch of graphs to columns: of nodes, of edges, of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.csr import CSR
from penstock.kernels import kernel
from penstock.kernels.centrality_rules import (
    GraphBatch,
    Paths,
    Triangles,
    betweenness_scale,
    closeness,
    clustering,
)
from penstock.kernels.community_rules import adjacency, both_ways, communities, modularity
from penstock.kernels.ranks import Ranks
from penstock.pipelines.centrality.options import (
    COMMUNITIES,
    OF_DISTANCES,
    OF_PATHS_THROUGH,
    STRONG,
    CentralityOptions,
)
from penstock.workers.resources.device import to_host
from penstock.workers.resources.upload import download

# The sums over paths that each metric needs: only these are copied from a GPU.
_NEEDED = {
    "closeness": ("reached", "total"),
    "harmonic": ("inverse",),
    "eccentricity": ("eccentricity",),
    "diameter": ("eccentricity",),
}


# Why a graph may have no values of a metric.
REASONS = {
    "pagerank": "pagerank did not converge within --max-iter",
    "betweenness": "betweenness: two nodes have more shortest paths than a float can count",
}


@dataclass(frozen=True)
class Columns:
    """The results of a batch, by the names of columns.

    nodes, graphs  one value each
    edges          (edges,) in the batch's order, or None
    lacking        graphs without values of a metric of REASONS, if it was computed
    """

    nodes: dict[str, Array] = field(default_factory=dict)
    graphs: dict[str, Array] = field(default_factory=dict)
    edges: Array | None = None
    lacking: dict[str, Array] = field(default_factory=dict)

    def joined(self, other: Columns) -> Columns:
        """Return the results of other metrics of the same graphs, too."""
        return Columns(
            self.nodes | other.nodes,
            self.graphs | other.graphs,
            other.edges if self.edges is None else self.edges,
            self.lacking | other.lacking,
        )


def compute(
    batch: GraphBatch,
    options: CentralityOptions,
    wanted: frozenset[str],
    threads: int | None = 1,
) -> Columns:
    """Compute the wanted metrics of a batch.

    threads  of metrics that can use several; None: all cores
    """
    kernels = kernel("centrality", batch.indptr)
    ptr = to_host(batch.ptr)
    sizes = np.diff(ptr)
    paths = passages = arcs = None
    if wanted & OF_DISTANCES:
        found = kernels.shortest_paths(batch)
        needed = {name for metric in wanted & OF_DISTANCES for name in _NEEDED[metric]}
        paths = found._replace(**{name: to_host(getattr(found, name)) for name in needed})
    if wanted & OF_PATHS_THROUGH:
        passages, arcs = passages_from(kernels, batch, options)
    results = of_searches(batch, options, paths, passages, arcs)
    nodes, graphs = results.nodes, results.graphs
    if "pagerank" in wanted:
        ranked = batch if batch.sums is None else replace(batch, weights=batch.sums)
        ranks, steps = kernels.pagerank(
            ranked,
            damping=options.alpha,
            tolerance=options.tol,
            most=options.max_iter,
        )
        nodes["pagerank"] = to_host(ranks)
        results.lacking["pagerank"] = np.flatnonzero(to_host(steps) < 0)
    if "component" in wanted:
        nodes["component"] = _components("components", batch, symmetric=not batch.directed)
        graphs["components"] = _each(np.maximum, nodes["component"] + 1, sizes).astype(np.int64)
    if STRONG in wanted:
        nodes["strong_component"] = _components("strong_components", batch)
        most = _each(np.maximum, nodes["strong_component"] + 1, sizes)
        graphs["strong_components"] = most.astype(np.int64)
    if wanted & {"triangles", "clustering"}:
        nodes |= _triangles(batch, wanted, threads)
        if "clustering" in wanted:
            sums = _each(np.add, nodes["clustering"], sizes)
            graphs["average_clustering"] = sums / np.maximum(sizes, 1)
    for method in wanted.intersection(COMMUNITIES):
        nodes["community"], graphs["communities"], graphs["modularity"] = communities_of(
            batch, method, resolution=options.resolution, seed=options.seed
        )
    return results


def compute_rows(
    rows: Sequence[CSR],
    options: CentralityOptions,
    wanted: frozenset[str],
    values: Mapping[str, Array],
    *,
    directed: bool,
    folder: Path | None = None,
    threads: int | None = None,
    ranks: Ranks | None = None,
) -> Columns:
    """Compute wanted metrics of IN_ROWS or STRONG of one graph: on cores, or on its rows' GPU.

    values  of nodes, for PageRank: start, personal and dangling, if given
    folder  for in-edges that exceed memory
    threads, ranks  see kernels/naive/pagerank.py
    """
    shared = {"threads": threads, "ranks": ranks}
    found = Columns()
    if "pagerank" in wanted:
        found.nodes["pagerank"], steps = ranks_of_rows(
            rows,
            values,
            directed=directed,
            damping=options.alpha,
            tolerance=options.tol,
            most=options.max_iter,
            dtype=options.dtype,
            folder=folder,
            **shared,
        )
        found.lacking["pagerank"] = np.flatnonzero([steps < 0])
    labels = {}
    if "component" in wanted:
        labels["component"] = labels_of_rows("components", rows, symmetric=not directed, **shared)
    if STRONG in wanted:
        labels["strong_component"] = labels_of_rows("strong_components", rows, threads=threads)
    for name, each in labels.items():
        found.nodes[name] = each
        found.graphs[f"{name}s"] = np.array([int(each.max(initial=-1)) + 1])
    return found


def ranks_of_rows(
    rows: Sequence[CSR], values: Mapping[str, Array | None], **options: Any
) -> tuple[Array, int]:
    """Return PageRank and its number of steps, or -1, computed where the rows are.

    rows  with the weights to be used, if any
    """
    indptr = rows[0].indptr if rows else np.empty(0)
    if not isinstance(indptr, np.ndarray):
        asarray = import_module("cupy").asarray
        values = {name: each if each is None else asarray(each) for name, each in values.items()}
    weighted = any(each.weights is not None for each in rows)
    find = kernel("pagerank", indptr).pagerank
    ranks, steps = find(rows, weighted=weighted, **values, **options)
    return fetched(ranks), steps


def labels_of_rows(name: str, rows: Sequence[CSR], **options: Any) -> Array:
    """Return the component of each node, or the strong one, computed where the rows are."""
    indptr = rows[0].indptr if rows else np.empty(0)
    return fetched(getattr(kernel(name, indptr), name)(rows, **options))


def fetched(values: AnyArray) -> Array:
    """Return values of the nodes of a large graph in host memory."""
    return values if isinstance(values, np.ndarray) else download(values)


def communities_of(
    batch: GraphBatch, method: str, *, resolution: float, seed: int
) -> tuple[Array, Array, Array]:
    """Return the community of each node, and the number of communities and modularity of graphs.

    Direction is ignored; weights of parallel edges add up.
    """
    kernels = kernel("communities", np.empty(0))
    ptr, indptr, indices = (to_host(each) for each in (batch.ptr, batch.indptr, batch.indices))
    given = batch.weights if batch.sums is None else batch.sums
    weights = None if given is None else to_host(given)
    labels = np.zeros(batch.nodes, np.int64)
    counts, values = np.zeros(batch.graphs, np.int64), np.zeros(batch.graphs)
    for graph, (first, stop) in enumerate(pairwise(ptr)):
        low, high = indptr[first], indptr[stop]
        matrix = adjacency(
            indptr[first : stop + 1] - low,
            indices[low:high] - indices.dtype.type(first),
            None if weights is None else weights[low:high],
            directed=batch.directed,
        )
        found = communities(kernels, matrix, method, resolution=resolution, seed=seed)
        labels[first:stop] = found
        counts[graph] = found.max(initial=-1) + 1
        values[graph] = modularity(matrix, found, resolution=resolution)
    return labels, counts, values


def passages_from(
    kernels: Any, batch: GraphBatch, options: CentralityOptions, sources: Array | None = None
) -> tuple[Array, Array | None]:
    """Return the sums of betweenness over sources, of nodes and, if wanted, of edges."""
    nodes, arcs = kernels.betweenness(
        batch,
        sources,
        endpoints=options.endpoints,
        edges="edge-betweenness" in options.wanted,
        dtype=np.dtype(options.dtype),
    )
    return to_host(nodes), arcs if arcs is None else to_host(arcs)


def of_searches(
    batch: GraphBatch,
    options: CentralityOptions,
    paths: Paths | None,
    passages: Array | None,
    arcs: Array | None,
    drawn: Array | None = None,
) -> Columns:
    """Return the columns that follow from sums over the shortest paths of all sources.

    passages, arcs  sums of betweenness, of nodes and edges; arcs change in place
    drawn           the sources of one graph, if not all nodes are: then values are estimates
    """
    ptr, wanted, results = to_host(batch.ptr), options.wanted, Columns(edges=arcs)
    sizes, nodes, graphs = np.diff(ptr), results.nodes, results.graphs
    sources = others = None  # that count for a node
    if drawn is not None:
        sources = np.full(batch.nodes, float(len(drawn)))
        others = sources.copy()
        others[drawn] -= 1
    if paths is not None:
        if "closeness" in wanted:
            found = closeness(paths, ptr, improved=options.wf_improved, others=others)
            nodes["closeness"] = found
        if "harmonic" in wanted:
            nodes["harmonic"] = paths.inverse
            if others is not None:
                share = np.zeros(batch.nodes)
                np.divide(paths.inverse, others, out=share, where=others > 0)
                nodes["harmonic"] = share * (batch.nodes - 1)
        if "eccentricity" in wanted:
            nodes["eccentricity"] = paths.eccentricity
        if "diameter" in wanted:
            graphs["diameter"] = _each(np.maximum, paths.eccentricity, sizes)
            graphs["radius"] = _each(np.minimum, paths.eccentricity, sizes)
    if passages is not None:
        given: dict[str, Any] = {"directed": batch.directed, "normalized": options.normalized}
        counted = sources if options.endpoints else others
        scale = betweenness_scale(ptr, endpoints=options.endpoints, sources=counted, **given)
        of = np.searchsorted(ptr, np.flatnonzero(~np.isfinite(passages)), side="right") - 1
        results.lacking["betweenness"] = np.unique(of)
        if "betweenness" in wanted:
            scale = np.repeat(scale, sizes) if drawn is None else scale
            nodes["betweenness"] = passages * scale
        if arcs is not None:
            scale = betweenness_scale(ptr, endpoints=True, **given)
            arcs *= np.repeat(scale, np.diff(to_host(batch.indptr)[ptr]))
    return results


def _components(name: str, batch: GraphBatch, **options: Any) -> Array:
    """Return the connected component of each node, or the strong one, (nodes,) int32.

    The components of a graph are 0, 1, ... in the order of their smallest members.
    """
    rows = [CSR(to_host(batch.indptr), to_host(batch.indices))]
    labels = labels_of_rows(name, rows, threads=1, **options)
    ptr = to_host(batch.ptr)
    sizes = np.diff(ptr)
    first = labels[ptr[:-1][sizes > 0]]
    found: Array = labels - np.repeat(first, sizes[sizes > 0])
    return found.astype(np.int32)


def _triangles(batch: GraphBatch, wanted: frozenset[str], threads: int | None) -> dict[str, Array]:
    """Return triangles without direction, and the clustering of the graph, directed or not."""
    found, walks = {}, Triangles(*map(to_host, closed_walks(batch, threads)))
    if "triangles" in wanted:  # only of undirected graphs
        found["triangles"] = walks.closed // 2
    if "clustering" in wanted:
        found["clustering"] = clustering(walks, directed=batch.directed)
    return found


def closed_walks(batch: GraphBatch, threads: int | None) -> Triangles:
    """Return closed walks of three steps, with edges of directed graphs counted both ways."""
    both, counts = symmetric(batch) if batch.directed else (batch, None)
    found: Triangles = kernel("centrality", both.indptr).triangles(both, counts, threads=threads)
    return found


def symmetric(batch: GraphBatch) -> tuple[GraphBatch, Array]:
    """Return symmetric graphs of directed ones, and the number of edges merged into each edge."""
    indptr, indices = to_host(batch.indptr), to_host(batch.indices)
    rows = both_ways(indptr, indices, np.ones(len(indices), np.int8))
    xp: Any = np if isinstance(batch.indptr, np.ndarray) else import_module("cupy")
    indptr, indices, counts = map(xp.asarray, rows)
    return GraphBatch(batch.ptr, indptr, indices, directed=False), counts


def _each(how: Any, values: Array, sizes: Array) -> Array:
    """Reduce the values of the nodes of each graph; 0 if it has none."""
    found = np.zeros(len(sizes))
    there = np.flatnonzero(sizes)
    if len(there):
        found[there] = how.reduceat(values, (np.cumsum(sizes) - sizes)[there])
    return found
