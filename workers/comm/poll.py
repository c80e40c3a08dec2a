"""The compiled loop that tests MPI requests, in its own module so that only a rank loads Numba.

It computes nothing, so it is not a kernel of kernels/.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from penstock.kernels.compiled import njit
from penstock.workers.comm.wait import AGAIN, CANCEL, CANCELLED, CLOCK, DONE, FLAG, STATUS

_MONOTONIC = 1  # CLOCK_MONOTONIC
_YIELD_EVERY = 32  # polls: if ranks share a core, the awaited one must run


@intrinsic  # type: ignore[untyped-decorator]
def _call(typing: Any, function: Any, first: Any, second: Any, third: Any) -> Any:
    """Call the C function of three pointers whose address is ``function``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.IntType(32), [pointer] * 3)
        callee = builder.inttoptr(args[0], kind.as_pointer())
        return builder.call(callee, [builder.inttoptr(a, pointer) for a in args[1:]])

    return types.int32(*[types.int64] * 4), generate


@intrinsic  # type: ignore[untyped-decorator]
def _load(typing: Any, address: Any) -> Any:
    """Read 8 bytes of memory; calls of C functions in between force a new read."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.int64(types.int64), generate


@njit("int64(int64,int64,int64,int64,int64,int64,int64,int64)", nogil=True, cache=True)  # type: ignore[untyped-decorator]
def poll(
    test: int,
    pause: int,
    clock: int,
    requests: int,
    count: int,
    state: int,
    polls: int,
    nanoseconds: int,
) -> int:
    """Test ``count`` requests, whose addresses are at ``requests``, until all are done.

    Or ``polls`` times, or for ``nanoseconds``: on a busy machine one test can take a time slice, as
    Open MPI yields the core in each test if ranks share cores.
    """
    done = 0
    end = 0
    for i in range(polls):
        while done < count:
            error: int = _call(
                test, _load(requests + 8 * done), state + 8 * FLAG, state + 8 * STATUS
            )
            if error != 0:
                return -error
            if _load(state + 8 * FLAG) & 0xFFFFFFFF == 0:
                break
            done += 1
        if done == count:
            return DONE
        if _load(state + 8 * CANCEL) != 0:
            return CANCELLED
        _call(clock, _MONOTONIC, state + 8 * CLOCK, 0)
        now = _load(state + 8 * CLOCK) * 1_000_000_000 + _load(state + 8 * (CLOCK + 1))
        if end == 0:
            end = now + nanoseconds
        elif now >= end:
            return AGAIN
        if i % _YIELD_EVERY == _YIELD_EVERY - 1:
            _call(pause, 0, 0, 0)
    return AGAIN
