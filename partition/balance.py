"""How evenly parts share nodes and load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Array


@dataclass(frozen=True)
class Balance:
    """The fullest part over the mean: 1.0 is even, k is everything in one of k parts.

    nodes          of the counts of nodes
    load           of the sums of out-degrees
    heaviest_part  the load of the fullest part
    heaviest_node  no part can be lighter than its heaviest node
    mean_load      of a part
    """

    nodes: float
    load: float
    heaviest_part: int
    heaviest_node: int
    mean_load: float

    @staticmethod
    def of(parts: Array, loads: Array, k: int) -> Balance:
        """Measure an assignment: ``parts`` and ``loads`` are (nodes,)."""
        sums, counts = part_loads(parts, loads, k), np.bincount(parts, minlength=k)
        mean = int(sums.sum()) / k
        return Balance(
            nodes=float(counts.max() * k / max(len(parts), 1)),
            load=float(sums.max() / mean) if mean else 1.0,
            heaviest_part=int(sums.max()),
            heaviest_node=int(loads.max(initial=0)),
            mean_load=mean,
        )

    @property
    def reachable(self) -> float:
        """The lowest load imbalance that the heaviest node allows."""
        return max(1.0, self.heaviest_node / self.mean_load) if self.mean_load else 1.0

    def within(self, tolerance: float) -> bool:
        """Return whether the load is within ``tolerance``, or as even as one heavy node allows."""
        return self.load <= max(tolerance, self.reachable)


def part_loads(parts: Array, loads: Array, k: int) -> Array:
    """Return the load of each part: (k,) int64."""
    # bincount sums in float64, which is exact up to 2**53.
    return np.bincount(parts, weights=loads, minlength=k).astype(np.int64)


def even_out(parts: Array, free: Array, k: int) -> None:
    """Assign nodes that cost nothing, ids ``free``, to the parts with the fewest other nodes."""
    counts = np.bincount(parts, minlength=k) - np.bincount(parts[free], minlength=k)
    # The water level: the lowest count to which all free nodes can lift the parts below it.
    heights = np.sort(counts)
    spare = np.arange(1, k + 1) * heights - np.cumsum(heights)
    lifted = int(np.searchsorted(spare, len(free), side="right"))
    level, rest = divmod(len(free) + int(heights[:lifted].sum()), lifted)
    gets = np.maximum(level - counts, 0)
    gets[np.flatnonzero(counts <= level)[:rest]] += 1
    parts[free] = np.repeat(np.arange(k, dtype=parts.dtype), gets)


def fill_empty(parts: Array, loads: Array, k: int) -> int:
    """Give each empty part the lightest node of the part with most nodes; return how many."""
    counts = np.bincount(parts, minlength=k)
    empty = np.flatnonzero(counts == 0)
    for part in empty:
        members = np.flatnonzero(parts == np.argmax(counts))
        node = members[np.argmin(loads[members])]
        counts[parts[node]] -= 1
        counts[part] += 1
        parts[node] = part
    return len(empty)
