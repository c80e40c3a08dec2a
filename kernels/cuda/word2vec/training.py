"""Training on sentences: one team of warps per piece of a sentence, all at once (train.cu)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch, launch_blocks
from penstock.kernels.cuda.word2vec.launch import (
    Device,
    launch_config,
    piece_length,
    pieces_together,
)
from penstock.kernels.streams import Stream
from penstock.kernels.word2vec_rules import SENTENCE_BITS, Losses, Noise, Sentences, Word2vecRules

_FILE, _START_FILE = "word2vec/train", "word2vec/start"
_LANES = 32
_of_noise: WeakKeyDictionary[Noise, Any] = WeakKeyDictionary()  # results of shares()
_CROWD = 0.4  # times 1 / lr: concurrent rows of one word whose changes add up


class Launched:
    """The result of training on a block; the call waits for the GPU."""

    def __init__(self, losses: DeviceArray, counts: DeviceArray) -> None:
        self._sums = losses.sum(), counts.sum(axis=1)
        # Page-locked: else the host would wait for the copies here.
        self._memory = cp.cuda.alloc_pinned_memory(4 * 8)
        self._host = np.frombuffer(self._memory, np.uint64, 4)
        for array, place in zip(self._sums, (0, 1), strict=True):
            array.data.copy_to_host_async(self._host[place:].ctypes.data, array.nbytes)
        self._end = cp.cuda.Event(disable_timing=True)
        self._end.record()

    def __call__(self) -> Losses:
        """Return it."""
        self._end.synchronize()
        pairs, seen, kept = (int(each) for each in self._host[1:])
        return Losses(float(self._host[:1].view(np.float64)[0]), pairs, seen, kept)


def train(
    vectors_in: DeviceArray,
    vectors_out: DeviceArray,
    sentences: Sentences,
    noise: Noise,
    rules: Word2vecRules,
    *,
    teams: int | None = None,
    piece: int | None = None,
) -> Losses:
    """Train on a block of sentences, in place, and wait for it: see ``begin``."""
    return begin(vectors_in, vectors_out, sentences, noise, rules, teams=teams, piece=piece)()


def begin(
    vectors_in: DeviceArray,
    vectors_out: DeviceArray,
    sentences: Sentences,
    noise: Noise,
    rules: Word2vecRules,
    *,
    teams: int | None = None,
    piece: int | None = None,
    copies: int = 1,
) -> Callable[[], Losses]:
    """Start to train on a block of sentences, in place; return a function that returns its losses.

    Teams do not wait for each other: each reads vectors that others add to, and two runs differ. A
    word with very many concurrent rows gets a share of their changes (shares).
    ``sentences.offsets`` may be None: then ``tokens`` is (sentences, length), one sentence per row.

    vectors_in, vectors_out  (V, dimension) float32
    teams   the most sentences at once; None: as many as the GPU holds. One team takes the sentences
            in order, whole, and always gives the same vectors
    piece   places of a sentence per team; two teams read the words around its ends; None: several
            pieces per team
    copies  of the vectors that are trained at once, one per GPU, before their changes are added
    """
    _check(vectors_in, vectors_out)
    tokens = cp.ascontiguousarray(cp.asarray(sentences.tokens, cp.int32))
    lrs = cp.ascontiguousarray(cp.asarray(sentences.lrs, cp.float32))
    count, words = len(lrs), int(tokens.size)
    if not count or not words:
        return Losses
    dimension = vectors_in.shape[1]
    device = _device(cp.cuda.Device().id)
    aligned = not (int(vectors_in.data.ptr) | int(vectors_out.data.ptr)) % 16
    chosen = launch_config(dimension, rules, device, aligned=aligned)
    a_block = chosen.warps // chosen.team
    resident = device.multiprocessors * chosen.blocks * a_block
    teams = min(teams or resident, resident)
    piece = piece or piece_length(words, teams)
    teams = min(teams, count + words // piece)
    if teams < a_block:
        chosen = replace(chosen, warps=teams * chosen.team)
        a_block = teams
    blocks = teams // a_block
    offsets, length, first_piece, row_pieces = _pieces(sentences, tokens, piece)
    losses = cp.empty(blocks * a_block, cp.float64)
    counts = cp.empty((3, blocks * a_block), cp.uint64)
    launch_blocks(
        _FILE,
        chosen.instance,
        blocks,
        chosen.warps * _LANES,
        *(vectors_in, vectors_out, np.int32(dimension)),
        *((None, None) if teams == 1 else shares(noise, lrs, rules, teams * copies)),
        *(tokens, offsets, np.int64(length), lrs, np.int64(count)),
        *(np.uint64(sentences.first), np.uint64(sentences.epoch << SENTENCE_BITS)),
        *(first_piece, np.int64(row_pieces), np.int32(piece)),
        *(np.int32(pieces_together(words, count, teams)), cp.zeros(1, cp.uint64)),
        *_draws(noise, rules),
        *(np.int32(rules.half_window), np.int32(rules.negatives), np.int32(rules.shared_windows)),
        np.int32(aligned and dimension % 4 == 0),
        *(np.int32(chosen.team), np.int32(chosen.stages), np.int32(chosen.keeps)),
        *(np.int32(chosen.a_warp), losses, counts),
        shared=chosen.shared_memory,
    )
    return Launched(losses, counts)


def shares(
    noise: Noise, lrs: DeviceArray, rules: Word2vecRules, teams: int
) -> tuple[DeviceArray, DeviceArray]:
    """Return the shares of changes for input and output vectors: (V,) float32 each.

    Concurrent changes do not see each other. Those of a word that hundreds of teams have would add
    up to a step hundreds of times too long, and training would diverge. So if more of its rows than
    ``_CROWD / lr`` are expected at once, they count as that many. Teams of other GPUs, whose copies
    do not see these changes either, are among ``teams``. ``noise.counts`` gives a word's frequency;
    without it, the table of noise does, which has counts to the power 0.75.
    """
    found, lr, crowd = [], lrs.max(), np.float64(_CROWD / teams)
    for under_way in _under_way(noise, rules):
        share = cp.empty(len(under_way), cp.float32)
        given = under_way, np.int64(len(share)), lr, crowd, share
        launch(_START_FILE, "share_rows", len(share), *given)
        found.append(share)
    return found[0], found[1]


def _under_way(noise: Noise, rules: Word2vecRules) -> tuple[DeviceArray, DeviceArray]:
    """Return the expected number of a team's rows of each word, of input and output vectors.

    It is computed once for all blocks of a training run: short ones would wait for it.
    """
    found = _of_noise.get(noise)
    if found is None or found[0] != (rules.half_window, rules.negatives):
        found = (rules.half_window, rules.negatives), _expected(noise, rules)
        _of_noise[noise] = found
    return found[1]


def _expected(noise: Noise, rules: Word2vecRules) -> tuple[DeviceArray, DeviceArray]:
    chance, alias = cp.asnumpy(noise.chance) / 2**32, cp.asnumpy(noise.alias)
    drawn = chance + np.bincount(alias, 1 - chance, len(chance))
    drawn /= drawn.sum()
    counts = noise.counts
    kept = drawn ** (4 / 3) if counts is None else cp.asnumpy(counts).astype(np.float64)
    if noise.keep is not None:
        kept *= cp.asnumpy(noise.keep) / 2**32
    kept /= max(kept.sum(), 1e-300)
    windows = 2 * rules.half_window + 1  # that an input row stays in
    into, out = windows * kept, rules.negatives * drawn + kept
    return cp.asarray(np.maximum(into, 1e-300)), cp.asarray(np.maximum(out, 1e-300))


def _pieces(sentences: Sentences, tokens: DeviceArray, piece: int) -> tuple[Any, int, Any, int]:
    if sentences.offsets is None:
        length = tokens.shape[1]
        return None, length, None, -(-length // piece)
    offsets = cp.ascontiguousarray(cp.asarray(sentences.offsets, cp.int64))
    first_piece = cp.zeros(len(offsets), cp.int64)
    count, pieces = len(offsets) - 1, cp.empty(len(offsets) - 1, cp.int64)
    given = offsets, np.int64(count), np.int32(piece), pieces
    launch(_START_FILE, "count_pieces", count, *given)
    cp.cumsum(pieces, out=first_piece[1:])
    return offsets, 0, first_piece, 0


def _draws(noise: Noise, rules: Word2vecRules) -> tuple[Any, ...]:
    keep = None if noise.keep is None else cp.ascontiguousarray(cp.asarray(noise.keep, cp.uint32))
    return (
        cp.ascontiguousarray(cp.asarray(noise.chance, cp.uint32)),
        cp.ascontiguousarray(cp.asarray(noise.alias, cp.int32)),
        keep,
        np.uint32(len(noise.chance)),
        np.uint64(rules.seed & (2**64 - 1)),
        np.uint32(Stream.WORD2VEC_SAMPLE),
        np.uint32(Stream.WORD2VEC_NEGATIVE),
    )


def _check(vectors_in: DeviceArray, vectors_out: DeviceArray) -> None:
    for array in (vectors_in, vectors_out):
        assert array.dtype == np.float32, array.dtype
        assert array.flags.c_contiguous, array.strides
        assert array.shape == vectors_in.shape, (array.shape, vectors_in.shape)


@cache
def _device(number: int) -> Device:
    has = cp.cuda.Device(number).attributes
    return Device(
        int(has["MultiProcessorCount"]),
        int(has["MaxSharedMemoryPerBlockOptin"]),
        int(has["MaxSharedMemoryPerMultiprocessor"]),
    )
