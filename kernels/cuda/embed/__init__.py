"""Training embeddings on a GPU; names and meaning are naive/embed.py's.

Scores are never written to memory; only rows are, for a batch of E edges, N negatives per chunk, C
chunks and S sides: S E queries, S C N negatives, a sum over each, and the gradients.

The floor of a batch of 100,000 edges that share 1,000 negatives, one side, d = 100 and Adagrad,
with the H200's 411 TFLOP/s of TF32 and 4.25 TB/s:

    operations   4 products (scores and sums, for queries and for negatives) of 2 E N d each: 8e10,
                 0.19 ms; half precision, which they use, has about twice that rate
    bytes        nodes gathered 80 MB, queries written and read 62 MB, sums 80 MB, nodes and their
                 states read and written 320 MB, keys: 0.56 GB, 0.13 ms

that is 0.33 ms (300 M edges/s) one after the other, as they run. With both sides it is 0.39 ms and
0.17 ms. Rows that tiles read again are counted once: they come from the L2 cache.
benchmarks/results/embed.md shows how near steps come. Rows of products wider than tiles hold go
through cuBLAS, with scores in memory (wide.py); those of distances are cut in slices (distance.cu).

Training computes scores of products from halves with a scale per row (notes.cuh), which have the
same mantissa bits as TF32; scores of distances in float32; ranks in float64. Only the batch decides
the order of sums: the same batch gives the same bits, as one CUDA graph (cuda_graphs.py) or kernel
by kernel.
"""

from penstock.kernels.cuda.embed.evaluation import answer_scores, count, queries, top
from penstock.kernels.cuda.embed.negatives import draw_negatives
from penstock.kernels.cuda.embed.training import step, workspace

__all__ = [
    "answer_scores",
    "count",
    "draw_negatives",
    "queries",
    "step",
    "top",
    "workspace",
]
