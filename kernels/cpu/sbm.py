"""Stochastic block model in Numba; names and meaning are naive/sbm.py's."""

from __future__ import annotations

import math

import numpy as np
from numba import uint32, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import entry, njit
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.cpu.search import lower_bound
from penstock.kernels.generate_rules import CENTRES, DEVIATION, LN2, MEAN, OUTSIDE
from penstock.kernels.streams import Stream

_EDGE, _FEATURE = int(Stream.SBM_EDGE), int(Stream.SBM_FEATURE)


def edges(
    seed: int, block_starts: Array, log_inside: float, log_outside: float, first: int, count: int
) -> tuple[Array, Array]:
    """Return the edges of rows ``first .. first + count`` to positions below: two (m,) int32."""
    block_starts = np.asarray(block_starts, np.int64)
    ends: tuple[Array, Array] = _edges(
        np.uint64(seed), block_starts, float(log_inside), float(log_outside), first, count
    )
    return ends


@njit(cache=True, nogil=True)
def _log(x: float) -> float:
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa *= 2.0
        exponent -= 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = 0.0
    for k in range(23, 0, -2):
        series = series * square + 1.0 / k
    return exponent * LN2 + 2.0 * s * series


@njit(cache=True)
def _grown(values: Array, capacity: int) -> Array:
    larger = np.empty(capacity, np.int32)
    for at in range(len(values)):
        larger[at] = values[at]
    return larger


@njit(cache=True, nogil=True)
def _edges(
    seed: int, block_starts: Array, log_inside: float, log_outside: float, first: int, count: int
) -> tuple[Array, Array]:
    capacity, made = 4 * count + 1024, 0
    sources, targets = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    block = lower_bound(block_starts, 0, len(block_starts), first + 1) - 1
    words = np.empty(4, np.uint32)
    for u in range(first, first + count):
        while u >= block_starts[block + 1]:
            block += 1
        for outside in range(2):
            scale = log_outside if outside else log_inside
            if scale == 0.0:
                continue
            at = 0 if outside else block_starts[block]
            high = block_starts[block] if outside else u
            step, left = (OUTSIDE if outside else 0), 0
            while at < high:
                if left == 0:
                    words[0], words[1], words[2], words[3] = philox4x32(seed, _EDGE, u, step)
                    step, left = step + 1, 4
                skip = _log((np.float64(words[4 - left]) + 0.5) * 2.0**-32) / scale
                left -= 1
                if skip >= high - at:
                    break
                at += np.int64(skip)
                if made == capacity:
                    capacity *= 2
                    sources, targets = _grown(sources, capacity), _grown(targets, capacity)
                sources[made], targets[made] = u, at
                made += 1
                at += 1
    return sources[:made].copy(), targets[:made].copy()


def normals(seed: int, first: int, count: int, width: int) -> Array:
    """Return approximately normal numbers, mean 0 and deviation 1: (count, width) float32."""
    drawn: Array = _dense(
        np.uint64(seed),
        np.zeros(count, np.int32),
        np.zeros((1, width), np.float32),
        np.float32(1),
        np.uint64(first),
    )
    return drawn


def dense(seed: int, labels: Array, blocks: int, width: int, noise: float, first: int) -> Array:
    """Return the centre of each node's block plus noise: (n, width) float32."""
    centres = normals(seed, CENTRES, blocks, width)
    moved: Array = _dense(np.uint64(seed), labels, centres, np.float32(noise), np.uint64(first))
    return moved


@njit(cache=True, nogil=True)
def _dense(seed: int, labels: Array, centres: Array, noise: float, first: int) -> Array:
    width = centres.shape[1]
    features = np.empty((len(labels), width), np.float32)
    sums = np.empty(width + 1, np.uint32)
    for row in range(len(labels)):
        which = uint64(first) + uint64(row)
        for step in range((width + 1) // 2):
            a, b, c, d = philox4x32(seed, _FEATURE, which, step)
            low = uint32(0xFFFF)
            sums[2 * step] = (a & low) + (a >> uint32(16)) + (b & low) + (b >> uint32(16))
            sums[2 * step + 1] = (c & low) + (c >> uint32(16)) + (d & low) + (d >> uint32(16))
        for column in range(width):
            normal = np.float32((np.float64(sums[column]) - MEAN) / DEVIATION)
            features[row, column] = centres[labels[row], column] + normal * noise
    return features


@entry()
def sparse(
    seed: uint64, labels: Array, blocks: int, width: int, words: int, topic: int, first: int
) -> tuple[Array, Array]:
    """Return each node's bag of words as CSR: indptr (n + 1,) int64, indices (m,) int32."""
    indptr = np.zeros(len(labels) + 1, np.int64)
    indices = np.empty(len(labels) * words, np.int32)
    bag = np.empty(words, np.int32)
    end = 0
    for row in range(len(labels)):
        for step in range(words):
            a, b, _, _ = philox4x32(seed, _FEATURE, uint64(first) + uint64(row), step)
            low, high = np.int64(0), np.int64(width)
            if uint64(a) < uint64(topic):
                label = np.int64(labels[row])
                low, high = label * width // blocks, (label + 1) * width // blocks
            bag[step] = low + ((np.int64(b) * (high - low)) >> 32)
        bag.sort()
        for step in range(words):
            if step == 0 or bag[step] != bag[step - 1]:
                indices[end] = bag[step]
                end += 1
        indptr[row + 1] = end
    return indptr, indices[:end].copy()
