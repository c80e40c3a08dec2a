"""Whether training hides the swaps: Legend's theorem 3, for this graph and this machine.

While a partition is exchanged for another, b buckets are trained at least. Of n partitions each has
P bytes, and each of n * n buckets E / n ** 2 edges. With t seconds an edge and x seconds to write
one byte and to read another, a swap hides where

    x * P  <=  b * t * E / n ** 2

A table of S bytes has P = S / n, so that n may be b * t * E / (x * S) at most; and three partitions
in M bytes of memory need n >= 3 * S / M. The paper's theorem is that the one bound is not above the
other.

In the paper b is 2: a bucket is trained where its partitions meet first. Training here divides
each bucket among all states that hold it, so that edges are mixed with more others, and b is what
its schedule has (``BucketSchedule.hiding``): about 1, and not less with every further partition.

The paper has S = 8 * V * d (values and Adagrad's state, both float32), and 2 * P / (w + r) seconds
for an exchange, where 2 * P are the bytes of one partition: E / V ** 2 >= 96 * d ** 2 /
(M * t * (w + r)). Written and read together at w and r, an exchange takes at least twice that,
since 2 * P go each way. Here x is what was measured of exchanges, and 1 / w + 1 / r where that is
not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, partial

from penstock.errors import UsageError
from penstock.partition.order import order
from penstock.sizes import format_bytes
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule
from penstock.workers.embed.storage import Geometry

# Partitions that are looked at, at most, for fewer that would hide: on one rank, and of each of
# several, whose schedules take longer to make.
_TRIED, _TRIED_OF_RANK = 64, 16


@dataclass(frozen=True)
class Machine:
    """What was measured.

    seconds_per_edge  of training
    read, write       bytes a second of the disk
    exchange          bytes a second, read and written counted, while both are in flight together
    """

    seconds_per_edge: float
    read: float
    write: float
    exchange: float | None = None

    @property
    def seconds_per_byte(self) -> float:
        """Seconds to write one byte of a partition and to read one of another."""
        if self.exchange is not None:
            return 2 / self.exchange
        return 1 / self.read + 1 / self.write


@dataclass(frozen=True)
class Condition:
    """Theorem 3 for one graph, table, order and machine.

    nodes, edges  of the graph
    geometry      of the table
    slots         partitions that the buffer of a rank holds
    machine       what was measured
    buckets       that are trained while a partition is exchanged, at the least
    order         in which partitions meet
    ranks         that train together
    """

    nodes: int
    edges: int
    geometry: Geometry
    slots: int
    machine: Machine
    buckets: float
    order: str = "prefetch"
    ranks: int = 1

    @property
    def ratio(self) -> float:
        """How long a swap takes, of the time in which it can hide: 1 at most where it does."""
        partitions, machine = self.geometry.partitions, self.machine
        if partitions <= self.slots * self.ranks:
            return 0.0  # they all fit
        swap = machine.seconds_per_byte * self.geometry.partition_bytes
        trained = self.buckets * machine.seconds_per_edge * self.edges / partitions**2
        return swap / trained if trained else math.inf

    @property
    def holds(self) -> bool:
        """Whether every swap can hide behind training."""
        return self.ratio <= 1

    def fewer(self) -> Condition | None:
        """Return the condition with the most partitions, fewer than now, whose swaps hide."""
        step, most = 1, _TRIED
        if self.ranks > 1:
            step, most = 2 * self.ranks, _TRIED_OF_RANK * self.ranks
        most = min(self.geometry.partitions - 1, most)
        for partitions in range(most // step * step, self.slots * self.ranks, -step):
            found = self._with(partitions, self.geometry.width)
            if found is not None and found.holds:
                return found
        return None

    @property
    def largest_dim(self) -> int:
        """The largest dimension, even and at most today's, with which it holds; 0 if none does.

        Not with every smaller one: rows of some fill whole pages only many at a time.
        """
        partitions, width = self.geometry.partitions, self.geometry.width
        for dim in range(width - width % 2, 0, -2):
            found = self._with(partitions, dim)
            if found is not None and found.holds:
                return dim
        return 0

    def describe(self) -> str:
        """Return one or two sentences for people."""
        partitions = self.geometry.partitions
        if partitions <= self.slots * self.ranks:
            return "theorem 3: the table fits into the buffer, nothing is swapped"
        if not self.buckets:
            return (
                f"theorem 3 does not hold: nothing is trained during a swap with --order "
                f"{self.order}. Take --order prefetch"
            )
        long = f"a swap takes up to {self.ratio:,.3g} times as long as what is trained meanwhile"
        if self.holds:
            return f"theorem 3 holds: {long}"
        found, remedies = self.fewer(), []
        if found is not None:
            holds = found.geometry.slot_bytes(self.slots)
            remedies.append(
                f"--partitions {found.geometry.partitions}, of which {self.slots} in memory are "
                f"{format_bytes(holds)}"
            )
        if dim := self.largest_dim:
            remedies.append(f"--dim {dim}")
        # It does not where batches become longer, or where its values are what takes the time.
        would = f". It would with {', or with '.join(remedies)}" if remedies else ""
        would += ", if an edge then takes as long as now" if remedies else ""
        return f"theorem 3 does not hold: {long}{would}"

    def _with(self, partitions: int, dim: int) -> Condition | None:
        """Return the condition of another table of the same nodes; None: the order has none."""
        before, rows = self.geometry, -(-self.nodes // partitions)
        table = Geometry.of(partitions, rows, dim, before.states, before.places, before.files)
        buckets = self.buckets
        if partitions != before.partitions:
            try:
                buckets = _hiding(self.order, partitions, self.slots, self.ranks)
            except UsageError:
                return None
        return replace(self, geometry=table, buckets=buckets)


@cache
def _hiding(name: str, partitions: int, slots: int, ranks: int) -> float:
    """Return the buckets that a schedule trains during a swap, at the least."""
    if ranks == 1:
        return BucketSchedule(order(name, partitions, slots), spread=True).hiding
    from penstock.workers.embed.ranks.rounds import RankSchedule

    # Ranks have like ones.
    made = partial(order, name, capacity=slots)
    schedules = (RankSchedule(ranks, rank, partitions, made) for rank in (0, 1))
    return min(schedule.hiding for schedule in schedules)
