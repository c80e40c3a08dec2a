"""Random walks, the reference: one walk after another, one step after another.

kernels/walk_rules.py defines the draws. ``transition`` gives the exact chances of a step, for any
sampler. A graph may be in parts, among which walkers move; a whole graph is a single part that no
walker leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.naive.expression import evaluate
from penstock.kernels.naive.philox import philox4x32
from penstock.kernels.streams import Stream
from penstock.kernels.walk_rules import (
    NEVER,
    TRIALS,
    WALK_BITS,
    Owned,
    Sampler,
    Walkers,
    WalkGraph,
    WalkRules,
)
from penstock.kernels.walkers import NAMES, start_walkers

Words = tuple[int, int, int, int]  # of a draw
Draw = Callable[[], Words]


# -- preparation of walks -------------------------------------------------------------------------


def check_weights(indptr: Array, weights: Array) -> tuple[Array, int, int]:
    """Return the largest weight of each row, the first bad edge and the first row of only zeros.

    indptr (rows + 1,) int64, weights (edges,) float32 -> bounds (rows,) float32, 0 for empty rows;
    -1 if no weight is negative, NaN or infinite; -1 if no row has edges but no weight
    """
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    bounds = np.zeros(len(indptr) - 1, np.float32)
    for row in range(len(bounds)):
        bounds[row] = max(weights[indptr[row] : indptr[row + 1]], default=0)
    zero = np.flatnonzero((bounds == 0) & (np.diff(indptr) > 0))
    return bounds, int(bad[0]) if len(bad) else -1, int(zero[0]) if len(zero) else -1


def rows_by_relation(rows: WalkGraph, wanted: Array) -> WalkGraph:
    """Return rows with one group per distinct relation of ``wanted``, and no other edges.

    Edges of a group stay in their order. wanted (groups,) int32. ``neighbours`` are the old rows'.
    """
    indptr, picked = [0], []
    for row in range(len(rows.indptr) - 1):
        edges = np.arange(rows.indptr[row], rows.indptr[row + 1])
        for relation in wanted:
            picked += [edges[rows.relations[edges] == relation]]
            indptr += [indptr[-1] + len(picked[-1])]
    return _picked(rows, picked, groups=len(wanted), indptr=np.array(indptr, np.int64))


def rows_by_time(rows: WalkGraph) -> WalkGraph:
    """Return rows whose edges ascend in time; equal times keep their order.

    ``neighbours`` are the old rows' if they had none.
    """
    picked = []
    for low, high in pairwise(rows.indptr):
        picked += [low + np.argsort(rows.times[low:high], kind="stable")]
    return _picked(rows, picked)


def _picked(rows: WalkGraph, picked: list[Array], **more: Any) -> WalkGraph:
    order = np.concatenate([np.empty(0, np.int64), *picked])
    columns: dict[str, Any] = {
        name: None if (column := getattr(rows, name)) is None else column[order]
        for name in ("indices", "weights", "relations", "times")
    }
    return replace(rows, neighbours=rows.adjacency, **columns, **more)


def prefix_sums(indptr: Array, weights: Array) -> Array:
    """Return the running sums of weights in each row: (edges,) float64."""
    prefix = np.empty(len(weights))
    for low, high in pairwise(indptr):
        prefix[low:high] = np.cumsum(weights[low:high], dtype=np.float64)
    return prefix


def alias_table(indptr: Array, weights: Array) -> tuple[Array, Array]:
    """Return each slot's share for its own edge, and the place in the row of the other edge.

    -> chance (edges,) float32, other (edges,) int32. A row without weight keeps chance 1.
    """
    chance, other = np.ones(len(weights), np.float32), np.zeros(len(weights), np.int32)
    for low, high in pairwise(indptr):
        total, count = weights[low:high].sum(dtype=np.float64), high - low
        if total == 0:
            continue
        share = weights[low:high].astype(np.float64) * count / total
        small, large = list(np.flatnonzero(share < 1)), list(np.flatnonzero(share >= 1))
        while small and large:
            giver, taker = large[-1], small.pop()
            chance[low + taker], other[low + taker] = share[taker], giver
            share[giver] -= 1 - share[taker]
            if share[giver] < 1:
                small.append(large.pop())
        for slot in small:  # rounding remainders; an edge without weight is never taken
            if weights[low + slot] == 0:
                chance[low + slot], other[low + slot] = 0, np.argmax(weights[low:high])
    return chance, other


def tables(rows: WalkGraph, rules: WalkRules) -> WalkGraph:
    """Return rows with the sampler's data."""
    if rows.weights is None:
        return rows
    bounds, _, _ = check_weights(rows.indptr, rows.weights)
    rows = replace(rows, bounds=bounds)
    if rules.sampler == Sampler.ITS:
        rows = replace(rows, prefix=prefix_sums(rows.indptr, rows.weights))
    if rules.sampler == Sampler.ALIAS:
        chance, other = alias_table(rows.indptr, rows.weights)
        rows = replace(rows, chance=chance, other=other)
    return rows


# -- one step --------------------------------------------------------------------------------------


