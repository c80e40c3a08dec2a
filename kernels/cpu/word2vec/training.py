"""Training on sentences, window by window, with a window's rows in small buffers.

A word's input vector is copied to a slot of a ring when the word comes within half a window of the
centre, is trained there, and its change is added to the vectors when its last place leaves. A word
at several places has one slot. Output vectors are trained in place, and copied for their window
only if they have no whole chunks (blocks.py): vectors of shared windows or a pool stay in the
core's caches. As draws are counted, a window's rows are known ahead: they are prefetched two
windows before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import uint32, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.row import read_only
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.cpu.vector import address, moved, pointer, pointers
from penstock.kernels.cpu.vector.blocks import BLOCK
from penstock.kernels.cpu.vector.registers import LANES
from penstock.kernels.cpu.word2vec.scratch import AHEAD, BATCH, Scratch, scratch_of
from penstock.kernels.cpu.word2vec.window import ask, flush, give, take, train_window
from penstock.kernels.streams import Stream
from penstock.kernels.word2vec_rules import (
    ALWAYS,
    MAX_SENTENCES,
    SENTENCE_BITS,
    Losses,
    Noise,
    Sentences,
    Word2vecRules,
)

_SAMPLE, _NEGATIVE = int(Stream.WORD2VEC_SAMPLE), int(Stream.WORD2VEC_NEGATIVE)
_POOL, _SENTENCES = int(Stream.WORD2VEC_POOL), MAX_SENTENCES - 1
_ALWAYS = ALWAYS
_WORDS = Scratch._fields.index("words")
_PIECE = 20_000  # places that a thread processes at once


def train(
    vectors_in: Array,
    vectors_out: Array,
    sentences: Sentences,
    noise: Noise,
    rules: Word2vecRules,
    *,
    threads: int = 1,
) -> Losses:
    """Train on a block of sentences, in place; on several threads without locks (Hogwild).

    One thread takes the sentences in order and always gives the same vectors.

    vectors_in, vectors_out  (V, dimension) float32
    """
    pieces = _pieces(sentences.offsets)
    lock = threading.Lock()
    stopped = threading.Event()

    def work() -> Losses:
        scratch = scratch_of(vectors_in.shape[1], rules)
        total = Losses()
        while not stopped.is_set():
            with lock:
                piece = next(pieces, None)
            if piece is None:
                break
            total += _piece(vectors_in, vectors_out, sentences, noise, rules, piece, scratch)
        return total

    if threads == 1:
        return work()
    with ThreadPoolExecutor(threads) as pool:
        try:
            return sum(
                (each.result() for each in [pool.submit(work) for _ in range(threads)]), Losses()
            )
        except BaseException:
            stopped.set()
            raise


def _pieces(offsets: Array) -> Iterator[tuple[int, int]]:
    first, sentences = 0, len(offsets) - 1
    while first < sentences:
        last = int(np.searchsorted(offsets, offsets[first] + _PIECE, side="right")) - 1
        last = min(max(last, first + 1), sentences)
        yield first, last
        first = last


def _piece(
    vectors_in: Array,
    vectors_out: Array,
    sentences: Sentences,
    noise: Noise,
    rules: Word2vecRules,
    piece: tuple[int, int],
    scratch: Scratch,
) -> Losses:
    keep, shape = noise.keep, (rules.half_window, rules.negatives, rules.shared_windows)
    texts = sentences.tokens, sentences.offsets, sentences.lrs
    tables = noise.chance, noise.alias, noise.chance if keep is None else keep
    loss, pairs, words, kept = _train(
        (vectors_in, vectors_out),
        tuple(read_only(each, vectors_in) for each in texts),
        np.uint64(sentences.first | sentences.epoch << SENTENCE_BITS),
        piece,
        tuple(read_only(each, vectors_in) for each in tables),
        keep is not None,
        (*shape, rules.pool, rules.pool_sentences, np.uint64(rules.seed)),
        True if rules.pool > 0 else None,
        tuple(scratch),
    )
    return Losses(loss, pairs, words, kept)


# -- sentences -------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _train(
    vectors: Any,
    texts: Any,
    which: Any,
    piece: tuple[int, int],
    noise: Any,
    sampling: bool,
    numbers: Any,
    pools: Any,
    given: Any,
) -> tuple[float, int, int, int]:
    vectors_in, vectors_out = vectors
    tokens, offsets, lrs = texts
    chance, alias, keep = noise
    half, negatives, shared, pooled, pool_sentences, seed = numbers
    work = pointers(Scratch(*given))  # arrays would be copied at every call
    dimension = vectors_in.shape[1]
    chunks = (dimension + LANES - 1) // LANES
    width, slots = chunks * LANES, 2 * half + 1
    draws = (negatives + 7) // 8 if pooled > 0 else (negatives + 1) // 2  # per window
    x, x_first = work.x, work.x_first
    row_in, row_out = pointer(vectors_in), pointer(vectors_out)
    words, places, slot_of = work.words, work.places, work.slot_of
    words_in, uses = work.words_in, work.uses
    # Not plain 0: a call with a literal compiles a second version.
    zero: Any = np.int64(0)
    loss, together = 0.0, zero
    flush(work.pairs)
    pairs = word_count = kept_count = 0
    capacity = len(given[_WORDS])
    for slot in range(slots):
        words_in[slot] = -1
    sentences_left = zero  # with the current pool
    for sentence in range(piece[0], piece[1]):
        here = which + uint64(sentence)
        if pools is not None and sentences_left == 0:
            sentences_left = _fill_pool(seed, here, pooled, pool_sentences, chance, alias, work)
        sentences_left -= 1
        low, high = offsets[sentence], offsets[sentence + 1]
        at = low
        filled = centre = entered = left = zero
        place, next_place = zero, np.int64(shared)  # avoids a division per place
        while at < high or centre < filled:
            # Words for a batch of windows, and their negatives.
            while at < high and filled < capacity:
                word = tokens[at]
                if word >= 0:
                    word_count += 1
                    if sampling and keep[word] != uint32(_ALWAYS):
                        a, _, _, _ = philox4x32(seed, uint32(_SAMPLE), here, uint64(at - low))
                    else:
                        a = uint32(0)
                    if at - low >= next_place:
                        place = at - low if shared == 1 else (at - low) // shared * shared
                        next_place = place + shared
                    words[filled], places[filled] = word, place
                    if not sampling or a < keep[word] or keep[word] == uint32(_ALWAYS):
                        filled += 1
                at += 1
            ready = filled if at == high else filled - half - AHEAD
            ready = min(ready, centre + BATCH)
            _draw(seed, here, places, centre, ready, draws, work.random)
            if pools is not None:
                _choose_of_pool(pooled, ready - centre, negatives, work)
            else:
                _choose(chance, alias, ready - centre, negatives, work.random, work.drawn)
            first_centre = centre
            for centre in range(first_centre, ready):
                # Words leave and enter the ring.
                while left < centre - half:
                    slot = slot_of[left]
                    uses[slot] -= 1
                    if uses[slot] == 0:
                        row = moved(row_in, words_in[slot] * dimension)
                        give(row, moved(x, slot * width), moved(x_first, slot * width), dimension)
                        words_in[slot] = -1
                    left += 1
                while entered < min(centre + half + 1, filled):
                    slot = _slot(words_in, words[entered], slots)
                    slot_of[entered] = slot
                    if words_in[slot] < 0:
                        words_in[slot], uses[slot] = words[entered], 0
                        row = moved(row_in, words[entered] * dimension)
                        take(row, moved(x, slot * width), dimension)
                        take(row, moved(x_first, slot * width), dimension)
                    uses[slot] += 1
                    entered += 1
                # Prefetch rows of later windows.
                if entered + AHEAD <= filled:
                    ask(moved(row_in, words[entered + AHEAD - 1] * dimension), dimension)
                if centre + AHEAD < ready:
                    ask(moved(row_out, words[centre + AHEAD] * dimension), dimension)
                    if places[centre + AHEAD] != places[centre + AHEAD - 1]:
                        for k in range(negatives):
                            later = work.drawn[k * BATCH + centre + AHEAD - first_centre]
                            ask(moved(row_out, later * dimension), dimension)
                # The window.
                if entered - left > 1:
                    count, most_x = _context(work, left, centre, entered, width)
                    targets, total, most_y = _targets(
                        work, words[centre], centre - first_centre, negatives, row_out, dimension
                    )
                    more, together = train_window(
                        work, lrs[sentence], count, targets, most_x * most_y, chunks, together
                    )
                    if width != dimension:
                        for j in range(targets):
                            row = moved(row_out, work.targets[j] * dimension)
                            take(moved(work.y, j * width), row, dimension)
                    loss += more
                    pairs += (entered - left - 1) * total
            centre = ready
            # Move the remaining words to the front.
            kept_count += left
            for j in range(left, filled):
                words[j - left], places[j - left] = words[j], places[j]
                slot_of[j - left] = slot_of[j]
            filled, centre, entered, left = filled - left, centre - left, entered - left, 0
        kept_count += filled
        for j in range(entered):
            slot = slot_of[j]
            if words_in[slot] >= 0:
                row = moved(row_in, words_in[slot] * dimension)
                give(row, moved(x, slot * width), moved(x_first, slot * width), dimension)
                words_in[slot] = -1
    return loss + flush(work.pairs), pairs, word_count, kept_count


@njit(cache=True)
def _draw(
    seed: Any, which: Any, places: Array, first: int, last: int, draws: int, random: Array
) -> None:
    for k in range(draws):
        for i in range(first, last):
            at = uint64(places[i]) * uint64(draws) + uint64(k)
            a, b, c, d = philox4x32(seed, uint32(_NEGATIVE), which, at)
            here = 4 * k * BATCH + i - first
            random[here], random[here + BATCH] = a, b
            random[here + 2 * BATCH], random[here + 3 * BATCH] = c, d


@njit(cache=True, forceinline=True)
def _word(chance: Array, alias: Array, one: Any, other: Any) -> Any:
    slot = np.int64(uint64(one) * uint64(len(chance)) >> uint64(32))
    rest = np.int64(alias[slot])  # unconditional: a branch would be mispredicted
    return slot if other < chance[slot] else rest


@njit(cache=True)
def _choose(
    chance: Array, alias: Array, count: int, negatives: int, random: Array, drawn: Array
) -> None:
    for k in range(negatives):
        for i in range(count):
            one, other = random[2 * k * BATCH + i], random[(2 * k + 1) * BATCH + i]
            drawn[k * BATCH + i] = _word(chance, alias, one, other)


@njit(cache=True)
def _choose_of_pool(pooled: int, count: int, negatives: int, work: Any) -> None:
    for k in range(negatives):
        shift = uint32(16 * (k % 2))
        for i in range(count):
            half = work.random[k // 2 * BATCH + i] >> shift & uint32(0xFFFF)
            work.drawn[k * BATCH + i] = work.pool[np.int64(half) * pooled >> 16]


@njit(cache=True)
def _fill_pool(
    seed: Any,
    which: Any,
    pooled: int,
    pool_sentences: int,
    chance: Array,
    alias: Array,
    work: Any,
) -> Any:
    """Draw the words of a sentence's pool; return how many sentences from this one on share it."""
    epoch, sentence = which >> uint64(SENTENCE_BITS), np.int64(which & uint64(_SENTENCES))
    number = uint64(sentence // pool_sentences) | epoch << uint64(SENTENCE_BITS)
    for j in range(0, pooled, 2):
        a, b, c, d = philox4x32(seed, uint32(_POOL), number, uint64(j // 2))
        work.pool[j] = _word(chance, alias, a, b)
        if j + 1 < pooled:
            work.pool[j + 1] = _word(chance, alias, c, d)
    return pool_sentences - sentence % pool_sentences


@njit(cache=True)
def _slot(words_in: Array, word: int, slots: int) -> int:
    free = slots
    for slot in range(slots):
        if words_in[slot] == word:
            return slot
        if words_in[slot] < 0:
            free = slot
    return free


@njit(cache=True, forceinline=True)
def _context(work: Any, left: int, centre: int, entered: int, width: int) -> tuple[int, int]:
    """Find the distinct rows of a window's context; return their number, and the most places."""
    slot_of, uses, slots, times = work.slot_of, work.uses, work.slots, work.times_x
    count, most = 0, 1
    for j in range(left, entered):
        slot = slot_of[j]
        if j != centre:
            known = count
            if uses[slot] > 1:
                known = 0
                while known < count and slots[known] != slot:
                    known += 1
            if known == count:
                slots[count], times[count] = slot, 0
                work.rows_x[count] = address(moved(work.x, slot * width))
                count += 1
            times[known] += 1
            most = max(most, times[known])
    for i in range(count, (count + BLOCK - 1) // BLOCK * BLOCK):
        work.rows_x[i], times[i] = address(work.empty), 0
    return count, most


@njit(cache=True, forceinline=True)
def _targets(
    work: Any, centre: int, window: int, negatives: int, row_out: Any, dimension: int
) -> tuple[int, int, int]:
    """Find the distinct rows of a window's targets.

    Returns their number, the number with repetitions, and the most repetitions.
    """
    targets, times, rows = work.targets, work.times_y, work.rows_y
    targets[0], times[0] = centre, 1
    rows[0] = _row_of_target(work, row_out, centre, np.int64(0), dimension)
    count = total = most = 1
    for k in range(negatives):
        word = work.drawn[k * BATCH + window]
        known = 0
        while known < count and targets[known] != word:
            known += 1
        if known == 0:
            continue
        if known == count:
            targets[count], times[count] = word, 0
            rows[count] = _row_of_target(work, row_out, word, count, dimension)
            count += 1
        times[known] += 1
        most = max(most, times[known])
        total += 1
    for j in range(count, (count + BLOCK - 1) // BLOCK * BLOCK):
        rows[j], times[j] = address(work.empty), 0
    return count, total, most


@njit(cache=True, forceinline=True)
def _row_of_target(work: Any, row_out: Any, word: int, target: int, dimension: int) -> Any:
    row = moved(row_out, word * dimension)
    if dimension % LANES == 0:
        return address(row)
    copy = moved(work.y, target * ((dimension + LANES - 1) // LANES * LANES))
    take(row, copy, dimension)
    return address(copy)
