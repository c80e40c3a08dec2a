"""Training embeddings of nodes and relations: BLAS on tiles of scores, and Numba around it.

Names and meaning are naive/embed.py's. A batch is cut into pieces, and these into tiles, by its own
numbers alone, BLAS runs in one thread for each, and sums are made in one order: for the same input
the same bits come out, whatever the number of threads.
"""

from penstock.kernels.cpu.embed.negatives import draw_negatives
from penstock.kernels.cpu.embed.rank import answer_scores, count, queries, top
from penstock.kernels.cpu.embed.step import step
from penstock.kernels.cpu.embed.workspace import workspace

__all__ = ["answer_scores", "count", "draw_negatives", "queries", "step", "top", "workspace"]
