"""The compiled functions of ``direct``: called by CPython as any function in C, with its objects.

They read the parts of objects at fixed places, and call MPI and CPython by address. All that they
must know lies in a table, an array of 8-byte values, the first in a tuple that CPython hands them.
"""

from __future__ import annotations

from numba import cfunc, njit, types

from penstock.workers.by_address import at, call, load

_SHORT = 1 << 14  # bytes that are copied sooner than other threads could begin to run
_POLLS = 2000  # less than a millisecond
_YIELD_EVERY = 32  # polls: where ranks share a core, the one that is waited for must run

# Where objects keep what is read: any object, a list, a tuple, an array, the type of an array.
TYPE = 8
LENGTH, ITEMS = 16, 24
FIRST = 24
DATA, NDIM, SHAPE, DTYPE, FLAGS = 16, 24, 32, 56, 64
DTYPE_FLAGS, ITEMSIZE = 32, 40
CONTIGUOUS, WRITEABLE = 0x1, 0x400

# Places in the table of values that each compiled function has, 8 bytes each. Lists of what is
# under way hold a request, its array, the next request, and so on.
(
    METHOD,  # what does it where this cannot
    START,  # MPI_Isend or MPI_Irecv
    NEEDED,  # flags of its arrays
    POSTED,  # where it lists what it started
    SENDS,
    RECEIVES,
    COMM,
    RANKS,  # how many
    BYTE,
    LIMIT,  # bytes of a message that travels as one
    TAGS,  # how many
    CANCELLED,  # where not 0 is written when the wait is to end
    TEST,
    YIELD,
    HANDLE,  # where a request keeps MPI's
    HANDLE_BITS,
    NULL,
    NONE,
    ARRAY_TYPE,
    INT_TYPE,
    LIST_TYPE,
    REQUEST_TYPE,
    INT_VALUE,  # the functions of CPython begin here
    INT_OBJECT,
    NEW,
    APPEND,
    CUT,
    HOLD,
    RELEASE,
    CALL,
    CALL_ONE,
    LET_OTHERS_RUN,
    RUN_AGAIN,
    FAIL,  # raises the error of a code
    FLAG,
    STATUS,
) = range(36)
STATUS_BYTES = 512
C_INT = 0xFFFFFFFF
_METHOD_OF_C = types.intp(types.intp, types.intp, types.intp, types.intp)


@njit  # type: ignore[untyped-decorator]
def _integer(table: int, value: int) -> int:
    """Return what an ``int`` holds, or -1 where it is negative, long, or another object."""
    if load(value + TYPE) != at(table, INT_TYPE):
        return -1
    return call(at(table, INT_VALUE), (value, table + 8 * FLAG))


@njit  # type: ignore[untyped-decorator]
def _size(table: int, array: int) -> int:
    """Return the bytes of an array that can travel as they are; else -1."""
    if load(array + TYPE) != at(table, ARRAY_TYPE):
        return -1
    needed, dtype = at(table, NEEDED), load(array + DTYPE)
    # Types without flags are numbers: no pointers, nothing that wants to be looked at.
    if load(array + FLAGS) & needed != needed or load(dtype + DTYPE_FLAGS) != 0:
        return -1
    size = load(dtype + ITEMSIZE)
    for i in range(load(array + NDIM) & C_INT):
        size *= load(load(array + SHAPE) + 8 * i)
    return size if size <= at(table, LIMIT) else -1


@njit  # type: ignore[untyped-decorator]
def _start(table: int, size: int, message: tuple[int, ...]) -> int:
    """Call MPI_Isend or MPI_Irecv; return its error."""
    if size <= _SHORT:
        return call(at(table, START), message) & C_INT
    thread = call(at(table, LET_OTHERS_RUN), ())
    error = call(at(table, START), message) & C_INT
    call(at(table, RUN_AGAIN), (thread,))
    return error


