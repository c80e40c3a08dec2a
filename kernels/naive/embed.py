"""Training embeddings of nodes and relations: the reference, in NumPy and float64.

``kernels/embed_rules.py`` defines the computation.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.embed_rules import (
    CHUNK_BITS,
    Batch,
    EmbedRules,
    Known,
    Loss,
    Model,
    NegativePool,
    Optimizer,
    Side,
    Table,
)
from penstock.kernels.naive.philox import philox4x32
from penstock.kernels.streams import Stream


def workspace(
    threads: int | None = None, rules: EmbedRules | None = None
) -> AbstractContextManager[Any]:
    """Return the context manager for other functions' ``work``; here they need none.

    threads  at most, on processors; None: all cores of this process
    rules    of the following steps: a GPU compiles its kernels for them meanwhile
    """
    return nullcontext()


def draw_negatives(
    seed: int, number: int, sides: int, chunks: int, count: int, pool: NegativePool
) -> Array:
    """Return the negatives of a batch: (sides, chunks, count) int32 rows.

    ``number`` counts the batches of a training run.
    """
    groups = np.arange(sides * chunks, dtype=np.uint64) | np.uint64(number << CHUNK_BITS)
    places = np.arange(count, dtype=np.uint64)
    words = philox4x32(seed, Stream.EMBED_NEGATIVE, groups[:, None], places[None])
    low, high, _, coin = (word.astype(np.uint64) for word in words)
    total = np.uint64(pool.start[-1])
    # The upper half of a product of 64 and at most 31 bits, in pieces.
    slot = ((low * total >> np.uint64(32)) + high * total >> np.uint64(32)).astype(np.int64)
    if pool.chance is not None and pool.other is not None:
        own = coin.astype(np.float64) < pool.chance[slot].astype(np.float64) * 2**32
        slot = np.where(own, slot, pool.other[slot])
    which = np.searchsorted(pool.start, slot, side="right") - 1
    rows: Array = (pool.first[which] + slot - pool.start[which]).astype(np.int32)
    return rows.reshape(sides, chunks, count)


def step(
    nodes: Table,
    relations: Table | None,
    batch: Batch,
    rules: EmbedRules,
    lr: float,
    number: int = 1,
    work: Any = None,
) -> float:
    """Train one batch, in place; return its loss.

    relations  None for DOT
    number     Adam's n
    work       result of an entered ``workspace``; None: one for this call
    """
    loss, node_slopes, relation_slopes = gradients(nodes, relations, batch, rules)
    _update(nodes, node_slopes, _touched(batch, len(nodes.values)), rules, lr, number)
    if relations is not None:
        touched = np.zeros(len(relations.values), bool)
        touched[len(touched) - rules.shared_rows :] = True
        for side in rules.sides:
            touched[_relation_rows(batch, side, rules)] = True
        _update(relations, relation_slopes, touched, rules, lr, number)
    return loss


def gradients(
    nodes: Table, relations: Table | None, batch: Batch, rules: EmbedRules
) -> tuple[float, Array, Array]:
    """Return a batch's loss and its gradients: (rows, width) float64 of nodes and of relations."""
    x = nodes.values.astype(np.float64)
    edges = len(batch.heads)
    r = np.zeros((1, 0)) if relations is None else relations.values.astype(np.float64)
    slope_x, slope_r = np.zeros_like(x), np.zeros_like(r)
    shape = len(rules.sides), rules.chunks(edges), batch.negatives.shape[2]
    negatives = np.broadcast_to(batch.negatives, shape)
    total = 0.0
    for place, side in enumerate(rules.sides):
        given, answer = (batch.heads, batch.tails)[:: 1 if side == Side.TAIL else -1]
        rows = _relation_rows(batch, side, rules)
        asked = Side.TAIL if rules.inverse else side
        factors = _factors(r, rows, rules)
        query = _query(x[given], factors, asked, rules)
        slope_query = np.zeros_like(query)
        for chunk in range(shape[1]):
            here = slice(chunk * rules.chunk, min((chunk + 1) * rules.chunk, edges))
            truth, others = answer[here], negatives[place, chunk]
            q, v = query[here], x[others]
            positive = _score(q, x[truth], rules)
            negative = _score(q[:, None], v[None], rules)
            negative[truth[:, None] == others[None]] = -np.inf
            loss, by_positive, by_negative = _loss(positive, negative, rules)
            if batch.weights is not None:
                by = batch.weights[here].astype(np.float64)
                loss, by_positive, by_negative = (
                    loss * by,
                    by_positive * by,
                    by_negative * by[:, None],
                )
            total += loss.sum()
            in_query, in_answer = _score_slopes(q, x[truth], by_positive, rules)
            slope_query[here] += in_query
            np.add.at(slope_x, truth, in_answer)
            in_query, in_others = _score_slopes(q[:, None], v[None], by_negative, rules)
            slope_query[here] += in_query.sum(axis=1)
            np.add.at(slope_x, others, in_others.sum(axis=0))
        in_given, in_factors = _query_slopes(x[given], factors, slope_query, asked, rules)
        np.add.at(slope_x, given, in_given)
        if rules.model == Model.TUCKER:
            core = len(r) - rules.shared_rows
            slope_r[core:] += in_factors.T @ r[rows]
            in_factors = in_factors @ r[core:]
        np.add.at(slope_r, rows, in_factors)
        for ids in (given, answer):
            total += _penalty(x, slope_x, ids, rules.node_penalty, rules.is_complex, rules)
        if rules.model not in (Model.DOT, Model.ROTATE):
            weight = rules.relation_penalty
            total += _penalty(r, slope_r, rows, weight, rules.is_complex, rules)
    return float(total), slope_x, slope_r


