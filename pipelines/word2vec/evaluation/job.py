"""One run of ``penstock word2vec evaluate``, in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from penstock.arrow import as_arrow
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.limits import available_memory, cores
from penstock.paths import client_path, shown
from penstock.pipelines.candidates import OF_GRAPH, mask_of, rows_of_file
from penstock.pipelines.job.declare import Context
from penstock.pipelines.job.plan import Need
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.vectors.store import as_ids
from penstock.pipelines.word2vec.evaluation import labels, words
from penstock.pipelines.word2vec.evaluation.options import EvaluateOptions
from penstock.pipelines.word2vec.evaluation.report import EvaluateReport
from penstock.progress import Progress
from penstock.sizes import plural, too_large


def compare(context: Context, vectors: Vectors, options: EvaluateOptions) -> EvaluateReport:
    """Compare vectors with every file that the options name, one after the other."""
    if not (options.pairs or options.analogies or options.labels):
        raise UsageError(
            "nothing to evaluate the vectors by",
            expected="--pairs, --analogies or --labels",
            remedy="Name a file of judgements, or a graph with labels",
        )
    if options.candidates is not None:
        vectors = _limited(vectors, options.candidates, options.labels)
    count, dimension = len(vectors), vectors.dimension
    restrict, splits = min(options.restrict, count), len(options.shares) * options.repeats
    steps, memory = [], 0
    for kind in ("pairs", "analogies"):
        files = getattr(options, kind)
        if files:
            many = plural(len(files), "file")
            steps.append((kind, f"of {many}, among the first {restrict:,} vectors"))
    if steps:
        by = {"by_pairs": bool(options.pairs), "by_analogies": bool(options.analogies)}
        memory = words.memory(restrict, dimension, **by)
    labelled, remedy = None, "Take a smaller --restrict"
    if options.labels is not None:
        labelled = labels.read_labels(vectors, options.labels, options.shares)
        memory = max(memory, labelled.memory(dimension, min(cores(), options.repeats)))
        remedy = "Give labels to fewer ids, and a column of classes, not of values"
        rows, classes = len(labelled.rows), len(labelled.classes)
        steps.append(("labels", f"{splits} splits of {rows:,} ids, {classes:,} classes"))
    context.plan(
        f"the quality of the vectors of {shown(vectors.path)}",
        steps=tuple(steps),
        memory=Need(memory, available_memory(), "available"),
        problem=too_large(memory, f"comparing {count:,} vectors of {dimension}", remedy=remedy),
    )
    vectors.check_finite()
    found = EvaluateReport(str(vectors.path), count, dimension)
    if options.pairs or options.analogies:
        known = words.Words(vectors, case_sensitive=options.case_sensitive, restrict=restrict)
        found.pairs = [words.evaluate_pairs(known, path) for path in options.pairs]
        found.analogies = [words.evaluate_analogies(known, path) for path in options.analogies]
        del known  # not needed for labels
    if labelled is not None:
        with Progress("classify", total=splits, unit="splits", quiet=context.quiet) as progress:
            found.labels = labels.evaluate_labels(vectors, labelled, options, progress.advance)
    return found


def _limited(vectors: Vectors, given: str, labels: Path | None) -> Vectors:
    """Return the vectors of the candidates, in their order."""
    if given.partition(":")[0] in OF_GRAPH:
        if labels is None:
            raise UsageError(f"--candidates {given} needs a graph", expected="--labels GRAPH")
        graph = Graph.open(labels)
        ids = as_ids(graph.user_ids())
        known = vectors.find(ids.filter(mask_of(given, ids, lambda: graph)))
        rows = np.unique(known[known >= 0])
    else:
        rows = rows_of_file(client_path(given), vectors.ids)
    return replace(vectors, ids=vectors.ids.take(as_arrow(rows)), values=vectors.values[rows])
