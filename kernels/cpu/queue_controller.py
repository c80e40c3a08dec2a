"""The loop of a controller's thread: see kernels/queue_rules.py.

Compiled, without Python's lock: a doorbell announces a batch of commands, and the loop moves the
whole batch, one system call for commands that follow each other in the file and in memory.
"""

from __future__ import annotations

import errno
from typing import Any

from numba import carray, int64, types, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.queue_rules import COMMAND, COMPLETION, LINE, Operation

_pread = types.ExternalFunction(
    "pread", types.int64(types.int32, types.uintp, types.uint64, types.int64)
)
_pwrite = types.ExternalFunction(
    "pwrite", types.int64(types.int32, types.uintp, types.uint64, types.int64)
)
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
_yield = types.ExternalFunction("sched_yield", types.int32())
_errno_at = types.ExternalFunction("__errno_location", types.CPointer(types.int32)())

_AT_ONCE = 2 << 20  # bytes that one system call moves, at most
_SPINS = 2000  # looks at empty queues before the thread sleeps
_SLEEP = 50  # microseconds
_READ, _WRITE = int(Operation.READ), int(Operation.WRITE)
_EBADF, _EINVAL, _EIO = errno.EBADF, errno.EINVAL, errno.EIO
_HALF = uint64(0xFFFFFFFF)
# Words of eight bytes.
_READ_AT, _COMMAND, _COMPLETION = LINE // 8, COMMAND.itemsize // 8, COMPLETION.itemsize // 8


@njit(cache=True, nogil=True)
def serve(
    words: Array,
    places: tuple[int, int, int, int],
    entries: int,
    page_bytes: int,
    mine: Array,
    taken: Array,
    files: Array,
    closing: Array,
    moved: Array,
) -> None:
    """Serve some queues until ``closing[0]`` is not 0.

    words    the memory of all queues as uint64
    places   words of a queue; its first command, completion and byte of staging memory, in words
    mine     the numbers of the queues that this thread serves: no other thread may
    taken    (len(mine),) int64: the number of commands that each of them has taken
    files    the file descriptor of each number that a command names; -1: none
    moved    (1,) int64: bytes moved by this thread
    """
    stride, commands_at, completions_at, staging_at = places
    address = words.ctypes.data
    idle = 0
    while closing[0] == 0:
        found = False
        for i in range(len(mine)):
            begin = mine[i] * stride
            submitted = int64(words[begin])
            while taken[i] < submitted:
                found = True
                first = taken[i]
                count, size = _run(
                    words, begin + commands_at, entries, page_bytes, first, submitted
                )
                at = begin + commands_at + (first % entries) * _COMMAND
                operation, file = words[at] & _HALF, int64(words[at] >> uint64(32))
                page = int64(words[at + 2] >> uint64(32))
                memory = address + 8 * (begin + staging_at) + page * page_bytes
                done, status = int64(0), int64(_EBADF)
                if file < len(files) and files[file] >= 0:
                    offset = int64(words[at + 1])
                    done, status = _move(operation, files[file], memory, size, offset)
                moved[0] += done
                for number in range(first, first + count):
                    # A completion takes the place of one that was read.
                    while number + 1 - int64(words[begin + _READ_AT]) > entries:
                        if closing[0] != 0:
                            return
                        _yield()
                    place = number % entries
                    command = begin + commands_at + place * _COMMAND
                    out = begin + completions_at + place * _COMPLETION
                    size_of_page = words[command + 2] & _HALF
                    done -= int64(size_of_page)
                    words[out] = size_of_page << uint64(32) if done >= 0 else uint64(status)
                    lap = (uint64(number // entries) + uint64(1)) & _HALF
                    _yield()  # the compiler moves no write across a call: the tag is the last
                    words[out + 1] = lap << uint64(32) | words[command + 3] & _HALF
                taken[i] = first + count
        idle = 0 if found else idle + 1
        if idle > _SPINS:
            _usleep(_SLEEP)
        else:
            _yield()  # and reads the doorbells again after a call


@njit(cache=True, nogil=True)
def _run(
    words: Any, commands: int, entries: int, page_bytes: int, first: int, submitted: int
) -> tuple[int, int]:
    """Return the number of commands from ``first`` on that one call can move, and their bytes."""
    at = commands + (first % entries) * _COMMAND
    count, size = 1, int64(words[at + 2] & _HALF)
    while first + count < submitted and (first + count) % entries != 0:
        after = at + count * _COMMAND
        last = int64(words[after - _COMMAND + 2] & _HALF)
        more = int64(words[after + 2] & _HALF)
        if (
            last != page_bytes
            or words[after] != words[at]
            or words[after + 1] != words[at + 1] + uint64(size)
            or words[after + 2] >> uint64(32) != (words[at + 2] >> uint64(32)) + uint64(count)
            or size + more > _AT_ONCE
        ):
            break
        count, size = count + 1, size + more
    return count, size


@njit(cache=True, nogil=True)
def _move(operation: int, file: int, memory: int, size: int, offset: int) -> tuple[int, int]:
    """Return the bytes that moved, and the error of those that did not."""
    if operation != _READ and operation != _WRITE:
        return int64(0), int64(_EINVAL)
    done = int64(0)
    while done < size:
        if operation == _READ:
            now = _pread(file, memory + done, size - done, offset + done)
        else:
            now = _pwrite(file, memory + done, size - done, offset + done)
        if now < 0:
            return done, int64(carray(_errno_at(), 1)[0])
        if now == 0:
            break
        done += now
    return done, int64(_EIO)  # the end of the file