def queries(
    nodes: Array,
    relations: Array | None,
    given: Array,
    relation: Any,
    side: Side,
    rules: EmbedRules,
) -> Array:
    """Return the queries of a side: (n, dim) float32.

    given     (n,) rows of ``nodes``: heads, if tails are queried
    relation  (n,) rows of ``relations``, as edges name them, not yet inverses; None for DOT
    """
    x = nodes[given].astype(np.float64)
    if relations is None:
        return x.astype(np.float32)
    rows = relation
    if rules.inverse:
        rows = relation + (rules.inverse if side == Side.HEAD else 0)
        side = Side.TAIL
    factors = _factors(relations.astype(np.float64), rows, rules)
    return _query(x, factors, side, rules).astype(np.float32)


def answer_scores(asked: Array, answers: Array, rules: EmbedRules) -> Array:
    """Return the score of one candidate for each query: (n,) float64 of (n, dim) and (n, dim)."""
    return _score(asked.astype(np.float64), answers.astype(np.float64), rules)


def count(
    asked: Array,
    scores: Array,
    answers: Array,
    table: Array,
    rules: EmbedRules,
    counts: Array,
    first: int = 0,
    known: Known | None = None,
    work: Any = None,
) -> None:
    """Add the numbers of candidates whose scores exceed and equal that of each query's answer.

    asked    (n, dim) float32, queries
    scores   (n,) float64, of the answers
    answers  (n,) ids of the answers, which are not candidates
    table    (m, dim) float32: row i is the candidate of id ``first + i``
    counts   (n, 2) int64: greater and equal
    """
    candidates = table.astype(np.float64)
    for i in range(len(asked)):
        found = _score(asked[i : i + 1].astype(np.float64), candidates, rules)
        valid = ~_excluded(i, first, len(table), answers[i : i + 1], known)
        numbers = ~np.isnan(found)
        if np.isnan(scores[i]):
            greater, equal = numbers, ~numbers
        else:
            greater, equal = found > scores[i], found == scores[i]
        counts[i] += np.sum(greater & valid), np.sum(equal & valid)


def top(
    asked: Array,
    table: Array,
    rules: EmbedRules,
    k: int,
    first: int = 0,
    known: Known | None = None,
    best: tuple[Array, Array] | None = None,
    work: Any = None,
) -> tuple[Array, Array]:
    """Return the best k candidates of each query: scores (n, k) float64 and ids (n, k) int64.

    The best first, of equals the lower id; NaN is not a candidate. If there are fewer than k,
    -infinity and -1. ``best`` is the result for other candidates, with other ids.
    """
    if best is None:
        best = np.full((len(asked), k), -np.inf), np.full((len(asked), k), -1, np.int64)
    scores, ids = best[0].copy(), best[1].copy()
    candidates = table.astype(np.float64)
    for i in range(len(asked)):
        found = _score(asked[i : i + 1].astype(np.float64), candidates, rules)
        none = np.empty(0, np.int64)
        valid = ~(_excluded(i, first, len(table), none, known) | np.isnan(found))
        all_scores = np.concatenate([scores[i], found[valid]])
        all_ids = np.concatenate([ids[i], first + np.flatnonzero(valid)])
        order = np.lexsort((np.where(all_ids < 0, 1 << 62, all_ids), -all_scores))[:k]
        scores[i], ids[i] = all_scores[order], all_ids[order]
    return scores, ids


