"""One rank of a prediction: the best answers to a question."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.kernels.embed_rules import Side
from penstock.limits import cores
from penstock.workers.embed.edges import Edges, all_edges, in_no_edge
from penstock.workers.embed.evaluation.ranking import known_answers, known_like, queries_of
from penstock.workers.embed.source import TableSource, read_checkpoint
from penstock.workers.embed.spec import Training
from penstock.workers.embed.storage.versions import Checkpoint
from penstock.workers.resources.device import gpu, to_host

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator


@dataclass(frozen=True)
class PredictTask:
    """A question: what ``node`` leads to by a relation, or what leads to it.

    graph      whose edges are no answers; None: they may be
    relation   its number; 0 where the model has none
    relations  how many the run has
    """

    run: Path
    training: Training
    relations: int
    checkpoint: str
    node: int
    relation: int
    side: Side
    top: int
    graph: Path | None = None


@dataclass(frozen=True)
class Predicted:
    """The numbers of the best nodes with their scores, the best first.

    unseen  whether no training edge has the node that was asked for; None: no graph was read
    """

    best: list[tuple[int, float]]
    unseen: bool | None = None


def predict(comm: AnyCommunicator, task: PredictTask) -> Predicted:
    """Return the best answers."""

    def answers(source: TableSource, _: Checkpoint) -> list[tuple[int, float]]:
        rules = task.training.rules(task.relations)
        layout = source.layout
        node, relation = np.array([task.node]), np.array([task.relation], np.int32)
        positions = node if layout.positions is None else layout.positions[node]
        known = None
        if task.graph is not None:
            held = all_edges(Graph.open(task.graph))
            if not task.training.has_relations:
                held = (one.without_relations() for one in held)
            asked = Edges(node, relation, node)
            found = known_answers(held, asked, (task.side,), layout, task.relations)
            known = found[task.side].of(slice(None))
        row = source.gather(np.asarray(positions))
        query = queries_of(source, rules, row, np.zeros(1, np.int64), relation, task.side)
        kernels, best = kernel("embed", query), None
        with kernels.workspace(cores()) as work:
            for first, values in source.parts():
                best = kernels.top(
                    query, values, rules, task.top, first, known_like(query, known), best, work
                )
        assert best is not None
        scores, ids = to_host(best[0])[0], to_host(best[1])[0]
        kept = ids >= 0
        order = layout.order
        nodes = ids[kept] if order is None else order[ids[kept]]
        return [(int(n), float(s)) for n, s in zip(nodes, scores[kept], strict=True)]

    best = read_checkpoint(task.run / "checkpoints", task.checkpoint, answers, device=gpu())
    unseen = None if task.graph is None else bool(in_no_edge(Graph.open(task.graph))[task.node])
    return Predicted(best, unseen)
