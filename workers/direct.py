"""Short messages straight from NumPy's memory to MPI, past the interpreter.

To send eight bytes takes MPI less time than it takes Python to say so. Therefore ``isend``,
``irecv`` and ``wait`` of a communicator are compiled functions for what is common: short arrays of
numbers, and requests that are done within microseconds. Whatever else they are given, they hand
on to the methods that they stand for, which do the same for every case.

The compiled code knows where CPython and NumPy keep what it reads of their objects. That is looked
at when it is loaded; where it is not as expected, the methods do everything.
"""

from __future__ import annotations

from numba import cfunc, njit, types

from penstock.workers.by_address import call, load

# Copied while the interpreter waits, so that it must not take long.
SHORT = 1 << 16
_POLLS = 40  # a few microseconds

# Where objects keep what is read: any object, a list, a tuple, an array, the type of an array.
_TYPE = 8
_LENGTH, _ITEMS = 16, 24
_FIRST = 24
_DATA, _NDIM, _SHAPE, _DTYPE, _FLAGS = 16, 24, 32, 56, 64
_DTYPE_FLAGS, _ITEMSIZE = 32, 40
_CONTIGUOUS, _WRITEABLE = 0x1, 0x400

# Places in the table that a compiled function finds in the tuple it belongs to, 8 bytes each.
(
    _METHOD,  # what does it where this cannot
    _POST,  # MPI_Isend or MPI_Irecv
    _NEEDED,  # flags of an array
    _SENDS,
    _RECEIVES,
    _OTHER_SENDS,
    _OTHER_RECEIVES,
    _COMM,
    _BYTE,
    _TEST,
    _HANDLE,  # where a request keeps MPI's
    _HANDLE_BITS,
    _NULL,
    _NONE,
    _ARRAY_TYPE,
    _INT_TYPE,
    _LIST_TYPE,
    _REQUEST_TYPE,
    _INT_VALUE,
    _NEW,
    _NEW_TUPLE,
    _SET_ITEM,
    _APPEND,
    _CUT,
    _HOLD,
    _RELEASE,
    _CALL,
    _LIMIT,
    _TAGS,
    _FLAG,
    _STATUS,
) = range(31)
_STATUS_SIZE = 64
_C_FUNCTION = types.intp(types.intp, types.intp, types.intp, types.intp)
_LOW = 0xFFFFFFFF


@njit(types.int64(types.int64, types.int64), cache=True)  # type: ignore[untyped-decorator]
def _integer(table: int, value: int) -> int:
    """Return what an ``int`` holds, or -1 where it is negative, long, or another object."""
    if load(value + _TYPE) != load(table + 8 * _INT_TYPE):
        return -1
    return int(call(load(table + 8 * _INT_VALUE), (value, table + 8 * _FLAG)))


@njit(types.int64(types.int64, types.int64), cache=True)  # type: ignore[untyped-decorator]
def _size(table: int, array: int) -> int:
    """Return the bytes of an array that can travel as they are, and are few; else -1."""
    if load(array + _TYPE) != load(table + 8 * _ARRAY_TYPE):
        return -1
    needed, dtype = load(table + 8 * _NEEDED), load(array + _DTYPE)
    # Types without flags are numbers: no pointers, nothing that wants to be looked at.
    if load(array + _FLAGS) & needed != needed or load(dtype + _DTYPE_FLAGS) != 0:
        return -1
    size = load(dtype + _ITEMSIZE)
    for i in range(load(array + _NDIM) & _LOW):
        size *= load(load(array + _SHAPE) + 8 * i)
    return size if size <= load(table + 8 * _LIMIT) else -1


