"""I/O counts of the partition orders, and the time to make one.

python benchmarks/bench_order.py

Every order is replayed first: each bucket is trained once, while both its partitions are in the
buffer, and the swap that it hides does not touch them.
"""

from __future__ import annotations

import time

from penstock.partition.order import PartitionOrder, beta, cover, legend, lower_bound, prefetch

# Legend's table 6: the paper's only published counts of its own order.
PRINTED = {6: 8, 8: 16, 10: 24, 12: 36, 14: 50, 16: 66}
LARGE = (33, 34, 35, 48, 64, 96, 128, 256)


def main() -> None:
    print("I/O counts (buffer states, the first load as one), buffers of three\n")
    print(
        "| n | lower bound | prefetch | beta | legend, printed | legend, our reading "
        "| hidden prefetch | hidden beta | volume prefetch | volume beta | ms |"
    )
    print("|" + " --: |" * 11)
    for n in (*range(4, 33), *LARGE):
        start = time.perf_counter()
        ours = prefetch(n)
        replay(ours)
        elapsed = time.perf_counter() - start
        marius, columns = beta(n), legend(n)
        for each in (marius, columns):
            replay(each)
        if not ours.keeps_newest:
            raise SystemExit(f"prefetch({n}) evicts what it has just loaded")
        counts = (n, lower_bound(n), ours.io, marius.io, PRINTED.get(n, ""), columns.io)
        shares = (f"{100 * each.hidden_share:.1f} %" for each in (ours, marius))
        volumes = (f"{each.volume:.2f}" for each in (ours, marius))
        cells = [*map(str, counts), *shares, *volumes, f"{1000 * elapsed:.1f}"]
        print("| " + " | ".join(cells) + " |")
    print("\ncover, buffers of four (partitions loaded)\n")
    print("| n | groups | I/O | volume |\n| --: | --: | --: | --: |")
    for n in (4, 16, 64, 256):
        groups = cover(n)
        replay(groups)
        print(f"| {n} | {len(groups.states)} | {groups.io} | {groups.volume:.2f} |")


def replay(order: PartitionOrder) -> None:
    """Stop unless the steps train every bucket once, with the partitions in the buffer."""
    buffer, trained = set(order.states[0]), set()
    for step in order.steps:
        for bucket in step.before + step.during:
            wrong = bucket in trained or not set(bucket) <= buffer
            if wrong or (bucket in step.during and set(bucket) & set(step.evict)):
                raise SystemExit(f"{order.name}({order.partitions}): bucket {bucket} in {step}")
            trained.add(bucket)
        buffer = buffer - set(step.evict) | set(step.load)
    if len(trained) != order.partitions**2:
        raise SystemExit(f"{order.name}({order.partitions}) leaves out buckets")


if __name__ == "__main__":
    main()
