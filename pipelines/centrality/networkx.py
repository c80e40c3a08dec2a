"""Penstock as a backend of NetworkX: its own functions, with its signatures and defaults.

networkx.betweenness_centrality(graph, backend="penstock")   by the entry point of pyproject.toml

The backend declines what the kernels cannot compute: by ``can_run`` if the arguments show it, by
NotImplementedError if only the weights do. NetworkX then computes the result itself if its
configuration chose the backend, and raises an error if the call named it. Components are listed in
the order of their first nodes; a strongly connected one follows those that it reaches.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

import networkx
import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.errors import InputError, UsageError
from penstock.kernels import kernel
from penstock.kernels.centrality_rules import GraphBatch, betweenness_scale
from penstock.kernels.cpu.centrality.structure import tarjan
from penstock.pipelines.centrality import functions
from penstock.pipelines.centrality.compute import communities_of
from penstock.pipelines.centrality.one_graph import OneGraph

F = TypeVar("F", bound=Callable[..., Any])
# Arguments that the kernels do not support, unless they are None.
_MISSING = frozenset({"k", "max_level", "nodes", "nbunch", "sources", "sp"})
_UNWEIGHTED = frozenset({"clustering", "average_clustering"})
# One pass over the edges: NetworkX ends before a graph is converted.
_ONE_PASS = frozenset(
    {
        *("connected_components", "number_connected_components", "is_connected"),
        *("weakly_connected_components", "number_weakly_connected_components"),
        "is_weakly_connected",
    }
)
_FEW = 16  # nodes: with fewer, NetworkX is as fast


class BackendGraph:
    """A graph that NetworkX has passed to this backend, and caches for calls with other weights."""

    __networkx_backend__ = "penstock"

    def __init__(self, graph: Any) -> None:
        self.original = graph
        self._read: dict[str | None, OneGraph] = {}

    def is_directed(self) -> bool:
        """Whether it is."""
        return bool(self.original.is_directed())

    def is_multigraph(self) -> bool:
        """Whether it is."""
        return bool(self.original.is_multigraph())

    @property
    def is_read(self) -> bool:
        """Whether the graph is converted already, without weights."""
        return None in self._read

    def one(self, weight: str | None = None) -> OneGraph:
        """Return the graph for the kernels, with this attribute of edges as their lengths."""
        if weight not in self._read:
            try:
                self._read[weight] = functions.of_networkx(self.original, weight)
            except InputError as error:  # NetworkX accepts some of these, or raises its own error
                raise NotImplementedError(f"penstock: {error}") from error
        return self._read[weight]

    def by_node(self, values: Array) -> dict[Any, Any]:
        """Return the values of the nodes."""
        return dict(zip(self.original, values.tolist(), strict=True))


def _only(graph: BackendGraph, *, directed: bool) -> None:
    """Raise NetworkX's error if a graph is of the other kind."""
    if graph.is_directed() != directed:
        kind = "undirected" if directed else "directed"
        raise networkx.NetworkXNotImplemented(f"not implemented for {kind} type")


def _of_components(
    labels: Callable[[OneGraph], Array], *, directed: bool
) -> tuple[
    Callable[[BackendGraph], Iterator[set[Any]]],
    Callable[[BackendGraph], int],
    Callable[[BackendGraph], bool],
]:
    """Return functions that list the components of ``labels``, count them, and test for one.

    directed  the kind of graphs: NetworkX has another function for the other kind
    """

    def sets(G: BackendGraph) -> Iterator[set[Any]]:
        """Return the components as sets of nodes."""
        _only(G, directed=directed)
        of_nodes = labels(G.one())
        found: list[set[Any]] = [set() for _ in range(_number(of_nodes))]
        for node, label in zip(G.original, of_nodes.tolist(), strict=True):
            found[label].add(node)
        return iter(found)

    def number(G: BackendGraph) -> int:
        """Return the number of components."""
        _only(G, directed=directed)
        return _number(labels(G.one()))

    def is_one(G: BackendGraph) -> bool:
        """Return whether there is exactly one."""
        _only(G, directed=directed)
        of_nodes = labels(G.one())
        if not len(of_nodes):
            raise networkx.NetworkXPointlessConcept("Connectivity is undefined for the null graph.")
        return _number(of_nodes) == 1

    return sets, number, is_one


