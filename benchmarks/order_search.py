"""The search that found the orders of partition/order/table.py. It runs offline, for minutes.

    python -P benchmarks/order_search.py 5 7 8 9 10 11 12 14 15 18 19 22 23 26 27 30 31

An order with buffers of three is a strip of triangles: consecutive triangles share an edge, and
by property 1 no three in a row share the same edge. A strip that never brings a pair
together twice covers ``2 * triangles + 1`` pairs, which is the lower bound; so the search grows
such a strip until no pair is left. It alternates two moves and keeps what is not worse:

- tear off a random length at one end and grow both ends again;
- tear out a piece in the middle and lay another path of triangles from pairs that are free now,
  one triangle longer if that works, equally long (only different) if not.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit

# A triangle is a row (loaded, loaded before it, kept from earlier). ``free`` holds, for each
# vertex, the set of partners it has not met, as bits; 32 vertices fit into 64-bit words.
_MAX_TRIANGLES = 512
_LONGEST_PIECE = 40
_NODES = 3000  # triangles tried before a growth or a new path is given up
_MIDDLE = 0.95  # share of the moves that work in the middle
_TEMPERATURE = 0.3
_ROUNDS = 100_000  # moves before the search starts afresh from the next seed


def search(partitions: int, seeds: int = 1000) -> list[tuple[int, int, int]]:
    """Return a strip that meets the lower bound for ``partitions`` (4 or more, 32 or fewer).

    Rows are (loaded, loaded before, kept). The list is empty if no seed led to one; for 6
    partitions none exists.
    """
    strip = np.zeros((_MAX_TRIANGLES, 3), np.int64)
    for seed in range(1, seeds + 1):
        size, free = _search(partitions, np.uint64(seed), _ROUNDS, strip)
        if size:
            return _with_last_pair([_row(row) for row in strip[:size]], free)
    return []


def encode(strip: list[tuple[int, int, int]], alphabet: str) -> str:
    """Return the strip as one letter per load, partitions renumbered by first appearance."""
    names: dict[int, int] = {}
    for row in strip:
        for vertex in (row[2], row[1], row[0]):
            names.setdefault(vertex, len(names))
    letters = []
    for before, row in pairwise(strip):
        letters.append(alphabet[2 * names[row[0]] + (row[2] == before[1])])
    return "".join(letters)


def _row(row: Array) -> tuple[int, int, int]:
    return int(row[0]), int(row[1]), int(row[2])


def _with_last_pair(rows: list[tuple[int, int, int]], free: Array) -> list[tuple[int, int, int]]:
    """Append the triangle that closes the one pair an even number of pairs leaves over."""
    pair = [v for v in range(len(free)) if free[v]]
    if not pair:
        return rows
    if not set(pair) & set(rows[-1]):
        strip = np.array(rows, np.int64)
        _reverse(strip, len(rows))
        rows = [_row(row) for row in strip]
    last, before, kept = rows[-1]
    here, new = pair if pair[0] in rows[-1] else reversed(pair)
    return [*rows, (new, last, before if here == before else kept)]


@njit(cache=True)
def _draw(random: Array, bound: int) -> int:
    """Return a number below ``bound`` from a xorshift generator."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return int((x >> np.uint64(11)) % np.uint64(bound))


@njit(cache=True)
def _flip(free: Array, a: int, b: int) -> None:
    free[a] ^= np.int64(1) << b
    free[b] ^= np.int64(1) << a


@njit(cache=True)
def _is_free(free: Array, a: int, b: int) -> bool:
    return bool(free[a] >> b & 1)


@njit(cache=True)
def _holds(row: Array, vertex: int) -> bool:
    return bool(row[0] == vertex or row[1] == vertex or row[2] == vertex)


