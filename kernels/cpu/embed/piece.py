"""The work on a piece of a batch besides matrix products, in Numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.row import stride
from penstock.kernels.cpu.embed.rows import (
    COMPLEX,
    DOT,
    ROTATE,
    TRANSE_L1,
    add_distance_slopes,
    add_penalty,
    add_query_slopes,
    query_row,
    score_rows,
)
from penstock.kernels.cpu.search import lower_bound
from penstock.kernels.cpu.vector import moved, pointer

_LEFT_OUT = np.float32(-np.inf)


@njit(cache=True, nogil=True)
def make_queries(
    model: int, sign: Any, tables: Any, rows: Any, asked: Array, positives: Array
) -> None:
    """Write the queries of some edges, (edges, dim), and the scores of their answers.

    tables  of nodes, and of relations' factors
    rows    in them, of each edge: of the node that is given, the relation and the answer
    """
    nodes, factors = tables
    given, relations, answers = rows
    edges, dim = asked.shape
    for e in range(edges):
        x = moved(pointer(nodes), given[e] * stride(nodes))
        r = moved(pointer(factors), relations[e] * stride(factors))
        q = moved(pointer(asked), e * dim)
        query_row(model, sign, x, r, q, dim)
        v = moved(pointer(nodes), answers[e] * stride(nodes))
        positives[e] = score_rows(model, q, v, dim)


@njit(cache=True, nogil=True)
def gather_rows(nodes: Array, rows: Array, out: Array) -> None:
    """Copy rows of a table, one after another."""
    dim = out.shape[1]
    for i in range(len(rows)):
        x = moved(pointer(nodes), rows[i] * stride(nodes))
        y = moved(pointer(out), i * dim)
        for f in range(dim):
            y[f] = x[f]


@njit(cache=True, nogil=True)
def leave_out(scores: Array, answers: Array, first: int, ordered: Array, order: Array) -> None:
    """Set scores of negatives that equal an edge's answer to -infinity.

    ordered, order  the negatives ascending, and the place of each
    """
    for e in range(scores.shape[0]):
        answer = answers[first + e]
        at = lower_bound(ordered, 0, len(ordered), answer)
        while at < len(ordered) and ordered[at] == answer:
            scores[e, order[at]] = _LEFT_OUT
            at += 1


@njit(cache=True, nogil=True)
def distance_tile(model: int, asked: Array, first: int, others: Array, scores: Array) -> None:
    """Write the scores of a tile of queries, from ``first`` on, and negatives."""
    dim = asked.shape[1]
    for e in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            q = moved(pointer(asked), (first + e) * dim)
            v = moved(pointer(others), j * stride(others))
            scores[e, j] = score_rows(model, q, v, dim)


@njit(cache=True, nogil=True)
def distance_tile_slopes(
    model: int,
    asked: Array,
    first: int,
    others: Array,
    scores: Array,
    slopes: Array,
    in_asked: Array,
    in_others: Array,
) -> None:
    """Add the gradients in queries and negatives from those in a tile of scores."""
    dim = asked.shape[1]
    for e in range(slopes.shape[0]):
        for j in range(slopes.shape[1]):
            if slopes[e, j] != np.float32(0):
                add_distance_slopes(
                    model,
                    scores[e, j],
                    slopes[e, j],
                    moved(pointer(asked), (first + e) * dim),
                    moved(pointer(others), j * dim),
                    moved(pointer(in_asked), (first + e) * dim),
                    moved(pointer(in_others), j * dim),
                    dim,
                )


@njit(cache=True, nogil=True)
def add_rows(total: Array, part: Array) -> None:
    """Add one matrix to another."""
    for i in range(total.shape[0]):
        for f in range(total.shape[1]):
            total[i, f] += part[i, f]


@njit(cache=True, nogil=True, error_model="numpy")
def finish_edges(
    model: int,
    sign: Any,
    tables: Any,
    rows: Any,
    queries: Any,
    out: Any,
    penalties: Any,
    losses: Array,
    afresh: bool,
    relation_afresh: bool,
) -> None:
    """Add the part of the answers' scores, and write or add the gradients of each edge's rows.

    queries    as ``make_queries`` writes them, with the gradients in the answers' scores, and
               those in queries of the negatives' scores, (edges, dim)
    out        of each of ``rows``, (edges, width): overwritten if ``afresh``, else added to
    penalties  the power, and the weight for nodes and for relations
    """
    nodes, factors = tables
    given, relations, answers = rows
    asked, positives, slopes, in_asked = queries
    in_given, in_relation, in_answer = out
    power, node_penalty, relation_penalty = penalties
    edges, dim = asked.shape
    width = in_relation.shape[1]
    is_complex = model in (COMPLEX, ROTATE)
    for e in range(edges):
        x = moved(pointer(nodes), given[e] * stride(nodes))
        v = moved(pointer(nodes), answers[e] * stride(nodes))
        r = moved(pointer(factors), relations[e] * stride(factors))
        q, in_q = moved(pointer(asked), e * dim), moved(pointer(in_asked), e * dim)
        in_x = moved(pointer(in_given), e * dim)
        in_v = moved(pointer(in_answer), e * dim)
        in_r = moved(pointer(in_relation), e * width)
        if afresh:
            _clear(in_x, dim)
            _clear(in_v, dim)
        if relation_afresh:
            _clear(in_r, width)
        if model < TRANSE_L1:
            _add_products(slopes[e], q, v, in_q, in_v, dim)
        else:
            add_distance_slopes(model, positives[e], slopes[e], q, v, in_q, in_v, dim)
        add_query_slopes(model, sign, x, r, in_q, in_x, in_r, dim)
        if node_penalty > 0:
            losses[e] += add_penalty(is_complex, power, node_penalty, x, in_x, dim)
            losses[e] += add_penalty(is_complex, power, node_penalty, v, in_v, dim)
        if relation_penalty > 0 and DOT < model < ROTATE:
            losses[e] += add_penalty(is_complex, power, relation_penalty, r, in_r, width)


@njit(cache=True, nogil=True)
def penalise(power: int, weight: Any, x: Array, slope: Array) -> float:
    """Add the gradient of the penalty of some values; return the penalty."""
    penalty: float = add_penalty(False, power, weight, pointer(x), pointer(slope), len(x))
    return penalty


@njit(cache=True)
def _clear(row: Any, width: Any) -> None:
    for f in range(width):
        row[f] = np.float32(0)


@njit(cache=True, fastmath={"contract"})
def _add_products(slope: Any, q: Any, v: Any, in_q: Any, in_v: Any, dim: Any) -> None:
    for f in range(dim):
        in_q[f] += slope * v[f]
    for f in range(dim):
        in_v[f] += slope * q[f]
