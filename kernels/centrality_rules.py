"""Arguments and meaning of the kernels of centralities, on all three backends.

Many graphs lie side by side in a ``GraphBatch``: the CSR of their disjoint union, as in PyG's
Batch. Meaning and defaults are NetworkX's: closeness uses distances towards a node, a path's length
is the sum of its weights, if any, parallel edges count as one, the shortest (PageRank uses their
sum), and self loops are ignored. One large graph is a batch of one, computed for shares of its
``sources``; results of several shares are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.arrays import Array


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """Graphs side by side.

    ptr       (graphs + 1,) int64: the first node of each graph
    indptr    (nodes + 1,) int64
    indices   (edges,) int32 or int64: neighbours as nodes of the batch, ascending and distinct in
              each row; an undirected edge is stored both ways
    weights   (edges,) float64, not negative; None: all edges have length 1
    directed  whether edges have a direction
    sums      (edges,) float64: the weights of all parallel edges together; None: no parallel edges
    """

    ptr: Array
    indptr: Array
    indices: Array
    weights: Array | None = None
    directed: bool = False
    sums: Array | None = None

    @property
    def graphs(self) -> int:
        """Number of graphs."""
        return len(self.ptr) - 1

    @property
    def nodes(self) -> int:
        """Number of nodes of all graphs."""
        return len(self.indptr) - 1

    @property
    def sizes(self) -> Array:
        """Number of nodes of each graph, (graphs,) int64."""
        return np.diff(self.ptr)


# Bytes that the blocks of a GPU have together for graphs that exceed their shared memory, or one
# block if it needs more.
SCRATCH = 1 << 33


class Paths(NamedTuple):
    """Results of shortest paths from the sources to each node, (nodes,) each.

    reached       int64: the sources that reach it, without itself
    total         float64: the sum of their distances
    inverse       float64: the sum of one over each distance that is not 0
    eccentricity  float64: of a source, the largest distance to any node of its graph, infinite
                  if it does not reach all; 0 for other nodes
    """

    reached: Array
    total: Array
    inverse: Array
    eccentricity: Array


class Triangles(NamedTuple):
    """Closed walks of three steps from each node, and its edges, (nodes,) int64 each.

    closed  walks i, j, k, i over distinct nodes, each as often as the product of its edges'
            multiplicities: of an undirected graph twice its triangles
    degree  edges to other nodes
    mutual  neighbours to which edges lead both ways (a multiplicity of 2)
    """

    closed: Array
    degree: Array
    mutual: Array


def closeness(
    paths: Paths, ptr: Array, *, improved: bool = True, others: Array | None = None
) -> Array:
    """Return the closeness of each node, (nodes,) float64; 0 if no other node reaches it.

    improved  Wasserman and Faust's: times the share of the other nodes that reach it
    others    (nodes,): the sources besides each node, if some were drawn [default: all]
    """
    if others is None:
        sizes = np.diff(ptr)
        others = np.repeat(sizes - 1, sizes)
    found = np.divide(paths.reached, paths.total, out=np.zeros(len(others)), where=paths.total > 0)
    if improved:
        found *= np.divide(paths.reached, others, out=np.zeros(len(others)), where=others > 0)
    return found


def betweenness_scale(
    ptr: Array,
    *,
    directed: bool,
    normalized: bool,
    endpoints: bool,
    sources: Array | None = None,
) -> Array:
    """Return the factor of sums over sources for each graph, (graphs,) float64.

    The factor of edges is that of nodes with endpoints.

    sources  (nodes,) float64: if some were drawn, those that count for each node; the factors are
             then NetworkX's of each node, NaN without a source
    """
    sizes = np.diff(ptr)
    ends = (sizes if endpoints else sizes - 1).astype(np.float64)
    if sources is not None:
        ends = np.repeat(ends, sizes)
    every = ends if sources is None else sources
    ways = 1 if directed else 2
    pairs = every * (ends - 1) if normalized else every * ways / np.maximum(ends, 1)
    scale = np.divide(1.0, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
    return np.where(ends >= 2, scale, 1.0)


def clustering(triangles: Triangles, *, directed: bool) -> Array:
    """Return the clustering coefficient of each node, (nodes,) float64.

    directed  Fagiolo's, of edges counted in both directions
    """
    possible = triangles.degree * (triangles.degree - 1.0)
    if directed:
        possible = 2 * (possible - 2 * triangles.mutual)
    zero = np.zeros(len(possible))
    return np.divide(triangles.closed, possible, out=zero, where=triangles.closed > 0)