@njit(cache=True)
def _order_row(strip: Array, i: int) -> None:
    """Bring row i into the form (loaded, loaded before, kept)."""
    before, row = strip[i - 1], strip[i]
    loaded, kept = -1, -1
    for j in range(3):
        if not _holds(before, row[j]):
            loaded = row[j]
    for j in range(3):
        if row[j] != loaded and row[j] != before[0]:
            kept = row[j]
    row[0], row[1], row[2] = loaded, before[0], kept


@njit(cache=True, nogil=True)
def _reverse(strip: Array, size: int) -> None:
    strip[:size] = strip[:size][::-1].copy()
    stay = np.zeros(3, np.int64)
    kept = 0
    for j in range(3):
        if _holds(strip[1], strip[0, j]):
            stay[kept] = strip[0, j]
            kept += 1
        else:
            stay[2] = strip[0, j]
    strip[0] = stay
    for i in range(1, size):
        _order_row(strip, i)


@njit(cache=True)
def _drop_row(strip: Array, free: Array, i: int) -> None:
    _flip(free, strip[i, 0], strip[i, 1])
    _flip(free, strip[i, 0], strip[i, 2])


@njit(cache=True)
def _options(free: Array, row: Array, options: Array) -> int:
    """List (loaded, kept) of every triangle that can follow ``row`` and meets two new pairs."""
    count = 0
    for kept in (row[2], row[1]):
        both = free[row[0]] & free[kept]
        vertex = 0
        while both:
            if both & 1:
                options[count, 0], options[count, 1] = vertex, kept
                count += 1
            both >>= 1
            vertex += 1
    return count


@njit(cache=True)
def _closing_options(free: Array, row: Array, goal: Array, exit_: Array, options: Array) -> int:
    """List the triangles that follow ``row``, then share an edge with ``goal``, not ``exit_``."""
    count = 0
    for kept in (row[2], row[1]):
        for j in range(3):
            vertex = goal[j]
            if _holds(row, vertex):
                continue
            for shared, other in ((row[0], kept), (kept, row[0])):
                left_by = _holds(exit_, vertex) and _holds(exit_, shared)
                leads_over = _holds(goal, shared) and not _holds(goal, other) and not left_by
                if leads_over and _is_free(free, vertex, other):
                    options[count, 0], options[count, 1] = vertex, kept
                    count += 1
    return count


@njit(cache=True)
def _grow(
    strip: Array, size: int, free: Array, random: Array, length: int, goal: Array, exit_: Array
) -> int:
    """Extend the strip depth first and return its new size.

    With ``length`` 0, as far as it gets. Otherwise by exactly ``length`` triangles, the last of
    which leads over to ``goal`` (left again by the edge ``exit_``); -1 if none was found.
    """
    options = np.zeros((_MAX_TRIANGLES if length == 0 else length, 130, 2), np.int64)
    counts = np.zeros(len(options), np.int64)
    longest, best = np.zeros_like(strip), 0
    depth, nodes, descend = 0, 0, True
    while nodes < _NODES:
        row = strip[size - 1 + depth]
        if descend:
            nodes += 1
            if length and depth + 1 == length:
                count = _closing_options(free, row, goal, exit_, options[depth])
                if count:
                    pick = _draw(random, count)
                    vertex, kept = options[depth, pick]
                    after = strip[size + depth]
                    after[0], after[1], after[2] = vertex, row[0], kept
                    _flip(free, vertex, kept if _holds(goal, row[0]) else row[0])
                    return size + length
                counts[depth] = 0
            else:
                counts[depth] = _options(free, row, options[depth])
        if counts[depth] == 0:
            if depth == 0:
                break
            depth -= 1
            _drop_row(strip, free, size + depth)
            descend = False
            continue
        pick = _draw(random, counts[depth])
        counts[depth] -= 1
        vertex, kept = options[depth, pick]
        options[depth, pick] = options[depth, counts[depth]]
        after = strip[size + depth]
        after[0], after[1], after[2] = vertex, row[0], kept
        _drop_row(strip, free, size + depth)
        depth += 1
        descend = True
        if length == 0 and depth > best:
            best = depth
            longest[:best] = strip[size : size + best]
    while depth > 0:
        depth -= 1
        _drop_row(strip, free, size + depth)
    if length:
        return -1
    strip[size : size + best] = longest[:best]
    for i in range(size, size + best):
        _drop_row(strip, free, i)
    return size + best