def candidates(
    rows: WalkGraph, rules: WalkRules, node: int, step: int, now: int = NEVER
) -> tuple[int, int]:
    """Return the range of edges from which the step is chosen."""
    group = 0
    if rules.schema and rules.sampler != Sampler.RESERVOIR:
        if step > len(rules.schema) and not rules.cyclic:
            return 0, 0
        group = rules.schema[(step - 1) % len(rules.schema)]
    low, high = rows.indptr[node * rows.groups + group], rows.indptr[node * rows.groups + group + 1]
    if rows.times is not None and rules.sampler != Sampler.RESERVOIR:
        earliest = max(now, rules.earliest) if rules.timed else rules.earliest
        times = rows.times[low:high]
        high = low + np.searchsorted(times, rules.latest, side="right")
        low = min(high, low + np.searchsorted(times, earliest))
    return int(low), int(high)


def factors(rows: WalkGraph, rules: WalkRules, previous: int, targets: Array) -> Array:
    """Return the second-order factor of each target: (targets,) float64."""
    if not rules.second_order or previous < 0:
        return np.ones(len(targets))
    indptr, indices = rows.adjacency
    near = np.isin(targets, indices[indptr[previous] : indptr[previous + 1]])
    factor = np.where(near, 1.0, rules.far_factor)
    return np.where(targets == previous, rules.return_factor, factor)


def transition(
    rows: WalkGraph, rules: WalkRules, node: int, previous: int, step: int, now: int = NEVER
) -> tuple[Array, Array]:
    """Return the possible edges of a step and the chance of each; none if the walk ends."""
    low, high = candidates(rows, rules, node, step, now)
    edges = np.arange(low, high)
    targets = rows.indices[low:high]
    weights = np.ones(len(edges)) if rows.weights is None else rows.weights[low:high].astype(float)
    weights *= factors(rows, rules, previous, targets)
    if rules.sampler == Sampler.RESERVOIR:
        if rules.expression is not None:
            weights = evaluate(rules.expression, rows, edges, node, previous, step)
        if rules.schema:
            over = step > len(rules.schema) and not rules.cyclic
            wanted = -1 if over else rules.schema[(step - 1) % len(rules.schema)]
            weights[rows.relations[low:high] != wanted] = 0
        if rows.times is not None:
            earliest = max(now, rules.earliest) if rules.timed else rules.earliest
            weights[(rows.times[low:high] < earliest) | (rows.times[low:high] > rules.latest)] = 0
    edges, weights = edges[weights > 0], weights[weights > 0]
    return edges, weights / weights.sum() if len(weights) else weights


def propose(
    rows: WalkGraph, rules: WalkRules, low: int, high: int, row: int, draw: Draw
) -> tuple[int, int]:
    """Return a proposed edge of ``low .. high`` and word 3 of the draw that proposed it.

    The edge is -1 if all weights are 0.
    """
    weights = rows.weights
    if weights is None:
        _, _, _, coin = words = draw()
        return low + (_wide(words) * (high - low) >> 64), coin
    if rules.sampler == Sampler.ITS:
        _, _, _, coin = words = draw()
        before = rows.prefix[low - 1] if low > rows.indptr[row] else 0.0
        if rows.prefix[high - 1] == before:
            return -1, coin
        passed = before + (_wide(words) >> 11) * 2.0**-53 * (rows.prefix[high - 1] - before)
        edge = low + int(np.searchsorted(rows.prefix[low:high], passed, side="right"))
        while edge == high or weights[edge] == 0:
            edge -= 1
        return edge, coin
    if rules.sampler == Sampler.ALIAS:
        if rows.bounds[row] == 0:
            return -1, 0
        _, _, word2, coin = words = draw()
        edge = low + (_wide(words) * (high - low) >> 64)
        own = word2 < float(rows.chance[edge]) * 2**32
        return edge if own else low + int(rows.other[edge]), coin
    bound = float(rows.bounds[row])
    if bound == 0:
        return -1, 0
    for _ in range(TRIALS):
        _, _, word2, coin = words = draw()
        edge = low + (_wide(words) * (high - low) >> 64)
        if word2 * bound < float(weights[edge]) * 2**32:
            return edge, coin
    return _decide_exactly(weights[low:high], low, bound, draw)


def _decide_exactly(weights: Array, low: int, bound: float, draw: Draw) -> tuple[int, int]:
    scale = 2.0 ** (62 - len(weights).bit_length()) / bound
    sums = np.cumsum([int(float(weight) * scale) for weight in weights])
    _, _, _, coin = words = draw()
    if sums[-1] == 0:
        return -1, coin
    passed = _wide(words) * int(sums[-1]) >> 64
    return low + int(np.searchsorted(sums, passed, side="right")), coin


# -- walks -----------------------------------------------------------------------------------------


def walk(rows: WalkGraph, rules: WalkRules, walks: Array, starts: Array) -> Array:
    """Return the nodes of each walk: (walks, length), like ``indices``, -1 beyond its end.

    walks   (n,) int64: their numbers; starts (n,): their first nodes
    """
    nodes = (len(rows.indptr) - 1) // rows.groups
    whole = Owned(0, np.zeros(nodes, np.int32), np.arange(nodes))  # a single part
    paths = np.full((len(walks), rules.length), -1, rows.indices.dtype)
    paths[:, 0] = starts
    walkers = start_walkers(walks, np.arange(len(walks)), starts, paths.dtype, whole.rank)
    advance(rows, rules, whole, walkers, paths)
    return paths


