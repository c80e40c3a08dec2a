"""Edges sorted into buckets by the partitions of their ends, shuffled there, and mixed again.

Bucket i * n + j has the edges from partition i to partition j, each as the rows of its ends in
their partitions. ``starts`` (n + 1,) has the starts of partitions in the order of nodes,
``positions`` the position of each node; None: at its own number.

A bucket is shuffled by Rao and Sandelius' method: each edge goes to one of its ``groups`` at
random, by its number in the graph (``first_edge`` is that of the first given edge), and each group
is shuffled alone. So threads share a bucket, and a group fits into a core's cache.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.kernels.bucket_rules import (
    BLOCK,
    GROUP,
    IN_BUCKET,
    MIX,
    MULTIPLIERS,
    ROUNDS,
    Columns,
    Runs,
    half_bits,
)
from penstock.kernels.naive.philox import philox4x32, random_words_of
from penstock.kernels.streams import Stream


def count_edges(
    rows: CSR,
    starts: Array,
    positions: Array | None,
    groups: int = 1,
    seed: int = 0,
    first_edge: int = 0,
) -> Array:
    """Return how many edges of these rows are in each group of each bucket: (n * n * groups,)."""
    head, tail, _, _ = _located(rows, starts, positions)
    n = len(starts) - 1
    group = (head * n + tail) * groups + _groups(rows.edges, groups, seed, first_edge)
    return np.bincount(group, minlength=n * n * groups).astype(np.int64)


def scatter_edges(
    rows: CSR,
    starts: Array,
    positions: Array | None,
    at: Array,
    out: Columns,
    groups: int = 1,
    seed: int = 0,
    first_edge: int = 0,
) -> None:
    """Write the edges of these rows to their groups, from ``at`` (n * n * groups,) on, in order."""
    head, tail, *ends = _located(rows, starts, positions)
    n, at = len(starts) - 1, at.copy()
    drawn = _groups(rows.edges, groups, seed, first_edge)
    columns = *ends, rows.relations, rows.weights
    for e in range(rows.edges):
        group = (head[e] * n + tail[e]) * groups + drawn[e]
        for column, into in zip(columns, out, strict=True):
            if column is not None and into is not None:
                into[at[group]] = column[e]
        at[group] += 1


def shuffle_edges(edges: Columns, seed: int, first: int) -> None:
    """Shuffle edges in place (Fisher and Yates); ``first`` is the number of the first edge."""
    for i in range(len(edges[0]) - 1, 0, -1):
        words = random_words_of(seed, Stream.EMBED_SHUFFLE, np.array([first + i]), IN_BUCKET)[0]
        draw = int(words[0]) << 32 | int(words[1])
        j = draw * (i + 1) >> 64
        for array in edges:
            if array is not None:
                array[i], array[j] = array[j], array[i]


def shuffled_edges(
    indptr: Array, indices: Array, relations: Array | None, groups: int, seed: int
) -> tuple[Array, Array, Array | None]:
    """Return heads, tails and relations of all edges, as one bucket that is made and shuffled."""
    rows, starts = CSR(indptr, indices, relations=relations), np.array([0, len(indptr) - 1])
    counts = count_edges(rows, starts, None, groups, seed)
    at = np.cumsum(counts) - counts
    heads, tails = np.empty_like(indices), np.empty_like(indices)
    found = None if relations is None else np.empty_like(relations)
    scatter_edges(rows, starts, None, at, (heads, tails, found, None), groups, seed)
    for first, count in zip(at.tolist(), counts.tolist(), strict=True):
        some = slice(first, first + count)
        kept = None if found is None else found[some]
        shuffle_edges((heads[some], tails[some], kept, None), seed, first)
    return heads, tails, found


def mix_keys(seed: int, which: int) -> Array:
    """Return the keys of permutation ``which``: (6,) uint64."""
    count = ROUNDS // 2
    words = np.stack(
        philox4x32(seed, Stream.EMBED_SHUFFLE, count * which + np.arange(count), MIX), axis=1
    ).astype(np.uint64)
    keys: Array = (words[:, 0::2] | words[:, 1::2] << np.uint64(32)).ravel()
    return keys


def permuted(index: int, count: int, keys: Array) -> int:
    """Return the image of ``index`` in the permutation of ``0 .. count - 1`` with these keys.

    A Feistel network over two halves with the fewest bits that hold ``count``, repeated until the
    number is below ``count``: any place can be computed without the others.
    """
    half = half_bits(count)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for key in keys:
            x = (right ^ int(key)) * MULTIPLIERS[0] % 2**64
            x = (x ^ x >> 32) * MULTIPLIERS[1] % 2**64
            left, right = right, left ^ (x >> 32 & mask)
        index = left << half | right
        if index < count:
            return index


def mix_edges(edges: Columns, runs: Runs, count: int, start: int, out: Columns) -> None:
    """Fill ``out`` with positions ``start`` and on of the ``count`` mixed edges of several runs.

    Run k is ``begins[k] .. begins[k] + offsets[k + 1] - offsets[k]`` of the edges. Rows of its
    heads are raised by ``head_rows[k]``, those of its tails by ``tail_rows[k]``. Blocks of edges,
    samples of their bucket, are permuted; the remainder below a block stays at the end.
    """
    blocks, offsets = count // BLOCK, runs.offsets
    for n in range(len(out[0])):
        block, inside = divmod(start + n, BLOCK)
        if block < blocks:
            block = permuted(block, blocks, runs.keys)
        index = block * BLOCK + inside
        run = int(np.searchsorted(offsets, index, side="right")) - 1
        edge = runs.begins[run] + index - offsets[run]
        raised = runs.head_rows[run], runs.tail_rows[run], 0, 0
        for column, into, more in zip(edges, out, raised, strict=True):
            if column is not None and into is not None:
                into[n] = column[edge] + more


def _groups(edges: int, groups: int, seed: int, first_edge: int) -> Array:
    numbers = first_edge + np.arange(edges, dtype=np.int64)
    words = random_words_of(seed, Stream.EMBED_SHUFFLE, numbers >> 2, GROUP)
    word = words[np.arange(edges), numbers & 3].astype(np.uint64)
    drawn: Array = (word * np.uint64(groups) >> np.uint64(32)).astype(np.int64)
    return drawn


def _located(
    rows: CSR, starts: Array, positions: Array | None
) -> tuple[Array, Array, Array, Array]:
    found = []
    for nodes in (rows.sources(), rows.indices):
        place = (nodes if positions is None else positions[nodes]).astype(np.int64)
        part = np.searchsorted(starts, place, side="right") - 1
        found.append((part, place - starts[part]))
    return found[0][0], found[1][0], found[0][1], found[1][1]
