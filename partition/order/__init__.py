"""The order in which the partitions of an embedding table meet in a small buffer.

An embedding table too large for the GPU is cut into partitions; edges whose ends lie in
partitions i and j form bucket (i, j). A bucket can be trained while i and j are both in the
buffer, so the goal is an order of buffer states in which every pair meets, with few swaps, and in
which the swaps can hide behind training (Legend, section 4).

    order = prefetch(12)                  # or beta(12), cover(16), order("prefetch", 12)
    load(order.states[0])
    for step in order.steps:
        train(step.before)                # the buckets that need what is evicted
        start_swap(step.evict, step.load) # write back, then load into the freed place
        train(step.during)                # hides the swap
        wait_for_swap()
    write_back(order.states[-1])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from penstock.errors import UsageError
from penstock.partition.order.ring import ring
from penstock.partition.order.table import ALPHABET, LOADS
from penstock.partition.order.wide import wide

Bucket = tuple[int, int]
State = tuple[int, ...]
MOST_IN_WIDE = 128  # partitions, of an order for more than three in the buffer


@dataclass(frozen=True)
class BufferState:
    """One buffer state: its training, and the swap meanwhile.

    ``evict`` and ``load`` are empty in the last step; the buffer is then written back.
    """

    buffer: State
    evict: State
    load: State
    before: tuple[Bucket, ...]
    during: tuple[Bucket, ...]

    @property
    def hidden(self) -> bool:
        """Whether a bucket trains while this step's swap runs."""
        return bool(self.evict and self.during)