def advance(
    rows: WalkGraph, rules: WalkRules, owned: Owned, walkers: Walkers, paths: Array
) -> None:
    """Move each walker as far as possible on this part; change walkers and paths in place.

    ``to`` is then -1 if the walk has ended; else the part of ``node``, which must choose the next
    edge; or, with a candidate, the part of ``previous``, which must judge it.

    rows   of the nodes of this part: row numbers are local, ``indices`` are ids of the whole
           graph, in the order of its rows
    paths  (slots, length), -1 if unknown: the rank that takes a step writes paths[slot, step]; the
           one that makes a walker writes its start. RESERVOIR reads no row of ``previous`` of
           another part: in parts it is only for first-order walks, and expressions without
           is_neighbor
    """
    for place in range(len(walkers.walk)):
        one = SimpleNamespace(**{name: int(getattr(walkers, name)[place]) for name in NAMES})
        one.to = _advance(rows, rules, owned, one, paths)
        for name in NAMES:
            getattr(walkers, name)[place] = getattr(one, name)


def _advance(rows: WalkGraph, rules: WalkRules, owned: Owned, one: Any, paths: Array) -> int:
    while True:
        if one.candidate >= 0:
            accepted = _judge(rows, rules, owned, one)
            if accepted is None:
                return int(owned.assignment[one.previous])
            if accepted:
                one.previous, one.now = one.node, one.then
                _write(one, one.candidate, paths)
            one.candidate = -1
        if not _goes_on(rules, one, paths):
            return -1
        if owned.assignment[one.node] != owned.rank:
            return int(owned.assignment[one.node])
        edge = _choose(rows, rules, int(owned.local[one.node]), one)
        if edge < 0:
            return -1
        one.candidate = int(rows.indices[edge])
        one.then = NEVER if rows.times is None else int(rows.times[edge])


def _judge(rows: WalkGraph, rules: WalkRules, owned: Owned, one: Any) -> bool | None:
    """Return whether the candidate is taken; None if another part must decide."""
    if rules.sampler == Sampler.RESERVOIR or not rules.second_order or one.previous < 0:
        return True
    drawn = one.coin * rules.largest_factor
    if one.candidate == one.previous:
        return bool(drawn < rules.return_factor * 2**32)
    if drawn < min(1.0, rules.far_factor) * 2**32:
        return True  # with either factor
    if drawn >= max(1.0, rules.far_factor) * 2**32:
        return False
    ends = one.previous, one.candidate
    if owned.assignment[one.previous] != owned.rank:
        if not rules.symmetric or owned.assignment[one.candidate] != owned.rank:
            return None
        ends = one.candidate, one.previous
    indptr, indices = rows.adjacency
    row = owned.local[ends[0]]
    near = ends[1] in indices[indptr[row] : indptr[row + 1]]
    return bool(drawn < (1.0 if near else rules.far_factor) * 2**32)


def _goes_on(rules: WalkRules, one: Any, paths: Array) -> bool:
    """Return whether to choose another step; restarts the walk if the draws require it."""
    while one.step < rules.length:
        stop, again, _, _ = _words(rules.seed, Stream.WALK_STOP, one, 0)
        if stop < rules.stop_below:
            return False
        if again >= rules.restart_below:
            return True
        one.previous, one.now = -1, NEVER
        _write(one, one.start, paths)
    return False


def _choose(rows: WalkGraph, rules: WalkRules, row: int, one: Any) -> int:
    """Return an edge of the node's row, proposed or by RESERVOIR taken, or -1.

    Sets the coin and counts the draws.
    """

    def draw() -> Words:
        one.draw += 1
        return _words(rules.seed, Stream.WALK_STEP, one, one.draw - 1)

    if rules.sampler == Sampler.RESERVOIR:
        edges, chances = transition(rows, rules, row, one.previous, one.step, one.now)
        if not len(edges):
            return -1
        passed = (_wide(draw()) >> 11) * 2.0**-53
        place = int(np.searchsorted(np.cumsum(chances), passed, side="right"))
        return int(edges[min(place, len(edges) - 1)])
    low, high = candidates(rows, rules, row, one.step, one.now)
    if low == high:
        return -1
    group = rules.schema[(one.step - 1) % len(rules.schema)] if rules.schema else 0
    edge, one.coin = propose(rows, rules, low, high, row * rows.groups + group, draw)
    return edge


def _write(one: Any, node: int, paths: Array) -> None:
    paths[one.slot, one.step] = one.node = node
    one.step, one.draw = one.step + 1, 0


def _words(seed: int, stream: int, one: Any, draw: int) -> Words:
    a, b, c, d = philox4x32(seed, stream, one.walk | one.step << WALK_BITS, draw)
    return int(a), int(b), int(c), int(d)


def _wide(words: Words) -> int:
    return words[1] << 32 | words[0]
