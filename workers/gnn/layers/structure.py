"""The adjacency that each kind of layer aggregates over: one CSR, with factors per kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.csr import offsets_of
from penstock.kernels.gnn_rules import ScaledCSR
from penstock.workers.gnn.layers.context import Context

_ROWS = 1 << 18  # at a time: an array with one value per edge is as large as the graph


def block_of(context: Context, kind: str, aggregate: str, eps: float) -> ScaledCSR:
    """Return the block that a layer of this kind aggregates over; layers of one kind share it."""
    key = kind, aggregate, eps
    if key not in context.blocks:
        context.blocks[key] = _block_of(context, *key)
    return context.blocks[key]


def _block_of(context: Context, kind: str, aggregate: str, eps: float) -> ScaledCSR:
    plain = context.adjacency
    if kind == "gcn":
        return _normalised(context, plain)
    if kind == "gin":
        # GIN sums neighbours unweighted, and the node itself 1 + eps times.
        own = np.full_like(context.like, 1 + eps, shape=plain.rows)
        return replace(plain, diagonal=own)
    if kind == "sage" and aggregate == "mean":
        total = _row_sums(context)
        return replace(plain, left=context.put(_inverse(total).astype(context.like.dtype)))
    return plain


def split_by_owner(context: Context, block: ScaledCSR) -> tuple[ScaledCSR, ScaledCSR] | None:
    """Return the block's edges to owned nodes, and those to ghosts; None if that gains nothing.

    The columns of the second count from the first ghost: it gathers over ghosts' rows alone. Sums
    over owned nodes can be computed while ghosts travel, in every row. That costs another pass over
    the rows with ghosts, so it is not done if most edges are in rows without.
    """
    local = context.local
    edges = len(local.indices)
    if local.columns == local.owned or int(local.indptr[local.interior]) > edges // 2:
        return None
    if context.by_owner is None:
        context.by_owner = _edges_by_owner(context)
    owned_edges, ghost_edges = context.by_owner
    right = None if block.right is None else block.right[local.owned :]
    left, diagonal = block.left, block.diagonal
    owned_edges = replace(owned_edges, left=left, right=block.right, diagonal=diagonal)
    return owned_edges, replace(ghost_edges, left=left, right=right)


def _edges_by_owner(context: Context) -> tuple[ScaledCSR, ScaledCSR]:
    local = context.local
    indptr, columns = np.asarray(local.indptr), np.asarray(local.indices)
    ghost_edges = columns >= local.owned
    before = np.zeros(local.owned + 1, np.int64)  # edges to ghosts, before each row
    for first in range(0, local.owned, _ROWS):
        last = min(first + _ROWS, local.owned)
        low, high = int(indptr[first]), int(indptr[last])
        running = offsets_of(ghost_edges[low:high])
        before[first : last + 1] = before[first] + running[indptr[first : last + 1] - low]
    pieces = []
    ghosts = local.columns - local.owned
    for chosen, starts, skipped, width in (
        (~ghost_edges, indptr - before, 0, local.columns),
        (ghost_edges, before, local.owned, ghosts),
    ):
        weights = None
        if local.weights is not None:
            weights = context.put(local.weights[chosen].astype(context.like.dtype))
        indices = context.put(columns[chosen] - columns.dtype.type(skipped))
        pieces.append(ScaledCSR(context.put(starts), indices, width, weights))
    return pieces[0], pieces[1]


def _normalised(context: Context, plain: ScaledCSR) -> ScaledCSR:
    """Return the block of D**-1/2 (A + I) D**-1/2; a node with a loop gets no other.

    Without weights a node counts once for itself, with any number of loops.
    """
    local = context.local
    loops = _loops(context)
    own = 1.0 - loops if local.weights is None else np.where(loops > 0, 0.0, 1.0)
    degree = _row_sums(context) + own
    factor = np.zeros(local.columns)
    factor[: local.owned] = np.sqrt(_inverse(degree))
    # A ghost's factor depends on all its edges, which only its owner has.
    column = context.put(factor.astype(context.like.dtype)[:, None])
    context.halo.start(column)
    context.halo.wait()
    column = column.reshape(-1)
    diagonal = context.put(own.astype(context.like.dtype))
    return replace(plain, left=column[: local.owned].copy(), right=column, diagonal=diagonal)


def _row_sums(context: Context) -> AnyArray:
    local = context.local
    if local.whole_rows is not None:
        return local.whole_rows[0]
    return row_sums(local.indptr, local.weights)


def row_sums(indptr: Array, weights: Array | None) -> Array:
    """Return the sum of each row's weights, without weights its number of edges: (rows,)."""
    sums = np.diff(indptr).astype(np.float64)
    filled = np.flatnonzero(sums)
    if weights is not None and len(filled):
        starts = np.asarray(indptr)[filled]
        sums[filled] = np.add.reduceat(np.asarray(weights, np.float64), starts)
    return sums


def _loops(context: Context) -> AnyArray:
    local = context.local
    if local.whole_rows is not None:
        return local.whole_rows[1]
    found = np.zeros(local.owned, np.int64)
    for first in range(0, local.owned, _ROWS):
        last = min(first + _ROWS, local.owned)
        degree = np.diff(local.indptr[first : last + 1])
        row = np.repeat(np.arange(first, last), degree)
        at = local.indices[int(local.indptr[first]) : int(local.indptr[last])]
        found[first:last] = np.bincount(row[at == row] - first, minlength=last - first)
    return found


def _inverse(values: AnyArray) -> AnyArray:
    positive = values > 0
    return np.where(positive, 1 / np.where(positive, values, 1), 0)