@dataclass(frozen=True)
class PartitionOrder:
    """Buffer states in order; ``steps`` lists what to train and to swap in each.

    ``io`` counts as in Legend's table 6. An order that swaps one partition at a time counts its
    buffer states, so the first filling counts as one. ``cover`` replaces the whole buffer and
    counts every partition of every state.
    """

    name: str
    partitions: int
    capacity: int
    states: tuple[State, ...]
    whole_buffer: bool = False

    @property
    def io(self) -> int:
        """I/O count; tables compare it with ``volume``."""
        if self.whole_buffer:
            return sum(len(state) for state in self.states)
        return len(self.states)

    @property
    def volume(self) -> float:
        """Communication volume in units of the whole table: ``io`` partitions of 1/n each."""
        return self.io / self.partitions

    @property
    def bound(self) -> int:
        """The least possible ``io``: no state brings more new pairs together than fit."""
        return lower_bound(self.partitions, self.capacity, whole_buffer=self.whole_buffer)

    @cached_property
    def steps(self) -> tuple[BufferState, ...]:
        """One step per state. Every bucket is in one of them, the first possible one."""
        return tuple(_steps(self))

    @property
    def swaps(self) -> int:
        """Number of exchanges of partitions after the first filling."""
        return len(self.states) - 1

    @property
    def hidden_share(self) -> float:
        """Share of the swaps that at least one bucket hides; 1.0 if there is no swap."""
        return sum(step.hidden for step in self.steps) / self.swaps if self.swaps else 1.0

    @property
    def keeps_newest(self) -> bool:
        """Whether no state evicts its newest partition (property 1 of Legend's theorem 1)."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        return not any(set(step.load) & set(after.evict) for step, after in pairs)


def order(name: str, partitions: int, capacity: int | None = None) -> PartitionOrder:
    """Return an order in which the partitions of an embedding table meet in a small buffer.

    Parameters
    ----------
    name
        ``"prefetch"``, ``"legend"``, ``"beta"`` or ``"cover"``.
    partitions
        Number of partitions that the table is cut into.
    capacity
        Number of partitions that the buffer holds [default: 3, of ``"cover"`` 4].

    Returns
    -------
    PartitionOrder
        Its ``steps`` list what to train and to swap in each buffer state.

    Raises
    ------
    UsageError
        An unknown order, or one that does not exist for these numbers.

    Examples
    --------
    >>> len(order("prefetch", 12).states)
    """
    method = METHODS.get(name)
    if method is None:
        raise UsageError(
            f"unknown partition order {name!r}", expected=f"one of {', '.join(METHODS)}"
        )
    return method(partitions) if capacity is None else method(partitions, capacity)


def prefetch(partitions: int, capacity: int = 3) -> PartitionOrder:
    """Return an order in which every swap can hide, with few states.

    For three in the buffer, up to 32 partitions it comes from a table, above from a
    construction (see ring); for more, see wide. All keep property 1 in every state.
    """
    _check(partitions, capacity)
    if capacity < 3 or (capacity > 3 and partitions > MOST_IN_WIDE):
        raise UsageError(
            "the order prefetch does not exist for this buffer",
            expected=f"three partitions, or more of up to {MOST_IN_WIDE} partitions",
            got=f"{capacity} of {partitions:,}",
            remedy="beta takes any capacity",
        )
    if partitions <= capacity:
        states = _states([tuple(range(partitions))])
    elif capacity > 3:
        states = _states(wide(partitions, capacity))
    elif partitions in LOADS:
        states = _states(_decode(LOADS[partitions]))
    else:
        states = _states(ring(partitions))
    return PartitionOrder("prefetch", partitions, capacity, states)


def legend(partitions: int, capacity: int = 3) -> PartitionOrder:
    """Return the order of Legend's algorithm 1: column after column, the newest never evicted.

    ``prefetch`` needs fewer states; this one is for comparison.
    """
    _check(partitions, capacity, exactly=3)
    buffers = _columns(partitions) if partitions > 3 else [tuple(range(partitions))]
    return PartitionOrder("legend", partitions, 3, _states(buffers))


def beta(partitions: int, capacity: int = 3) -> PartitionOrder:
    """Return Marius' order: all but one place stay while every other partition passes through.

    With m partitions not finished and capacity c, m - c swaps let all others meet the c - 1 that
    stay; min(c - 1, m - c) more put new ones in their place, and m - c + 1 remain:
    f(m) = (m - c) + min(c - 1, m - c) + f(m - c + 1), f(m <= c) = 0, states = f(n) + 1. With
    c = 3 that is floor(n * n / 4) - 1.
    """
    _check(partitions, capacity)
    buffer = list(range(min(partitions, capacity)))
    waiting = list(range(len(buffer), partitions))
    buffers = [tuple(buffer)]

    def swap(place: int, incoming: int) -> int:
        outgoing, buffer[place] = buffer[place], incoming
        buffers.append(tuple(buffer))
        return outgoing

    while waiting:
        waiting = [swap(-1, incoming) for incoming in waiting]
        for place in range(min(capacity - 1, len(waiting))):
            swap(place, waiting.pop(0))
    return PartitionOrder("beta", partitions, capacity, _states(buffers))


def cover(partitions: int, capacity: int = 4) -> PartitionOrder:
    """Return GE2's order: groups of four in which every pair meets exactly once.

    The partitions are the points of an affine space over the field of four elements, the groups
    its lines. Lines of one direction are disjoint and hold every partition once, so that several
    GPUs can take one each; every state replaces the whole buffer. With n = 4^L there are
    (n - 1) / 3 directions of n / 4 lines: n * (n - 1) / 3 partitions are loaded, 80 for n = 16.
    """
    _check(partitions, capacity, exactly=4)
    digits = (partitions.bit_length() - 1) // 2
    if partitions != 4**digits or digits == 0:
        raise UsageError(
            f"cover cannot arrange {partitions} partitions",
            expected="a power of four (4, 16, 64, ...)",
            got=str(partitions),
            remedy="Choose another number of partitions, or prefetch, which takes any",
        )
    states = []
    for direction in range(1, partitions):
        if direction >> (direction.bit_length() - 1) // 2 * 2 != 1:
            continue  # a multiple of a direction that has leading digit 1
        multiples = [_times(direction, factor) for factor in range(4)]
        for point in range(partitions):
            line = tuple(sorted(point ^ multiple for multiple in multiples))
            if line[0] == point:
                states.append(line)
    return PartitionOrder("cover", partitions, 4, tuple(states), whole_buffer=True)


METHODS: dict[str, Callable[..., PartitionOrder]] = {
    "prefetch": prefetch,
    "beta": beta,
    "cover": cover,
    "legend": legend,
}


def lower_bound(partitions: int, capacity: int = 3, *, whole_buffer: bool = False) -> int:
    """Return a lower bound of the I/O count of any order.

    A full buffer holds c * (c - 1) / 2 pairs; each load meets at most c - 1 partners for the
    first time. Six partitions are the only case up to 32 in which no order with property 1 reaches
    it: an exhaustive search shows that 7 states are too few, and 8 suffice.
    """
    pairs, held = partitions * (partitions - 1) // 2, capacity * (capacity - 1) // 2
    if whole_buffer:
        return capacity * -(-pairs // held)
    return 1 if partitions <= capacity else 1 - (held - pairs) // (capacity - 1)


def _check(partitions: int, capacity: int, exactly: int | None = None) -> None:
    if partitions < 1:
        raise UsageError("an order needs partitions", expected="1 or more", got=str(partitions))
    if exactly is not None and capacity != exactly:
        raise UsageError(
            "this order exists for one capacity of the buffer only",
            expected=f"{exactly} partitions",
            got=str(capacity),
            remedy="prefetch and beta accept others",
        )
    if capacity < 2:
        raise UsageError(
            "two partitions must meet in the buffer",
            expected="a capacity of 2 or more",
            got=str(capacity),
        )


def _states(buffers: Iterable[Iterable[int]]) -> tuple[State, ...]:
    return tuple(tuple(sorted(buffer)) for buffer in buffers)


def _steps(order: PartitionOrder) -> Iterator[BufferState]:
    trained: set[Bucket] = set()
    last = len(order.states) - 1
    for number, state in enumerate(order.states):
        evict: State = ()
        load: State = ()
        if number < last:
            after = order.states[number + 1]
            # A line replaces a line as a whole, even if they share a partition, as in GE2.
            evict = state if order.whole_buffer else tuple(p for p in state if p not in after)
            load = after if order.whole_buffer else tuple(p for p in after if p not in state)
        buckets = [(i, j) for i in state for j in state if (i, j) not in trained]
        trained.update(buckets)
        before = [b for b in buckets if b[0] in evict or b[1] in evict]
        during = [b for b in buckets if not (b[0] in evict or b[1] in evict)]
        yield BufferState(state, evict, load, tuple(before), tuple(during))


def _decode(letters: str) -> Iterator[State]:
    """Read a line of the table: the loaded partition, and which of the older two stays."""
    last, before, kept = 2, 1, 0
    yield (last, before, kept)
    for letter in letters:
        load, keep_newer = divmod(ALPHABET.index(letter), 2)
        last, before, kept = load, last, before if keep_newer else kept
        yield (last, before, kept)


def _times(vector: int, factor: int) -> int:
    """Multiply each base-4 digit of ``vector`` by ``factor`` in the field of four elements."""
    product = 0
    for digit in range(0, vector.bit_length(), 2):
        a = vector >> digit & 3
        # The three non-zero elements are powers of 2: logarithms 1 -> 0, 2 -> 1, 3 -> 2.
        product |= ((a + factor - 2) % 3 + 1 if a and factor else 0) << digit
    return product


def _columns(n: int) -> Iterator[State]:
    """Yield Legend's buffers: the partners of 0 first, then the missing partners of 1, ..."""
    lacks = [set(range(n)) - {i} for i in range(n)]
    column, buffer, newest = 0, [0, 1, 2], 2

    def swap(evict: int, load: int) -> State:
        nonlocal newest
        buffer[buffer.index(evict)] = newest = load
        return meet()

    def meet() -> State:
        for i in buffer:
            lacks[i].difference_update(buffer)
        return tuple(buffer)

    yield meet()
    for load in range(3, n):
        yield swap(load - 2, load)
    while any(lacks):
        movable = [p for p in buffer if p != newest and not (p == column and lacks[p])]
        if not lacks[column]:
            finished, column = column, next(i for i in range(n) if lacks[i])
            if column not in buffer:
                yield swap(finished if finished in movable else min(movable), column)
            continue
        beyond = any(i > max(buffer) for i in lacks[column])
        evict = max(movable) if beyond else min(movable)
        kept = [p for p in buffer if p != evict]
        first = (sum(kept) + 2) % n
        # A partition that both staying ones, else one of them, have not met, else the next one.
        wanted = lacks[kept[0]] & lacks[kept[1]] or lacks[kept[0]] | lacks[kept[1]]
        outside = (wanted or set(range(n))).difference(buffer)
        yield swap(evict, min(outside, key=lambda i: (i - first) % n))
