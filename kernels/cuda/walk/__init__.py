"""Random walks on the GPU: names and meaning are naive/walk.py's.

One thread makes one walk (walk/walk.cu), except for RESERVOIR, which reads whole rows
(walk/reservoir.py). Walkers that move between parts are walk/walkers.cu's.
"""

from __future__ import annotations

import cupy as cp

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import c_name, launch
from penstock.kernels.cuda.walk.arguments import is_plain, resident_walks, step_arguments
from penstock.kernels.cuda.walk.tables import (
    alias_table,
    check_weights,
    deciding,
    pack,
    prefix_sums,
    rows_by_relation,
    rows_by_time,
    tables,
)
from penstock.kernels.cuda.walk.walkers import advance
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules

__all__ = [
    "advance",
    "alias_table",
    "check_weights",
    "prefix_sums",
    "rows_by_relation",
    "rows_by_time",
    "tables",
    "walk",
]

_MOST_WALKS = 1 << 30  # of one launch


def walk(rows: WalkGraph, rules: WalkRules, walks: DeviceArray, starts: DeviceArray) -> DeviceArray:
    """Return the nodes of each walk: (walks, length), like ``indices``, -1 beyond its end."""
    if rules.sampler == Sampler.RESERVOIR:
        from penstock.kernels.cuda.walk.reservoir import walk_reservoir

        return walk_reservoir(rows, rules, walks, starts)
    rows = pack(rows, rules)
    walks = cp.ascontiguousarray(cp.asarray(walks, cp.int64))
    starts = cp.ascontiguousarray(cp.asarray(starts, rows.indices.dtype))
    paths = cp.full((len(walks), rules.length), -1, rows.indices.dtype)
    form = "plain" if is_plain(rows, rules) else "general"
    second_order = str(rules.second_order).lower()
    instance = f"walk_{form}<{c_name(rows.indices)}, {int(deciding(rows, rules))}, {second_order}>"
    arguments = step_arguments(rows, rules)
    for first in range(0, len(walks), _MOST_WALKS):
        some = slice(first, first + _MOST_WALKS)
        count = len(walks[some])
        launch(
            "walk/walk",
            instance,
            min(count, resident_walks(rows, rules)),
            *arguments,
            cp.int32(rules.length),
            cp.uint32(count),
            walks[some],
            starts[some],
            cp.zeros(1, cp.uint64),
            paths[some],
        )
    return paths
