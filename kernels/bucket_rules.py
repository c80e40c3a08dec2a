"""Rules that the backends of ``buckets`` share, and the uses of the stream EMBED_SHUFFLE.

The stream has four uses, distinguished by ``step``:

IN_BUCKET  the edge at a place in its group of a bucket, by the number of the place
RELABEL    the partition of a label of the order, by epoch and label
MIX        the keys of the permutation that mixes buckets, by the number of the phase
GROUP      the group of an edge in its bucket, by its number in the graph: one word each
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.arrays import AnyArray

Columns = tuple[AnyArray, AnyArray, AnyArray | None, AnyArray | None]
"""Heads, tails, relations (or None) and weights (or None) of edges."""

IN_BUCKET, RELABEL, MIX, GROUP = 0, 1, 2, 3

BLOCK = 16  # edges that stay together when buckets are mixed: one cache line
ROUNDS = 6  # of the network that permutes blocks
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)  # odd multipliers of its rounds


class Runs(NamedTuple):
    """Consecutive edges that are mixed: see ``mix_edges`` of naive/buckets.py."""

    begins: AnyArray
    offsets: AnyArray
    head_rows: AnyArray
    tail_rows: AnyArray
    keys: AnyArray


def half_bits(count: int) -> int:
    """Return the bits of each half of the numbers that a permutation of ``count`` works on."""
    return max(1, -(-(max(count, 1) - 1).bit_length() // 2))
