"""Training embeddings of nodes and relations: BLAS on tiles of scores, and Numba around it.

Names and meaning are naive/embed.py's. Only a batch's own numbers decide its pieces and their
tiles, BLAS runs in one thread for each, and sums have a fixed order: the same input gives the same
bits on any number of threads.
"""

from penstock.kernels.cpu.embed.negatives import draw_negatives
from penstock.kernels.cpu.embed.rank import answer_scores, count, queries, top
from penstock.kernels.cpu.embed.step import step
from penstock.kernels.cpu.embed.workspace import workspace

__all__ = ["answer_scores", "count", "draw_negatives", "queries", "step", "top", "workspace"]
