"""Rows too wide for tiles: cuBLAS computes scores and sums of products, some edges at a time.

Rows of more than ``tiles.WIDEST`` values do not fit in shared memory, which product.cu needs. Each
of their scores costs many operations, and is cheap to write: it is stored in memory and replaced by
its slope, and both sums are products with these slopes: three products, where tiles, which compute
scores twice, need four. They are of TF32 values.

Distances of such rows are tiled in slices (distance.cu): only ``pack`` is for them.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.embed.tiles import NOTE, WEIGHTS, TiledBatch
from penstock.kernels.cuda.module import launch, launch_blocks
from penstock.kernels.cuda.product import product

_FILE, _PRODUCT_FILE = "embed/wide", "embed/product"
_THREADS, _MOST_BLOCKS = 256, 1 << 16
SCORES = 1 << 26  # in memory at a time: 256 MiB


def prepare() -> None:
    """Prepare products on the current stream, before its launches are captured."""
    one = cp.ones((1, 1), cp.float32)
    product(one, one, cp.empty_like(one), tf32=True)  # the first product on a stream does it


def pack(
    batch: TiledBatch,
    queries: DeviceArray,
    query_notes: DeviceArray,
    others: DeviceArray,
    negative_notes: DeviceArray | None = None,
) -> None:
    """Write queries and negatives one after another, rows of any width, with their notes."""
    tiles, negatives = batch.tiles, batch.negatives
    launch(
        _FILE,
        f"wide_queries<{tiles.rules.model.name}>",
        32 * tiles.edges,
        *(*batch.of_nodes, *batch.relations, *batch.of_edges, queries, query_notes),
    )
    launch(
        _FILE,
        "wide_negatives",
        32 * negatives.size,
        *(*batch.of_nodes, negatives, np.int64(negatives.size), others, negative_notes),
    )


def multiply(batch: TiledBatch, in_negatives: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Return sums of weighted negatives, and the weights of rows that edges.cu reads.

    in_negatives  out: gradients of negatives, (sides, chunks, count, dim)
    """
    tiles, negatives = batch.tiles, batch.negatives
    edges, sides, chunk, chunks = tiles.edges, tiles.sides, tiles.chunk, tiles.chunks
    count, dim = tiles.count, tiles.rules.dim
    queries = cp.empty((sides * edges, dim), cp.float32)
    notes = cp.empty((sides * edges, NOTE // 4), cp.float32)
    others = cp.empty((negatives.size, dim), cp.float32)
    pack(batch, queries, notes, others)
    vectors = cp.empty((sides * edges, dim), cp.float32)
    weights = cp.empty((sides * edges, WEIGHTS // 4), cp.float32)
    most = min(chunk, edges)
    at_once = max(1, min(most, SCORES // max(count, 1)))
    pieces = -(-most // at_once)  # of a chunk, the last may have fewer
    scores = cp.empty((at_once, count), cp.float32)
    sums = in_negatives
    if pieces > 1:
        sums = cp.empty((sides * chunks, pieces, count, dim), cp.float32)
    sums = sums.reshape(sides * chunks, pieces, count, dim)
    ids = negatives.reshape(tiles.negative_sides, chunks, count)
    rows = others.reshape(tiles.negative_sides, chunks, count, dim)
    for side in range(sides):
        of = side if tiles.negative_sides > 1 else 0
        for c in range(chunks):
            end = side * edges + min((c + 1) * chunk, edges)
            for piece in range(pieces):
                first = side * edges + c * chunk + piece * at_once
                part = slice(min(first, end), min(first + at_once, end))
                here = part.stop - part.start
                found = scores[:here]
                product(queries[part], rows[of, c].T, found, tf32=True)
                own: tuple[Any, Any] = None, None
                if batch.weights is not None:
                    own = batch.weights[part.start - side * edges :], batch.weights[edges:]
                if here and count:
                    launch_blocks(
                        _FILE,
                        f"weigh_scores<{tiles.rules.loss.name}>",
                        min(here, _MOST_BLOCKS),
                        _THREADS,
                        *(found, np.int64(here), np.int64(count), notes[part], ids[of, c]),
                        *(*tiles.loss_numbers(), *own, weights[part]),
                    )
                product(found, rows[of, c], vectors[part], tf32=True)
                product(found.T, queries[part], sums[side * chunks + c, piece], tf32=True)
    if pieces > 1:
        launch(
            _PRODUCT_FILE,
            "add_splits",
            in_negatives.size,
            *(sums, np.int64(sides * chunks), np.int32(pieces), np.int64(count * dim)),
            in_negatives,
        )
    return vectors, weights
