"""What the backends of ``buckets`` share, and what every random number of EMBED_SHUFFLE decides.

The stream has four uses, distinguished by ``step``:

IN_BUCKET  which edge comes to a place in its group of a bucket, by the number of the place
RELABEL    which partition a label of the order stands for, by epoch and label
MIX        the keys of the permutation that mixes buckets, by the number of the phase
GROUP      which group of its bucket an edge comes to, by its number in the graph: a word each
"""

from __future__ import annotations

IN_BUCKET, RELABEL, MIX, GROUP = 0, 1, 2, 3

BLOCK = 16  # edges that stay together when buckets are mixed: a line of the processor's cache
ROUNDS = 6  # of the network that permutes blocks
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)  # odd, of which its rounds are made


def half_bits(count: int) -> int:
    """Return the bits of each half of the numbers that a permutation of ``count`` works on."""
    return max(1, -(-(max(count, 1) - 1).bit_length() // 2))
