"""Walks on a GPU whose every step reads the whole row: weights may be computed on the fly.

The GPU's memory holds only rows, paths and one counter. How walk/reservoir.cu divides the work
depends only on the lengths and starts of rows, never on concurrent work.
"""

from __future__ import annotations

from typing import Any

import cupy as cp

from penstock.arrays import AnyArray, DeviceArray
from penstock.kernels.cuda.module import c_name, launch_blocks, processors
from penstock.kernels.expression import Expression
from penstock.kernels.streams import Stream
from penstock.kernels.walk_rules import WalkGraph, WalkRules

LANES, DPRS, ZPRS = "lanes", "dprs", "zprs"
_METHODS = (LANES, DPRS, ZPRS)

TINY_TO = 32  # eight lanes take a row of up to this many edges
LONG_FROM = 16384  # a block takes a row of at least this many edges; a warp those between

# of walk/reservoir.cu
_THREADS = 256
_POOL = 256
_RESIDENT_BLOCKS = 4
_PLAIN, _RELATED, _GENERAL = 0, 1, 2
_CYCLIC, _TIMED, _JUDGED, _FACTORS, _SYMMETRIC, _ASKS_NEAR = 1, 2, 4, 8, 16, 32
_VECTOR = 16  # bytes of a load; the alignment of weights and relations


def walk_reservoir(
    rows: WalkGraph,
    rules: WalkRules,
    walks: Any,
    starts: Any,
    *,
    method: str = LANES,
    tiny_to: int = TINY_TO,
    long_from: int = LONG_FROM,
    resident_blocks: int = _RESIDENT_BLOCKS,
    pool: int = _POOL,
) -> Any:
    """Return the nodes of each walk: (walks, length), like ``indices``, -1 beyond its end.

    method  "lanes", or the paper's "dprs" or "zprs", for comparison
    tiny_to, long_from, resident_blocks, pool  how work is divided, for experiments; the first two
            change which walks result, not their chances
    """
    paths = cp.full((len(walks), rules.length), -1, rows.indices.dtype)
    if not len(walks):
        return paths
    kind = _kind(rows, rules, method)
    blocks = min(processors() * resident_blocks, len(walks))
    counter = cp.zeros(1, cp.uint64)
    launch_blocks(
        "walk/reservoir",
        f"walk_reservoir<{c_name(paths)}, {kind}, {_METHODS.index(method)}>",
        blocks,
        _THREADS,
        *_graph(rows, rules, method),
        *_rules(rules),
        cp.ascontiguousarray(walks, cp.int64),
        cp.ascontiguousarray(starts, paths.dtype),
        cp.int64(len(walks)),
        cp.int32(rules.length),
        cp.int32(min(pool, _POOL, -(-len(walks) // blocks))),
        cp.int32(tiny_to),
        cp.int32(long_from),
        counter,
        paths,
        prologue=_prologue(rules, resident_blocks),
    )
    return paths


def _kind(rows: WalkGraph, rules: WalkRules, method: str) -> int:
    factors = rules.second_order and method != LANES
    if rows.times is not None or rules.expression is not None or factors:
        return _GENERAL
    return _RELATED if rules.schema else _PLAIN


def _graph(rows: WalkGraph, rules: WalkRules, method: str) -> list[Any]:
    names = () if rules.expression is None else Expression.parse(rules.expression).names
    second_order = rules.second_order and rules.expression is None
    flags = (
        _CYCLIC * rules.cyclic
        + _TIMED * rules.timed
        + _JUDGED * (second_order and method == LANES)
        + _FACTORS * (second_order and method != LANES)
        + _SYMMETRIC * rules.symmetric
        + _ASKS_NEAR * ("is_neighbor" in names)
    )
    near_indptr, near_indices = rows.adjacency
    return [
        _array(rows.indptr, cp.int64),
        _array(rows.indices, rows.indices.dtype),
        _array(rows.weights, cp.float32),
        _array(rows.relations, cp.int32),
        _array(rows.times, cp.int64),
        _array(near_indptr, cp.int64),
        _array(near_indices, rows.indices.dtype),
        _array(rows.degrees, cp.int32),
        _array(rows.labels, cp.int32),
        cp.int64(len(rows.indices)),
        cp.int64(rules.earliest),
        cp.int64(rules.latest),
        cp.float64(rules.return_factor),
        cp.float64(rules.far_factor),
        cp.int32(flags),
        _array(rules.schema, cp.int32) if rules.schema else None,
        cp.int32(len(rules.schema)),
    ]


def _rules(rules: WalkRules) -> list[Any]:
    return [
        cp.uint64(rules.seed & (2**64 - 1)),
        cp.uint32(Stream.WALK_STEP),
        cp.uint32(Stream.WALK_STOP),
        cp.int64(rules.stop_below),
        cp.int64(rules.restart_below),
    ]


def _array(array: AnyArray | tuple[int, ...] | None, dtype: Any) -> Any:
    if array is None:
        return None
    found: DeviceArray = cp.ascontiguousarray(cp.asarray(array, dtype))
    return found.copy() if found.data.ptr % _VECTOR else found


def _prologue(rules: WalkRules, resident_blocks: int) -> str:
    lines = []
    if resident_blocks != _RESIDENT_BLOCKS:
        lines += [f"#define RESIDENT_BLOCKS {resident_blocks}"]
    if rules.expression is not None:
        function = Expression.parse(rules.expression).c_source(
            "expression_weight", "__device__ __forceinline__"
        )
        lines += ["#define PENSTOCK_EXPRESSION 1", function]
    return "".join(f"{line}\n" for line in lines)
