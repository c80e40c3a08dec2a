"""One rank of an evaluation: it ranks the answers of its share of a split's edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError, PenstockError, UsageError
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.kernels.embed_rules import Side
from penstock.limits import cores
from penstock.sizes import plural
from penstock.workers.embed.edges import Edges, all_edges, in_no_edge, split_edges, train_pieces
from penstock.workers.embed.evaluation.candidates import Candidates, mean_candidates
from penstock.workers.embed.evaluation.metrics import grouped_scores, list_scores, relation_kinds
from penstock.workers.embed.evaluation.ranking import known_answers, rank, sample, scores_of
from penstock.workers.embed.source import TableSource, read_checkpoint
from penstock.workers.embed.spec import Training
from penstock.workers.embed.storage.versions import Checkpoint
from penstock.workers.embed.warm import numbers_of, numbers_of_relations
from penstock.workers.resources.device import gpu

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_SHOWN = 10  # unknown names that an error lists
_ATTEMPTS = 5  # to read the same checkpoint on all ranks while a training run replaces it


@dataclass(frozen=True)
class EvaluateTask:
    """The edges to rank.

    relations   of the run, by number; None: it has none
    split       of the graph; None: ``triples``
    triples     heads, relations and tails, as numbers of the run: (3, edges)
    same        whether the graph is the one the run was trained on, with the same numbers
    own         if it is another graph: the run's own, whose edges are known as well; None: it
                does not exist any more
    candidates  rank among these
    at          length of the lists of best answers
    by_relation whether relations and their kinds have scores of their own
    """

    graph: Path
    run: Path
    training: Training
    relations: tuple[str, ...] | None
    checkpoint: str
    split: str | None
    triples: Array | None
    same: bool
    filtered: bool
    candidates: Candidates
    sample: int | None
    skip_unknown: bool
    seed: int
    at: int
    by_relation: bool
    own: Path | None = None


def evaluate(comm: AnyCommunicator, task: EvaluateTask) -> dict[str, Any]:
    """Rank every answer among all candidates; each rank takes its share of the edges.

    The result has the figures of ``EvaluateReport`` by name.
    """
    graph = Graph.open(task.graph)
    translated, typed = Translation(task, graph), task.training.has_relations
    rules = task.training.rules(len(task.relations or ()))
    if task.training.is_reciprocal or task.training.corrupt != "both":
        rules = replace(rules, sides=(Side.TAIL, Side.HEAD))  # both are ranked
    if task.split is not None:
        given = split_edges(graph, task.split, typed=typed)
        edges = translated.of_run(given, strict=not task.skip_unknown)
        skipped = given.count - edges.count
    else:
        assert task.triples is not None
        edges, skipped = Edges(*task.triples), 0
    edges = sample(edges, task.sample, task.seed)
    if edges.count == 0:
        left_out = f"{skipped:,}, whose nodes or relations {task.run} does not know"
        raise UsageError(
            "there are no edges to rank",
            expected="one or more",
            got=left_out if skipped else "none",
        )

    share = slice(*(edges.count * rank // comm.size for rank in (comm.rank, comm.rank + 1)))
    mine = edges.take(share)

    def ranked(
        source: TableSource, found: Checkpoint
    ) -> tuple[int, tuple[int, int], dict[Side, Array]]:
        known = None
        if task.filtered:
            held = (translated.of_run(one) for one in all_edges(graph, typed=typed))
            given = [edges] if task.split is None else []
            if given and not graph.manifest.directed:
                given.append(Edges(edges.tails, edges.relations, edges.heads))
            own: Iterable[Edges] = []
            if task.own is not None:
                own = all_edges(Graph.open(task.own), typed=typed)
            known = known_answers(
                chain(held, own, given),
                mine,
                rules.sides,
                source.layout,
                len(task.relations or ()),
            )
        first = next(source.parts())[1]
        with kernel("embed", first).workspace(cores()) as work:
            groups, nodes = task.candidates.groups(source.layout), source.layout.nodes
            ranks = rank(source, rules, mine, known=known, candidates=groups, work=work)
            return found.number, mean_candidates(groups, edges, nodes), ranks

    folder = task.run / "checkpoints"
    for _ in range(_ATTEMPTS):
        number, candidates, own_ranks = read_checkpoint(
            folder, task.checkpoint, ranked, device=gpu()
        )
        ends = comm.allreduce(np.array([number, -number]), "max")
        if ends[0] == -ends[1]:
            break
    else:
        raise PenstockError(
            f"ranks read different checkpoints of {task.run}, {_ATTEMPTS} times",
            expected="a checkpoint that lasts until all have read it",
            remedy="Wait for the end of the training, or evaluate on one rank",
        )
    ranks = {side: np.zeros(edges.count) for side in rules.sides}
    for side, found in own_ranks.items():
        ranks[side][share] = found
        comm.allreduce(ranks[side])
    unseen, trained_on = None, task.graph if task.same else task.own
    if task.filtered and trained_on is not None:  # a pass over all edges, like filtering
        alone = in_no_edge(Graph.open(trained_on))
        unseen = int(np.count_nonzero(alone[edges.heads] | alone[edges.tails]))
    lists = {}
    for name, asked in _questions(edges, ranks, directed=graph.manifest.directed).items():
        if task.sample is None:  # a sample of edges would leave out answers of a question
            lists[name] = list_scores(*asked, task.at, filtered=task.filtered)
    by_relation = by_kind = None
    names = list(task.relations or ())
    if task.by_relation:
        by_relation = grouped_scores(ranks, edges.relations, names)
    if task.by_relation and trained_on is not None:
        kinds = np.array(relation_kinds(train_pieces(Graph.open(trained_on)), len(names)))
        every = sorted({*kinds.tolist()})
        by_kind = grouped_scores(ranks, np.searchsorted(every, kinds)[edges.relations], every)
    return {
        "edges": edges.count,
        "skipped": skipped,
        "candidates": candidates[0],
        "head_candidates": candidates[1],
        "scores": scores_of(np.concatenate(list(ranks.values()))),
        **{side.name.lower(): scores_of(found) for side, found in ranks.items()},
        "lists": lists,
        "unseen": unseen,
        "relations": by_relation,
        "kinds": by_kind,
    }


def _questions(
    edges: Edges, ranks: dict[Side, Array], *, directed: bool
) -> dict[str, tuple[Array, Array, Array, Array]]:
    """Return given nodes, relations, answers and their ranks, for each side that is asked for.

    An undirected edge answers questions about both of its ends.
    """
    tails = edges.heads, edges.relations, edges.tails, ranks[Side.TAIL]
    heads = edges.tails, edges.relations, edges.heads, ranks[Side.HEAD]
    if directed:
        return {"tail": tails, "head": heads}
    given, relations, answers, found = map(np.concatenate, zip(tails, heads, strict=True))
    return {"neighbour": (given, relations, answers, found)}


class Translation:
    """Translates the numbers of a graph to those of a run that was trained on another graph."""

    def __init__(self, task: EvaluateTask, graph: Graph) -> None:
        self.graph = graph
        self.nodes: Array | None = None
        self.relations: Array | None = None
        if task.same:
            return
        self.nodes = numbers_of(graph.user_ids(), task.run)
        if task.training.has_relations:
            self.relations = numbers_of_relations(graph, task.relations)

    def of_run(self, edges: Edges, *, strict: bool = False) -> Edges:
        """Return the edges whose nodes and relations the run has; if ``strict``, it has all."""
        moved = edges
        if self.nodes is not None:
            relations = edges.relations
            if self.relations is not None:
                relations = self.relations[relations]
            moved = Edges(self.nodes[edges.heads], relations, self.nodes[edges.tails])
        good = (moved.heads >= 0) & (moved.tails >= 0) & (moved.relations >= 0)
        if good.all():
            return moved
        if strict:
            strange = np.unique(
                np.concatenate([edges.heads[moved.heads < 0], edges.tails[moved.tails < 0]])
            )
            lost = np.unique(edges.relations[moved.relations < 0])
            typed = [(self.graph.manifest.relations or ())[one] for one in lost]
            nodes, bad = self.graph.user_ids(strange).to_pylist(), int(np.count_nonzero(~good))
            raise unknown(bad, nodes, typed, f"{self.graph.path}")
        return moved.take(good)


def unknown(
    edges: int, nodes: Sequence[Any], relations: Sequence[str], where: str, *, what: str = "edge"
) -> InputError:
    """Return the error of edges or questions whose nodes or relations a run does not have."""
    found = []
    for names, kind in ((nodes, "unknown node"), (relations, "unknown relation")):
        if names:
            first = "the first " if len(names) > _SHOWN else ""
            listed = ", ".join(str(name) or "''" for name in names[:_SHOWN])
            found.append(f"{plural(len(names), kind)} ({first}{listed})")
    return InputError(
        f"{plural(edges, what)} of {where} cannot be ranked",
        expected="nodes and relations that the run was trained on",
        got=" and ".join(found),
        remedy="Train with them, or leave them out with --unknown skip",
    )