@cfunc(_C_FUNCTION, cache=True)  # type: ignore[untyped-decorator]
def _post(owner: int, arguments: int, count: int, keywords: int) -> int:
    """Start to send or to receive: ``(array, peer)`` or ``(array, peer, tag)``."""
    table = load(load(owner + _FIRST) + _DATA)
    if keywords == 0 and (count == 2 or count == 3):
        array = load(arguments)
        size = _size(table, array)
        peer = _integer(table, load(arguments + 8))
        tag = _integer(table, load(arguments + 16)) if count == 3 else 0
        if size >= 0 and peer >= 0 and 0 <= tag < load(table + 8 * _TAGS):
            request = call(load(table + 8 * _NEW), (load(table + 8 * _REQUEST_TYPE),))
            pair = call(load(table + 8 * _NEW_TUPLE), (2,)) if request != 0 else 0
            if pair == 0:
                return 0
            call(load(table + 8 * _HOLD), (array,))
            call(load(table + 8 * _SET_ITEM), (pair, 0, request))
            call(load(table + 8 * _SET_ITEM), (pair, 1, array))
            error = call(
                load(table + 8 * _POST),
                (
                    load(array + _DATA),
                    size,
                    load(table + 8 * _BYTE),
                    peer,
                    tag,
                    load(table + 8 * _COMM),
                    request + load(table + 8 * _HANDLE),
                ),
            )
            if error & _LOW == 0:
                posted = load(table + 8 * _SENDS)
                if call(load(table + 8 * _APPEND), (posted, pair)) & _LOW != 0:
                    return 0  # without memory; the message keeps the array
                call(load(table + 8 * _HOLD), (request,))
                call(load(table + 8 * _RELEASE), (pair,))
                return int(request)
            call(load(table + 8 * _RELEASE), (pair,))
    method = load(table + 8 * _METHOD)
    return int(call(load(table + 8 * _CALL), (method, arguments, count, keywords)))


@njit(types.boolean(types.int64, types.int64), cache=True)  # type: ignore[untyped-decorator]
def _are_requests(table: int, found: int) -> bool:
    """Return whether an object is a list of MPI requests and nothing else."""
    if load(found + _TYPE) != load(table + 8 * _LIST_TYPE):
        return False
    items, kind = load(found + _ITEMS), load(table + 8 * _REQUEST_TYPE)
    for i in range(load(found + _LENGTH)):
        if load(load(items + 8 * i) + _TYPE) != kind:
            return False
    return True


@njit(types.boolean(types.int64, types.int64), cache=True)  # type: ignore[untyped-decorator]
def _all_done(table: int, requests: int) -> bool:
    """Test the requests of a list for a moment; return whether they are done."""
    count, items, done = load(requests + _LENGTH), load(requests + _ITEMS), 0
    test, handle = load(table + 8 * _TEST), load(table + 8 * _HANDLE)
    flag, status = table + 8 * _FLAG, table + 8 * _STATUS
    for _ in range(_POLLS):
        while done < count:
            if call(test, (load(items + 8 * done) + handle, flag, status)) & _LOW != 0:
                return False  # the method finds the error again, and raises it
            if load(flag) & _LOW == 0:
                break
            done += 1
        if done == count:
            return True
    return False


@njit(types.void(types.int64, types.int64), cache=True)  # type: ignore[untyped-decorator]
def _let_go(table: int, posted: int) -> None:
    """Remove from a list of (request, array) those that are done."""
    handle, null = load(table + 8 * _HANDLE), load(table + 8 * _NULL)
    bits, cut = load(table + 8 * _HANDLE_BITS), load(table + 8 * _CUT)
    end = load(posted + _LENGTH)
    while end > 0:
        start = end  # of the requests before ``end`` that are done
        while start > 0:
            request = load(load(load(posted + _ITEMS) + 8 * start - 8) + _FIRST)
            if (load(request + handle) ^ null) & bits != 0:
                break
            start -= 1
        if start < end:
            call(cut, (posted, start, end, 0))
        end = start - 1


@cfunc(_C_FUNCTION, cache=True)  # type: ignore[untyped-decorator]
def _wait(owner: int, arguments: int, count: int, keywords: int) -> int:
    """Wait for a list of requests, ``(requests)``, while nothing else is under way."""
    table = load(load(owner + _FIRST) + _DATA)
    others = load(load(table + 8 * _OTHER_SENDS) + _LENGTH)
    others += load(load(table + 8 * _OTHER_RECEIVES) + _LENGTH)
    if (
        keywords == 0
        and count == 1
        and others == 0
        and _are_requests(table, load(arguments))
        and _all_done(table, load(arguments))
    ):
        _let_go(table, load(table + 8 * _SENDS))
        _let_go(table, load(table + 8 * _RECEIVES))
        call(load(table + 8 * _HOLD), (load(table + 8 * _NONE),))
        return int(load(table + 8 * _NONE))
    method = load(table + 8 * _METHOD)
    return int(call(load(table + 8 * _CALL), (method, arguments, count, keywords)))
