"""Graphs of NetworkX, many at once: as a batch for the kernels, and their centralities.

penstock.centrality([g1, g2, ...], metrics="closeness")   a list of dicts, by metric and node
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from penstock.csr import offsets_of
from penstock.errors import InputError, UsageError
from penstock.kernels.centrality_rules import GraphBatch
from penstock.pipelines.centrality.compute import REASONS, compute
from penstock.pipelines.centrality.one_graph import weight_fault
from penstock.pipelines.centrality.options import CentralityOptions


def read_graphs(graphs: Sequence[Any], weight: str | None) -> tuple[GraphBatch, list[list[Any]]]:
    """Return graphs, all directed or all undirected, as a batch, and the nodes of each in order."""
    directed = {bool(graph.is_directed()) for graph in graphs}
    if len(directed) > 1:
        raise UsageError("some graphs are directed and some are not", expected="graphs of one kind")
    nodes = [list(graph) for graph in graphs]
    ptr = np.cumsum([0, *map(len, nodes)], dtype=np.int64)
    degrees, ends, weights, sums = [], [], [], []
    several = any(graph.is_multigraph() for graph in graphs)
    for first, graph, names in zip(ptr[:-1], graphs, nodes, strict=True):
        position = {node: int(first) + i for i, node in enumerate(names)}
        for node in names:
            row = sorted((position[other], data) for other, data in graph.adj[node].items())
            degrees.append(len(row))
            ends += [other for other, _ in row]
            if weight is None and not several:
                continue
            for _, data in row:
                edges = data.values() if graph.is_multigraph() else [data]
                each = [1.0 if weight is None else _length(edge, weight) for edge in edges]
                weights.append(min(each))
                sums.append(sum(each))
    lengths = None if weight is None else np.array(weights, np.float64)
    if fault := weight_fault(lengths):
        raise InputError(
            f"the attribute {weight!r} of an edge is not a length",
            expected="a number that is not negative, up to 1e290",
            got=fault,
        )
    indptr = offsets_of(np.array(degrees, np.int64))
    indices = np.array(ends, np.int32 if ptr[-1] < 2**31 else np.int64)
    added = np.array(sums, np.float64) if several else None
    batch = GraphBatch(ptr, indptr, indices, lengths, directed=True in directed, sums=added)
    return batch, nodes


def is_networkx(graph: Any) -> bool:
    """Say whether an object is a graph of NetworkX."""
    return all(hasattr(graph, name) for name in ("adj", "is_directed", "is_multigraph"))


def centrality_of(given: Any, options: CentralityOptions) -> Any:
    """Return a dict by metric (of nodes, or one number per graph); for several graphs a list."""
    graphs = [given] if hasattr(given, "adj") or not isinstance(given, Iterable) else list(given)
    for graph in graphs:
        if not is_networkx(graph):
            raise UsageError(
                "the first argument is not a graph",
                expected="a path, a Graph, a graph of NetworkX, or a list of these",
                got=type(graph).__name__,
            )
    options.check_effect("networkx")
    if "edge-betweenness" in options.wanted:
        raise UsageError("edge-betweenness is only written to files")
    weight = (options.weight or "weight") if options.weighted else None
    batch, nodes = read_graphs(graphs, weight)
    if batch.directed and "triangles" in options.wanted:
        raise UsageError("triangles are those of undirected graphs", got="a directed graph")
    found = compute(batch, options, options.wanted)
    for metric, some in found.lacking.items():
        if len(some):
            raise InputError(f"graph {some[0]}: {REASONS[metric]}")
    results: list[dict[str, Any]] = [{} for _ in graphs]
    for metric, values in found.nodes.items():
        parts = np.split(values, batch.ptr[1:-1])
        for result, names, part in zip(results, nodes, parts, strict=False):
            result[metric] = dict(zip(names, part.tolist(), strict=True))
    for metric, values in found.graphs.items():
        for result, value in zip(results, values.tolist(), strict=True):
            result[metric] = value
    return results[0] if hasattr(given, "adj") else results


def _length(edge: Any, weight: str) -> float:
    """Return the weight of an edge."""
    value = edge.get(weight, 1)
    try:
        return float(0 + value)  # added, as by NetworkX: this refuses a string
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"the attribute {weight!r} of an edge is not a length",
            expected="a number",
            got=repr(value)[:60],
        ) from None