@cfunc(_METHOD_OF_C, cache=True)  # type: ignore[untyped-decorator]
def post(owner: int, arguments: int, count: int, keywords: int) -> int:
    """Start to send or to receive: ``(array, peer)`` or ``(array, peer, tag)``."""
    table = load(load(owner + FIRST) + DATA)
    if keywords == 0 and (count == 2 or count == 3):
        array = load(arguments)
        size = _size(table, array)
        peer = _integer(table, load(arguments + 8))
        tag = _integer(table, load(arguments + 16)) if count == 3 else 0
        if size >= 0 and 0 <= peer < at(table, RANKS) and 0 <= tag < at(table, TAGS):
            request = call(at(table, NEW), (at(table, REQUEST_TYPE),))
            if request == 0:
                return 0
            where, handle = load(array + DATA), request + at(table, HANDLE)
            message = (where, size, at(table, BYTE), peer, tag, at(table, COMM), handle)
            if _start(table, size, message) == 0:
                posted, append = at(table, POSTED), at(table, APPEND)
                if (call(append, (posted, request)) | call(append, (posted, array))) & C_INT:
                    return 0  # there is no memory; the request is not released while it runs
                return request
            call(at(table, RELEASE), (request,))  # the method says what is wrong
    return call(at(table, CALL), (at(table, METHOD), arguments, count, keywords))


@njit  # type: ignore[untyped-decorator]
def _are_requests(table: int, found: int) -> bool:
    """Return whether an object is a list of MPI requests and nothing else."""
    if load(found + TYPE) != at(table, LIST_TYPE):
        return False
    for i in range(load(found + LENGTH)):
        if load(load(load(found + ITEMS) + 8 * i) + TYPE) != at(table, REQUEST_TYPE):
            return False
    return True


@njit  # type: ignore[untyped-decorator]
def _test(table: int, requests: int) -> int:
    """Test the requests of a list for a while; return 0, MPI's error, or -1: not all are done."""
    count, items, done = load(requests + LENGTH), load(requests + ITEMS), 0
    test, handle, flag = at(table, TEST), at(table, HANDLE), table + 8 * FLAG
    for poll in range(_POLLS):
        while done < count:
            request = load(items + 8 * done) + handle
            error = call(test, (request, flag, table + 8 * STATUS)) & C_INT
            if error != 0:
                return error
            if load(flag) & C_INT == 0:
                break
            done += 1
        if done == count:
            return 0
        if load(at(table, CANCELLED)) != 0:
            break
        if poll % _YIELD_EVERY == _YIELD_EVERY - 1:
            call(at(table, YIELD), ())
    return -1


@njit  # type: ignore[untyped-decorator]
def _let_go(table: int, posted: int) -> None:
    """Remove what is done from a list of what is under way."""
    handle, end = at(table, HANDLE), load(posted + LENGTH)
    while end > 0:
        start = end
        while start > 0:
            request = load(load(posted + ITEMS) + 8 * (start - 2))
            if (load(request + handle) ^ at(table, NULL)) & at(table, HANDLE_BITS):
                break
            start -= 2
        if start < end:
            call(at(table, CUT), (posted, start, end, 0))
        end = start - 2


@cfunc(_METHOD_OF_C, cache=True)  # type: ignore[untyped-decorator]
def wait(owner: int, arguments: int, count: int, keywords: int) -> int:
    """Wait for a list of requests: ``(requests)``."""
    table = load(load(owner + FIRST) + DATA)
    if keywords == 0 and count == 1 and _are_requests(table, load(arguments)):
        thread = call(at(table, LET_OTHERS_RUN), ())
        error = _test(table, load(arguments))
        call(at(table, RUN_AGAIN), (thread,))
        if error == 0:
            _let_go(table, at(table, SENDS))
            _let_go(table, at(table, RECEIVES))
            call(at(table, HOLD), (at(table, NONE),))
            return at(table, NONE)
        if error > 0:
            number = call(at(table, INT_OBJECT), (error,))
            raised = call(at(table, CALL_ONE), (at(table, FAIL), number))
            call(at(table, RELEASE), (number,))
            return raised
    return call(at(table, CALL), (at(table, METHOD), arguments, count, keywords))
