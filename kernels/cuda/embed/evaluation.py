"""Ranks of answers and best candidates on the GPU, in float64 and in tiles.

Ranks need memory only for their counts. ``top`` writes scores of a slice of candidates at a time.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.gnn.launch import matrix
from penstock.kernels.cuda.module import c_name, launch, launch_blocks, processors
from penstock.kernels.embed_rules import EmbedRules, Known, Model, Side

_FILE = "embed/ranks"
_THREADS, _TILE, _DEPTH = 256, 64, 16  # those of ranks.cu
_SHARED = 4 * 4 * _TILE * (_DEPTH + 1)
_BLOCKS_A_PROCESSOR = 4
_MATRICES = 64  # that are composed at a time
_SCORES_AT_ONCE = 1 << 24  # of ``top``: 128 MiB


def queries(
    nodes: DeviceArray,
    relations: DeviceArray | None,
    given: DeviceArray,
    relation: Any,
    side: Side,
    rules: EmbedRules,
) -> DeviceArray:
    """Return the queries of a side: (n, dim) float32."""
    count = len(given)
    given = cp.ascontiguousarray(given, cp.int32)
    rows: Any = None
    if rules.model != Model.DOT:
        shift = rules.inverse if side == Side.HEAD else 0
        rows = cp.ascontiguousarray(relation, cp.int32) + cp.int32(shift)
    out = cp.empty((count, rules.dim), cp.float32)
    if relations is not None and rules.model == Model.TUCKER:
        _ask_composed(nodes, relations, given, rows, side, rules, out)
        return out
    launch(
        _FILE,
        f"exact_queries<{rules.model.name}>",
        count * (rules.dim // 2 if rules.is_complex else rules.dim),
        *(*matrix(nodes), np.int32(rules.dim), *matrix(relations), given, rows, np.int64(count)),
        *(np.int32(side == Side.HEAD and not rules.inverse), out),
    )
    return out


def _ask_composed(
    nodes: DeviceArray,
    relations: DeviceArray,
    given: DeviceArray,
    rows: DeviceArray,
    side: Side,
    rules: EmbedRules,
    out: DeviceArray,
) -> None:
    """Write the queries of matrices, which are composed in float64, some at a time."""
    shared = relations[len(relations) - rules.shared_rows :].astype(cp.float64)
    distinct, slots = cp.unique(rows, return_inverse=True)
    for first in range(0, len(distinct), _MATRICES):
        of = cp.flatnonzero((slots >= first) & (slots < first + _MATRICES))
        own = relations[distinct[first : first + _MATRICES]].astype(cp.float64)
        found = cp.empty((len(of), rules.dim), cp.float32)
        launch(
            _FILE,
            f"exact_queries<{rules.model.name}, double>",
            len(of) * rules.dim,
            *(*matrix(nodes), np.int32(rules.dim), *matrix(own @ shared.T), given[of]),
            *((slots[of] - first).astype(cp.int32), np.int64(len(of))),
            *(np.int32(side == Side.HEAD and not rules.inverse), found),
        )
        out[of] = found


def answer_scores(asked: DeviceArray, answers: DeviceArray, rules: EmbedRules) -> DeviceArray:
    """Return the score of one candidate for each query: (n,) float64 of (n, dim) and (n, dim)."""
    out = cp.empty(len(asked), cp.float64)
    launch(
        _FILE,
        f"answer_scores<{rules.model.name}>",
        len(asked),
        *(_floats(asked), _floats(answers), np.int64(len(asked)), np.int32(rules.dim), out),
    )
    return out


def count(
    asked: DeviceArray,
    scores: DeviceArray,
    answers: DeviceArray,
    table: DeviceArray,
    rules: EmbedRules,
    counts: DeviceArray,
    first: int = 0,
    known: Known | None = None,
    work: Any = None,
) -> None:
    """Add the numbers of candidates whose scores exceed and equal that of each query's answer.

    See ``naive.embed.count``; ``counts`` is an int64 array without gaps.
    """
    assert counts.dtype == np.int64
    assert counts.flags.c_contiguous
    if not len(asked) or not len(table):
        return
    indptr, indices, kind = _known(known)
    splits, blocks = _grid(len(asked), len(table))
    launch_blocks(
        _FILE,
        f"count_scores<{rules.model.name}, {kind}>",
        blocks,
        _THREADS,
        *(_floats(asked), cp.ascontiguousarray(scores, cp.float64)),
        *(cp.ascontiguousarray(answers, cp.int64), np.int64(len(asked)), table),
        *(
            np.int64(len(table)),
            matrix(table)[1],
            np.int32(rules.dim),
            np.int64(first),
            indptr,
            indices,
        ),
        *(np.int32(splits), counts),
        shared=_SHARED,
    )


def top(
    asked: DeviceArray,
    table: DeviceArray,
    rules: EmbedRules,
    k: int,
    first: int = 0,
    known: Known | None = None,
    best: tuple[DeviceArray, DeviceArray] | None = None,
    work: Any = None,
) -> tuple[DeviceArray, DeviceArray]:
    """Return the best k candidates of each query: scores (n, k) float64 and ids (n, k) int64.

    See ``naive.embed.top``. The k best are found one after another, so k should be small.
    """
    number = len(asked)
    if best is None:
        best = cp.full((number, k), -np.inf, cp.float64), cp.full((number, k), -1, cp.int64)
    scores, ids = (cp.array(part) for part in best)
    if not number or not k:
        return scores, ids
    asked = _floats(asked)
    indptr, indices, kind = _known(known)
    rows_at_once = max(_TILE, _SCORES_AT_ONCE // number)
    for begin in range(0, len(table), rows_at_once):
        part = table[begin : begin + rows_at_once]
        found = cp.empty((number, len(part)), cp.float64)
        splits, blocks = _grid(number, len(part))
        launch_blocks(
            _FILE,
            f"write_scores<{rules.model.name}, {kind}>",
            blocks,
            _THREADS,
            *(asked, np.int64(number), part, np.int64(len(part)), matrix(table)[1]),
            *(
                np.int32(rules.dim),
                np.int64(first + begin),
                indptr,
                indices,
                np.int32(splits),
                found,
            ),
            shared=_SHARED,
        )
        new_scores, new_ids = cp.empty_like(scores), cp.empty_like(ids)
        launch_blocks(
            _FILE,
            "keep_best",
            number,
            _THREADS,
            *(found, np.int64(len(part)), np.int64(first + begin), np.int32(k)),
            *(scores, ids, new_scores, new_ids),
        )
        scores, ids = new_scores, new_ids
    return scores, ids


def _grid(number: int, rows: int) -> tuple[int, int]:
    groups = -(-number // _TILE)
    wanted = -(-_BLOCKS_A_PROCESSOR * processors() // groups)
    splits = max(1, min(wanted, -(-rows // _TILE)))
    return splits, groups * splits


def _known(known: Known | None) -> tuple[Any, Any, str]:
    if known is None:
        return None, None, "int"
    wide = known.indices.dtype == np.int64
    indices = cp.ascontiguousarray(known.indices, cp.int64 if wide else cp.int32)
    return cp.ascontiguousarray(known.indptr, cp.int64), indices, c_name(indices)


def _floats(array: DeviceArray) -> DeviceArray:
    return cp.ascontiguousarray(array, cp.float32)