def _excluded(i: int, first: int, size: int, answer: Array, known: Known | None) -> Array:
    ids = np.asarray(answer, np.int64)
    if known is not None:
        row = known.indices[known.indptr[i] : known.indptr[i + 1]]
        ids = np.concatenate([ids, row.astype(np.int64)])
    ids = ids - first
    excluded = np.zeros(size, bool)
    excluded[ids[(ids >= 0) & (ids < size)]] = True
    return excluded


def _relation_rows(batch: Batch, side: Side, rules: EmbedRules) -> Array:
    if rules.model == Model.DOT:
        return np.zeros(len(batch.heads), np.int64)
    rows: Array = batch.relations
    return rows + rules.inverse if rules.inverse and side == Side.HEAD else rows


def _touched(batch: Batch, rows: int) -> Array:
    touched = np.zeros(rows, bool)
    for ids in (batch.heads, batch.tails, batch.negatives):
        touched[ids] = True
    return touched


def _as_complex(x: Array) -> Array:
    half = x.shape[-1] // 2
    joined: Array = x[..., :half] + 1j * x[..., half:]
    return joined


def _as_matrices(r: Array) -> Array:
    dim = math.isqrt(r.shape[-1])
    return r.reshape(*r.shape[:-1], dim, dim)


def _as_real(z: Array) -> Array:
    return np.concatenate([z.real, z.imag], axis=-1)


def _factors(r: Array, rows: Array, rules: EmbedRules) -> Array:
    """Return the relations' rows, or their matrices."""
    if rules.model != Model.TUCKER:
        return r[rows]
    return r[rows] @ r[len(r) - rules.shared_rows :].T


def _query(x: Array, r: Array, side: Side, rules: EmbedRules) -> Array:
    if rules.model == Model.DOT:
        return x.copy()
    if rules.model == Model.DISTMULT:
        product: Array = x * r
        return product
    if rules.model in (Model.TRANSE_L1, Model.TRANSE_L2):
        moved: Array = x + r if side == Side.TAIL else x - r
        return moved
    if rules.has_matrices:
        how = "ni,nij->nj" if side == Side.TAIL else "nj,nij->ni"
        return np.asarray(np.einsum(how, x, _as_matrices(r)))
    factor = _as_complex(r) if rules.model == Model.COMPLEX else np.exp(1j * r)
    return _as_real(_as_complex(x) * (factor if side == Side.TAIL else factor.conj()))


def _query_slopes(
    x: Array, r: Array, slope: Array, side: Side, rules: EmbedRules
) -> tuple[Array, Array]:
    if rules.model == Model.DOT:
        return slope, np.zeros_like(r)
    if rules.model == Model.DISTMULT:
        return slope * r, slope * x
    if rules.model in (Model.TRANSE_L1, Model.TRANSE_L2):
        return slope, slope if side == Side.TAIL else -slope
    if rules.has_matrices:
        in_x = np.einsum(
            "nj,nij->ni" if side == Side.TAIL else "ni,nij->nj", slope, _as_matrices(r)
        )
        left, right = (x, slope) if side == Side.TAIL else (slope, x)
        return in_x, (left[:, :, None] * right[:, None]).reshape(r.shape)
    g, z = _as_complex(slope), _as_complex(x)
    factor = _as_complex(r) if rules.model == Model.COMPLEX else np.exp(1j * r)
    if side == Side.HEAD:
        factor = factor.conj()
    in_factor = g * z.conj()
    if side == Side.HEAD:
        in_factor = in_factor.conj()
    if rules.model == Model.COMPLEX:
        return _as_real(g * factor.conj()), _as_real(in_factor)
    unit = 1j * np.exp(1j * r)  # the derivative of exp(i r)
    return _as_real(g * factor.conj()), (in_factor * unit.conj()).real


