"""Skip-gram with negative samples in Numba; names and meaning are naive/word2vec.py's."""

from __future__ import annotations

from penstock.kernels.cpu.word2vec.shards import apply_changes, changes, mean_square
from penstock.kernels.cpu.word2vec.tables import (
    count_words,
    keep_thresholds,
    noise_table,
    start_rows,
)
from penstock.kernels.cpu.word2vec.training import train

__all__ = [
    "apply_changes",
    "changes",
    "count_words",
    "keep_thresholds",
    "mean_square",
    "noise_table",
    "start_rows",
    "train",
]
