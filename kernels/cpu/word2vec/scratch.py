"""A thread's scratch memory for training: the ring, the rows of a window, upcoming words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.arrays import Array, empty_lines
from penstock.kernels.cpu.vector.blocks import BLOCK, PAIRS
from penstock.kernels.cpu.vector.registers import LANES
from penstock.kernels.cpu.vector.sigmoids import PADDED
from penstock.kernels.word2vec_rules import Word2vecRules

BATCH = 128  # centres whose negatives are drawn at once
AHEAD = 2  # windows ahead for prefetching vectors


class Scratch(NamedTuple):
    """A thread's scratch memory. Rows have whole chunks, see vector/blocks.py.

    x, x_first            the ring: current, and as words entered it
    y                     the targets of a window, if vectors have no whole chunks
    x_before, y_before    a window's context and targets before it, if these are several blocks
    empty                 a row of zeros, for blocks that are not full
    rows_x, rows_y        addresses of the rows of a window's context and targets
    before_x, before_y    addresses in ``x_before`` and ``y_before``
    pairs                 of a block, PADDED each: scores, signs with the centre's column first and
                          without it, weights, gradients, two parts of the loss; weights of a full
                          block; both parts over several windows
    words, slot_of        of places in the ring or about to enter: the kept word, its slot
    places                the same places in the given sentence, as draws of negatives count them
    words_in, uses        of a slot: its word, -1 for none; its number of places
    slots, times_x        a window's context: distinct slots, and their numbers of places
    targets, times_y      words of a window, the centre first; how often each
    drawn                 negative k of the i-th of the next windows at ``k * BATCH + i``
    random                Philox' words for it: word k of all its draws at ``k * BATCH + i``
    pool                  words that negatives are drawn from
    """

    x: Array
    x_first: Array
    y: Array
    x_before: Array
    y_before: Array
    empty: Array
    rows_x: Array
    rows_y: Array
    before_x: Array
    before_y: Array
    pairs: Array
    words: Array
    slot_of: Array
    places: Array
    words_in: Array
    uses: Array
    slots: Array
    times_x: Array
    targets: Array
    times_y: Array
    drawn: Array
    random: Array
    pool: Array


def scratch_of(dimension: int, rules: Word2vecRules) -> Scratch:
    """Return the scratch of one thread."""
    width = -(-dimension // LANES) * LANES
    slots = 2 * rules.half_window + 1
    context = -(-2 * rules.half_window // BLOCK) * BLOCK
    targets = -(-(rules.negatives + 1) // BLOCK) * BLOCK
    queue = BATCH + 4 * rules.half_window + AHEAD + 1
    signs = np.ones((2, BLOCK, BLOCK), np.float32)
    signs[0, :, 0] = -1
    pairs = _aligned(10 * PADDED).reshape(10, PADDED)
    pairs[1:3, :PAIRS] = signs.reshape(2, PAIRS)
    pairs[7, :PAIRS], pairs[8] = 1, 1
    x_before, y_before = _aligned(context * width), _aligned(targets * width)
    return Scratch(
        x=_aligned(slots * width),
        x_first=_aligned(slots * width),
        y=_aligned(targets * width),
        x_before=x_before,
        y_before=y_before,
        empty=_aligned(width),
        rows_x=np.zeros(context, np.intp),
        rows_y=np.zeros(targets, np.intp),
        before_x=x_before.ctypes.data + 4 * width * np.arange(context, dtype=np.intp),
        before_y=y_before.ctypes.data + 4 * width * np.arange(targets, dtype=np.intp),
        pairs=pairs.reshape(-1),
        words=np.zeros(queue, np.int64),
        slot_of=np.zeros(queue, np.int64),
        places=np.zeros(queue, np.int64),
        words_in=np.zeros(slots, np.int64),
        uses=np.zeros(slots, np.int64),
        slots=np.zeros(context, np.int64),
        times_x=np.zeros(context, np.int64),
        targets=np.zeros(targets, np.int64),
        times_y=np.zeros(targets, np.int64),
        drawn=np.zeros(rules.negatives * BATCH, np.int64),
        random=np.zeros(4 * rules.draws * BATCH, np.uint32),
        pool=np.zeros(rules.pool, np.int64),
    )


def _aligned(count: int) -> Array:
    found = empty_lines((count,))
    found[:] = 0
    return found
