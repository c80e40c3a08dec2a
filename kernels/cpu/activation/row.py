"""The epilogue of one row, for kernels that have it in the cache, and their arguments.

A row may be part of a wider array: kernels use pointers and the stride of rows. Numba frees an
array that a kernel made after its last use, even if pointers remain: their pointers are taken again
inside of loops.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.exp import exponential
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.cpu.vector import pointers
from penstock.kernels.gnn_rules import ID_BITS, SLOPE, Activation, Dropout, Epilogue

NONE, RELU, LEAKY_RELU, ELU, TANH, SIGMOID = (int(each) for each in Activation)


class EpilogueFields(NamedTuple):
    """An Epilogue for a kernel: missing arrays are empty. All are arrays, or all pointers."""

    bias: Array
    skip: Array
    ids: Array
    skip_stride: int
    biased: bool
    skipping: bool
    activation: int
    dropping: bool
    seed: Any
    stream: int
    step: int
    below: Any
    scale: Any  # of the type of values, as are the next two
    zero: Any
    slope: Any


def read_only(array: Any, like: Array, dimensions: int = 1) -> Array:
    """Return a read-only view; empty, and of the type of ``like``, for None.

    Numba compiles again for writable and for read-only arrays, and mapped files are read-only.
    """
    if array is None:
        return _empty(like.dtype, dimensions)
    view: Array = array[:]
    view.setflags(write=False)
    return view


@cache
def _empty(dtype: Any, dimensions: int = 1) -> Array:
    empty = np.empty((0,) * dimensions, dtype)
    empty.setflags(write=False)
    return empty


# Kernels are called for a few rows at a time, with few different epilogues.
_KNOWN: WeakKeyDictionary[Epilogue, EpilogueFields] = WeakKeyDictionary()


def epilogue_fields(epilogue: Epilogue | None, like: Array) -> EpilogueFields:
    """Return an epilogue's fields for values of the type of ``like``."""
    if epilogue is None:
        return _no_epilogue(like.dtype)
    fields = _KNOWN.get(epilogue)
    if fields is None or type(fields.zero) is not like.dtype.type:
        fields = _KNOWN[epilogue] = dropout_fields(
            epilogue.drop,
            like,
            bias=read_only(epilogue.bias, like),
            skip=read_only(epilogue.skip, like, 2),
            skip_stride=stride_of(epilogue.skip),
            biased=epilogue.bias is not None,
            skipping=epilogue.skip is not None,
            activation=int(epilogue.activation),
        )
    return fields


@cache
def _no_epilogue(dtype: Any) -> EpilogueFields:
    return dropout_fields(None, _empty(dtype))


def dropout_fields(drop: Dropout | None, like: Array, **others: Any) -> EpilogueFields:
    """Return fields with only those of a drop set, and ``others``."""
    kind = like.dtype.type
    fields = {
        "bias": _empty(like.dtype),
        "skip": _empty(like.dtype, 2),
        "skip_stride": 0,
        "biased": False,
        "skipping": False,
        "activation": NONE,
        **others,
    }
    return EpilogueFields(
        ids=_empty(np.dtype(np.int64)) if drop is None else read_only(drop.ids, like),
        dropping=drop is not None,
        seed=np.uint64(0 if drop is None else drop.seed & (2**64 - 1)),
        stream=0 if drop is None else int(drop.stream),
        step=0 if drop is None else drop.step,
        below=np.uint32(0 if drop is None else drop.below),
        scale=kind(1 if drop is None else drop.scale),
        zero=kind(0),
        slope=kind(SLOPE),
        **fields,
    )


def stride_of(array: Any) -> int:
    """Return the stride of rows in numbers, 0 for None."""
    return 0 if array is None else int(array.strides[0] // array.itemsize)


@njit(cache=True, inline="always")
def stride(array: Any) -> Any:
    """Return the stride of rows in numbers."""
    return array.strides[0] // array.itemsize


@njit(cache=True, inline="always")
def epilogue_pointers(given: Any) -> Any:
    """Return fields as pointers, valid while the arrays live.

    Fields come as a plain tuple: Numba takes longer to type a named one, at every call.
    """
    return pointers(EpilogueFields(*given))


@njit(cache=True)
def row_words(fields: Any, row: Any, width: Any, words: Any) -> None:
    """Write the random word of each feature of a row; ``words`` holds a multiple of four."""
    number = np.uint64(fields.ids[row])
    for group in range((width + 3) // 4):
        which = number | np.uint64(group) << np.uint64(ID_BITS)
        a, b, c, d = philox4x32(fields.seed, fields.stream, which, fields.step)
        words[4 * group], words[4 * group + 1] = a, b
        words[4 * group + 2], words[4 * group + 3] = c, d


@njit(cache=True)
def epilogue_row(fields: Any, row: Any, out: Any, width: Any, words: Any) -> None:
    """Apply an epilogue in place to the row at ``out``.

    With a second pointer to the same values loops would not be vectorised.
    """
    activation, zero = fields.activation, fields.zero
    if fields.biased and activation == RELU and not fields.skipping:
        bias = fields.bias
        for f in range(width):
            value = out[f] + bias[f]
            out[f] = zero if value < zero else value  # keeps NaN
    else:
        _add_to_row(fields, row, out, width)
        _act_row(fields, out, width)
    if fields.dropping:
        row_words(fields, row, width, words)
        below, scale = fields.below, fields.scale
        for f in range(width):
            out[f] *= scale if words[f] >= below else zero


@njit(cache=True)
def _add_to_row(fields: Any, row: Any, out: Any, width: Any) -> None:
    if fields.biased:
        bias = fields.bias
        for f in range(width):
            out[f] += bias[f]
    if fields.skipping:
        skip = fields.skip
        at = row * fields.skip_stride
        for f in range(width):
            out[f] += skip[at + f]


@njit(cache=True, error_model="numpy")
def _act_row(fields: Any, out: Any, width: Any) -> None:
    activation, zero, slope = fields.activation, fields.zero, fields.slope
    one = zero + np.int8(1)
    if activation == RELU:
        for f in range(width):
            out[f] = zero if out[f] < zero else out[f]
    elif activation == LEAKY_RELU:
        for f in range(width):
            out[f] = out[f] if out[f] > zero else slope * out[f]
    elif activation == ELU:
        for f in range(width):
            below = exponential(out[f]) - one
            out[f] = out[f] if out[f] > zero else below
    elif activation == TANH:
        for f in range(width):
            power = exponential(-abs(out[f] + out[f]))  # at most 1
            size = (one - power) / (one + power)
            out[f] = -size if out[f] < zero else size
    elif activation == SIGMOID:
        for f in range(width):
            out[f] = one / (one + exponential(-out[f]))


@njit(cache=True, error_model="numpy")
def slope_row(fields: Any, out: Any, grad: Any, width: Any) -> None:
    """Multiply ``grad`` with the activation's derivative; ``out`` is activated, before dropout.

    A dropped value is 0 in ``out``, and the caller sets its gradient to 0.
    """
    activation, zero, scale = fields.activation, fields.zero, fields.scale
    one = zero + np.int8(1)
    if activation == LEAKY_RELU:
        slope = fields.slope
        for f in range(width):
            grad[f] *= one if out[f] > zero else slope
    elif activation == ELU:
        for f in range(width):
            grad[f] *= one if out[f] > zero else out[f] / scale + one
    elif activation == TANH:
        for f in range(width):
            value = out[f] / scale
            grad[f] *= one - value * value
    elif activation == SIGMOID:
        for f in range(width):
            value = out[f] / scale
            grad[f] *= value * (one - value)
