"""What group each of some nodes belongs to, to colour them: a label or a community."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.errors import PenstockError
from penstock.graph import Graph, load_npy
from penstock.manifest import graph_digest

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_NODES = 5_000_000  # of a graph whose labels are read for a picture
_MOST_EDGES = 1_000_000  # of one whose communities are found for it
_ROUNDS = 8
NO_LABEL = "no label"

# What the groups are, and the group of each of the nodes with some internal ids.
Grouping = tuple[str, Callable[[Array], list[str]]]


def groups_of_ids(graph: str, digest: str, ids: pa.Array) -> tuple[str, list[str]] | None:
    """Return the kind of the groups that colour nodes, and the group of each id; None if unknown.

    graph, digest  of the graph that the vectors were trained on; another one does not help
    """
    opened = open_graph(graph, digest)
    if opened is None or opened.manifest.graphs is not None:
        return None
    try:
        nodes = opened.internal_ids(ids)
    except PenstockError:
        return None
    if (nodes < 0).any():
        return None
    return groups_of_nodes(opened, nodes)


def groups_of_nodes(graph: Graph, nodes: Array) -> tuple[str, list[str]] | None:
    """Return what nodes are coloured by, and the group of each of ``nodes``."""
    grouping = _by_label(graph) or _by_community(graph) or _by_part(graph)
    return None if grouping is None else (grouping[0], grouping[1](nodes))


def open_graph(graph: str, digest: str) -> Graph | None:
    """Return a graph, if it exists, is unchanged, and is not too large for a picture."""
    path = Path(graph)
    try:
        if not graph or graph_digest(path) != digest:
            return None
        opened = Graph.open(path)
    except (OSError, ValueError, PenstockError):
        return None
    return opened if opened.num_nodes <= _MOST_NODES else None


def _by_label(graph: Graph) -> Grouping | None:
    kind, names = graph.manifest.labels, graph.manifest.classes
    if kind not in ("class", "multi"):
        return None
    labels = graph.labels()

    def name(number: int) -> str:
        if number < 0:
            return NO_LABEL
        return names[number] if names is not None and number < len(names) else f"class {number}"

    if isinstance(labels, list):  # several labels: the first one of each
        return "first label", lambda nodes: [
            name((labels[node] or [-1])[0]) for node in nodes.tolist()
        ]
    return "label", lambda nodes: [name(int(number)) for number in labels[nodes]]


def _by_part(graph: Graph) -> Grouping | None:
    folders = sorted((Path(graph.path) / "partition").glob("k*/assignment.npy"))
    if not folders:
        return None
    parts = load_npy(folders[0])
    if len(parts) != graph.num_nodes:
        return None
    return "part", lambda nodes: [f"part {int(number)}" for number in parts[nodes]]


def _by_community(graph: Graph) -> Grouping | None:
    if not 0 < graph.num_edges <= _MOST_EDGES:
        return None
    csr = graph.csr()
    found = communities(np.asarray(csr.indptr), np.asarray(csr.indices))
    return "community", lambda nodes: [f"community {int(number) + 1}" for number in found[nodes]]


def communities(indptr: Array, indices: Array) -> Array:
    """Return the community of each node by label propagation, the largest community as 0.

    Every node takes the most frequent community of its neighbours, in both directions of edges; one
    half of the nodes at a time. Of several a hash chooses: the smallest one would flood the graph.
    """
    nodes = len(indptr) - 1
    rows = np.repeat(np.arange(nodes, dtype=np.int64), np.diff(indptr))
    columns = indices.astype(np.int64)
    ends, others = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    names = np.arange(nodes, dtype=np.int64)
    of = names.copy()
    still = 0
    for turn in range(2 * _ROUNDS):
        # Other halves in every round: of two nodes that always moved at once, each would take the
        # other's for ever.
        half = (_hash(names + turn // 2 * nodes) >> np.uint64(63) == 1) == bool(turn % 2)
        moving = half[ends]
        keys, counts = np.unique(ends[moving] * nodes + of[others[moving]], return_counts=True)
        node, community = keys // nodes, keys % nodes
        order = np.lexsort((_hash(keys), -counts, node))
        node, community = node[order], community[order]
        first = np.ones(len(node), bool)
        first[1:] = node[1:] != node[:-1]
        before = of[node[first]]
        of[node[first]] = community[first]
        still = still + 1 if (before == of[node[first]]).all() else 0
        if still == 4:  # no node has moved, in two ways to halve them
            break
    found, numbers, sizes = np.unique(of, return_inverse=True, return_counts=True)
    rank = np.empty(len(found), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(found))
    return rank[numbers]


def _hash(numbers: Array) -> Array:
    """Return the numbers mixed, as 64 bits (the end of SplitMix64)."""
    found = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return found ^ (found >> np.uint64(27))
