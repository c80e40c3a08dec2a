"""Products of matrices on the GPU, through the cuBLAS that CuPy has loaded, called directly.

CuPy refuses its own calls of cuBLAS while a stream's launches are captured in a graph; cuBLAS
itself can be captured, if its workspace is permanent. A direct call also costs less time. If many
rows give few outputs, cuBLAS is far from memory's speed; these have their own kernel.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from ctypes import POINTER, c_double, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.errors import MissingExtra, PenstockError
from penstock.kernels.cuda.gnn.launch import lanes_together, matrix, partial_sums
from penstock.kernels.cuda.module import launch_blocks

_AS_IT_IS, _TRANSPOSED = 0, 1  # cublasOperation_t
_DEFAULT_MATH, _TF32_MATH = 0, 3  # cublasMath_t
_WORKSPACE = 16 << 20  # bytes
_MOST = 2**31 - 1  # cuBLAS counts with int
_NAMES = {"f": "cublasSgemm_v2", "d": "cublasDgemm_v2"}  # by NumPy's character of the type
_C_VALUES = {"cublasSgemm_v2": c_float, "cublasDgemm_v2": c_double}
_ONE = {name: value(1) for name, value in _C_VALUES.items()}
_ZERO = {name: value(0) for name, value in _C_VALUES.items()}

# The range of product_columns.cu, and how its blocks divide the work: only the shape decides, so
# that sums have the same order on every GPU.
_LEAST_ROWS = 4096
_MOST_COLUMNS = (1024, 256)  # of a and of b
_MOST_OUTPUTS = 1 << 16
_MOST_OUTPUTS_TF32 = 1 << 13  # beyond, cuBLAS is faster if it may use tensor cores
_FILE = "product_columns"
_THREADS = 128
_BLOCKS = 384  # about three per multiprocessor of an H200, which its registers hold
_ROWS_A_STEP = 16  # of a block
_LEAST_STEPS = 4
_ADDING_THREADS, _ADDED_TOGETHER = 256, 32
# Outputs of a lane; a warp has 8 lanes along a's columns and 4 along b's.
_TILES = (
    *((4, 4), (4, 8), (4, 12), (8, 4), (8, 8), (8, 12)),
    *((13, 4), (13, 8), (16, 4), (16, 8)),
)


def product(a: DeviceArray, b: DeviceArray, out: DeviceArray, *, tf32: bool = False) -> None:
    """Write a @ b to ``out``: matrices of one type, float32 or float64, or views such as ``a.T``.

    The first call on a stream creates its handle, so it must come before that stream's launches are
    captured.

    tf32  whether float32 may be rounded to 10 bits of fraction first
    """
    name = _check(a, b, out)
    rows, inner = a.shape
    columns = b.shape[1]
    if not rows or not columns:
        return
    if not inner:
        out.fill(0)
        return
    # cuBLAS has columns where NumPy has rows: it sees each matrix as its transpose, and the
    # transpose of a @ b is b's times a's.
    (first, first_step), (second, second_step) = _stored(b), _stored(a)
    is_transposed, out_step = _stored(out)
    assert not is_transposed, out.strides
    sizes = (columns, rows, inner, first_step, second_step, out_step)
    assert max(sizes) <= _MOST, _shapes(a, b, out)
    handle = _handle(cp.cuda.Device().id, int(cp.cuda.get_current_stream().ptr), tf32)
    status = _function(name)(
        handle.value,
        *(first, second, columns, rows, inner),
        *(ctypes.byref(_ONE[name]), b.data.ptr, first_step, a.data.ptr, second_step),
        *(ctypes.byref(_ZERO[name]), out.data.ptr, out_step),
    )
    if status:
        _succeeded(name, status, f" for {_shapes(a, b, out)}")


def product_of_columns(
    a: DeviceArray, b: DeviceArray, out: DeviceArray, *, tf32: bool = False
) -> None:
    """Write a.T @ b to ``out``, such as the gradient of weights; ``tf32`` as in ``product``.

    The first call on a stream must come before captures, too.
    """
    _check(a.T, b, out)
    outputs, (rows, down), along = out.size, a.shape, b.shape[1]
    suits = (
        rows >= _LEAST_ROWS
        and down <= _MOST_COLUMNS[0]
        and along <= _MOST_COLUMNS[1]
        and 0 < outputs <= (_MOST_OUTPUTS_TF32 if tf32 else _MOST_OUTPUTS)
        and a.dtype == np.float32
        and all(_stored(each)[0] == _AS_IT_IS for each in (a, b, out))
    )
    if not suits:
        product(a.T, b, out, tf32=tf32)
        return
    tile = min(_TILES, key=lambda tile: _work(tile, down, along))
    tiles_along = -(-along // (4 * tile[1]))
    tiles = tiles_along * -(-down // (8 * tile[0]))
    steps = -(-rows // _ROWS_A_STEP)
    steps_a_share = max(_LEAST_STEPS, -(-steps // max(1, _BLOCKS // tiles)))
    shares = -(-steps // steps_a_share)
    partial = partial_sums(-(-shares * outputs // 2))  # float32, two in the space of one float64
    launch_blocks(
        _FILE,
        f"multiply_columns<{tile[0]}, {tile[1]}>",
        shares * tiles,
        _THREADS,
        *(*matrix(a), _in_fours(a), *matrix(b), _in_fours(b)),
        *(np.int64(rows), np.int32(steps_a_share * _ROWS_A_STEP), np.int32(down)),
        *(np.int32(along), np.int32(tiles_along), np.int32(tiles), partial),
    )
    launch_blocks(
        _FILE,
        "add_shares",
        -(-outputs // _ADDED_TOGETHER),
        _ADDING_THREADS,
        *(partial, np.int32(shares), np.int32(outputs), np.int32(along), *matrix(out)),
    )


def _in_fours(matrix: DeviceArray) -> np.int32:
    return np.int32(lanes_together(matrix.shape[1], matrix) == 4)


def _work(tile: tuple[int, int], down: int, along: int) -> tuple[int, int]:
    """Return the instructions per row, multiplying and reading, and a tile's size."""
    tiles = -(-down // (8 * tile[0])) * -(-along // (4 * tile[1]))
    # A row's factors are read one by one, or four at once, from shared memory, and copied there by
    # about 20 instructions.
    return tiles * (tile[0] * tile[1] + tile[0] + tile[1] // 4 + 20), tile[0] * tile[1]


def _check(a: DeviceArray, b: DeviceArray, out: DeviceArray) -> str:
    kind = a.dtype.char
    assert kind == b.dtype.char == out.dtype.char, (a.dtype, b.dtype, out.dtype)
    assert a.shape[1] == b.shape[0], _shapes(a, b, out)
    assert out.shape == (a.shape[0], b.shape[1]), _shapes(a, b, out)
    return _NAMES[kind]


def _stored(matrix: DeviceArray) -> tuple[int, int]:
    """Return whether a matrix is column-major, and the stride of its lines in values."""
    size = matrix.itemsize
    (rows, columns), (down, along) = matrix.shape, matrix.strides
    # With one row or one column, the stride along it has no meaning.
    if (columns == 1 or along == size) and (rows == 1 or _apart(down, columns, size)):
        return _AS_IT_IS, columns if rows == 1 else down // size
    assert rows == 1 or down == size, matrix.strides
    assert columns == 1 or _apart(along, rows, size), matrix.strides
    return _TRANSPOSED, rows if columns == 1 else along // size


def _apart(stride: int, length: int, size: int) -> bool:
    return stride % size == 0 and stride >= length * size


def _shapes(a: DeviceArray, b: DeviceArray, out: DeviceArray) -> str:
    return f"{a.shape} times {b.shape} into {out.shape}"


# -- cuBLAS ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Handle:
    value: int
    workspace: DeviceArray


@cache
def _handle(device: int, stream: int, tf32: bool) -> _Handle:
    made = c_void_p()
    _succeeded("cublasCreate_v2", _function("cublasCreate_v2")(ctypes.byref(made)))
    handle = _Handle(int(made.value or 0), cp.empty(_WORKSPACE, np.uint8))
    # The stream first: setting it removes the workspace.
    settings: list[tuple[str, Any]] = [
        ("cublasSetStream_v2", (stream,)),
        ("cublasSetWorkspace_v2", (handle.workspace.data.ptr, _WORKSPACE)),
        ("cublasSetMathMode", (_TF32_MATH if tf32 else _DEFAULT_MATH,)),
    ]
    for name, arguments in settings:
        _succeeded(name, _function(name)(handle.value, *arguments))
    return handle


def _succeeded(name: str, status: int, what: str = "") -> None:
    if status:
        raise PenstockError(
            f"cuBLAS failed: {name} gave status {status}{what}",
            remedy="see cublasStatus_t in NVIDIA's documentation of cuBLAS; 3 is too little memory",
        )


@cache
def _function(name: str) -> Any:
    found = getattr(_library(), name)
    found.restype = c_int
    found.argtypes = _ARGUMENTS[name]
    return found


def _gemm(value: Any) -> list[Any]:
    matrix = [c_void_p, c_int]
    scalar = POINTER(value)
    return [c_void_p, *(c_int,) * 5, scalar, *matrix, *matrix, scalar, *matrix]


_ARGUMENTS: dict[str, list[Any]] = {
    "cublasCreate_v2": [POINTER(c_void_p)],
    "cublasSetStream_v2": [c_void_p, c_void_p],
    "cublasSetWorkspace_v2": [c_void_p, c_void_p, c_size_t],
    "cublasSetMathMode": [c_void_p, c_int],
    **{name: _gemm(value) for name, value in _C_VALUES.items()},
}


@cache
def _library() -> Any:
    from cupy.cuda import device, runtime

    device.get_cublas_handle()  # makes CuPy load it
    name = f"libcublas.so.{runtime.runtimeGetVersion() // 1000}"
    for path in (name, _mapped()):
        with suppress(OSError):
            if path:
                return ctypes.CDLL(path)
    raise MissingExtra(
        "cuBLAS was not found",
        expected=name,
        remedy="install the CUDA libraries that CuPy was made for: pip install 'cupy-cuda12x[ctk]'",
    )


def _mapped() -> str:
    with Path("/proc/self/maps").open() as maps:
        paths = (line.split(maxsplit=5)[-1].strip() for line in maps)
        return next((path for path in paths if "/libcublas.so" in path), "")
