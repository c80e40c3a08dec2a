"""What a thread works in while it trains: the ring, the targets of a window, words under way."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import pointer
from penstock.kernels.cpu.word2vec.tiles import BLOCK, LANES, PAIRS
from penstock.kernels.word2vec_rules import Rules

BATCH = 128  # centres whose negatives are drawn at once
AHEAD = 2  # windows before which vectors are asked for
PADDED = -(-PAIRS // LANES) * LANES


class Scratch(NamedTuple):
    """What a thread works in. Rows of vectors are in chunks, see tiles.py.

    x, x_first, x_before  the ring: as it is, as words came to it, as it was before the window
    y, y_first, y_before  the targets of a window: as they are; as those that windows share were
                          taken; as they were before the window
    pairs                 of a block, PADDED each: scores, signs where the centre's column is the
                          first and where it is not there, weights, gradients, two parts of the
                          loss; weights of a full block; both parts over several windows
    slots                 of the window's context, and the empty slot in blocks that are not full
    words, slot_of        of places that are in the ring or will be: the kept word, its slot
    places, groups        the same in the sentence as given, and which windows share its negatives
    words_in, uses        of a slot: its word, -1 for none; at how many places that stands
    times_x               of ``slots``: at how many places of the context
    targets, times_y      words of a window, the centre first; how often each
    held_times            how often each negative was drawn for the windows that share them
    drawn                 negative k of the i-th of the next windows at ``k * BATCH + i``
    ours, others          what Philox gave for it
    """

    x: Any
    x_first: Any
    x_before: Any
    y: Any
    y_first: Any
    y_before: Any
    pairs: Any
    slots: Any
    words: Any
    slot_of: Any
    places: Any
    groups: Any
    words_in: Any
    uses: Any
    times_x: Any
    targets: Any
    times_y: Any
    held_times: Any
    drawn: Any
    ours: Any
    others: Any


def scratch_of(dimension: int, rules: Rules) -> Scratch:
    """Return the scratch of one thread."""
    chunks = -(-dimension // LANES)
    slots = 2 * rules.half_window + 2
    context = -(-2 * rules.half_window // BLOCK) * BLOCK
    targets = -(-(rules.negatives + 1) // BLOCK) * BLOCK
    queue = BATCH + 4 * rules.half_window + AHEAD + 1
    signs = np.ones((2, BLOCK, BLOCK), np.float32)
    signs[0, :, 0] = -1
    pairs = _aligned(10 * PADDED).reshape(10, PADDED)
    pairs[1:3, :PAIRS] = signs.reshape(2, PAIRS)
    pairs[7, :PAIRS], pairs[8] = 1, 1
    draws = 2 * rules.draws * BATCH
    return Scratch(
        x=_aligned(chunks * slots * LANES),
        x_first=_aligned(chunks * slots * LANES),
        x_before=_aligned(chunks * slots * LANES),
        y=_aligned(chunks * targets * LANES),
        y_first=_aligned(chunks * targets * LANES),
        y_before=_aligned(chunks * targets * LANES),
        pairs=pairs.reshape(-1),
        slots=np.zeros(context, np.int64),
        words=np.zeros(queue, np.int64),
        slot_of=np.zeros(queue, np.int64),
        places=np.zeros(queue, np.int64),
        groups=np.zeros(queue, np.int64),
        words_in=np.zeros(slots, np.int64),
        uses=np.zeros(slots, np.int64),
        times_x=np.zeros(context, np.int64),
        targets=np.zeros(targets, np.int64),
        times_y=np.zeros(targets, np.int64),
        held_times=np.zeros(targets, np.int64),
        drawn=np.zeros(draws, np.int64),
        ours=np.zeros(draws, np.uint32),
        others=np.zeros(draws, np.uint32),
    )


def _aligned(count: int) -> Array:
    """Return float32 zeros that begin with a cache line."""
    whole = np.zeros(count + LANES, np.float32)
    begin = -(whole.ctypes.data // 4) % LANES
    return whole[begin : begin + count]


@njit(cache=True, inline="always")
def pointers(given: Any) -> Any:
    """Return pointers to what a thread works in: arrays would be copied at every call."""
    work = Scratch(*given)
    return Scratch(
        pointer(work.x),
        pointer(work.x_first),
        pointer(work.x_before),
        pointer(work.y),
        pointer(work.y_first),
        pointer(work.y_before),
        pointer(work.pairs),
        pointer(work.slots),
        pointer(work.words),
        pointer(work.slot_of),
        pointer(work.places),
        pointer(work.groups),
        pointer(work.words_in),
        pointer(work.uses),
        pointer(work.times_x),
        pointer(work.targets),
        pointer(work.times_y),
        pointer(work.held_times),
        pointer(work.drawn),
        pointer(work.ours),
        pointer(work.others),
    )