@njit(cache=True)
def _reroute(
    strip: Array, size: int, free: Array, random: Array, i: int, old: int, new: int
) -> int:
    """Replace the ``old`` triangles after row i by ``new`` ones; return the new size, or -1."""
    goal_at = i + old + 1
    saved_rows, saved_free = strip[i : goal_at + 1].copy(), free.copy()
    goal, exit_ = strip[goal_at].copy(), np.full(3, -1, np.int64)
    for j in range(3):
        if _holds(strip[goal_at + 1], goal[j]):
            exit_[j] = goal[j]
    rest = strip[goal_at:size].copy()
    for row in range(i + 1, goal_at + 1):
        _drop_row(strip, free, row)
    for j in range(3):
        if _is_free(free, goal[j], goal[(j + 1) % 3]):
            _flip(free, goal[j], goal[(j + 1) % 3])
    reached = _grow(strip, i + 1, free, random, new, goal, exit_)
    if reached < 0:
        strip[i : goal_at + 1] = saved_rows
        free[:] = saved_free
        return -1
    strip[reached : reached + len(rest)] = rest
    size = reached + len(rest)
    for row in range(reached, min(reached + 3, size)):
        _order_row(strip, row)
    return size


@njit(cache=True, nogil=True)
def _search(n: int, seed: Any, rounds: int, strip: Array) -> tuple[int, Array]:
    random = np.array([seed * np.uint64(0x9E3779B97F4A7C15)], np.uint64)
    free = np.full(n, (np.int64(1) << n) - 1) ^ (np.int64(1) << np.arange(n))
    nothing = np.zeros(3, np.int64)
    strip[0] = np.array([2, 1, 0])
    _drop_row(strip, free, 0)
    _flip(free, 0, 1)
    size = _grow(strip, 1, free, random, 0, nothing, nothing)
    pairs = n * (n - 1) // 2
    for _ in range(rounds):
        left = pairs - 1 - 2 * size
        if left == 0:
            return size, free
        if left == 1:
            for vertex in range(n):
                ends = _holds(strip[0], vertex) or _holds(strip[size - 1], vertex)
                if free[vertex] and ends:
                    return size, free
        piece = 1 + _draw(random, _LONGEST_PIECE)
        if _draw(random, 1 << 20) < _MIDDLE * (1 << 20) and size >= piece + 4:
            i = 1 + _draw(random, size - piece - 3)
            longer = _reroute(strip, size, free, random, i, piece, piece + 1) if left > 1 else -1
            if longer < 0:
                longer = _reroute(strip, size, free, random, i, piece, piece)
            size = max(size, longer)
            continue
        saved, saved_size, saved_free = strip[:size].copy(), size, free.copy()
        if _draw(random, 2):
            _reverse(strip, size)
        share = _draw(random, 1 << 20) / (1 << 20)
        for _ in range(1 + int(0.7 * share**3 * (size - 3))):
            size -= 1
            _drop_row(strip, free, size)
        size = _grow(strip, size, free, random, 0, nothing, nothing)
        _reverse(strip, size)
        size = _grow(strip, size, free, random, 0, nothing, nothing)
        worse = 2 * (saved_size - size) / _TEMPERATURE
        if _draw(random, 1 << 20) >= np.exp(-worse) * (1 << 20):
            size, free[:] = saved_size, saved_free
            strip[:size] = saved
    return 0, free


def main(arguments: list[str]) -> None:
    """Print the lines of order_table.py for the numbers of partitions asked for."""
    from penstock.partition.order.table import ALPHABET

    for partitions in map(int, arguments):
        strip = search(partitions)
        print(f"    {partitions}: {encode(strip, ALPHABET)!r},", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
