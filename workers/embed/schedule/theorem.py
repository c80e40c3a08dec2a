"""Whether training hides the swaps: Legend's theorem 3, for this graph and this machine.

While a partition is exchanged for another, b buckets are trained at least. Of n partitions of a
table of S bytes each has S / n, and each of n * n buckets E / n ** 2 edges. With t seconds an edge
and x seconds to write one byte and to read another, a swap hides where

    b * t * E / n ** 2  >=  x * S / n        that is        n  <=  b * t * E / (x * S)

Fewer partitions are better, and the buffer bounds how few there can be: three of them in M bytes
of memory need n >= 3 * S / M. The swaps hide where the one bound is not above the other.

In the paper b is 2: a bucket is trained where its partitions meet first. Training here divides
each bucket among all states that hold it, so that edges are mixed with more others, and b is what
its schedule has (``BucketSchedule.hiding``), which is about 1.

The paper has S = 8 * V * d (values and Adagrad's state, both float32), and 2 * P / (w + r) seconds
for an exchange, where 2 * P are the bytes of one partition: E / V ** 2 >= 96 * d ** 2 /
(M * t * (w + r)). Written and read together at w and r, an exchange takes at least twice that,
since 2 * P go each way. Here x is what was measured of exchanges, and 1 / w + 1 / r where that is
not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from penstock.workers.embed.storage import Geometry


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
    """Theorem 3 for one graph, dimension, buffer and machine.

    nodes, edges  of the graph
    row_bytes     of a node: its values and the optimizer's state of them
    dim           values of a node
    memory        bytes of the buffer
    slots         partitions in it
    machine       what was measured
    buckets       that are trained while a partition is exchanged, at the least
    """

    nodes: int
    edges: int
    row_bytes: int
    dim: int
    memory: int
    slots: int
    machine: Machine
    buckets: float = 2.0

    @staticmethod
    def of(
        geometry: Geometry,
        *,
        nodes: int,
        edges: int,
        memory: int,
        slots: int,
        machine: Machine,
        buckets: float = 2.0,
    ) -> Condition:
        """Return the condition for a table."""
        row_bytes = 4 * geometry.width * geometry.arrays
        return Condition(nodes, edges, row_bytes, geometry.width, memory, slots, machine, buckets)

    @property
    def fewest(self) -> int:
        """The smallest number of partitions of which the buffer holds its slots."""
        least = -(-self.slots * self.nodes * self.row_bytes // max(self.memory, 1))
        return 1 if self.nodes * self.row_bytes <= self.memory else max(least, self.slots + 1)

    @property
    def most(self) -> float:
        """The largest number of partitions with which swaps hide."""
        swap = self.machine.seconds_per_byte * self.nodes * self.row_bytes
        trained = self.buckets * self.machine.seconds_per_edge * self.edges
        return trained / swap if swap else math.inf

    @property
    def holds(self) -> bool:
        """Whether there is a number of partitions that fits and hides: ``fewest`` is one."""
        return self.fewest == 1 or self.fewest <= self.most

    def holds_for(self, partitions: int) -> bool:
        """Whether swaps hide with this many partitions; where all fit there is none."""
        return partitions <= self.slots or partitions <= self.most

    @property
    def largest_dim(self) -> int:
        """The largest dimension for which it holds, if an edge then takes as long as now.

        The table grows with it, and so does ``fewest`` while ``most`` falls: their ratio falls
        with its square. An edge takes longer too, so this is on the safe side.
        """
        per_dim = self.row_bytes // self.dim
        # Where everything fits, or fewest is not above most but for rounding; then step by step.
        fits = self.memory // (per_dim * self.nodes)
        t, x = self.machine.seconds_per_edge, self.machine.seconds_per_byte
        square = self.buckets * t * self.edges * self.memory / (x * self.slots)
        dim = max(fits, int(math.sqrt(square) / (per_dim * self.nodes)))
        while dim > fits and not replace(self, dim=dim, row_bytes=dim * per_dim).holds:
            dim -= 1
        return dim

    def describe(self, partitions: int) -> str:
        """Return one or two sentences for people."""
        if partitions <= self.slots:
            return "theorem 3: the table fits into the buffer, nothing is swapped"
        most = f"{min(self.most, 1e9):,.3g}"
        if self.holds_for(partitions):
            return f"theorem 3 holds: swaps can hide behind training with up to {most} partitions"
        remedy = f"They would with --dim {self.largest_dim}"
        if self.fewest <= self.most:
            remedy = f"Memory allows --partitions {self.fewest}"
        return (
            f"theorem 3 does not hold: swaps can hide behind training with up to {most} "
            f"partitions, not {partitions}. {remedy}"
        )


def exposed_seconds(
    during_edges: list[int], swapped_bytes: list[int], machine: Machine
) -> tuple[float, float]:
    """Return the seconds of swaps that training cannot hide, and of all swaps.

    More than the theorem says: of the very buckets that each swap has to hide behind.

    Parameters
    ----------
    during_edges
        Edges that are trained while each swap runs.
    swapped_bytes
        Bytes of the partitions that are written in it; as many are read.
    machine
        What was measured.
    """
    swaps = [size * machine.seconds_per_byte for size in swapped_bytes]
    hidden = [edges * machine.seconds_per_edge for edges in during_edges]
    return sum(max(0.0, s - h) for s, h in zip(swaps, hidden, strict=True)), sum(swaps)
