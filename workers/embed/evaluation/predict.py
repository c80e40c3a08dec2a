"""The best answers to questions: one rank answers a few; tasks answer many, one file per task."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.arrow import as_arrow, read_column, take
from penstock.csr import ranges
from penstock.errors import InputError
from penstock.files import FileRanges, atomic, file_entry, part_name
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.kernels.embed_rules import Side
from penstock.limits import cores
from penstock.output import Pieces
from penstock.workers.embed.edges import Edges, all_edges
from penstock.workers.embed.evaluation.candidates import ALL_NODES, Candidates
from penstock.workers.embed.evaluation.means import Means
from penstock.workers.embed.evaluation.ranking import (
    KnownAnswers,
    ask,
    chosen_of,
    known_answers,
    known_like,
    like,
    queries_of,
)
from penstock.workers.embed.source import R, TableSource, read_checkpoint
from penstock.workers.embed.spec import Training
from penstock.workers.embed.storage.versions import Checkpoint
from penstock.workers.embed.warm import IDS
from penstock.workers.resources.device import gpu, to_host

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

QUESTIONS = "questions.npy"
ASKED = -2
# Files of new nodes, whose numbers follow the run's: vectors, and edges to nodes of the run.
NEW, NEW_EDGES, NEW_IDS = "new.npy", "new_edges.npy", "new_ids.parquet"
BLOCK = 1 << 12  # questions that are answered together
_TRIPLES = 1 << 20  # questions that are scored together to find relations
_VALUES = 1 << 23  # values in the vectors of edges that are scored together
_gpu = threading.Lock()  # one task at a time computes there


@dataclass(frozen=True)
class PredictTask:
    """A question to a run: to which nodes does a relation lead, or from which nodes.

    graph      its edges are not answers; None: they may be
    candidates nodes that may be answers
    number     of the checkpoint; None: any
    new        folder with vectors and edges of nodes that the run does not have; None: no question
               has such a node
    relations  the run's, by number; None: it has none
    top        how many answers
    """

    run: Path
    training: Training
    relations: tuple[str, ...] | None
    checkpoint: str
    top: int
    graph: Path | None = None
    candidates: Candidates = ALL_NODES
    new: Path | None = None
    number: int | None = None

    def read(self, use: Callable[[TableSource], R], *, device: bool) -> R:
        """Return what ``use`` makes of the checkpoint's vectors; raise if another replaced it."""

        def same(source: TableSource, found: Checkpoint) -> R:
            if self.number not in (None, found.number):
                raise InputError(
                    f"{self.run} trained on, and replaced the checkpoint that the first answers "
                    "are from",
                    remedy="Wait for its end, or ask for another --checkpoint",
                )
            return use(source)

        return read_checkpoint(self.run / "checkpoints", self.checkpoint, same, device=device)


@dataclass(frozen=True)
class AnswerTask:
    """Many questions: QUESTIONS in ``folder`` has heads, relations, tails, rows, (4, n) int64.

    One of head, relation and tail is ASKED; the row is the question's in its file.
    """

    asked: PredictTask
    folder: Path
    files: FileRanges
    pieces: Pieces


def predict(
    comm: AnyCommunicator, task: PredictTask, node: int, relation: int, side: Side
) -> list[tuple[int, float]]:
    """Return the numbers of the best answers to a question with their scores, the best first."""
    asked = np.array([node]), np.array([relation], np.int32), side
    scores, nodes = _answered(task, *asked, threads=cores())
    kept = nodes[0] >= 0
    return [(int(n), float(s)) for n, s in zip(nodes[0][kept], scores[0][kept], strict=True)]


