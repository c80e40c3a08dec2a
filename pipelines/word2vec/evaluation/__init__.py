"""``penstock word2vec evaluate``: vectors against judgements of words, or labels of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipelines.job import declare
from penstock.pipelines.job.declare import VECTORS, Context
from penstock.pipelines.word2vec.evaluation.options import EvaluateOptions

if TYPE_CHECKING:
    from penstock.pipelines.vectors import Vectors
    from penstock.pipelines.word2vec.evaluation.report import EvaluateReport

__all__ = ["EvaluateOptions", "evaluate_vectors"]


@declare.job("word2vec evaluate", reads=VECTORS, plans=True, clustered=False)
def evaluate_vectors(
    context: Context, vectors: Vectors, options: EvaluateOptions
) -> EvaluateReport:
    """Evaluate vectors by pairs of words, analogies, or labels of nodes.

    Parameters
    ----------
    vectors
        vectors: a directory or a file

    Examples
    --------
    >>> evaluate_vectors("words", pairs=["ws353.txt"]).pairs[0].spearman
    >>> evaluate_vectors("vectors", labels="graph", shares=[0.5]).labels.shares[0].micro_f1
    """
    from penstock.pipelines.word2vec.evaluation.job import compare

    return compare(context, vectors, options)
