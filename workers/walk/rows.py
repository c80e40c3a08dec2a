"""The rows that walks read: a graph's columns, prepared for the rules of a walk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.kernels import kernel
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules


@dataclass(frozen=True)
class WalkGraphSpec:
    """What to make of a graph's columns; numbers only, so that it travels with a task.

    wanted    relations, each with its own row per node; None: one row per node
    weighted, relations, times, labels, degrees   which columns the walk reads
    """

    rules: WalkRules
    wanted: tuple[int, ...] | None = None
    weighted: bool = False
    relations: bool = False
    times: bool = False
    labels: bool = False
    degrees: bool = False

    def build(
        self, columns: dict[str, AnyArray], put: Callable[[AnyArray], AnyArray] = np.asarray
    ) -> WalkGraph:
        """Return rows of ``columns`` (indptr, indices, weights, ...; labels, degrees of all nodes).

        ``put`` copies an array to the walks' device.
        """
        rows = WalkGraph(
            put(columns["indptr"]),
            put(columns["indices"]),
            weights=put(single(columns["weights"])) if self.weighted else None,
            relations=put(columns["relations"]) if self.relations else None,
            times=put(time_keys(columns["times"])) if self.times else None,
            labels=put(columns["labels"]) if self.labels else None,
            degrees=put(columns["degrees"]) if self.degrees else None,
        )
        module = kernel("walk", rows.indptr)
        if self.wanted is not None:
            rows = module.rows_by_relation(rows, put(np.array(self.wanted, np.int32)))
        if self.times and self.rules.sampler != Sampler.RESERVOIR:
            rows = module.rows_by_time(rows)
        made: WalkGraph = module.tables(rows, self.rules)
        return made

    def bytes(self, nodes: int, edges: int, id_bytes: int) -> int:
        """Return the approximate memory of the rows, on a device or host."""
        rules, groups = self.rules, len(self.wanted or (0,))
        edge = id_bytes + 4 * self.weighted + 4 * self.relations + 8 * self.times
        if self.wanted is not None or (self.times and rules.sampler != Sampler.RESERVOIR):
            edge *= 2  # the original rows, and those sorted for this walk
        edge += {Sampler.ITS: 8, Sampler.ALIAS: 24, Sampler.REJECTION: 8}.get(rules.sampler, 0)
        row = 28 * groups + 4 * self.labels + 4 * self.degrees
        return nodes * row + edges * edge


def single(weights: AnyArray) -> Array:
    """Return weights in single precision, which walks compare."""
    with np.errstate(over="ignore"):  # overflow becomes infinite, and is recognised
        return np.asarray(weights).astype(np.float32, copy=False)


def time_keys(times: AnyArray) -> Array:
    """Return int64 numbers in the order of ``times``, int64 or float64."""
    times = np.asarray(times)
    if times.dtype.kind == "i":
        return times.astype(np.int64, copy=False)
    bits = (times.astype(np.float64) + 0.0).view(np.int64)  # -0.0 is 0.0
    return bits ^ (bits >> 63 & np.int64(2**63 - 1))
