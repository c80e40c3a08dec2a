"""Edges of several buckets, mixed on the GPU; names and meaning are naive/buckets.py's.

Hosts make buckets: this module has no count or scatter, but makes a single bucket of all edges.
"""

from __future__ import annotations

from typing import Any

import cupy as cp

from penstock.kernels.bucket_rules import BLOCK, Columns, Runs, half_bits
from penstock.kernels.cuda.module import c_name, launch, launch_blocks
from penstock.kernels.streams import Stream

_FILE = "buckets"


def shuffled_edges(
    indptr: Any, indices: Any, relations: Any | None, groups: int, seed: int
) -> tuple[Any, Any, Any | None]:
    """Return heads, tails and relations of all edges, scattered to groups and shuffled.

    indptr, indices, relations  of all rows
    """
    count, row = len(indices), c_name(indices)
    words = cp.uint64(seed), cp.uint32(Stream.EMBED_SHUFFLE)
    group = cp.empty(count, cp.uint16)
    launch(_FILE, "draw_groups", -(-count // 4), cp.int64(count), cp.int32(groups), *words, group)
    order = cp.argsort(group, kind="stable")
    out = [cp.empty_like(indices), cp.empty_like(indices)]
    out.append(None if relations is None else cp.empty_like(relations))
    edges = indptr, cp.int64(len(indptr) - 1), indices, relations, order, cp.int64(count)
    launch(_FILE, f"gather_edges<{row}>", count, *edges, *out)
    given = group, order, cp.int64(count), *words, *out
    launch_blocks(_FILE, f"shuffle_groups<{row}>", groups, 32, *given)
    return out[0], out[1], out[2]


def mix_edges(edges: Columns, runs: Runs, count: int, start: int, out: Columns) -> None:
    """Fill ``out`` with positions ``start`` and on of the ``count`` mixed edges of several runs."""
    blocks = count // BLOCK
    launch(
        _FILE,
        f"mix_edges<{c_name(edges[0])}, {c_name(out[0])}>",
        len(out[0]),
        *(*edges, runs.begins, runs.offsets, cp.int32(len(runs.begins))),
        *(runs.head_rows, runs.tail_rows, runs.keys, cp.int32(half_bits(blocks))),
        *(cp.int64(blocks), cp.int64(start), cp.int64(len(out[0])), *out),
    )
