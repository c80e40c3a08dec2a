"""Skip-gram with negative samples on the GPU; names and meaning are naive/word2vec.py's.

**The floor**, of a corpus word with d = 128 columns, K = 5 negatives and a half window of 3, so 6
contexts and 6 targets, on an H200 (device copy 4.25 TB/s):

========================  ===================================================================
arithmetic                36 pairs of 3 * 2 * d operations: 27,648, half of them multiply-adds;
                          at 60 TFLOP/s (132 multiprocessors, 1.77 GHz) 2.2 G words/s
output vectors            6 rows are read and 6 are added to: 6,144 bytes
input vectors             1 is read and 1 added to, as rows stay in shared memory for the 7 windows
                          that they are in: 1,024 bytes (without that: 14,336)
draws                     8 bytes of alias table a negative, 8 of token and threshold: under 100
all, if all from HBM      7,168 bytes: 593 M words/s; frequent rows stay in the 60 MB
                          L2, which reduces it
with ``shared_windows``   G windows have 5 negatives' rows together: 2,048 + 5,120 / G bytes; G = 2
                          4,608 (922 M words/s), G = 4 3,328 (1.28 G)
shared memory             about 170 accesses of 128 bytes: contexts read twice and written once,
                          targets copied and read, 37 shuffles: 1.3 G words/s
instructions              about 700 of a warp, of which 432 multiply-add: 1.3 G words/s at four a
                          cycle
========================  ===================================================================

Shards (shards.cu) read and write 32 bytes per value when they exchange: copy, base and change, then
change, base, base and copy, and both tables once for their squares. Vectors of 2.4 M words with
d = 128 take 6.6 ms for this at 3 TB/s, mostly while 2.5 GB travel: 7.5 ms at 330 GB/s.

Measured (benchmarks/results/word2vec.md): 361 M words/s with a vocabulary of 71,291. Neither memory
nor issue slots are full: 16 warps per multiprocessor wait for shared memory.
"""

from __future__ import annotations

from penstock.kernels.cuda.word2vec.shards import apply_changes, changes, mean_square
from penstock.kernels.cuda.word2vec.tables import (
    count_words,
    keep_thresholds,
    noise_table,
    start_rows,
)
from penstock.kernels.cuda.word2vec.training import begin, train

__all__ = [
    "apply_changes",
    "begin",
    "changes",
    "count_words",
    "keep_thresholds",
    "mean_square",
    "noise_table",
    "start_rows",
    "train",
]
