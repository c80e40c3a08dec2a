"""Arguments of the kernels of walks: rows and rules as two named tuples, of arrays and of numbers.

They always have the same types (except the width of ids), so that each kernel is compiled once:
arrays are read-only views, and missing ones are empty. A kernel first turns the arrays into
pointers (``pointers``): Numba counts references whenever an array is passed on, which is too slow
for a step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Array, frozen_view
from penstock.kernels.expression import Expression
from penstock.kernels.walk_rules import WalkGraph, WalkRules


class Arrays(NamedTuple):
    """A walk graph for a kernel; empty arrays for None."""

    indptr: Array
    indices: Array
    weights: Array
    relations: Array
    times: Array
    near_indptr: Array
    near_indices: Array
    bounds: Array
    prefix: Array
    chance: Array
    other: Array
    degrees: Array
    labels: Array
    schema: Array


class Numbers(NamedTuple):
    """WalkRules for a kernel, with flags of the existing arrays."""

    seed: Any
    length: int
    sampler: int
    groups: int
    weighted: bool
    dated: bool
    timed: bool
    earliest: int
    latest: int
    schema: int
    cyclic: bool
    second_order: bool
    symmetric: bool
    sorted: bool
    related: bool
    has_degrees: bool
    has_labels: bool
    looks_near: bool
    return_factor: float
    far_factor: float
    largest_factor: float
    stop_below: int
    restart_below: int


def arrays_of(rows: WalkGraph, rules: WalkRules) -> Arrays:
    """Return the arrays of rows and rules for kernels."""
    near_indptr, near_indices = rows.adjacency
    return Arrays(
        indptr=frozen(rows.indptr, np.int64),
        indices=frozen(rows.indices, None),
        weights=frozen(rows.weights, np.float32),
        relations=frozen(rows.relations, np.int32),
        times=frozen(rows.times, np.int64),
        near_indptr=frozen(near_indptr, np.int64),
        near_indices=frozen(near_indices, rows.indices.dtype),
        bounds=frozen(rows.bounds, np.float32),
        prefix=frozen(rows.prefix, np.float64),
        chance=frozen(rows.chance, np.float32),
        other=frozen(rows.other, np.int32),
        degrees=frozen(rows.degrees, np.int32),
        labels=frozen(rows.labels, np.int32),
        schema=frozen(np.array(rules.schema, np.int64), np.int64),
    )


def numbers_of(rows: WalkGraph, rules: WalkRules) -> Numbers:
    """Return the numbers of rules and rows for kernels."""
    names = Expression.parse(rules.expression).names if rules.expression else ()
    return Numbers(
        seed=np.uint64(rules.seed & (2**64 - 1)),
        length=int(rules.length),
        sampler=int(rules.sampler),
        groups=int(rows.groups),
        weighted=rows.weights is not None,
        dated=rows.times is not None,
        timed=bool(rules.timed),
        earliest=int(rules.earliest),
        latest=int(rules.latest),
        schema=len(rules.schema),
        cyclic=bool(rules.cyclic),
        second_order=bool(rules.second_order),
        symmetric=bool(rules.symmetric),
        sorted=rows.neighbours is None,
        related=rows.relations is not None,
        has_degrees=rows.degrees is not None,
        has_labels=rows.labels is not None,
        looks_near="is_neighbor" in names if rules.expression else rules.second_order,
        return_factor=float(rules.return_factor),
        far_factor=float(rules.far_factor),
        largest_factor=float(rules.largest_factor),
        stop_below=int(rules.stop_below),
        restart_below=int(rules.restart_below),
    )


def frozen(array: Any, dtype: Any) -> Array:
    """Return a read-only view; empty for None.

    Numba compiles again for writable and for read-only arrays, and mapped files are read-only.
    """
    return frozen_view(np.ascontiguousarray(np.empty(0, dtype) if array is None else array, dtype))
