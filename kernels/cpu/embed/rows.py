"""Queries and scores of single rows, in Numba, for kernels that loop over edges.

Rows are pointers. A relation's row is given as its factor: ``factors_of`` turns phases into numbers
of modulus 1, after which RotatE's queries are ComplEx'.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import moved
from penstock.kernels.embed_rules import EmbedRules, Model

DOT, DISTMULT, COMPLEX, RESCAL, TUCKER, TRANSE_L1, TRANSE_L2, ROTATE = (
    int(model) for model in Model
)
_NO_FACTORS = np.zeros((1, 0), np.float32)


def factors_of(relations: Array | None, rules: EmbedRules) -> Array:
    """Return (rows, width) float32, the relations' factors; (1, 0) without relations."""
    if relations is None:
        return _NO_FACTORS
    if rules.model != Model.ROTATE:
        return relations
    return np.concatenate([np.cos(relations), np.sin(relations)], axis=1)


@njit(cache=True, fastmath={"contract", "reassoc"})
def add_matrix_product(from_left: bool, x: Any, matrix: Any, out: Any, dim: int) -> None:
    """Add the product of a row and a matrix, or of the matrix and the row."""
    for i in range(dim):
        row = moved(matrix, i * dim)
        if from_left:
            factor = x[i]
            for f in range(dim):
                out[f] += factor * row[f]
        else:
            total = x[0] * row[0]
            for f in range(1, dim):
                total += x[f] * row[f]
            out[i] += total


@njit(cache=True, fastmath={"contract"})
def query_row(model: int, sign: Any, x: Any, r: Any, out: Any, dim: int) -> None:
    """Write a query; sign is 1 for queries of tails and -1 for heads."""
    if model == DOT:
        for f in range(dim):
            out[f] = x[f]
    elif model == DISTMULT:
        for f in range(dim):
            out[f] = x[f] * r[f]
    elif model in (TRANSE_L1, TRANSE_L2):
        for f in range(dim):
            out[f] = x[f] + sign * r[f]
    elif model in (RESCAL, TUCKER):
        for f in range(dim):
            out[f] = 0
        add_matrix_product(sign > 0, x, r, out, dim)
    else:
        half = dim // 2
        for f in range(half):
            out[f] = x[f] * r[f] - sign * x[half + f] * r[half + f]
        for f in range(half):
            out[half + f] = x[half + f] * r[f] + sign * x[f] * r[half + f]


@njit(cache=True, fastmath={"contract"})
def add_query_slopes(
    model: int, sign: Any, x: Any, r: Any, slope: Any, in_x: Any, in_r: Any, dim: int
) -> None:
    """Add the gradients in a query's node and relation from those in the query.

    Not in a matrix, which many edges share.
    """
    if model == DOT:
        for f in range(dim):
            in_x[f] += slope[f]
    elif model == DISTMULT:
        for f in range(dim):
            in_x[f] += slope[f] * r[f]
        for f in range(dim):
            in_r[f] += slope[f] * x[f]
    elif model in (TRANSE_L1, TRANSE_L2):
        for f in range(dim):
            in_x[f] += slope[f]
        for f in range(dim):
            in_r[f] += sign * slope[f]
    elif model in (RESCAL, TUCKER):
        add_matrix_product(sign < 0, slope, r, in_x, dim)
    else:
        half = dim // 2
        for f in range(half):
            in_x[f] += slope[f] * r[f] + sign * slope[half + f] * r[half + f]
        for f in range(half):
            in_x[half + f] += slope[half + f] * r[f] - sign * slope[f] * r[half + f]
        if model == COMPLEX:
            for f in range(half):
                in_r[f] += slope[f] * x[f] + slope[half + f] * x[half + f]
            for f in range(half):
                in_r[half + f] += sign * (slope[half + f] * x[f] - slope[f] * x[half + f])
        else:
            for f in range(half):
                real = slope[f] * x[f] + slope[half + f] * x[half + f]
                imaginary = sign * (slope[half + f] * x[f] - slope[f] * x[half + f])
                in_r[f] += imaginary * r[f] - real * r[half + f]


@njit(cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def score_rows(model: int, q: Any, v: Any, dim: int) -> Any:
    """Return the score of a query and a candidate."""
    total = np.float32(0)
    if model < TRANSE_L1:
        for f in range(dim):
            total += q[f] * v[f]
        return total
    if model == TRANSE_L1:
        for f in range(dim):
            total += abs(q[f] - v[f])
        return -total
    if model == TRANSE_L2:
        for f in range(dim):
            total += (q[f] - v[f]) * (q[f] - v[f])
        return -np.float32(math.sqrt(total))
    half = dim // 2
    for f in range(half):
        real, imaginary = q[f] - v[f], q[half + f] - v[half + f]
        total += np.float32(math.sqrt(real * real + imaginary * imaginary))
    return -total


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def add_distance_slopes(
    model: int, score: Any, slope: Any, q: Any, v: Any, in_q: Any, in_v: Any, dim: int
) -> None:
    """Add the gradients in a query and a candidate from that in their negative distance."""
    zero = np.float32(0)
    if model == TRANSE_L1:
        for f in range(dim):
            away = q[f] - v[f]
            unit = (slope if away > zero else zero) - (slope if away < zero else zero)
            in_q[f] -= unit
            in_v[f] += unit
    elif model == TRANSE_L2:
        share = zero if score == zero else -slope / score
        for f in range(dim):
            unit = share * (q[f] - v[f])
            in_q[f] -= unit
            in_v[f] += unit
    else:
        half = dim // 2
        for f in range(half):
            real, imaginary = q[f] - v[f], q[half + f] - v[half + f]
            size = np.float32(math.sqrt(real * real + imaginary * imaginary))
            share = zero if size == zero else slope / size
            in_q[f] -= share * real
            in_v[f] += share * real
            in_q[half + f] -= share * imaginary
            in_v[half + f] += share * imaginary


@njit(cache=True, fastmath={"contract"})
def add_penalty(is_complex: bool, power: int, weight: Any, x: Any, slope: Any, width: int) -> float:
    """Add the gradient of a row's penalty; return the penalty."""
    total = 0.0
    half = width // 2 if is_complex else width
    for f in range(half):
        square = x[f] * x[f]
        if is_complex:
            square += x[half + f] * x[half + f]
        size = np.float32(math.sqrt(square)) if power == 3 else np.float32(1)
        factor = weight * np.float32(power) * size
        slope[f] += factor * x[f]
        if is_complex:
            slope[half + f] += factor * x[half + f]
        total += np.float64(square * size)
    return np.float64(weight) * total
