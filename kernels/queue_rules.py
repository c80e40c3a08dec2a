"""The format of submission and completion queues through which a GPU asks for pages of files.

A producer (a block of a CUDA kernel, or naive/queues.py) and a controller (threads of the host,
workers/embed/storage/queue_controller.py) share page-locked host memory. Each of its queues holds,
in this order, ``QueueFormat.stride`` bytes in all:

    submission doorbell    u64, by the producer: how many commands it has ever submitted
    completion doorbell    u64, by the producer: how many completions it has ever read
    stopped                u64, by the controller: not 0 once it accepts no more commands
    commands               a ring of ``entries`` entries of 64 bytes, ``COMMAND``
    completions            a ring of ``entries`` entries of 16 bytes, ``COMPLETION``
    staging                ``entries`` pages, which commands name by number: data in transit

The n-th command is at place n % entries of its ring, and its ticket is n; completions arrive in any
order. A completion is valid when its tag equals the ring's current lap: the tag is 8 aligned bytes,
written last and at once. So neither side takes a lock or resets an entry, and a doorbell, which
only grows, is rung once for any number of entries.

The three counters are in separate cache lines. A producer may have at most ``entries`` open
commands; the controller posts a completion only after the previous one in its place was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from penstock.arrays import Array

ALIGNMENT = 4096  # of O_DIRECT: offsets, sizes and addresses are its multiples
LINE = 128  # bytes of two cache lines, which some processors fetch together
DOORBELLS = 4 * LINE

COMMAND = np.dtype(
    {
        "names": ["operation", "file", "offset", "bytes", "page", "ticket"],
        "formats": ["<u4", "<u4", "<u8", "<u4", "<u4", "<u8"],
        "itemsize": 64,
    }
)
COMPLETION = np.dtype([("status", "<u4"), ("bytes", "<u4"), ("tag", "<u8")])


class Operation(IntEnum):
    """The request of a command."""

    READ = 1  # from the file into the page of the staging memory
    WRITE = 2


class Status(IntEnum):
    """The result of a transfer; positive numbers of a completion are the system's (errno)."""

    DONE = 0
    TIMED_OUT = -1
    STOPPED = -2  # the controller ended


class Producer(IntEnum):
    """How a block's threads enqueue, ring and poll."""

    BATCH = 0  # at places known beforehand, one doorbell per round
    LOCKED = 1  # each thread alone, holding the queue's lock


@dataclass(frozen=True)
class QueueFormat:
    """Sizes of one queue.

    entries     maximum of open commands; threads of the block that owns the queue
    page_bytes  bytes of a page, the most that one command moves
    """

    entries: int = 64
    page_bytes: int = 128 << 10

    def __post_init__(self) -> None:
        assert 1 <= self.entries <= 1024, self.entries  # the threads of a block
        assert self.page_bytes >= ALIGNMENT, self.page_bytes
        assert self.page_bytes % ALIGNMENT == 0, self.page_bytes

    @property
    def commands_at(self) -> int:
        """Where the commands begin."""
        return DOORBELLS

    @property
    def completions_at(self) -> int:
        """Where the completions begin."""
        return DOORBELLS + self.entries * COMMAND.itemsize

    @property
    def staging_at(self) -> int:
        """Where the pages begin, aligned for O_DIRECT."""
        end = self.completions_at + self.entries * COMPLETION.itemsize
        return -(-end // ALIGNMENT) * ALIGNMENT

    @property
    def stride(self) -> int:
        """Bytes of a queue."""
        return self.staging_at + self.entries * self.page_bytes


class Queue:
    """Views of one queue's memory."""

    def __init__(self, memory: Array, form: QueueFormat) -> None:
        self.form = form
        counters = memory[:DOORBELLS].view(np.uint64)
        words = LINE // 8
        self.submitted = counters[:1]
        self.read = counters[words : words + 1]
        self.stopped = counters[2 * words : 2 * words + 1]
        self.commands = memory[form.commands_at : form.completions_at].view(COMMAND)
        end = form.completions_at + form.entries * COMPLETION.itemsize
        self.completions = memory[form.completions_at : end].view(COMPLETION)
        self.tags = self.completions["tag"]
        self.staging = memory[form.staging_at : form.stride].reshape(form.entries, form.page_bytes)


class QueueMemory:
    """Several queues, one after another in memory that both sides see."""

    def __init__(self, memory: Array, queues: int, form: QueueFormat) -> None:
        address = memory.ctypes.data
        assert memory.dtype == np.uint8
        assert memory.size == queues * form.stride
        assert address % ALIGNMENT == 0
        memory.reshape(queues, form.stride)[:, : form.staging_at] = 0
        self.form, self.memory = form, memory
        self.queues = [Queue(part, form) for part in memory.reshape(queues, form.stride)]


def aligned(memory: Array, size: int) -> Array:
    """Return ``size`` bytes of ``memory`` from the first multiple of ``ALIGNMENT``."""
    skip = -memory.ctypes.data % ALIGNMENT
    return memory[skip : skip + size]


def tag(number: int, entries: int) -> int:
    """Return the upper half of the tag of the number-th completion: the lap, from 1."""
    return (number // entries + 1) & 0xFFFFFFFF
