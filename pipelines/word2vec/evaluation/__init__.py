"""``penstock word2vec evaluate``: vectors against judgements of words, or labels of nodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from penstock.errors import UsageError
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.word2vec.evaluation.options import EvaluateOptions
from penstock.pipelines.word2vec.evaluation.report import EvaluateReport
from penstock.progress import Progress

__all__ = ["EvaluateOptions", "EvaluateReport", "evaluate"]


def evaluate(
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
        Fields of ``EvaluateOptions``: ``pairs``, ``analogies``, ``labels`` and how.

    Returns
    -------
    EvaluateReport
        Correlations, accuracies, F1; ``text()`` and ``to_dict()``.

    Raises
    ------
    InputError
        A file that has nothing to do with these vectors; NaN in the vectors.

    Examples
    --------
    >>> evaluate("words", pairs=["ws353.txt"]).pairs[0].spearman
    >>> evaluate("vectors", labels="graph", shares=[0.5]).labels.shares[0].micro_f1
    """
    given = EvaluateOptions(**options)
    opened = vectors if isinstance(vectors, Vectors) else Vectors.open(vectors, ids=given.id_file)
    return evaluated(opened, given, quiet=quiet)


def evaluated(vectors: Vectors, options: EvaluateOptions, *, quiet: bool) -> EvaluateReport:
    """Return what is found by every file that the options name."""
    from penstock.pipelines.word2vec.evaluation import labels, words

    if not (options.pairs or options.analogies or options.labels):
        raise UsageError(
            "vectors are evaluated by something",
            expected="--pairs, --analogies or --labels",
            remedy="Name a file of judgements, or a graph with labels",
        )
    began = time.monotonic()
    vectors.check_finite()
    report = EvaluateReport(str(vectors.path), len(vectors), vectors.dimension)
    if options.pairs or options.analogies:
        vocabulary = words.Words(
            vectors, case_sensitive=options.case_sensitive, restrict=options.restrict
        )
        report.pairs = [words.evaluate_pairs(vocabulary, path) for path in options.pairs]
        report.analogies = [
            words.evaluate_analogies(vocabulary, path) for path in options.analogies
        ]
    if options.labels is not None:
        total = len(options.shares) * options.repeats
        with Progress("classify", total=total, unit="splits", quiet=quiet) as progress:
            report.labels = labels.evaluate_labels(
                vectors, options.labels, options, progress.advance
            )
    report.seconds = time.monotonic() - began
    return report
