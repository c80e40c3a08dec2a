"""Buffer orders for any number of partitions, by construction: at or near the lower bound.

An order with buffers of three is a strip of triangles, each sharing an edge with the one before.
A strip is as short as can be when every load meets two new partners. Most of ours turns: take N
(odd) partitions as residues mod N, and hubs 0, g, 2g, ... Around hub w the buffer holds w and two
neighbours on a rim w + u, w + u', ...; then the hub moves on by g and the same rim, shifted,
follows. Two partitions meet when their difference occurs between hub and rim, along the rim, or
between hubs. So the rim has to be chosen such that all its r labels and all r differences around
it are distinct; then r triangles a hub cover 2r of the (N - 1) / 2 classes of differences. Such
a rim is a graceful labelling of a wheel, and there is one for every r from 3 on.

N * r triangles make 2r classes of differences; 0 to 3 classes may be left over. For each there is
one more partition, N + i, that stays in the buffer while the residues walk through it in steps of
that class: it meets all of them, and they meet along the walk. The few pairs that the seams leave
open are closed at the end.

With 0 or 1 class left over (n = 1 or 0 mod 4) the strip meets the lower bound exactly.
"""

from __future__ import annotations

from math import gcd

State = tuple[int, ...]


def ring(partitions: int) -> list[State]:
    """Return the buffers for ``partitions``: 13, or 16 or more. The newest comes first in each."""
    extra = (1 - partitions) % 4
    modulus = partitions - extra
    half = modulus // 2
    strip = Strip(partitions)
    for i in range(extra):
        # The class of step (N - 1) / 2 comes last: its walk ends where the ring can begin.
        _walk(strip, modulus + i, modulus, step=half - (extra - 1 - i))
    _turn(strip, modulus, _rim((half - extra) // 2))
    strip.close()
    return strip.states


def _rim(r: int) -> list[int]:
    """Return r numbers that make, with the r differences around the circle, 1 ... 2r."""
    if r % 2:
        # 1, then to and fro between r + 1 and 2r: differences r, r - 1, ..., 2.
        return [1, *(r + 1 + k // 2 if k % 2 == 0 else 2 * r - k // 2 for k in range(r - 1))]
    # 2, 2r, then to and fro over odd numbers: all but two differences are even.
    return [2, 2 * r, *(1 + k if k % 2 == 0 else 2 * r - 2 - k for k in range(r - 2))]


def _walk(strip: Strip, pivot: int, modulus: int, step: int) -> None:
    """Keep ``pivot`` while all residues pass through the buffer in steps of ``step``."""
    cosets = gcd(step, modulus)
    start = strip.states[-1][0] if strip.states else 0
    path = [
        (start + coset + k * step) % modulus
        for coset in range(cosets)
        for k in range(modulus // cosets)
    ]
    if strip.states:
        strip.load(pivot, beside=(start, pivot - 1))
        strip.load(path[1], beside=(pivot, start))
    else:
        strip.begin((path[1], start, pivot))
    for before, residue in zip(path[1:], path[2:], strict=False):
        strip.load(residue, beside=(before, pivot))


def _turn(strip: Strip, modulus: int, rim: list[int]) -> None:
    """Let the rim turn around every hub once."""
    at = next(i for i in range(len(rim)) if gcd(rim[i - 1] - rim[i], modulus) == 1)
    # Between the rim's ends the hub moves on by ``stride``: the last is then the next hub's first.
    rim = rim[at:] + rim[:at]
    stride = rim[-1] - rim[0]
    hub, place = 0, 0
    if strip.states:
        # The last walk went from hub to hub - step by way of hub - 2 * step, and that is hub + 1.
        last, before = strip.states[-1][:2]
        hub, place = (before - 1) % modulus, rim.index(1)
        strip.load(hub, beside=(last, before))
    shown = (hub + rim[place]) % modulus
    for _ in range(modulus * len(rim)):
        place += 1
        if place < len(rim):
            new = (hub + rim[place]) % modulus
            strip.load(new, beside=(hub, shown))
            shown = new
        else:
            new, place = (hub + stride) % modulus, 0
            strip.load(new, beside=(hub, shown))
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

    def load(self, new: int, beside: State) -> None:
        """Load a partition beside two of the buffer; the third one goes."""
        self.begin((new, *beside))

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
                # Nothing here lacks anything: fetch one that does, its partner follows.
                minus_new = -min(i for i, lacks in enumerate(self._lacks) if lacks)
            self.load(-minus_new, beside=(newest, kept))
