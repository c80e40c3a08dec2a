"""Edges of several buckets, mixed on the GPU; names and meaning are naive/buckets.py's.

Buckets are made on hosts: this module has no count or scatter.
"""

from __future__ import annotations

from typing import Any

import cupy as cp

from penstock.kernels.bucket_rules import BLOCK, half_bits
from penstock.kernels.cuda.module import launch

_NAMES = {"int32": "int", "int64": "long long"}


def mix_edges(
    heads: Any,
    tails: Any,
    relations: Any | None,
    weights: Any | None,
    begins: Any,
    offsets: Any,
    head_rows: Any,
    tail_rows: Any,
    keys: Any,
    count: int,
    start: int,
    out: tuple[Any, Any, Any | None, Any | None],
) -> None:
    """Fill ``out`` with positions ``start`` and on of the ``count`` mixed edges of several runs."""
    blocks = count // BLOCK
    row, wide = (_NAMES[str(array.dtype)] for array in (heads, out[0]))
    launch(
        "buckets",
        f"mix_edges<{row}, {wide}>",
        len(out[0]),
        heads,
        tails,
        cp.uint64(0) if relations is None else relations,
        cp.uint64(0) if weights is None else weights,
        begins,
        offsets,
        cp.int32(len(begins)),
        head_rows,
        tail_rows,
        keys,
        cp.int32(half_bits(blocks)),
        cp.int64(blocks),
        cp.int64(start),
        cp.int64(len(out[0])),
        out[0],
        out[1],
        cp.uint64(0) if out[2] is None else out[2],
        cp.uint64(0) if out[3] is None else out[3],
    )