def answer_questions(task: AnswerTask, number: int) -> None:
    """Answer the questions of one file and write the answers; runs on a worker."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first, last = task.files.range(number)
    *questions, rows = np.load(task.folder / QUESTIONS, mmap_mode="r")[:, first:last]
    heads, relations, tails = questions = np.stack(questions)
    scores = np.empty((last - first, task.asked.top))
    best = np.full(scores.shape, -1, np.int64)
    for side, nodes, asked in ((Side.TAIL, heads, tails), (Side.HEAD, tails, heads)):
        of = np.flatnonzero(asked == ASKED)
        known = nodes[of], relations[of].astype(np.int32), side
        scores[of], best[of] = _answered(task.asked, *known, threads=1)
    of = np.flatnonzero(relations == ASKED)
    with _alone():
        scores[of], best[of] = _relations_between(task.asked, heads[of], tails[of])
    row, rank = np.nonzero(best >= 0)
    answers = np.where(questions[:, row] == ASKED, best[row, rank], questions[:, row])
    ids = read_column(task.asked.run / IDS, "id").combine_chunks()
    if task.asked.new is not None:
        ids = pa.concat_arrays([ids, read_column(task.asked.new / NEW_IDS, "id").combine_chunks()])
    columns = {"question": as_arrow(rows[row]), "head": take(ids, answers[0])}
    if task.asked.relations is not None:
        columns["relation"] = take(pa.array(task.asked.relations), answers[1])
    columns |= {
        "tail": take(ids, answers[2]),
        "rank": as_arrow((rank + 1).astype(np.int32)),
        "score": as_arrow(scores[row, rank]),
    }
    name = f"{part_name(number)}.parquet"
    with atomic(task.pieces.result / name) as temporary:
        pq.write_table(pa.table(columns), temporary, compression="zstd")
    entry = file_entry(task.pieces.result, name)
    counts = {"questions": last - first, "answers": len(row)}
    task.pieces.save(part_name(number), counts, [entry])


def _alone() -> AbstractContextManager[Any]:
    return _gpu if gpu() else nullcontext()


def _answered(
    task: PredictTask, nodes: Array, relations: Array, side: Side, *, threads: int
) -> tuple[Array, Array]:
    """Return the best answers to questions of a side: scores and nodes (n, top), -1 if none."""
    scores = np.empty((len(nodes), task.top))
    best = np.empty(scores.shape, np.int64)

    def answer(source: TableSource) -> None:
        rules = task.training.rules(len(task.relations or ()))
        positions, order = source.layout.positions, source.layout.order
        at = nodes
        if positions is not None:  # new nodes follow the run's
            known = nodes < len(positions)
            at = np.where(known, positions[np.where(known, nodes, 0)], nodes)
        answered = None if task.graph is None else _known(task, nodes, relations, side, source)
        groups = task.candidates.groups(source.layout)

        def answer_block(some: Array, chosen: Array | None) -> None:
            needed, where = np.unique(at[some], return_inverse=True)
            rows = _rows_at(source, needed, task.new)
            query = queries_of(source, rules, rows, where, relations[some], side)
            theirs = None
            if answered is not None:
                answers = answered.take(some)
                answers = answers if chosen is None else answers.among(chosen)
                theirs = known_like(query, answers.of(slice(None)))
            kernels, found = kernel("embed", query), None
            with kernels.workspace(threads) as work:
                for first, values in source.parts():
                    before, values = chosen_of(chosen, first, values)
                    if len(values):
                        among = query, values, rules, task.top, before, theirs, found, work
                        found = kernels.top(*among)
            assert found is not None  # there is a candidate
            scores[some], ids = map(to_host, found)
            if chosen is not None:
                ids = np.where(ids >= 0, chosen[ids], -1)
            best[some] = ids if order is None else np.where(ids >= 0, order[ids], -1)

        with _alone():
            for of, chosen in groups(side, relations):
                rows = np.arange(len(nodes))[of]
                for begin in range(0, len(rows), BLOCK):
                    answer_block(rows[begin : begin + BLOCK], chosen)

    if len(nodes):
        task.read(answer, device=gpu())
    return scores, best


def _rows_at(source: TableSource, positions: Array, folder: Path | None) -> AnyArray:
    """Return vectors at positions; those of new nodes, if any, follow the run's."""
    if folder is None:
        return source.gather(positions)
    nodes = source.layout.nodes
    known = positions < nodes
    rows = source.gather(np.where(known, positions, 0))
    if not known.all():
        at, new = np.flatnonzero(~known), np.load(folder / NEW, mmap_mode="r")
        rows[like(rows, at)] = like(rows, new[positions[at] - nodes])
    return rows


