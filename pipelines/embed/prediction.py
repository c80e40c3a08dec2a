"""``penstock embed predict``: the best answers to a question."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import one_array, read_column
from penstock.errors import InputError, UsageError
from penstock.kernels.embed_rules import Side
from penstock.pipelines.embed.candidates import find_candidates
from penstock.pipelines.embed.evaluation import edge_numbers, graph_of_training, plan_ranking
from penstock.pipelines.embed.options import AnswerOptions, PredictOptions
from penstock.pipelines.embed.report import PredictReport
from penstock.pipelines.embed.run import Run, checkpoint_of
from penstock.pipelines.job.declare import Context, RunFolder
from penstock.pipelines.tables.streams import ArrowStream
from penstock.pipelines.vectors.vectors import find_ids
from penstock.workers.embed.edges import Edges
from penstock.workers.embed.evaluation.predict import (
    PredictTask,
    predict,
    score_edges,
)
from penstock.workers.embed.storage.versions import Checkpoint
from penstock.workers.embed.warm import IDS

if TYPE_CHECKING:
    import pyarrow as pa


def predict_answers(context: Context, folder: RunFolder, options: PredictOptions) -> PredictReport:
    """Rank all nodes as answers to one question, on one rank."""
    if (options.head is None) == (options.tail is None):
        raise UsageError(
            "predict either tails or heads",
            expected="--head or --tail, one of them",
            got="both" if options.head is not None else "neither",
        )
    at, run = folder.path, Run.load(folder.path)
    asked = str(options.head if options.head is not None else options.tail)
    ids = read_column(at / IDS, "id").combine_chunks()
    task, checkpoint = prediction_task(folder, run, options)
    workers = plan_ranking(context, at, checkpoint, "the best answers")
    side = Side.TAIL if options.head is not None else Side.HEAD
    question = task, _node(asked, at, ids), relation_number(options.relation, at, run), side
    found = workers.ranks(predict, question, title="predict")[0]
    names = ids.take(np.array([node for node, _ in found], np.int64)).to_pylist()
    return PredictReport(
        run=str(at),
        head=options.head,
        relation=options.relation,
        tail=options.tail,
        checkpoint=task.checkpoint,
        answers=[
            {"id": name, "score": score} for name, (_, score) in zip(names, found, strict=True)
        ],
    )


def prediction_task(
    folder: RunFolder, run: Run, options: PredictOptions | AnswerOptions
) -> tuple[PredictTask, Checkpoint]:
    """Return the task of these options, and the checkpoint that it will read."""
    at = folder.path
    checkpoint = checkpoint_of(at, options.checkpoint, run)
    # Edges of the graph are not answers.
    own = partial(graph_of_training, folder, options.graph, run)
    graph = None if options.known else own()
    task = PredictTask(
        run=at,
        training=run.training,
        relations=run.relations,
        checkpoint=checkpoint.name,
        top=min(options.top, run.nodes),
        graph=None if graph is None else graph.path,
        candidates=find_candidates(options.candidates, at, run, own),
    )
    return task, checkpoint


def score_triples(at: Path, triples: Any, checkpoint: str) -> Array:
    """Return the scores of triples in a table or a list."""
    import pyarrow as pa

    run = Run.load(at)
    names = ("head", "relation", "tail") if run.relations is not None else ("head", "tail")
    if isinstance(triples, ArrowStream):
        table = pa.table(triples)
        if lost := [name for name in names if name not in table.column_names]:
            raise InputError(f"the triples have no column {lost[0]}", expected=", ".join(names))
        columns = {name: one_array(table.column(name)) for name in names}
    else:
        if any(len(row) != len(names) for row in triples):
            raise InputError("a triple has another length", expected=f"({', '.join(names)})")
        columns = {n: pa.array([str(row[i]) for row in triples]) for i, n in enumerate(names)}
    edges, _ = edge_numbers(at, run, columns, "triples", "error")
    name = checkpoint_of(at, checkpoint, run).name
    task = PredictTask(at, run.training, run.relations, name, top=0)
    return score_edges(task, Edges(*edges), device=False)


def _node(name: str, at: Path, ids: pa.Array) -> int:
    found = find_ids(ids, [name])[0]
    if found < 0:
        raise UsageError(
            f"{at} has no vector of {name!r}",
            expected=f"the id of a node, such as {ids[0].as_py()!r}",
        )
    return int(found)


def relation_number(name: str | None, at: Path, run: Run) -> int:
    """Return the number of a relation; without a name, of the only one or of none."""
    names = run.relations
    if names is None:
        if name is not None:
            raise UsageError(f"{at} was trained without relations", remedy="Leave --relation out")
        return 0
    if name is None and len(names) == 1:
        return 0
    if name is None or name not in names:
        raise UsageError(
            "--relation is missing" if name is None else f"{at} has no relation {name!r}",
            expected=f"one of {len(names):,}, such as {', '.join(names[:10])}",
        )
    return names.index(name)
