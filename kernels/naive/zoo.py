"""A zoo of small graphs: the reference for their shapes and edges, in plain NumPy.

Every graph has a fixed number of distinct undirected edges, so that the place of its rows in the
zoo is known before any edge is drawn.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.generate_rules import LEVELS, PATIENCE, QUADRANTS, RMAT
from penstock.kernels.naive.philox import philox4x32
from penstock.kernels.streams import Stream


def edge_counts(seed: int, sizes: Array, least: int, most: int, first: int) -> Array:
    """Return the number of edges of graphs ``first .. first + n``: (n,) int64.

    The average degree of a graph is uniform between ``least`` and ``most``.

    sizes  (n,) int64, nodes of each graph
    """
    which = np.arange(first, first + len(sizes), dtype=np.uint64)
    word = philox4x32(seed, Stream.ZOO_SHAPE, which, 0)[0].astype(np.int64)
    # In units of 2**-16 of a neighbour, so that everything stays an integer.
    degree = (least << 16) + ((word * ((most - least) << 16)) >> 32)
    counts: Array = np.minimum((sizes * degree) >> 17, sizes * (sizes - 1) // 2)
    return counts


def edges(seed: int, sizes: Array, counts: Array, kinds: Array, first: int) -> tuple[Array, Array]:
    """Return graphs ``first .. first + n`` side by side: degrees (nodes,) int32, targets (arcs,).

    sizes, counts  (n,) int64, nodes and undirected edges of each graph; sizes are powers of two
    kinds          (n,) int8, RANDOM or RMAT
    targets        int32, numbered within their own graph, ascending in every row
    """
    degrees, targets = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for graph, (size, count, kind) in enumerate(
        zip(sizes.tolist(), counts.tolist(), kinds.tolist(), strict=True)
    ):
        matrix = np.zeros((size, size), bool)
        for u, v in _pairs(seed, first + graph, size, count, kind):
            matrix[u, v] = matrix[v, u] = True
        degrees.append(matrix.sum(1).astype(np.int32))
        targets.append(np.nonzero(matrix)[1].astype(np.int32))
    return np.concatenate(degrees), np.concatenate(targets)


def _pairs(seed: int, graph: int, size: int, count: int, kind: int) -> set[tuple[int, int]]:
    pairs: set[tuple[int, int]] = set()
    draw = 0
    while len(pairs) < count:
        draws = np.arange(draw, draw + PATIENCE)
        if kind == RMAT and draw < PATIENCE * count:
            us, vs = _rmat_ends(seed, graph, draws, size)
        else:
            a, b, _, _ = philox4x32(seed, Stream.ZOO_EDGE, graph, 2 * draws)
            us, vs = (w.astype(np.int64) * size >> 32 for w in (a, b))
        for u, v in zip(us.tolist(), vs.tolist(), strict=True):
            if u != v and len(pairs) < count:
                pairs.add((min(u, v), max(u, v)))
        draw += PATIENCE
    return pairs


def _rmat_ends(seed: int, graph: int, draws: Array, size: int) -> tuple[Array, Array]:
    # Two steps are reserved per draw, enough for 16 levels.
    scale = size.bit_length() - 1
    us, vs = np.zeros(len(draws), np.int64), np.zeros(len(draws), np.int64)
    for level in range(scale):
        words = philox4x32(seed, Stream.ZOO_EDGE, graph, 2 * draws + level // LEVELS)
        bits = words[level % LEVELS // 2] >> np.uint32(16 * (level % 2)) & np.uint32(0xFFFF)
        quadrant = np.sum(bits[:, None] >= QUADRANTS, axis=1)
        us, vs = 2 * us + quadrant // 2, 2 * vs + quadrant % 2
    return us, vs
