"""Buffer orders for any number of partitions, by construction, at or near the lower bound.

An order with buffers of three is a strip of triangles, each sharing an edge with the one before. A
strip is shortest if every load meets two new partners. Most of Penstock's strips turn: take N (odd)
partitions as residues mod N, and hubs 0, g, 2g, ... Around hub w the buffer holds w and two
neighbours on a rim w + u, w + u', ...; then the hub advances by g and the same rim, shifted,
follows. Two partitions meet when their difference occurs between hub and rim, along the rim, or
between hubs. So the rim must have distinct labels, r of them, and distinct differences around it;
then r triangles per hub cover 2r of the (N - 1) / 2 classes of differences. Such a rim is a
graceful labelling of a wheel, and one exists for every r from 3 on.

N * r triangles make 2r classes of differences; 0 to 3 classes may be left over. For each, one more
partition, N + i, stays in the buffer while the residues pass in steps of that class: it meets all
of them, and they meet along the walk. (If the step and N have a common divisor the steps close into
several tours; exchanging edges with another tour joins them.) The few pairs that the seams leave
open are closed at the end.

With 0 or 1 class left over (n = 1 or 0 mod 4) the strip meets the lower bound exactly; with 2 or 3
(n = 3 or 2 mod 4) it takes 1 or 3 more states.
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd

State = tuple[int, ...]
Links = list[set[int]]


def ring(partitions: int) -> list[State]:
    """Return the buffers for 13, 16, 17, or 19 and more partitions, the newest first in each."""
    extra = (1 - partitions) % 4
    modulus = partitions - extra
    half = modulus // 2
    strip = Strip(partitions)
    for i, path in enumerate(_walks(modulus, [half - i for i in range(extra)])):
        _walk(strip, modulus + i, path)
    _turn(strip, modulus, _rim((half - extra) // 2))
    strip.close()
    return strip.states


def _rim(r: int) -> list[int]:
    """Return r numbers that, with their r differences around the circle, are 1 ... 2r."""
    if r % 2:
        # 1, then alternating between r + 1 and 2r: differences r, r - 1, ..., 2.
        return [1, *(r + 1 + k // 2 if k % 2 == 0 else 2 * r - k // 2 for k in range(r - 1))]
    # 2, 2r, then alternating odd numbers: all but two differences are even.
    return [2, 2 * r, *(1 + k if k % 2 == 0 else 2 * r - 2 - k for k in range(r - 2))]


def _walks(modulus: int, steps: list[int]) -> list[list[int]]:
    """Return one walk per step through all residues, each from the end of the previous one.

    The first of ``steps``, (modulus - 1) / 2, makes the last walk: from 0 through 1 to its end.
    """
    if not steps:
        return []
    tours = [
        [{(v - step) % modulus, (v + step) % modulus} for v in range(modulus)] for step in steps
    ]
    end = modulus - steps[0]
    for step, tour in zip(steps[1:], tours[1:], strict=True):
        while len(_trace(tour, 0)) < modulus:
            _join(tour, tours[0], step, steps[0], fixed={0, 1, end})
    walks = [_trace(tours[0], end, 1)]
    for tour in tours[1:]:
        walks.append(_trace(tour, walks[-1][-1]))
    return [walk[::-1] for walk in reversed(walks)]


def _trace(tour: Links, start: int, second: int | None = None) -> list[int]:
    """Return the vertices of the closed tour through ``start``, which comes first."""
    path = [start, min(tour[start]) if second is None else second]
    while (after := next(v for v in sorted(tour[path[-1]]) if v != path[-2])) != start:
        path.append(after)
    return path


def _join(tour: Links, whole: Links, step: int, whole_step: int, fixed: set[int]) -> None:
    """Join one of two closed pieces of ``tour`` with the ``whole`` tour by an exchange of edges."""
    modulus = len(tour)
    for a in range(modulus):
        b, c = (a + step) % modulus, (a + whole_step) % modulus
        d = (b + whole_step) % modulus
        own, given = ((a, b), (c, d)), ((a, c), (b, d))
        if fixed & {a, b, c, d} or c in _trace(tour, a):
            continue
        if all(y in tour[x] for x, y in own) and all(y in whole[x] for x, y in given):
            _exchange(own, tour, whole)
            _exchange(given, whole, tour)
            if len(_trace(whole, 0)) == modulus:
                return
            _exchange(own, whole, tour)
            _exchange(given, tour, whole)
    raise AssertionError("no exchange of edges joins the tours")


def _exchange(edges: tuple[tuple[int, int], ...], source: Links, target: Links) -> None:
    for a, b in (*edges, *(edge[::-1] for edge in edges)):
        source[a].remove(b)
        target[a].add(b)


def _walk(strip: Strip, pivot: int, path: list[int]) -> None:
    """Keep ``pivot`` while the residues of ``path`` pass through the buffer."""
    if strip.states:
        strip.load(pivot, keep=(path[0], pivot - 1))
        strip.load(path[1], keep=(pivot, path[0]))
    else:
        strip.begin((path[1], path[0], pivot))
    for before, residue in pairwise(path[1:]):
        strip.load(residue, keep=(before, pivot))


def _turn(strip: Strip, modulus: int, rim: list[int]) -> None:
    """Turn the rim around every hub once."""
    at = next(i for i in range(len(rim)) if gcd(rim[i - 1] - rim[i], modulus) == 1)
    # Between the rim's ends the hub advances by ``stride``: its last is the next hub's first.
    rim = rim[at:] + rim[:at]
    stride = rim[-1] - rim[0]
    hub, position = 0, 0
    if strip.states:
        # The last walk went from 0 through 1 to its end: one label of the rim around hub 0.
        last, before = strip.states[-1][:2]
        position = rim.index(before)
        strip.load(hub, keep=(last, before))
    shown = (hub + rim[position]) % modulus
    for _ in range(modulus * len(rim)):
        position += 1
        if position < len(rim):
            new = (hub + rim[position]) % modulus
            strip.load(new, keep=(hub, shown))
            shown = new
        else:
            new, position = (hub + stride) % modulus, 0
            strip.load(new, keep=(hub, shown))
            hub = new


class Strip:
    """A growing order; every state lists the newest partition first."""

    def __init__(self, partitions: int) -> None:
        self.states: list[State] = []
        self._lacks = [set(range(partitions)) - {i} for i in range(partitions)]

    def begin(self, state: State) -> None:
        """Fill the buffer."""
        self.states.append(state)
        for i in state:
            self._lacks[i].difference_update(state)

    def load(self, new: int, keep: State) -> None:
        """Load a partition, keeping ``keep`` of the buffer; the third one is evicted."""
        self.begin((new, *keep))

    def close(self) -> None:
        """Bring the remaining pairs together, always with the load that meets most of them."""
        while any(self._lacks):
            newest, *older = self.states[-1]
            choices = [
                ((new in self._lacks[newest]) + (new in self._lacks[kept]), -new, kept)
                for kept in older
                for new in range(len(self._lacks))
                if new not in self.states[-1]
            ]
            gain, minus_new, kept = max(choices)
            if gain == 0:
                # The buffer has no missing pairs: fetch a partition that has, its partner follows.
                minus_new = -min(i for i, lacks in enumerate(self._lacks) if lacks)
            self.load(-minus_new, keep=(newest, kept))
