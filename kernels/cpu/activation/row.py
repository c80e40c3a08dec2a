"""Finishing one row, for kernels that have it in the cache, and what they are given for it.

Arrays of graph neural networks may lie anywhere in a row of a wider array: kernels go by pointers
and by the distance of two rows. Numba lets go of an array that a kernel made after its last use,
pointers or not: their pointers are taken anew inside of loops.
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
from penstock.kernels.cpu.vector import pointer
from penstock.kernels.gnn_rules import ID_BITS, SLOPE, Activation, Dropout, Epilogue

NONE, RELU, LEAKY_RELU, ELU, TANH, SIGMOID = (int(each) for each in Activation)


class Steps(NamedTuple):
    """An Epilogue for a kernel: what does not exist is empty. All are arrays, or all pointers."""

    bias: Any
    skip: Any
    ids: Any
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

    Numba compiles anew for writable and for read-only arrays, and mapped files are read-only.
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


# Kernels are called for a few rows at a time, with the same few ways to finish.
_KNOWN: WeakKeyDictionary[Epilogue, Steps] = WeakKeyDictionary()


def steps_of(how: Epilogue | None, like: Array) -> Steps:
    """Return how to finish values of the type of ``like``."""
    if how is None:
        return _bare_steps(like.dtype)
    steps = _KNOWN.get(how)
    if steps is None or type(steps.zero) is not like.dtype.type:
        steps = _KNOWN[how] = steps_of_drop(
            how.drop,
            like,
            bias=read_only(how.bias, like),
            skip=read_only(how.skip, like, 2),
            biased=how.bias is not None,
            skipping=how.skip is not None,
            activation=int(how.activation),
        )
    return steps


@cache
def _bare_steps(dtype: Any) -> Steps:
    return steps_of_drop(None, _empty(dtype))


def steps_of_drop(drop: Dropout | None, like: Array, **others: Any) -> Steps:
    """Return steps of which only those of a drop are set, and ``others``."""
    kind = like.dtype.type
    steps = {
        "bias": _empty(like.dtype),
        "skip": _empty(like.dtype, 2),
        "skip_stride": 0,
        "biased": False,
        "skipping": False,
        "activation": NONE,
        **others,
    }
    return Steps(
        ids=_empty(np.dtype(np.int64)) if drop is None else read_only(drop.ids, like),
        dropping=drop is not None,
        seed=np.uint64(0 if drop is None else drop.seed & (2**64 - 1)),
        stream=0 if drop is None else int(drop.stream),
        step=0 if drop is None else drop.step,
        below=np.uint32(0 if drop is None else drop.below),
        scale=kind(1 if drop is None else drop.scale),
        zero=kind(0),
        slope=kind(SLOPE),
        **steps,
    )


@njit(cache=True, inline="always")
def stride(array: Any) -> Any:
    """Return how many numbers lie between the begins of two rows."""
    return array.strides[0] // array.itemsize


@njit(cache=True, inline="always")
def step_pointers(given: Any) -> Any:
    """Return Steps of pointers, good as long as the arrays are there.

    Steps come as a plain tuple: Numba looks longer at the types of a named one, at every call.
    """
    steps = Steps(*given)
    return Steps(
        pointer(steps.bias),
        pointer(steps.skip),
        pointer(steps.ids),
        stride(steps.skip),
        steps.biased,
        steps.skipping,
        steps.activation,
        steps.dropping,
        steps.seed,
        steps.stream,
        steps.step,
        steps.below,
        steps.scale,
        steps.zero,
        steps.slope,
    )


@njit(cache=True)
def row_words(steps: Any, row: Any, width: Any, words: Any) -> None:
    """Write the random word of each feature of a row; there is room for a multiple of four."""
    number = np.uint64(steps.ids[row])
    for group in range((width + 3) // 4):
        which = number | np.uint64(group) << np.uint64(ID_BITS)
        a, b, c, d = philox4x32(steps.seed, steps.stream, which, steps.step)
        words[4 * group], words[4 * group + 1] = a, b
        words[4 * group + 2], words[4 * group + 3] = c, d


@njit(cache=True)
def finish_row(steps: Any, row: Any, out: Any, width: Any, words: Any) -> None:
    """Finish the row that ``out`` points to, in place.

    With a second pointer to the same values loops would run number by number.
    """
    activation, zero = steps.activation, steps.zero
    if steps.biased and activation == RELU and not steps.skipping:
        bias = steps.bias
        for f in range(width):
            value = out[f] + bias[f]
            out[f] = zero if value < zero else value  # so that NaN stays
    else:
        _add_to_row(steps, row, out, width)
        _act_row(steps, out, width)
    if steps.dropping:
        row_words(steps, row, width, words)
        below, scale = steps.below, steps.scale
        for f in range(width):
            out[f] *= scale if words[f] >= below else zero


@njit(cache=True)
def _add_to_row(steps: Any, row: Any, out: Any, width: Any) -> None:
    if steps.biased:
        bias = steps.bias
        for f in range(width):
            out[f] += bias[f]
    if steps.skipping:
        skip = steps.skip
        at = row * steps.skip_stride
        for f in range(width):
            out[f] += skip[at + f]


@njit(cache=True, error_model="numpy")
def _act_row(steps: Any, out: Any, width: Any) -> None:
    activation, zero, slope = steps.activation, steps.zero, steps.slope
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
            power = exponential(-abs(out[f] + out[f]))  # at most 1, whatever the value
            size = (one - power) / (one + power)
            out[f] = -size if out[f] < zero else size
    elif activation == SIGMOID:
        for f in range(width):
            out[f] = one / (one + exponential(-out[f]))


@njit(cache=True, error_model="numpy")
def slope_row(steps: Any, out: Any, grad: Any, width: Any) -> None:
    """Multiply ``grad`` with the activation's derivative; ``out`` is finished and nothing dropped.

    What was dropped is 0 in ``out``, and the caller makes its gradient 0.
    """
    activation, zero, scale = steps.activation, steps.zero, steps.scale
    one = zero + np.int8(1)
    if activation == LEAKY_RELU:
        slope = steps.slope
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
