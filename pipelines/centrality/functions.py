"""Centralities of one graph as NumPy arrays, in this process, on its cores or its GPU: no cluster,
no files.

    ranks = penstock.pagerank("follows", tol=1e-10)
    labels = penstock.components((sources, targets))

The command, which writes files, is ``penstock centrality``; NetworkX's backend calls these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.errors import InputError, UsageError
from penstock.kernels import centrality_rules as rules
from penstock.kernels import kernel
from penstock.kernels.centrality_rules import GraphBatch, Paths, Triangles
from penstock.pipelines.centrality.compute import (
    closed_walks,
    communities_of,
    fetched,
    labels_of_rows,
    ranks_of_rows,
)
from penstock.pipelines.centrality.networkx_graphs import is_networkx, read_graphs
from penstock.pipelines.centrality.one_graph import (
    OneGraph,
    weight_fault,
)
from penstock.pipelines.centrality.options import COMMUNITIES, STRONG, CentralityOptions
from penstock.threads import results

if TYPE_CHECKING:
    from penstock.graph import Graph

_SHARES = 64  # of the sources of shortest paths; they depend on the graph alone
_SHARE_COST = 1e7  # nodes and edges times sources


def one_graph(graph: Any, *, directed: bool | None = None, weighted: bool = False) -> OneGraph:
    """Return a graph of any kind that ``pagerank`` describes."""
    if isinstance(graph, OneGraph):
        return graph
    if is_networkx(graph):
        _refuse_directed(directed, "a graph of NetworkX, which records it")
        return of_networkx(graph, "weight" if weighted else None)
    from penstock.graph import Graph

    if isinstance(graph, str | os.PathLike | Graph):
        return _of_directory(
            Graph.open(graph if isinstance(graph, Graph) else Path(graph)),
            directed,
            weighted=weighted,
        )
    if isinstance(graph, CSR):
        csr = graph
    elif hasattr(graph, "tocsr"):
        csr = _of_matrix(graph)
    elif isinstance(graph, tuple) and len(graph) in (2, 3):
        csr = _of_edges(*graph, directed=bool(directed))
    else:
        raise UsageError(
            "the first argument is not a graph",
            expected="a directory, Graph, CSR, SciPy matrix, (sources, targets), (sources, "
            "targets, weights) or graph of NetworkX",
            got=type(graph).__name__,
        )
    dense: dict[str, Any] = {  # kernels follow pointers, without strides
        name: each if each.flags.c_contiguous else each.copy() for name, each in csr.arrays()
    }
    csr = replace(csr, **dense)
    _check_rows(csr)
    if not directed and not isinstance(graph, tuple) and csr.edges:
        _check_both_ways(csr, weighted=weighted)
    if weighted:
        if csr.weights is None:
            raise UsageError("the graph has no weights", remedy="Leave weighted out")
        _check_weights(csr.weights)
    return OneGraph([csr if weighted else replace(csr, weights=None)], bool(directed))


def pagerank(
    graph: str | os.PathLike[str] | Graph | CSR | Any,
    *,
    alpha: float = 0.85,
    personalization: Any = None,
    max_iter: int = 100,
    tol: float = 1e-6,
    nstart: Any = None,
    weighted: bool = False,
    dangling: Any = None,
    directed: bool | None = None,
    dtype: str = "float64",
    device: str = "auto",
) -> Array:
    """Return the PageRank of all nodes; arguments mean what they mean to NetworkX.

    Parameters
    ----------
    graph
        A directory or Graph, whose rows are mapped; a CSR or SciPy matrix; arrays (sources,
        targets) or (sources, targets, weights) of edges; or a graph of NetworkX.
    alpha
        Damping factor.
    personalization, nstart, dangling
        Where a walk begins again, the values to begin with, and the nodes to which nodes without
        out-edges give: an array with one number per node, or a dict by node (of a directory: by the
        user's id), in which missing nodes are 0 [default: all equal; dangling: as personalization].
    max_iter
        Most iterations.
    tol
        Stop if a step changes the ranks by less than this per node, of ranks that add up to 1: a
        graph of a million nodes needs 1e-12 for a total change of 1e-6, and beyond two million
        nodes 1e-6 stops after one step.
    weighted
        Use the weights of edges (of NetworkX: the attribute ``weight``).
    directed
        Whether edges have a direction, for a CSR, matrix or arrays; without one, a CSR or matrix
        has each edge at both ends, arrays have it once [default: undirected].
    dtype
        ``"float32"``: what nodes give each other in a step is rounded to it, which is faster if
        caches do not hold the values of all nodes; sums and ranks are float64. A total change
        below 1e-7 may not be reached.
    device
        ``"cpu"``, ``"gpu"``, or ``"auto"``: the GPU of this process if it has one, and the graph is
        large and fits there.

    Returns
    -------
    Array
        (nodes,) float64, in the order of nodes.

    Raises
    ------
    InputError
        It does not converge within ``max_iter`` iterations.

    Examples
    --------
    >>> pagerank("follows", tol=1e-12)
    >>> pagerank((sources, targets), directed=True, personalization={5: 1})
    """
    bounded: dict[str, Any] = {"alpha": alpha, "tol": tol, "max_iter": max_iter, "dtype": dtype}
    CentralityOptions(metrics="pagerank", **bounded)
    one = one_graph(graph, directed=directed, weighted=weighted)
    given = personalization, max_iter, tol, nstart, dangling, device
    ranks, steps = ranks_of(one, alpha, *given, dtype=dtype)
    if steps < 0:
        raise InputError(
            "PageRank did not converge",
            remedy="Allow more iterations with max_iter, or a larger tol",
        )
    return ranks


def ranks_of(
    one: OneGraph,
    alpha: float,
    personalization: Any,
    max_iter: int,
    tol: float,
    nstart: Any,
    dangling: Any,
    device: str = "auto",
    *,
    dtype: str = "float64",
) -> tuple[Array, int]:
    """Return PageRank and its number of steps, or -1 if those are too few."""
    values = {
        "personal": _values("personalization", personalization, one),
        "start": _values("nstart", nstart, one),
        "dangling": _values("dangling", dangling, one),
    }
    return ranks_of_rows(
        one.rows_for("pagerank", device),
        values,
        directed=one.directed,
        damping=alpha,
        tolerance=tol,
        most=max_iter,
        dtype=dtype,
    )


def components(graph: Any, *, directed: bool | None = None, device: str = "auto") -> Array:
    """Return the connected component of each node, direction ignored.

    Parameters
    ----------
    graph, directed, device
        As for ``pagerank``.

    Returns
    -------
    Array
        (nodes,) integers: 0, 1, ... in the order of the components' first nodes.
    """
    one = one_graph(graph, directed=directed)
    rows = one.rows_for("component", device)
    return labels_of_rows("components", rows, symmetric=not one.directed)


def strong_components(graph: Any, *, directed: bool | None = None, device: str = "auto") -> Array:
    """Return the strongly connected component of each node; as ``components``."""
    one = one_graph(graph, directed=directed)
    return labels_of_rows("strong_components", one.rows_for(STRONG, device))


def triangles(graph: Any, *, device: str = "auto") -> Array:
    """Return the number of triangles of each node of an undirected graph; loops are ignored."""
    one = one_graph(graph)
    if one.directed:
        raise UsageError("triangles are those of undirected graphs", got="a directed graph")
    return np.asarray(walks_of(one, device).closed // 2)


def clustering(graph: Any, *, directed: bool | None = None, device: str = "auto") -> Array:
    """Return the clustering coefficient of each node, of a directed graph Fagiolo's."""
    one = one_graph(graph, directed=directed)
    return rules.clustering(walks_of(one, device), directed=one.directed)


def walks_of(one: OneGraph, device: str = "auto") -> Triangles:
    """Return the closed walks of three steps of one graph, on all cores or its GPU."""
    batch = one.merged_on_gpu() if one.on_gpu("clustering", device) else one.batch
    return Triangles(*map(fetched, closed_walks(batch, None)))


def communities(
    graph: Any,
    *,
    method: str = "leiden",
    resolution: float = 1.0,
    seed: int = 0,
    weighted: bool = False,
    directed: bool | None = None,
) -> Array:
    """Return the community of each node, direction ignored.

    Parameters
    ----------
    graph, directed
        As for ``pagerank``.
    method
        ``leiden``, ``louvain``, or ``labels``: label propagation, which is cheap.
    resolution
        Of modularity; above 1 communities are smaller. Label propagation has none.
    seed
        Of the order of nodes; the same seed gives the same communities.
    weighted
        Use the weights of edges.

    Returns
    -------
    Array
        (nodes,) integers: 0, 1, ... in the order of the communities' first nodes.
    """
    if method not in COMMUNITIES:
        raise UsageError(f"unknown method {method!r}", expected=", ".join(COMMUNITIES))
    CentralityOptions(metrics=method, resolution=resolution)
    one = one_graph(graph, directed=directed, weighted=weighted)
    return communities_of(one.batch, method, resolution=resolution, seed=seed)[0]


def closeness(
    graph: Any,
    *,
    weighted: bool = False,
    wf_improved: bool = True,
    directed: bool | None = None,
    device: str = "auto",
) -> Array:
    """Return the closeness of each node, of distances towards it.

    Parameters
    ----------
    graph, directed, device
        As for ``pagerank``.
    weighted
        Weights are lengths; then only cores compute it.
    wf_improved
        Scale by the share of the nodes that reach a node (Wasserman and Faust).

    Returns
    -------
    Array
        (nodes,) float64.
    """
    one = one_graph(graph, directed=directed, weighted=weighted)
    return rules.closeness(_all_paths(one, device), np.array([0, one.nodes]), improved=wf_improved)


def harmonic(
    graph: Any, *, weighted: bool = False, directed: bool | None = None, device: str = "auto"
) -> Array:
    """Return the harmonic centrality of each node; arguments as for ``closeness``."""
    one = one_graph(graph, directed=directed, weighted=weighted)
    return _all_paths(one, device).inverse


def eccentricity(
    graph: Any, *, weighted: bool = False, directed: bool | None = None, device: str = "auto"
) -> Array:
    """Return the eccentricity of each node, infinite if it does not reach all others."""
    one = one_graph(graph, directed=directed, weighted=weighted)
    return _all_paths(one, device).eccentricity


def _all_paths(one: OneGraph, device: str) -> Paths:
    if one.searched_on_gpu("closeness", device):
        batch = one.merged_on_gpu()
        return Paths(*map(fetched, kernel("centrality", batch.indptr).shortest_paths(batch)))
    return paths_of(one.batch)


def betweenness(
    graph: Any,
    *,
    sources: Any = None,
    weighted: bool = False,
    normalized: bool = True,
    endpoints: bool = False,
    directed: bool | None = None,
    device: str = "auto",
) -> Array:
    """Return the betweenness of each node.

    Parameters
    ----------
    graph, directed, device
        As for ``pagerank``.
    sources
        Nodes from which shortest paths are counted, of a directory by the user's ids; their sums
        are not scaled up [default: all].
    weighted
        Weights are lengths; then only cores compute it.
    normalized
        Divide by the number of pairs of nodes.
    endpoints
        Count the ends of paths, too.

    Returns
    -------
    Array
        (nodes,) float64; all NaN if two nodes have more shortest paths than a float can count.
    """
    one = one_graph(graph, directed=directed, weighted=weighted)
    chosen = None if sources is None else np.unique(one.numbers("sources", sources))
    if one.searched_on_gpu("betweenness", device):
        batch = one.merged_on_gpu()
        find = kernel("centrality", batch.indptr).betweenness
        nodes = fetched(find(batch, chosen, endpoints=endpoints)[0])
    else:
        nodes, _ = passages_of(one.batch, chosen, endpoints=endpoints)
    if not np.isfinite(nodes).all():
        nodes = np.full(one.nodes, np.nan)
    given: dict[str, Any] = {"normalized": normalized, "endpoints": endpoints}
    ptr = np.array([0, one.nodes])
    return np.asarray(nodes * rules.betweenness_scale(ptr, directed=one.directed, **given))


def paths_of(batch: GraphBatch, sources: Array | None = None) -> Paths:
    """Return the results of shortest paths of one graph, on all cores."""
    find = kernel("centrality", batch.indptr).shortest_paths
    return Paths(*_summed(batch, sources, lambda some: find(batch, some)))


def passages_of(
    batch: GraphBatch, sources: Array | None = None, *, endpoints: bool = False, edges: bool = False
) -> tuple[Array, Array | None]:
    """Return the sums of betweenness over sources, of nodes and edges, on all cores."""
    find = kernel("centrality", batch.indptr).betweenness
    found = _summed(
        batch,
        sources,
        lambda some: [
            each for each in find(batch, some, endpoints=endpoints, edges=edges) if each is not None
        ],
    )
    return found[0], found[1] if edges else None


def _summed(
    batch: GraphBatch, sources: Array | None, find: Callable[[Array], Sequence[Array]]
) -> Sequence[Array]:
    """Return the sums over shares of the sources, added in their order as they come."""
    listed = np.arange(batch.nodes) if sources is None else sources
    cost = float(len(listed)) * (batch.nodes + len(batch.indices))
    # Whole words of 64 sources.
    most = min(_SHARES, max(1, int(cost / _SHARE_COST)), max(1, len(listed) // 64))
    found = results(find, np.array_split(listed, most))
    total = list(next(found))
    for each in found:
        for whole, part in zip(total, each, strict=True):
            whole += part
    return total


def _values(name: str, given: Any, one: OneGraph) -> Array | None:
    """Return a value for each node, adding up to 1."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        found = np.zeros(one.nodes)
        found[one.numbers(name, given)] = list(given.values())
    else:
        found = np.asarray(given, np.float64)
    if found.shape != (one.nodes,):
        raise UsageError(
            f"{name} has another shape", expected=f"({one.nodes},)", got=str(found.shape)
        )
    total = found.sum()
    if not (found >= 0).all() or not 0 < total < np.inf:
        raise UsageError(f"{name} is not a share of each node", expected="numbers of 0 or above")
    return np.asarray(found / total)


def of_networkx(graph: Any, weight: str | None) -> OneGraph:
    """Return a graph of NetworkX, with this attribute of edges as their weights."""
    batch, (nodes,) = read_graphs([graph], weight)

    def find(some: list[Any]) -> Array:
        at = {node: number for number, node in enumerate(nodes)}
        return np.array([at.get(node, -1) for node in some], np.int64)

    return replace(OneGraph.of_batch(batch), find=find)


def _of_directory(graph: Graph, directed: bool | None, *, weighted: bool) -> OneGraph:
    _refuse_directed(directed, "a graph's directory, which records it")
    if graph.manifest.graphs is not None:
        raise UsageError(
            f"{graph.path} is a zoo of graphs, and this is for one",
            remedy="Compute all of them with penstock.centrality",
        )
    if weighted and "weights" not in graph.manifest.dtypes:
        raise UsageError(f"{graph.path} has no weights", remedy="Leave weighted out")
    from penstock.pipelines.centrality.inputs.directory import shards_of

    rows = shards_of(graph, weighted=weighted)
    for each in rows:
        _check_weights(each.weights)
    return OneGraph(rows, graph.manifest.directed, graph.internal_ids)


def _refuse_directed(directed: bool | None, what: str) -> None:
    if directed is not None:
        raise UsageError("directed has no effect on " + what)


def _of_matrix(matrix: Any) -> CSR:
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise UsageError("the matrix is not square", got=str(matrix.shape))
    rows = matrix.tocsr().sorted_indices()
    return CSR(np.asarray(rows.indptr, np.int64), rows.indices, weights=_floats(rows.data))


def _of_edges(sources: Any, targets: Any, weights: Any = None, *, directed: bool) -> CSR:
    a, b = np.asarray(sources), np.asarray(targets)
    for each in (a, b):
        if each.ndim != 1 or (each.dtype.kind not in "iu" and len(each)):
            raise UsageError("ends of edges are not numbers of nodes", got=str(each.dtype))
    a, b = a.astype(np.int64, copy=False), b.astype(np.int64, copy=False)
    w: Array | None = None if weights is None else _floats(np.asarray(weights))
    for name, column in (("targets", b), ("weights", w)):
        if column is not None and len(column) != len(a):
            raise UsageError(f"{len(column)} {name} do not fit {len(a)} sources")
    nodes = 1 + int(max(a.max(initial=-1), b.max(initial=-1)))
    if not directed:
        other = a != b  # a loop is stored once
        a, b = np.concatenate([a, b[other]]), np.concatenate([b, a[other]])
        w = None if w is None else np.concatenate([w, w[other]])
    return CSR.from_edges(a, b, nodes, weights=w)


def _floats(values: Any) -> Array:
    return np.asarray(values, values.dtype if values.dtype == np.float32 else np.float64)


def _check_rows(csr: CSR) -> None:
    """Refuse what kernels would follow out of the arrays: an index that is no node, a row's end."""
    low, high = (int(csr.indices.min()), int(csr.indices.max())) if csr.edges else (0, -1)
    ascending = bool((np.diff(csr.indptr) >= 0).all())
    fits = csr.indptr[0] == 0 and csr.indptr[-1] == csr.edges
    fits = fits and (csr.weights is None or len(csr.weights) == csr.edges)
    if csr.first_row or low < 0 or high >= csr.rows or not ascending or not fits:
        raise UsageError(
            "the CSR is not a whole graph",
            expected=f"indices in 0..{csr.rows - 1}, row starts that ascend from 0 to their "
            "number, and as many weights, if any",
            got=f"{csr.edges} indices, {low} to {high}",
        )


def _check_both_ways(csr: CSR, *, weighted: bool) -> None:
    """Refuse a CSR in which an edge is stored at one end only."""
    there = kernel("transpose", csr.indptr).transpose([csr], weighted=weighted)[0]
    same = np.array_equal(there.indptr, csr.indptr) and np.array_equal(there.indices, csr.indices)
    if same and weighted and csr.weights is not None and there.weights is not None:
        same = np.allclose(there.weights, csr.weights, atol=0) or np.allclose(
            _ascending_weights(there), _ascending_weights(csr), atol=0
        )
    if not same:
        raise UsageError(
            "an edge is stored at one end only",
            expected="edges without a direction at both ends",
            remedy="Give directed=True, or arrays (sources, targets)",
        )


def _ascending_weights(csr: CSR) -> Array:
    """Return the weights of edges, those of parallel edges ascending."""
    assert csr.weights is not None
    return csr.weights[np.lexsort((csr.weights, csr.indices, csr.sources()))]


def _check_weights(weights: Array | None) -> None:
    if fault := weight_fault(weights):
        expected = "numbers that are not negative"
        raise InputError("weights are not lengths", expected=expected, got=fault)
