"""``penstock word2vec evaluate``: vectors against judgements of words, or labels of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.pipelines.job import run
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.word2vec.evaluation.options import EvaluateOptions
from penstock.pipelines.word2vec.evaluation.report import EvaluateReport

__all__ = ["EvaluateOptions", "EvaluateReport", "evaluate_vectors"]


def evaluate_vectors(
    vectors: str | Path | Vectors, *, quiet: bool = True, **options: Any
) -> EvaluateReport:
    """Evaluate vectors by pairs of words, by analogies, or by labels of nodes.

    Parameters
    ----------
    vectors
        Vectors, or where they are: see ``Vectors.open``.
    quiet
        Print no progress.
    **options
        Fields of ``EvaluateOptions``: ``pairs``, ``analogies``, ``labels`` and how: the options of
        ``penstock word2vec evaluate``.

    Returns
    -------
    EvaluateReport
        Correlations, accuracies, F1; ``text()`` and ``to_dict()``.

    Raises
    ------
    UsageError
        No such vectors, nothing to compare with, or options that contradict each other.
    InputError
        A file that has nothing to do with these vectors; NaN in the vectors.
    CapacityError
        It does not fit in memory.

    Examples
    --------
    >>> evaluate_vectors("words", pairs=["ws353.txt"]).pairs[0].spearman
    >>> evaluate_vectors("vectors", labels="graph", shares=[0.5]).labels.shares[0].micro_f1
    """
    from penstock.pipelines.word2vec.evaluation.job import EvaluateJob

    given = EvaluateOptions(**options)
    opened = Vectors.open(vectors, ids=given.id_file)
    return run(EvaluateJob(opened, given, quiet=quiet))
