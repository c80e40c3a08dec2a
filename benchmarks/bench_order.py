"""I/O counts of the partition orders, and the time to make one.

    python -P benchmarks/bench_order.py [--quick]

Every order is replayed: each bucket is trained once, while both its partitions are in the buffer,
and the swap that it hides does not touch them. The counts are buffer states, the first load as one,
for buffers of three (cover: four); "printed": Legend's table 6, the paper's only counts of its own
order; "legend": that order as we read the paper; "bound": no order has fewer; "moved": how often
all partitions are loaded; "hidden": the share of buckets that are trained during a swap.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Side, main, tampered

from penstock.partition.order import PartitionOrder, beta, cover, legend, lower_bound, prefetch

PRINTED = {6: 8, 8: 16, 10: 24, 12: 36, 14: 50, 16: 66}
LARGE = (33, 34, 35, 48, 64, 96, 128, 256)


def check(n: int, values: dict[str, Any]) -> dict[str, Any]:
    ours, marius, paper = values["ours"], values["beta"], legend(n)
    for each in (ours, marius, paper):
        replay(each)
    assert ours.keeps_newest, "evicts what it has just loaded"
    io = tampered(ours.io)
    assert lower_bound(n) <= io <= marius.io
    figures = {"prefetch": io, "bound": lower_bound(n), "beta": marius.io, "legend": paper.io}
    if n in PRINTED:
        figures["printed"] = PRINTED[n]
        assert io <= PRINTED[n]
    for name, each in (("prefetch", ours), ("beta", marius)):
        figures |= {f"{name} hidden": each.hidden_share, f"{name} moved": each.volume}
    return figures


def check_cover(values: dict[str, Any]) -> dict[str, Any]:
    groups = values["ours"]
    replay(groups)
    return {"groups": len(groups.states), "I/O": groups.io, "moved": groups.volume}


def replay(order: PartitionOrder) -> None:
    """Raise unless the steps train every bucket once, with the partitions in the buffer."""
    buffer, trained = set(order.states[0]), set()
    for step in order.steps:
        for bucket in step.before + step.during:
            wrong = bucket in trained or not set(bucket) <= buffer
            wrong = wrong or (bucket in step.during and set(bucket) & set(step.evict))
            assert not wrong, f"{order.name}({order.partitions}): bucket {bucket} in {step}"
            trained.add(bucket)
        buffer = buffer - set(step.evict) | set(step.load)
    assert len(trained) == tampered(order.partitions) ** 2, f"{order.name} leaves out buckets"


def cases(given: argparse.Namespace) -> Iterator[Case]:
    for n in (8, 16, 32, 128) if given.quick else (*range(4, 33), *LARGE):
        faster = 0.29 if n in (96, 128, 256) else None
        ours, theirs = partial(prefetch, n), Side(partial(beta, n), faster)
        yield Case(f"prefetch, {n} partitions", ours, partial(check, n), {"beta": theirs})
    for n in (4, 16, 64, 256):
        yield Case(f"cover, {n} partitions", partial(cover, n), check_cover)


if __name__ == "__main__":
    sys.exit(main(__doc__, cases))