def _score(q: Array, v: Array, rules: EmbedRules) -> Array:
    if not rules.is_distance:
        return np.asarray((q * v).sum(axis=-1))
    away = q - v
    if rules.model == Model.TRANSE_L2:
        return np.asarray(-np.sqrt((away**2).sum(axis=-1)))
    if rules.model == Model.ROTATE:
        away = _as_complex(away)
    return np.asarray(-np.abs(away).sum(axis=-1))


def _score_slopes(q: Array, v: Array, slope: Array, rules: EmbedRules) -> tuple[Array, Array]:
    weight = slope[..., None]
    if not rules.is_distance:
        return weight * v, weight * q
    away = q - v
    if rules.model == Model.TRANSE_L1:
        unit = np.sign(away)
    elif rules.model == Model.TRANSE_L2:
        size = np.sqrt((away**2).sum(axis=-1, keepdims=True))
        unit = away / np.where(size == 0, 1, size)
    else:
        z = _as_complex(away)
        size = np.abs(z)
        unit = _as_real(z / np.where(size == 0, 1, size))
    return -weight * unit, weight * unit


def _loss(p: Array, n: Array, rules: EmbedRules) -> tuple[Array, Array, Array]:
    if rules.loss == Loss.SOFTMAX:
        every = np.concatenate([p[:, None], n], axis=1)
        total = _logsumexp(every)
        return total - p, np.exp(p - total) - 1, np.exp(n - total[:, None])
    if rules.loss == Loss.CONTRASTIVE:
        total = _logsumexp(n)
        some = total > -np.inf
        some |= np.isnan(total)
        share = np.exp(n - np.where(some, total, 0)[:, None])
        return np.where(some, total - p, 0), np.where(some, -1.0, 0), share
    if rules.loss == Loss.LOGISTIC:
        count = n.shape[1]
        loss = _softplus(-p) + _softplus(n).sum(axis=1) / count
        return loss, -_sigmoid(-p), _sigmoid(n) / count
    if rules.loss == Loss.MARGIN:
        count = n.shape[1]
        missing = rules.margin - p[:, None] + n
        by_n = (missing > 0) / count
        return np.maximum(missing, 0).sum(axis=1) / count, -by_n.sum(axis=1), by_n
    left = n > -np.inf
    left |= np.isnan(n)
    scaled = np.where(left, rules.temperature * np.where(left, n, 0), -np.inf)
    total = _logsumexp(scaled)
    share = np.exp(scaled - np.where(total == -np.inf, 0, total)[:, None])
    above = n + rules.margin
    loss = _softplus(-p - rules.margin) + (share * _softplus(above)).sum(axis=1)
    return loss, -_sigmoid(-p - rules.margin), share * _sigmoid(above)


def _logsumexp(x: Array) -> Array:
    largest = x.max(axis=1)
    largest = np.where(largest == -np.inf, 0, largest)
    with np.errstate(divide="ignore"):
        return np.asarray(largest + np.log(np.exp(x - largest[:, None]).sum(axis=1)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _sigmoid(x: Array) -> Array:
    power = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, power) / (1 + power))


def _penalty(
    x: Array, slope: Array, rows: Array, weight: float, is_complex: bool, rules: EmbedRules
) -> float:
    if weight == 0:
        return 0.0
    values = x[rows]
    sizes = np.abs(_as_complex(values) if is_complex else values)
    twice = np.concatenate([sizes, sizes], axis=-1) if is_complex else sizes
    np.add.at(slope, rows, weight * rules.power * twice ** (rules.power - 2) * values)
    return weight * float((sizes**rules.power).sum())


def _update(
    table: Table, slopes: Array, touched: Array, rules: EmbedRules, lr: float, number: int
) -> None:
    x, g = table.values[touched].astype(np.float64), slopes[touched]
    state = table.state[touched].astype(np.float64)
    if rules.optimizer == Optimizer.ADAGRAD:
        state += g**2
        x -= lr * g / (np.sqrt(state) + rules.epsilon)
    elif rules.optimizer == Optimizer.SGD:
        x -= lr * g
    else:
        mean, square = np.split(state, 2, axis=1)
        mean = rules.beta1 * mean + (1 - rules.beta1) * g
        square = rules.beta2 * square + (1 - rules.beta2) * g**2
        deviation = np.sqrt(square / (1 - rules.beta2**number)) + rules.epsilon
        x -= lr / (1 - rules.beta1**number) * mean / deviation
        state = np.concatenate([mean, square], axis=1)
    table.values[touched], table.state[touched] = x, state
