"""Words become numbers, and sentences that are too long become several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy

if TYPE_CHECKING:
    import pyarrow as pa


def cut_sentences(offsets: Array, longest: int) -> Array:
    """Return where sentences begin once those that are longer than ``longest`` are cut."""
    lengths = np.diff(offsets)
    if not len(lengths) or lengths.max() <= longest:
        return offsets
    parts = np.maximum(-(-lengths // longest), 1)
    ends = np.repeat(offsets[:-1], parts)
    inside = np.arange(len(ends)) - np.repeat(np.cumsum(parts) - parts, parts)
    return np.append(ends + inside * longest, offsets[-1])


def without_unknown(tokens: Array, offsets: Array) -> tuple[Array, Array]:
    """Return tokens and offsets without negative numbers, which are no words."""
    in_vocabulary = tokens >= 0
    if in_vocabulary.all():
        return tokens, offsets
    before = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum(in_vocabulary, out=before[1:])
    return tokens[in_vocabulary], before[offsets]


def looked_up(ids: pa.Array, vocabulary: pa.Array) -> Array:
    """Return the places of ids in a vocabulary, (ids,) int32; -1: it does not have one."""
    import pyarrow.compute as pc

    if ids.type != vocabulary.type:  # files whose types differ, as merged
        ids = ids.cast(vocabulary.type)
    found = pc.index_in(ids, value_set=vocabulary)
    return as_numpy(found.fill_null(-1)).astype(np.int32, copy=False)