def _number(labels: Array) -> int:
    return int(labels.max(initial=-1)) + 1


def _in_order_of_reach(one: OneGraph) -> Array:
    return tarjan(one.batch.indptr, one.batch.indices)[1]


def convert_from_nx(graph: Any, **_: Any) -> BackendGraph:
    """Return a graph that is converted when a function needs it."""
    return graph if isinstance(graph, BackendGraph) else BackendGraph(graph)


def convert_to_nx(result: Any, **_: Any) -> Any:
    """Return a result unchanged: dicts and numbers."""
    return result.original if isinstance(result, BackendGraph) else result


def can_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Return whether the kernels support the arguments, or why not."""
    try:
        given = (
            inspect.signature(getattr(backend_interface, name))
            .bind_partial(*args, **kwargs)
            .arguments
        )
    except TypeError as error:
        return f"penstock has other arguments: {error}"
    graph = given.pop("G", None)
    given = {key: value for key, value in given.items() if value is not None}
    missing = sorted(given.keys() & _MISSING)
    if missing:
        return f"penstock has no option {missing[0]}"
    if given.get("usebounds") and "e" not in given:
        return "penstock has no option usebounds"
    weight = given.get("weight", given.get("distance"))
    if weight is not None and (not isinstance(weight, str) or name in _UNWEIGHTED):
        return "penstock has no weights of this kind"
    if name == "transitivity" and graph is not None and graph.is_directed():
        return "penstock has no transitivity of directed graphs"
    return True


def should_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Return whether the backend is worth using, or why not; for calls that do not name it."""
    graph = args[0] if args else kwargs.get("G")
    if graph is None or isinstance(graph, BackendGraph):
        return True
    kept = getattr(graph, "__networkx_cache__", None) or {}
    if any(each.is_read for each in kept.get("backends", {}).get("penstock", {}).values()):
        return True
    if name in _ONE_PASS:
        return "converting the graph takes longer than NetworkX does"
    return True if len(graph) >= _FEW else f"the graph has fewer than {_FEW} nodes"


def _declining(function: F) -> F:
    """Make a function decline unsupported arguments: NetworkX may not have called ``can_run``."""

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        answer = can_run(function.__name__, args, kwargs)
        if answer is not True:
            raise NotImplementedError(f"{function.__name__}: {answer}; call it without backend")
        return function(*args, **kwargs)

    return cast("F", checked)


# -- paths ----------------------------------------------------------------------------------


@_declining
def closeness_centrality(
    G: BackendGraph, u: Any = None, distance: Any = None, wf_improved: bool = True
) -> Any:
    """Return the closeness of all nodes, or of ``u``."""
    if u is not None and u not in G.original:
        raise networkx.NodeNotFound(f"Source {u} is not in G")
    one = G.one(distance)
    if u is None:
        return G.by_node(functions.closeness(one, wf_improved=wf_improved, device="cpu"))
    # Distances to a node are the distances from it in the transposed graph.
    paths = functions.paths_of(_transposed(one.batch), one.numbers("u", [u]))
    reached, total = int(paths.reached.sum()), float(paths.total.sum())
    if total <= 0:
        return 0.0
    return reached / total * (reached / (one.nodes - 1) if wf_improved else 1.0)


@_declining
def harmonic_centrality(
    G: BackendGraph, nbunch: Any = None, distance: Any = None, sources: Any = None
) -> Any:
    """Return the harmonic centrality of all nodes."""
    return G.by_node(functions.harmonic(G.one(distance), device="cpu"))


