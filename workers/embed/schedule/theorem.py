"""Whether training hides the swaps: Legend's theorem 3, for this graph and this machine.

While one partition is exchanged for another, at least b buckets are trained. Each of n partitions
has P bytes, and each of n * n buckets E / n ** 2 edges. If training takes t seconds per edge, and
an exchange x seconds per byte written and byte read, a swap hides if

    x * P  <=  b * t * E / n ** 2

A table of S bytes has P = S / n, so n may be at most b * t * E / (x * S); and three partitions in M
bytes of memory need n >= 3 * S / M. The paper's theorem is that the second bound is not above the
first.

In the paper b is 2, since a bucket is trained when its partitions first meet. Penstock divides each
bucket among all states that hold it, which mixes its edges with more others; b is then
``BucketSchedule.hiding``: about 1, and it does not fall as the number of partitions grows.

The paper has S = 8 * V * d (values and Adagrad's state, both float32), and 2 * P / (w + r) seconds
for an exchange, with 2 * P the bytes of one partition: E / V ** 2 >= 96 * d ** 2 / (M * t * (w +
r)). An exchange that writes at w and reads at r at the same time takes at least twice as long,
since 2 * P bytes go each way. Here x is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.workers.embed.storage import Geometry


@dataclass(frozen=True)
class Condition:
    """Theorem 3 for one graph, table, order and machine.

    edges     of the graph
    geometry  of the table
    slots     partitions that the buffer of a rank holds
    seconds_per_edge  of training, measured
    seconds_per_byte  to write one byte of a partition and to read one of another, measured
    buckets   the least number that is trained while a partition is exchanged
    order     in which partitions meet
    ranks     that train together
    """

    edges: int
    geometry: Geometry
    slots: int
    seconds_per_edge: float
    seconds_per_byte: float
    buckets: float
    order: str = "prefetch"
    ranks: int = 1

    @property
    def ratio(self) -> float:
        """The time of a swap divided by the time in which it can hide: at most 1 if it hides."""
        partitions = self.geometry.partitions
        if partitions <= self.slots * self.ranks:
            return 0.0  # they all fit
        swap = self.seconds_per_byte * self.geometry.bytes
        trained = self.buckets * self.seconds_per_edge * self.edges / partitions**2
        return swap / trained if trained else math.inf

    def describe(self) -> str:
        """Return a sentence for people."""
        partitions = self.geometry.partitions
        if partitions <= self.slots * self.ranks:
            return "theorem 3: the table fits into the buffer, nothing is swapped"
        if not self.buckets:
            return (
                f"theorem 3 does not hold: nothing is trained during a swap with --order "
                f"{self.order}. Take --order prefetch"
            )
        long = f"a swap takes up to {self.ratio:,.3g} times as long as what is trained meanwhile"
        return f"theorem 3 {'holds' if self.ratio <= 1 else 'does not hold'}: {long}"
