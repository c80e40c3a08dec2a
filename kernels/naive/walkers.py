"""Walks on one part of a graph, the truth: each walker goes on until another part must help.

Draws and decisions are those of ``walk``; what another part must do stands at ``advance``.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.naive.philox import philox4x32
from penstock.kernels.naive.walk import candidates, propose, take
from penstock.kernels.streams import Stream
from penstock.kernels.walk_rules import (
    NEVER,
    WALK_BITS,
    Owned,
    Sampler,
    Walkers,
    WalkGraph,
    WalkRules,
)
from penstock.kernels.walkers import NAMES


def advance(
    rows: WalkGraph, rules: WalkRules, owned: Owned, walkers: Walkers, paths: Array
) -> None:
    """Let each walker go on as far as it can on this part; change walkers and paths in place.

    ``to`` is then -1 where the walk has ended; else the part of ``node``, which must choose the
    next edge; or, with a candidate, the part of ``previous``, which must judge it. Walkers whose
    ``to`` is -1 before are left alone.

    rows   of the nodes of this part: row numbers are local, ``indices`` are ids of the whole
           graph, in the order of its rows
    paths  (slots, length), -1 where unknown: who takes a step writes paths[slot, step]; who makes
           a walker writes its start. RESERVOIR reads no row of ``previous`` here: it is for
           walks of first order, and expressions without is_neighbor
    """
    for place in np.flatnonzero(walkers.to >= 0):
        one = SimpleNamespace(**{name: int(getattr(walkers, name)[place]) for name in NAMES})
        one.to = _advance(rows, rules, owned, one, paths)
        for name in NAMES:
            getattr(walkers, name)[place] = getattr(one, name)


def _advance(rows: WalkGraph, rules: WalkRules, owned: Owned, one: Any, paths: Array) -> int:
    """Return the part that the walker waits for, or -1."""
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
        edge = _propose(rows, rules, int(owned.local[one.node]), one)
        if edge < 0:
            return -1
        one.candidate = int(rows.indices[edge])
        one.then = NEVER if rows.times is None else int(rows.times[edge])


def _judge(rows: WalkGraph, rules: WalkRules, owned: Owned, one: Any) -> bool | None:
    """Return whether the candidate is taken; None where another part must say."""
    if not rules.second_order or one.previous < 0:
        return True
    drawn = one.coin * rules.largest_factor
    if one.candidate == one.previous:
        return bool(drawn < rules.return_factor * 2**32)
    if drawn < min(1.0, rules.far_factor) * 2**32:
        return True  # neighbour of the previous node or not
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
    """Return whether there is another step to choose; begins again where the draws say so."""
    while one.step < rules.length:
        if one.draw > 0:
            return True  # in the middle of a step: it was asked before
        stop, again, _, _ = _words(rules.seed, Stream.WALK_STOP, one, 0)
        if stop < rules.stop_below:
            return False
        if again >= rules.restart_below:
            return True
        one.previous, one.now = -1, NEVER
        _write(one, one.start, paths)
    return False


def _propose(rows: WalkGraph, rules: WalkRules, row: int, one: Any) -> int:
    """Return a proposed edge, or -1; sets the coin and counts the draws."""

    def draw() -> tuple[int, int, int, int]:
        one.draw += 1
        return _words(rules.seed, Stream.WALK_STEP, one, one.draw - 1)

    if rules.sampler == Sampler.RESERVOIR:
        nobody = np.zeros(one.previous + 2, np.int64), rows.indices[:0]  # no row has neighbours
        rows = replace(rows, neighbours=nobody)
        return take(rows, rules, row, one.previous, one.step, one.now, draw)
    low, high = candidates(rows, rules, row, one.step, one.now)
    if low == high:
        return -1
    group = rules.schema[(one.step - 1) % len(rules.schema)] if rules.schema else 0
    edge, one.coin = propose(rows, rules, low, high, row * rows.groups + group, draw)
    return edge


def _write(one: Any, node: int, paths: Array) -> None:
    paths[one.slot, one.step] = one.node = node
    one.step, one.draw = one.step + 1, 0


def _words(seed: int, stream: int, one: Any, draw: int) -> tuple[int, int, int, int]:
    a, b, c, d = philox4x32(seed, stream, one.walk | one.step << WALK_BITS, draw)
    return int(a), int(b), int(c), int(d)