@_declining
def eccentricity(G: BackendGraph, v: Any = None, sp: Any = None, weight: Any = None) -> Any:
    """Return the eccentricity of all nodes, of some, or of one."""
    nodes = list(G.original.nbunch_iter(v))
    one = G.one(weight)
    sources = None if v is None else np.unique(one.numbers("v", nodes))
    found = functions.paths_of(one.batch, sources).eccentricity
    if not np.isfinite(found).all():
        kind = "digraph is not strongly" if one.directed else "graph is not"
        raise networkx.NetworkXError(f"Found infinite path length because the {kind} connected")
    by_node = G.by_node(found if weight is not None else found.astype(np.int64))
    return by_node[v] if v in G.original else {node: by_node[node] for node in nodes}


@_declining
def diameter(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> Any:
    """Return the largest eccentricity."""
    return max((eccentricity(G, weight=weight) if e is None else e).values())


@_declining
def radius(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> Any:
    """Return the smallest eccentricity."""
    return min((eccentricity(G, weight=weight) if e is None else e).values())


@_declining
def betweenness_centrality(
    G: BackendGraph,
    k: Any = None,
    normalized: bool = True,
    weight: Any = None,
    endpoints: bool = False,
    seed: Any = None,
) -> Any:
    """Return the betweenness of all nodes."""
    one = _without_ties_of_order(G.one(weight))
    given: dict[str, Any] = {"normalized": normalized, "endpoints": endpoints, "device": "cpu"}
    return G.by_node(_counted(functions.betweenness(one, **given)))


@_declining
def edge_betweenness_centrality(
    G: BackendGraph,
    k: Any = None,
    normalized: bool = True,
    weight: Any = None,
    seed: Any = None,
) -> Any:
    """Return the betweenness of all edges."""
    one = _without_ties_of_order(G.one(weight))
    batch = one.batch
    _, arcs = functions.passages_of(batch, edges=True)
    assert arcs is not None  # edge-betweenness is in the metrics above
    given: dict[str, Any] = {"directed": batch.directed, "normalized": normalized}
    edges = list(dict.fromkeys(G.original.edges()))
    tails, heads = (one.numbers("G", [edge[end] for edge in edges]) for end in (0, 1))
    rows = np.repeat(np.arange(batch.nodes), np.diff(batch.indptr))
    keys = rows * batch.nodes + batch.indices  # ascending, like the rows
    values = arcs[np.searchsorted(keys, tails * batch.nodes + heads)]
    if not batch.directed:  # an undirected edge is stored both ways
        back = arcs[np.searchsorted(keys, heads * batch.nodes + tails)]
        values = np.where(tails == heads, values, values + back)
    values = _counted(values) * betweenness_scale(batch.ptr, endpoints=True, **given)
    found = dict(zip(edges, values.tolist(), strict=True))
    return _by_key(G.original, found, weight) if G.is_multigraph() else found


# -- ranks, components, triangles -----------------------------------------------------------


@_declining
def pagerank(
    G: BackendGraph,
    alpha: float = 0.85,
    personalization: Any = None,
    max_iter: int = 100,
    tol: float = 1e-6,
    nstart: Any = None,
    weight: Any = "weight",
    dangling: Any = None,
) -> Any:
    """Return the PageRank of all nodes."""
    one = G.one(weight)
    if one.nodes and personalization is not None and not sum(personalization.values()):
        raise ZeroDivisionError
    try:
        given = personalization, max_iter, tol, nstart, dangling
        ranks, steps = functions.ranks_of(one, alpha, *given)
    except UsageError as error:  # NetworkX accepts values below 0
        raise NotImplementedError(f"penstock: {error}") from error
    if steps < 0:
        raise networkx.PowerIterationFailedConvergence(max_iter)
    return G.by_node(ranks)


@_declining
def leiden_communities(
    G: BackendGraph,
    weight: Any = "weight",
    resolution: float = 1,
    max_level: Any = None,
    seed: Any = None,
) -> Any:
    """Return the communities of Leiden as sets of nodes."""
    _only(G, directed=False)
    if isinstance(seed, random.Random):  # NetworkX makes one of a number
        seed = seed.getrandbits(32)
    found: dict[int, set[Any]] = {}
    drawn = 0 if seed is None else int(seed)
    batch = G.one(weight).batch
    labels, _, _ = communities_of(batch, "leiden", resolution=resolution, seed=drawn)
    for node, label in zip(G.original, labels.tolist(), strict=True):
        found.setdefault(label, set()).add(node)
    return list(found.values())


connected_components, number_connected_components, is_connected = _of_components(
    functions.components, directed=False
)
weakly_connected_components, number_weakly_connected_components, is_weakly_connected = (
    _of_components(functions.components, directed=True)
)
strongly_connected_components, number_strongly_connected_components, is_strongly_connected = (
    _of_components(_in_order_of_reach, directed=True)
)


@_declining
def triangles(G: BackendGraph, nodes: Any = None) -> Any:
    """Return the number of triangles of each node."""
    _only(G, directed=False)
    return G.by_node(functions.triangles(G.one()))


@_declining
def clustering(G: BackendGraph, nodes: Any = None, weight: Any = None) -> Any:
    """Return the clustering coefficient of all nodes."""
    return G.by_node(functions.clustering(_simple(G)))


@_declining
def average_clustering(
    G: BackendGraph, nodes: Any = None, weight: Any = None, count_zeros: bool = True
) -> Any:
    """Return the mean of the clustering coefficients, or only of those above 0."""
    values = functions.clustering(_simple(G)).tolist()
    values = values if count_zeros else [value for value in values if value]
    return sum(values) / len(values)


@_declining
def transitivity(G: BackendGraph) -> Any:
    """Return the share of the paths of two edges that are part of a triangle."""
    found = functions.walks_of(_simple(G))
    closed = int(found.closed.sum())
    return closed / int((found.degree * (found.degree - 1)).sum()) if closed else 0


def _transposed(batch: GraphBatch) -> GraphBatch:
    """Return the batch with every edge reversed."""
    if not batch.directed:
        return batch
    rows = CSR(batch.indptr, batch.indices, weights=batch.weights)
    (into,) = kernel("transpose", rows.indptr).transpose([rows], weighted=True)
    given = {"indptr": into.indptr, "indices": into.indices, "weights": into.weights}
    return replace(batch, sums=None, **given)


def _without_ties_of_order(one: OneGraph) -> OneGraph:
    """Return the graph, unless a length adds nothing to a distance.

    If one does, NetworkX's count of shortest paths depends on the order of its neighbours.
    """
    lengths = one.batch.weights
    if lengths is not None and len(lengths) and lengths.min() <= np.spacing(lengths.sum()):
        raise NotImplementedError(
            "penstock: NetworkX counts paths over edges of length 0 differently"
        )
    return one


def _counted(values: Array) -> Array:
    """Return a betweenness, if a float could count the shortest paths."""
    if not np.isfinite(values).all():
        raise NotImplementedError("penstock: more shortest paths than a float can count")
    return values


def _by_key(graph: Any, found: dict[Any, float], weight: str | None) -> dict[Any, float]:
    """Share the betweenness of neighbours among the shortest of their parallel edges."""
    by_key: dict[Any, float] = dict.fromkeys(graph.edges, 0.0)
    for (tail, head), value in found.items():
        lengths = {
            key: 1 if weight is None else data.get(weight, 1)
            for key, data in graph.adj[tail][head].items()
        }
        least = min(lengths.values())
        shortest = [key for key, length in lengths.items() if length == least]
        for key in shortest:
            by_key[tail, head, key] = value / len(shortest)
    return by_key


def _simple(graph: BackendGraph) -> OneGraph:
    """Return a graph without parallel edges."""
    if graph.is_multigraph():
        raise networkx.NetworkXNotImplemented("not implemented for multigraph type")
    return graph.one()


backend_interface = sys.modules[__name__]
