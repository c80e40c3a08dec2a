"""An order for buffers of more than three partitions, in which every swap hides behind training."""

from __future__ import annotations

from collections.abc import Iterator


def wide(partitions: int, capacity: int) -> Iterator[tuple[int, ...]]:
    """Yield the states of a buffer, each with one partition exchanged, until all pairs have met.

    All but two partitions stay while the others pass through two places in turn, so that the last
    load meets the next one and is not evicted for it. A partition that has met all others leaves
    first. The next load is the one that meets the most new partners; of equals, the one that lacks
    the most others. Up to 24 partitions that takes about as many states as BETA.
    """
    lacks = [set(range(partitions)) - {one} for one in range(partitions)]
    buffer = list(range(min(capacity, partitions)))  # the last load is at the end

    def met() -> tuple[int, ...]:
        for one in buffer:
            lacks[one].difference_update(buffer)
        return tuple(buffer)

    yield met()
    while any(lacks):
        evict = next((one for one in buffer[:-1] if not lacks[one]), buffer[-2])
        buffer.remove(evict)
        outside = (p for p in range(partitions) if lacks[p] and p not in buffer and p != evict)
        load = max(outside, key=lambda p: (len(lacks[p].intersection(buffer)), len(lacks[p]), -p))
        buffer.append(load)
        yield met()
