"""Theorem 3: the formula in the paper's case, and a simulation in others."""

import pytest

from penstock.partition.order import order
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule
from penstock.workers.embed.schedule.theorem import Condition
from penstock.workers.embed.storage import Geometry


@pytest.mark.parametrize(
    ("name", "n"), [("prefetch", 12), ("prefetch", 37), ("beta", 9), ("cover", 16)]
)
def test_the_condition_is_that_of_the_schedule_that_is_trained(name, n):
    """Swaps hide exactly if it holds: training divides buckets, so that fewer hide each."""
    schedule = BucketSchedule(order(name, n), seed=0)
    swaps = [step for step in schedule.scheduled(3) if step.evict]
    table, in_bucket = Geometry.of(n, 1_200_000, 100, 1), 10**6
    size = table.bytes
    during = [round(sum(in_bucket / share.of for share in step.during)) for step in swaps]
    moved = [len(step.evict) * size for step in swaps]
    # A partition is exchanged in about a second, in which this many buckets are trained.
    for speed in (0.1, 0.26, 0.4, 0.6, 0.9, 1.1, 1.7, 2.1, 4.1, 50.0):
        rates = 1 / speed / in_bucket, 1 / size
        seconds = [some * rates[1] for some in moved]  # of which training hides its own
        hidden = [edges * rates[0] for edges in during]
        exposed = sum(max(0.0, s - h) for s, h in zip(seconds, hidden, strict=True))
        assert sum(seconds) == pytest.approx(sum(map(len, (step.evict for step in swaps))))
        found = Condition(n**2 * in_bucket, table, 3, *rates, schedule.hiding, name)
        assert (found.ratio <= 1) == (exposed < 1e-5), speed
