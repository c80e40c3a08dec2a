"""``penstock embed``: vectors of nodes and relations, from Python.

from penstock import embed

embed.train("g", "run", model="complex", dim=100, epochs=30)
embed.evaluate("run", filtered=True).scores["mrr"]
embed.predict("run", head="e12", relation="r3", top=10).answers
embed.answer("run", "answers", relation="r3", top=10)
embed.score("run", [("e12", "r3", "e7")])
embed.vectors("run")["e12"]
embed.export("run", "vectors")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.paths import client_path
from penstock.pipelines.embed.options import (
    AnswerOptions,
    EmbedOptions,
    EvaluateOptions,
    ExportOptions,
    PredictOptions,
)
from penstock.pipelines.embed.report import (
    AnswerReport,
    EvaluateReport,
    ExportReport,
    PredictReport,
    TrainReport,
)
from penstock.pipelines.help_page import group
from penstock.pipelines.job.declare import RUN, Context, RunFolder, job
from penstock.workers.embed.spec import RESUMABLE

if TYPE_CHECKING:
    from penstock.arrays import Array
    from penstock.graph import Graph
    from penstock.output import Output
    from penstock.pipelines.vectors import Vectors
    from penstock.run_output import RunOutput

__all__ = [
    "AnswerOptions",
    "AnswerReport",
    "EmbedOptions",
    "EvaluateOptions",
    "EvaluateReport",
    "ExportOptions",
    "ExportReport",
    "PredictOptions",
    "PredictReport",
    "TrainReport",
    "answer",
    "evaluate",
    "export",
    "predict",
    "score",
    "train",
    "vectors",
]


def _varying(options: EmbedOptions) -> tuple[str, ...]:
    """Return the options that may change on resume: an epoch's vectors do not depend on them."""
    looks_ahead = options.schedule == "linear"
    return tuple(name for name in RESUMABLE if not (looks_ahead and name == "epochs"))


# Options from a recipe are options like others.
@job(
    "embed train",
    writes="run",
    files=("candidates",),
    passing=("recipe",),
    varying=_varying,
    on_gpu=True,
)
def train(context: Context, graph: Graph, run: RunOutput, options: EmbedOptions) -> TrainReport:
    """Train a vector for every node and relation, so that edges score above non-edges.

    Parameters
    ----------
    graph
        directory of a graph, with relations unless --model is dot
    run
        directory of the run to write

    Examples
    --------
    >>> report = embed.train("g", "run", model="distmult", dim=64, epochs=10)
    >>> report.trained.validation["mrr"]
    """
    from penstock.pipelines.embed.training import train_vectors

    return train_vectors(context, graph, run, options)


@job("embed evaluate", reads=RUN, plans=True, on_gpu=True)
def evaluate(context: Context, run: RunFolder, options: EvaluateOptions) -> EvaluateReport:
    """Rank the true answers of held-out edges: MR, MRR, Hits@1, 3 and 10.

    Parameters
    ----------
    run
        directory of a run

    Examples
    --------
    >>> embed.evaluate("run", split="valid", filtered=True).scores["mrr"]
    """
    from penstock.pipelines.embed.evaluation import evaluate_run

    return evaluate_run(context, run, options)


@job("embed predict", reads=RUN, plans=True, on_gpu=True)
def predict(context: Context, run: RunFolder, options: PredictOptions) -> PredictReport:
    """Show the most likely tails of a head and a relation, or heads of a tail.

    Parameters
    ----------
    run
        directory of a run

    Examples
    --------
    >>> embed.predict("run", head="e12", relation="r3").answers[0]["id"]
    """
    from penstock.pipelines.embed.prediction import predict_answers

    return predict_answers(context, run, options)


@job(
    "embed answer", reads=RUN, writes="answers", files=("queries", "candidates", "new"), on_gpu=True
)
def answer(context: Context, run: RunFolder, out: Output, options: AnswerOptions) -> AnswerReport:
    """Write the most likely answers to many questions, or of every node, as Parquet.

    Parameters
    ----------
    run
        directory of a run
    out
        directory of the answers to write

    Examples
    --------
    >>> embed.answer("run", "answers", relation="r3", top=20)
    """
    from penstock.pipelines.embed.answers import answer_all

    return answer_all(context, run, out, options)


@job("embed export", reads=RUN, writes="vectors", clustered=False, resumable=False)
def export(context: Context, run: RunFolder, out: Output, options: ExportOptions) -> ExportReport:
    """Write vectors with your own ids, as Parquet and .npy, which penstock similar reads.

    Parameters
    ----------
    run
        directory of a run
    out
        directory of the vectors to write

    Examples
    --------
    >>> embed.export("run", "vectors")
    """
    from penstock.pipelines.embed.exporting import export_run

    return export_run(context, run, out, options)


app = group(train, evaluate, predict, answer, export)


def score(run: str | Path, triples: Any, *, checkpoint: Literal["best", "last"] = "best") -> Array:
    """Return the score of each triple, with which tails are ranked; higher is more likely.

    Parameters
    ----------
    run
        Directory of a run that ``train`` wrote.
    triples
        A list of (head, relation, tail), or of (head, tail) if the run has no relations; or a table
        with these columns (anything with ``__arrow_c_stream__``).
    checkpoint
        As for ``vectors``.

    Returns
    -------
    numpy.ndarray
        (triples,) float64.

    Raises
    ------
    InputError
        Nodes or relations that the run does not have.

    Examples
    --------
    >>> embed.score("run", [("e12", "r3", "e7"), ("e12", "r3", "e8")])
    """
    from penstock.pipelines.embed.prediction import score_triples

    return score_triples(client_path(run), triples, checkpoint)


def vectors(
    run: str | Path, *, checkpoint: Literal["best", "last"] = "best", relations: bool = False
) -> Vectors:
    """Return the vectors of a run with the user's ids, as ``penstock.similar`` takes them.

    Vectors that were trained in memory are mapped from the checkpoint, and read when they are
    accessed; a running training does not change them. Vectors in several partitions are copied into
    memory: if they do not fit, ``export`` them and open the result with ``Vectors.open``.

    Parameters
    ----------
    run
        Directory of a run that ``train`` wrote.
    checkpoint
        With the best validation MRR, or the last; if nothing was validated, both are the last.
    relations
        Return the vectors of relations instead of nodes; ``NAME_inverse`` is the inverse of
        ``NAME``, with which heads are scored as its tails.

    Returns
    -------
    Vectors
        ``ids`` and ``values``, one row per node in the order of the graph.

    Raises
    ------
    UsageError
        No such run, or no vectors of relations.

    Examples
    --------
    >>> embed.vectors("run")["e12"]
    >>> penstock.similar(embed.vectors("run"), out="neighbours")
    """
    from penstock.pipelines.embed.exporting import open_vectors

    return open_vectors(client_path(run), checkpoint, relations=relations)
