"""Launch arguments of the kernels of walk/walk.cu and walk/walkers.cu."""

from __future__ import annotations

from typing import Any

import cupy as cp

from penstock.kernels.cuda.module import processors
from penstock.kernels.cuda.walk.tables import deciding
from penstock.kernels.streams import Stream
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules

_THREADS = 256  # of a block


def resident_walks(rows: WalkGraph, rules: WalkRules) -> int:
    """Return how many walks run at once on the current GPU."""
    return processors() * _blocks(rows, rules) * _THREADS


def _blocks(rows: WalkGraph, rules: WalkRules) -> int:
    if not is_plain(rows, rules):
        return 4
    return (5 if deciding(rows, rules) == Sampler.REJECTION else 6) - rules.second_order


def step_arguments(rows: WalkGraph, rules: WalkRules) -> tuple[Any, ...]:
    """Return the first arguments of a kernel that makes steps, for packed rows."""
    packed = rows.packed
    schema = cp.asarray(rules.schema, cp.int32) if rules.schema else None
    return (
        packed.rows,
        packed.adjacent,
        rows.adjacency[1],
        rows.indices,
        packed.edges,
        rows.weights,
        rows.prefix,
        rows.times,
        cp.int32(rows.groups),
        cp.uint64(rules.seed & (2**64 - 1)),
        cp.uint32(Stream.WALK_STEP),
        cp.uint32(Stream.WALK_STOP),
        cp.uint64(rules.stop_below),
        cp.uint64(rules.restart_below),
        cp.float64(rules.return_factor),
        cp.float64(rules.far_factor),
        cp.float64(rules.largest_factor),
        cp.int32(rules.symmetric),
        schema,
        cp.int32(len(rules.schema)),
        cp.int32(rules.cyclic),
        cp.int32(rules.timed),
        cp.int64(rules.earliest),
        cp.int64(rules.latest),
    )


def is_plain(rows: WalkGraph, rules: WalkRules) -> bool:
    """Return whether a step needs only the row of the node."""
    general = rules.stop_below or rules.restart_below or rules.schema or rows.times is not None
    general = general or rows.groups > 1 or (rules.second_order and rows.neighbours is not None)
    compiled = rows.indices.dtype == cp.int32 and deciding(rows, rules) != Sampler.ITS
    return compiled and not general
