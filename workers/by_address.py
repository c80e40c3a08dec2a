"""Memory and C functions by their addresses, in functions that Numba compiles."""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD = ir.IntType(64)


@intrinsic  # type: ignore[untyped-decorator]
def load(typing: Any, address: Any) -> Any:
    """Read 8 bytes of memory; a call of a C function in between makes that happen anew."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _WORD.as_pointer()))

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def at(typing: Any, table: Any, place: Any) -> Any:
    """Read the value at a place of a table of 8-byte values."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        table = builder.inttoptr(args[0], _WORD.as_pointer())
        return builder.load(builder.gep(table, [args[1]]))

    return types.int64(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def call(typing: Any, function: Any, arguments: Any) -> Any:
    """Call the C function at an address with a tuple of integers and pointers.

    Of an answer that is shorter than 8 bytes, only its own bytes mean something.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        count = len(signature.args[1])
        kind = ir.FunctionType(_WORD, [_WORD] * count)
        callee = builder.inttoptr(args[0], kind.as_pointer())
        return builder.call(callee, [builder.extract_value(args[1], i) for i in range(count)])

    return types.int64(types.int64, arguments), generate


def address_of(function: Any) -> int:
    """Return the address of a function that ctypes found."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
