"""``penstock embed``: vectors of nodes and relations, from Python.

from penstock import embed

embed.train("g", "run", model="complex", dim=100, epochs=30)
embed.evaluate("run", filtered=True).scores["mrr"]
embed.predict("run", head="e12", relation="r3", top=10).answers
embed.vectors("run")["e12"]
embed.export("run", "vectors")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.cluster.spec import ClusterSpec
from penstock.graph import Graph
from penstock.paths import client_path
from penstock.pipelines.embed.options import (
    EmbedOptions,
    EvaluateOptions,
    ExportOptions,
    PredictOptions,
)
from penstock.pipelines.embed.report import (
    EvaluateReport,
    ExportReport,
    PredictReport,
    TrainReport,
)
from penstock.pipelines.job import run as run_job

if TYPE_CHECKING:
    from penstock.pipelines.vectors import Vectors

__all__ = [
    "EmbedOptions",
    "EvaluateOptions",
    "EvaluateReport",
    "ExportOptions",
    "ExportReport",
    "PredictOptions",
    "PredictReport",
    "TrainReport",
    "evaluate",
    "export",
    "predict",
    "train",
    "vectors",
]


def train(
    graph: str | Path | Graph,
    run: str | Path,
    *,
    cluster: str | ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> TrainReport:
    """Train a vector for every node and relation of a graph, in the directory ``run``.

    Parameters
    ----------
    graph
        A graph, or its directory; with relations, but for ``model="dot"``.
    run
        Directory to write: ``run.json``, ``metrics.jsonl``, ``ids.parquet`` and checkpoints.
    cluster
        Where it runs, as for ``connect`` [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``EmbedOptions``, as ``model``, ``dim``, ``epochs`` or ``partitions``: the
        options of ``penstock embed train``.

    Returns
    -------
    TrainReport
        Loss, validation scores, times; ``text()`` and ``to_dict()``.

    Raises
    ------
    UsageError
        Options that contradict each other or the graph.
    CapacityError
        The training run does not fit into memory or on disk.
    OutputExists
        ``run`` holds a run, and neither ``resume`` nor ``overwrite`` is set.
    PenstockError
        The loss, or a vector, became NaN or infinite.

    Examples
    --------
    >>> report = embed.train("g", "run", model="distmult", dim=64, epochs=10)
    >>> report.trained.validation["mrr"]
    """
    from penstock.pipelines.embed.training import TrainJob

    given = EmbedOptions(**options)
    opened = Graph.open(client_path(graph), verify=given.verify, quiet=quiet)
    return run_job(TrainJob(opened, client_path(run), given, cluster, quiet=quiet))


def evaluate(
    run: str | Path, *, cluster: str | ClusterSpec | None = None, quiet: bool = True, **options: Any
) -> EvaluateReport:
    """Rank the true answers of held-out edges among all nodes.

    Parameters
    ----------
    run
        Directory of a run that ``train`` wrote.
    cluster
        Where it runs, as for ``connect`` [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``EvaluateOptions``: ``split``, ``filtered``, ``candidates``, ``sample``,
        ``triples``, ``unknown``, ``seed``, ``checkpoint`` and ``graph``.

    Returns
    -------
    EvaluateReport
        ``scores``: mr, mrr, hits1, hits3 and hits10; ``tail`` and ``head``: of one side.

    Raises
    ------
    UsageError
        No such run, or no edges in the split.
    InputError
        Edges with nodes or relations that the run does not have.

    Examples
    --------
    >>> embed.evaluate("run", split="valid", filtered=True).scores["mrr"]
    """
    from penstock.pipelines.embed.evaluation import EvaluateJob

    at, given = client_path(run), EvaluateOptions(**options)
    return run_job(EvaluateJob(at, at, given, cluster, quiet=quiet))


def predict(
    run: str | Path, *, cluster: str | ClusterSpec | None = None, quiet: bool = True, **options: Any
) -> PredictReport:
    """Return the most likely tails of a head and a relation, or heads of a tail.

    Parameters
    ----------
    run
        Directory of a run that ``train`` wrote.
    cluster
        Where it runs, as for ``connect`` [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``PredictOptions``: ``head`` or ``tail``, ``relation``, ``top``, ``known``.

    Returns
    -------
    PredictReport
        ``answers``: id and score of each, the best first.

    Raises
    ------
    UsageError
        No such run, node or relation.

    Examples
    --------
    >>> embed.predict("run", head="e12", relation="r3").answers[0]["id"]
    """
    from penstock.pipelines.embed.prediction import PredictJob

    at, given = client_path(run), PredictOptions(**options)
    return run_job(PredictJob(at, at, given, cluster, quiet=quiet))


def export(run: str | Path, out: str | Path, *, quiet: bool = True, **options: Any) -> ExportReport:
    """Write the vectors of a run with the user's ids, as Parquet and .npy.

    Parameters
    ----------
    run
        Directory of a run that ``train`` wrote.
    out
        Directory to write, which ``penstock similar`` reads.
    quiet
        Of no effect, as no progress is printed.
    **options
        Fields of ``ExportOptions``: ``relations``, ``checkpoint``, ``overwrite``.

    Returns
    -------
    ExportReport
        What was written.

    Raises
    ------
    UsageError
        No such run, or no vectors of relations.
    OutputExists
        ``out`` exists, and ``overwrite`` is not set.

    Examples
    --------
    >>> embed.export("run", "vectors")
    """
    from penstock.pipelines.embed.exporting import ExportJob

    given = ExportOptions(**options)
    return run_job(ExportJob(client_path(run), client_path(out), given, quiet=quiet))


def vectors(
    run: str | Path, *, checkpoint: Literal["best", "last"] = "best", relations: bool = False
) -> Vectors:
    """Return the vectors of a run with the user's ids, as ``penstock.similar`` takes them.

    Those that were trained in memory are mapped from the checkpoint, and read when they are
    accessed; training that goes on overwrites them. Those of several partitions are copied into
    memory: where they do not fit, ``export`` them, and map these with ``Vectors.open``.

    Parameters
    ----------
    run
        Directory of a run that ``train`` wrote.
    checkpoint
        With the best validation MRR, or the last; where nothing was validated both are the last.
    relations
        The vectors of relations, not those of nodes; ``NAME_inverse`` is the inverse of ``NAME``,
        by which heads are scored as its tails.

    Returns
    -------
    Vectors
        ``ids`` and ``values``, a row a node in the order of the graph.

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
