"""The partitions in memory: a few slots, in an order in which swaps hide behind training.

    with PartitionBuffer(table, schedule, sizes=layout.sizes, initial=draw) as buffer:
        for visit in buffer.visits(epoch, start=position):
            for phase in visit:          # edges of evicted partitions; the swap; all other edges
                edges = buckets.phase(
                    phase.shares, buffer.first_rows,
                    rows=len(buffer.values), seed=seed, which=phase.which,
                )
                for start in range(0, len(edges), size):
                    heads, relations, tails, weights = edges.batch(start, start + size)
                    step(buffer.values, buffer.state, ..., negatives_from=phase.ranges)
            if time_to_save:
                buffer.flush()
                table.publish()

All slots are one array, so a batch can use rows of any partition in the buffer: the row of a node
is ``first_rows[partition] + its row in the partition``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.arrays import AnyArray
from penstock.kernels import kernel
from penstock.partition.order import State
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule, Share
from penstock.workers.embed.storage import Moved, Slot
from penstock.workers.embed.storage.direct import PartitionFiles, aligned_bytes

Initial = Callable[[int, Slot], None]
"""Fills a slot with the initial version of a partition: values drawn, states zero."""


@dataclass(frozen=True)
class Phase:
    """Edges that can be trained together, in mixed order: those of all ``shares``.

    ranges      (first row, rows) of every partition that may be read and written now; negatives
                are drawn from these rows. While a swap runs, they leave its slot out.
    partitions  those partitions
    which       a number unique to this phase in the training run
    """

    which: int
    shares: tuple[Share, ...]
    partitions: State
    ranges: tuple[tuple[int, int], ...]


@dataclass
class Traffic:
    """The cost of swaps and fills, or of flushes, since this object was made.

    io_seconds       in which at least one request was in flight
    exposed_seconds  in which training waited for one
    """

    bytes_read: int = 0
    bytes_written: int = 0
    swaps: int = 0
    io_seconds: float = 0.0
    exposed_seconds: float = 0.0
    _until: float = field(default=0.0, repr=False)

    @property
    def bandwidth(self) -> float:
        """Bytes a second, read and written, while requests were in flight."""
        return (self.bytes_read + self.bytes_written) / self.io_seconds if self.io_seconds else 0.0

    def add(self, moved: Moved) -> None:
        """Count a request; time in which several are in flight counts once."""
        self.bytes_read += moved.bytes_read
        self.bytes_written += moved.bytes_written
        self.io_seconds += max(0.0, moved.ended - max(moved.started, self._until))
        self._until = max(self._until, moved.ended)


class PartitionBuffer:
    """Slots in host or GPU memory, filled and swapped by a schedule.

    table         the partitions on disk
    schedule      which partitions are in memory together, and when
    sizes         nodes of each partition
    initial       fills the slot of a partition that was never written
    prefetch      whether swaps run while ``during`` is trained; otherwise training waits. Both
                  train the same edges in the same order
    xp            NumPy, or CuPy for slots on the current GPU
    before_visit  called with the epoch and the number of each state before its partitions are used:
                  it may fetch them from another rank

    values, state  of all slots, as kernels take them
    traffic        bytes moved by swaps, and their time; replace it to count each epoch by itself
    """

    def __init__(
        self,
        table: PartitionFiles,
        schedule: BucketSchedule,
        *,
        sizes: Sequence[int],
        initial: Initial,
        prefetch: bool = True,
        xp: Any = np,
        before_visit: Callable[[int, int], None] | None = None,
    ) -> None:
        geometry = table.geometry
        assert len(sizes) == geometry.partitions
        assert max(sizes) <= geometry.rows
        self.table, self.schedule = table, schedule
        self._sizes, self._prefetch, self._xp = tuple(sizes), prefetch, xp
        self._initial: Initial | None = initial
        self._before_visit = before_visit
        self.slots = schedule.slots
        rows, width = self.slots * geometry.rows, geometry.width
        self.values: AnyArray = _zeros(xp, rows, width)
        self.state: AnyArray = _zeros(xp, rows, geometry.states * width)
        self.traffic = Traffic()
        self._slot_of: dict[int, int] = {}
        self._clean: set[int] = set()  # partitions in the buffer that are the same on the disk
        self._pending: list[Future[Moved]] = []
        self._found: list[Any] = []  # of evicted partitions; see ``finite``

    # -- what is in memory -----------------------------------------------------------------------

    @property
    def first_rows(self) -> dict[int, int]:
        """The first row of each partition that is in the buffer."""
        rows = self.table.geometry.rows
        return {partition: slot * rows for partition, slot in self._slot_of.items()}

    def slot(self, partition: int) -> Slot:
        """Return the memory of a partition that is in the buffer, its spare rows included."""
        first, rows = self.first_rows[partition], self.table.geometry.rows
        return self.values[first : first + rows], self.state[first : first + rows]

    # -- training --------------------------------------------------------------------------------

    def visits(self, epoch: int, *, start: int = 0) -> Iterator[BufferVisit]:
        """Yield the buffer states of an epoch, from number ``start`` on; iterate over each.

        A state is yielded when the swap before it is done.
        """
        for step in self.schedule.scheduled(epoch):
            if step.number < start:
                continue
            if self._before_visit is not None:
                self._before_visit(epoch, step.number)
            self.hold(step.buffer)
            self._clean.clear()  # this state trains all of them
            kept = tuple(p for p in step.buffer if p not in step.evict)
            which = 2 * (epoch * len(self.schedule) + step.number)
            visit = BufferVisit(
                self,
                number=step.number,
                last=step.number + 1 == len(self.schedule),
                before=Phase(which, step.before, step.buffer, self._ranges(step.buffer)),
                during=Phase(which + 1, step.during, kept, self._ranges(kept)),
                swaps=tuple(zip(step.evict, step.load, strict=True)),
            )
            yield visit
            visit.swap()
            self.wait()

    def flush(self) -> None:
        """Write every partition that was trained since it was read or written, and wait."""
        self.wait()
        changed = self._slot_of.keys() - self._clean
        self._wait_for([self.table.write(self.slot(p), p) for p in changed], Traffic())
        self._clean.update(self._slot_of)

    def finite(self) -> bool:
        """Return whether all vectors and states trained since the last call are finite.

        Partitions that left the buffer since then are included.
        """
        for partition in self._slot_of:
            self._look_at(partition)
        found, self._found = self._found, []
        return all(bool(one) for one in found)

    def _look_at(self, partition: int) -> None:
        """Check whether a partition is finite; ``finite`` reads a GPU's answer later."""
        are_finite = kernel("finite", self.values).are_finite
        self._found += [are_finite(array) for array in self.slot(partition)]

    def wait(self) -> None:
        """Wait for running swaps."""
        pending, self._pending = self._pending, []
        self._wait_for(pending, self.traffic)

    def close(self) -> None:
        """Wait for requests in flight, ignore their errors, and release the memory.

        The table stays open.
        """
        for future in self._pending:
            future.exception()
        self._pending = []
        # Here, as an error may still refer to who owns the buffer; and of that these are methods:
        # its memory would be there until the garbage collector ran.
        self.values = self.state = _zeros(self._xp, 0, self.table.geometry.width)
        self._before_visit = self._initial = None

    def __enter__(self) -> PartitionBuffer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- swaps -----------------------------------------------------------------------------------

    def swap(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Begin to write each evicted partition, and to load another into its slot."""
        for evict, load in pairs:
            self._look_at(evict)
            slot = self.slot(evict)
            number = self._slot_of.pop(evict)
            self._slot_of[load] = number
            self._clean.discard(evict)
            if self.table.newest[load]:
                self._clean.add(load)
                future = self.table.exchange(slot, store=evict, load=load)
            else:
                future = self._filled_after(self.table.write(slot, evict), load)
            self._pending.append(future)
            self.traffic.swaps += 1
        if not self._prefetch:
            if (
                self._xp is not np
            ):  # kernels that are launched still train: that is not time spent on the disk
                self._xp.cuda.get_current_stream().synchronize()
            self.wait()

    def hold(self, partitions: State) -> None:
        """Make the buffer hold exactly these: at the start, and between epochs and rounds."""
        self.wait()
        absent = [p for p in partitions if p not in self._slot_of]
        leaving = [p for p in self._slot_of if p not in partitions]
        exchanged = list(zip(leaving, absent, strict=False))
        for partition in leaving[len(exchanged) :]:
            self.put_away(partition)
        for partition in absent[len(exchanged) :]:
            self._slot_of[partition] = self._free()
            self._pending.append(self._load(partition))
        self.swap(exchanged)
        self.wait()

    def take(self, partition: int, staying: Set[int]) -> None:
        """Read a partition; if no slot is free, write another first, of ``staying`` if possible."""
        if len(self._slot_of) == self.slots:
            self.put_away(next((p for p in self._slot_of if p in staying), [*self._slot_of][-1]))
        self._slot_of[partition] = self._free()
        self._pending.append(self._load(partition))
        self.wait()

    def replace(self, leaving: int, coming: int) -> None:
        """Note that the slot of one partition was filled with another from another rank."""
        self._slot_of[coming] = self._slot_of.pop(leaving)
        self._clean.discard(leaving)
        self.table.forget(leaving)

    def put_away(self, partition: int) -> None:
        """Write a partition in the buffer, and drop it."""
        self._look_at(partition)
        self._wait_for([self.table.write(self.slot(partition), partition)], self.traffic)
        self.forget(partition)

    def forget(self, partition: int) -> None:
        """Drop a partition from the buffer without writing it."""
        del self._slot_of[partition]
        self._clean.discard(partition)

    def _free(self) -> int:
        taken = self._slot_of.values()
        return next(n for n in range(self.slots) if n not in taken)

    def _load(self, partition: int) -> Future[Moved]:
        if self.table.newest[partition]:
            self._clean.add(partition)
            return self.table.read(partition, self.slot(partition))
        now = time.perf_counter()
        self._fill(partition)
        done: Future[Moved] = Future()
        done.set_result(Moved(0, 0, now, now))
        return done

    def _fill(self, partition: int) -> None:
        assert self._initial is not None  # it is not closed
        self._initial(partition, self.slot(partition))
        if self._xp is not np:
            self._xp.cuda.get_current_stream().synchronize()

    def _filled_after(self, writing: Future[Moved], partition: int) -> Future[Moved]:
        """Return the future of filling a slot with an initial version, after ``writing``."""
        done: Future[Moved] = Future()

        def fill(written: Future[Moved]) -> None:
            try:
                moved = written.result()
                self._fill(partition)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(moved)

        writing.add_done_callback(fill)  # runs in the thread that ended the write
        return done

    def _wait_for(self, futures: Sequence[Future[Moved]], traffic: Traffic) -> None:
        """Wait for all, count what they moved, and raise the first error."""
        began = time.perf_counter()
        errors = [future.exception() for future in futures]
        traffic.exposed_seconds += time.perf_counter() - began if futures else 0.0
        for error in errors:
            if error is not None:
                raise error
        for moved in sorted((f.result() for f in futures), key=lambda moved: moved.started):
            traffic.add(moved)

    def _ranges(self, partitions: State) -> tuple[tuple[int, int], ...]:
        first = self.first_rows
        return tuple(sorted((first[p], self._sizes[p]) for p in partitions if self._sizes[p]))


@dataclass(eq=False)
class BufferVisit:
    """One state of the buffer; iterating yields its two phases, with the swap between them.

    number          counts the states of the epoch
    last            whether it is the last of the epoch
    before, during  its phases: shares that need evicted partitions, and the other shares
    swaps           (evicted, loaded) partitions
    """

    buffer: PartitionBuffer
    number: int
    last: bool
    before: Phase
    during: Phase
    swaps: tuple[tuple[int, int], ...]
    _swapped: bool = False

    def __iter__(self) -> Iterator[Phase]:
        """Yield the phase that needs evicted partitions, start the swap, yield the other phase."""
        if self.before.shares:
            yield self.before
        self.swap()
        if self.during.shares:
            yield self.during

    def swap(self) -> None:
        """Begin the swap, once: from now on only ``during`` may be trained."""
        if not self._swapped:
            self._swapped = True
            self.buffer.swap(self.swaps)


def _zeros(xp: Any, rows: int, width: int) -> AnyArray:
    """Return zeros that the disk can be read into: host memory begins at a page."""
    if xp is np and rows * width:
        return aligned_bytes(4 * rows * width).view(np.float32).reshape(rows, width)
    zeros: AnyArray = xp.zeros((rows, width), xp.float32)
    return zeros