def vectors_of_new(task: PredictTask, edges: Edges, count: int) -> Array:
    """Return the vector for each new node that its edges predict, (count, dim)."""
    rules = task.training.rules(len(task.relations or ()))

    def add(source: TableSource) -> Means:
        means, nodes = Means(count, rules), source.layout.nodes
        positions = source.layout.positions
        for side in (Side.TAIL, Side.HEAD):
            given, new = (edges.heads, edges.tails)[:: 1 if side == Side.TAIL else -1]
            of = np.flatnonzero((new >= nodes) & (given < nodes))
            for begin in range(0, len(of), BLOCK):
                some = of[begin : begin + BLOCK]
                at = given[some] if positions is None else positions[given[some]]
                rows, relations = source.gather(at), edges.relations[some]
                means.add(new[some] - nodes, rows, source.relations, relations, side)
        return means

    return task.read(add, device=False).vectors()


def _relations_between(task: PredictTask, heads: Array, tails: Array) -> tuple[Array, Array]:
    """Return the best relations from heads to tails: scores and relations (n, top), -1 if none."""
    count = len(task.relations or ())
    top = min(task.top, count)
    scores = np.empty((len(heads), task.top))
    best = np.full(scores.shape, -1, np.int64)
    if not len(heads):
        return scores, best
    size = max(1, _TRIPLES // count)
    for begin in range(0, len(heads), size):
        some = slice(begin, begin + size)
        number = len(heads[some])
        every = np.tile(np.arange(count, dtype=np.int32), number)
        edges = Edges(np.repeat(heads[some], count), every, np.repeat(tails[some], count))
        found = score_edges(task, edges, device=gpu()).reshape(number, count)
        if task.graph is not None:
            found[_known_relations(task, heads[some], tails[some])] = -np.inf
        order = np.argsort(-found, axis=1, kind="stable")[:, :top]
        values = np.take_along_axis(found, order, axis=1)
        scores[some, :top] = values
        best[some, :top] = np.where(np.isfinite(values), order, -1)
    return scores, best


def _known_relations(task: PredictTask, heads: Array, tails: Array) -> tuple[Array, Array]:
    """Return the relations that edges of the graph have between heads and tails, by question."""
    assert task.graph is not None
    graph = Graph.open(task.graph)
    asked = heads * graph.num_nodes + tails
    order = np.argsort(asked, kind="stable")
    rows, relations = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for some in all_edges(graph):
        keys = some.heads.astype(np.int64) * graph.num_nodes + some.tails
        low, high = (np.searchsorted(asked[order], keys, side) for side in ("left", "right"))
        hit = np.flatnonzero(high > low)
        counts = (high - low)[hit]
        rows.append(order[ranges(low[hit], counts)])
        relations.append(np.repeat(some.relations[hit], counts))
    return np.concatenate(rows), np.concatenate(relations)


def score_edges(task: PredictTask, edges: Edges, *, device: bool) -> Array:
    """Return the score of each edge, with which tails are ranked: (n,) float64."""

    def score(source: TableSource) -> Array:
        scores = np.empty(edges.count)
        rules = task.training.rules(len(task.relations or ()))
        size = max(1, _VALUES // task.training.dim)
        for begin in range(0, edges.count, size):
            some = slice(begin, begin + size)
            asked, answers, _ = ask(source, rules, edges.take(some), Side.TAIL)
            scores[some] = to_host(kernel("embed", asked).answer_scores(asked, answers, rules))
        return scores

    return task.read(score, device=device)


def _known(
    task: PredictTask, nodes: Array, relations: Array, side: Side, source: TableSource
) -> KnownAnswers:
    """Return the answers that are edges of the graph."""
    assert task.graph is not None
    held: Iterable[Edges] = all_edges(Graph.open(task.graph), typed=task.training.has_relations)
    if task.new is not None:
        edges = Edges(*np.load(task.new / NEW_EDGES))
        answers = edges.tails if side == Side.TAIL else edges.heads
        held = chain(held, [edges.take(answers < source.layout.nodes)])
    asked, count = Edges(nodes, relations, nodes), len(task.relations or ())
    return known_answers(held, asked, (side,), source.layout, count)[side]
