"""The reports of ``penstock embed``, for people and for ``--json``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.paths import shown
from penstock.pipelines.display import Command, JobReport
from penstock.pipelines.job.following import sibling
from penstock.sizes import format_bytes, format_count, plural
from penstock.workers.embed.spec import Training
from penstock.workers.embed.trained import Trained
from penstock.workers.training.stopped import Stopped

_SHOWN = 10  # relations


@dataclass
class TrainReport(JobReport):
    """The result of a training run.

    Attributes
    ----------
    run, graph
        The folders of the run and of the graph.
    training
        The options, completed for the graph and the machine.
    trained
        Epochs, loss, validation scores, times.
    tested
        Whether the graph holds out edges to test on.
    seconds
        Of the whole command.

    Examples
    --------
    >>> report = embed.train("g", "run", epochs=10)
    >>> report.trained.loss, report.speed
    >>> print(report.text())
    """

    run: str
    graph: str
    training: Training
    trained: Trained
    tested: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        body = self.to_record()
        trained = body.pop("trained")
        return {**body, **trained, "seconds": self.seconds, "edges_per_second": self.speed}

    @property
    def device(self) -> str:
        """The device: cpu or gpu."""
        return self.trained.device

    @property
    def speed(self) -> float | None:
        """Edges trained per second; None if no epoch was run."""
        done = self.trained
        return done.edges / done.epoch_seconds if done.epoch_seconds else None

    def following(self) -> list[Command]:
        """Return the commands that rank held-out edges and export the vectors."""
        run = Path(self.run)
        export: Command = ("embed", "export", run, sibling(run, "vectors"))
        return [("embed", "evaluate", run, "--filtered"), export] if self.tested else [export]

    def lines(self) -> Iterable[str]:
        """Return what a person wants to read."""
        done, training = self.trained, self.training
        typed = f" and {plural(done.relations, 'relation')}" if done.relations else ""
        where = "on a GPU" if self.device == "gpu" else "on CPUs"
        if done.ranks > 1:
            where = f"on {done.ranks} ranks, " + ("a GPU each" if self.device == "gpu" else "CPUs")
        yield (
            f"{shown(self.run)}: {training.model} vectors of {plural(done.nodes, 'node')}{typed}, "
            f"{plural(training.dim, 'value')} each, {where}"
        )
        again = f", resumed after epoch {done.first_epoch}" if done.first_epoch else ""
        loss = "" if done.loss is None else f", loss {done.loss:.4g}"
        why = f"; early stopping, best epoch {done.best_epoch}"
        yield (
            f"{plural(done.epochs, 'epoch')} of {plural(done.edges, 'edge')}{again}{loss}"
            f"{why if done.stopped is Stopped.PATIENCE else ''}"
        )
        if done.validation is not None:
            yield (
                f"valid MRR {done.validation['mrr']:.4f}, Hits@10 "
                f"{done.validation['hits10']:.4f}, filtered, best of epoch {done.best_epoch}, "
                f"on {plural(done.validated, 'edge')}"
            )
        if done.known:
            nodes, relations, means = done.known.values()
            yield (
                f"began with the vectors of --init: {nodes:,} nodes, {relations:,} relations; "
                f"{means:,} new nodes with means of neighbours"
            )
        if (speed := self.speed) is not None:
            yield (
                f"{format_count(speed)} edges/s, {done.epoch_seconds:.3g} s per epoch, in which "
                f"kernels trained {100 * done.utilization:.1f} %; {self.seconds:.1f} s in total"
            )
        if done.bytes_exchanged:
            yield (
                f"{format_bytes(done.bytes_exchanged)} of vectors exchanged between ranks, which "
                f"took {done.exchange_seconds:.2f} s"
            )
        if done.partitions > 1 and (done.bytes_read or done.bytes_written):
            yield (
                f"{done.partitions} partitions: {format_bytes(done.bytes_read)} read, "
                f"{format_bytes(done.bytes_written)} written at "
                f"{format_bytes(done.bandwidth)}/s; {done.exposed_seconds:.2f} s waited for the "
                "disk"
            )
        elif done.partitions > 1 and done.epoch_seconds:
            yield f"{done.partitions} partitions, all of them in memory"
        yield done.theorem or ""


@dataclass
class EvaluateReport(JobReport):
    """The ranks of a split's edges.

    Attributes
    ----------
    run, graph
        The folders of the training run and of the graph.
    split
        The split, or the file, whose edges were ranked.
    filtered
        Whether other true answers were left out of the candidates.
    checkpoint
        best or last.
    edges, skipped
        How many edges were ranked, and how many have unknown nodes or relations.
    candidates, head_candidates
        Nodes that each tail, and each head, was ranked among; by relation, the means.
    seconds
        Of the whole command.
    scores, tail, head
        mr, mrr, hits1, hits3 and hits10, of both sides and of one each.
    at, lists
        recall, precision and ndcg of the best ``at`` answers, means over all ``queries``, by side:
        tail and head, or neighbour in an undirected graph. Empty with ``sample``.
    kinds, relations
        Scores by kind of relation (1-1, 1-N, N-1, N-N) and by relation, with ``by_relation``.
    filters
        The graphs whose edges were left out of the candidates; None: none were.
    unfiltered
        The graph that the run was trained on, if it no longer exists to filter by.
    unseen
        Edges with a node that no training edge has; None: not counted.

    Examples
    --------
    >>> report = embed.evaluate("run", filtered=True)
    >>> report.scores["mrr"], report.tail["hits10"]
    """

    run: str
    graph: str
    split: str
    filtered: bool
    checkpoint: str
    edges: int
    skipped: int
    candidates: int
    head_candidates: int
    scores: dict[str, Any]
    tail: dict[str, Any] | None = None
    head: dict[str, Any] | None = None
    filters: list[str] | None = None
    unfiltered: str | None = None
    unseen: int | None = None
    at: int = 10
    lists: dict[str, dict[str, float]] = field(default_factory=dict)
    kinds: dict[str, Any] | None = None
    relations: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        body = asdict(self)
        scores = body.pop("scores")
        return {**body, **scores}

    def lines(self) -> Iterable[str]:
        """Return what a person wants to read."""
        how = "filtered" if self.filtered else "not filtered"
        among = plural(self.candidates, "candidate")
        if self.candidates != self.head_candidates:
            among += f" for tails, {self.head_candidates:,} for heads"
        yield f"{shown(self.run)}: {plural(self.edges, 'edge')} of {self.split}, {how}"
        yield f"  among {among}"
        yield f"{'':9}{'MRR':>8}{'MR':>10}{'Hits@1':>9}{'Hits@3':>9}{'Hits@10':>9}"
        sides = {"all": self.scores}
        if self.tail is not None and self.head is not None:
            sides |= {"tails": self.tail, "heads": self.head}
        for name, of in sides.items():
            yield (
                f"{name:<9}{of['mrr']:>8.4f}{of['mr']:>10.1f}{of['hits1']:>9.4f}"
                f"{of['hits3']:>9.4f}{of['hits10']:>9.4f}"
            )
        for side, of in self.lists.items():
            yield (
                f"best {self.at} {side}s, {plural(int(of['queries']), 'question')}: "
                f"recall {of['recall']:.4f}, precision {of['precision']:.4f}, NDCG {of['ndcg']:.4f}"
            )
        for names in (self.kinds or {}, self.relations or {}):
            shown_ones = sorted(names.items(), key=lambda item: -item[1]["edges"])[:_SHOWN]
            wide = max((len(name) for name, _ in shown_ones), default=0)
            for name, of in shown_ones:
                yield (
                    f"{name:<{wide}}  {plural(of['edges'], 'edge')}: MRR of tails "
                    f"{of['tail']['mrr']:.4f}, of heads {of['head']['mrr']:.4f}"
                )
            if len(names) > len(shown_ones):
                yield f"and {len(names) - len(shown_ones):,} more, which --json has"
        if self.unfiltered is not None:
            yield (
                f"{self.unfiltered} was removed or changed after the training: its edges were "
                "candidates"
            )
        elif self.filters is not None and len(self.filters) > 1:
            yield f"filtered by the edges of {' and '.join(map(shown, self.filters))}"
        if self.skipped:
            edges = "edge was" if self.skipped == 1 else "edges were"
            yield f"{self.skipped:,} {edges} skipped: unknown nodes or relations"
        if self.unseen:
            edges = "edge has" if self.unseen == 1 else "edges have"
            yield (
                f"{self.unseen:,} {edges} a node that no training edge has: "
                "its vector is not trained"
            )


@dataclass
class PredictReport(JobReport):
    """The best answers to a question.

    Attributes
    ----------
    run
        The folder of the training run.
    head, relation, tail
        The question: one of head and tail is None.
    checkpoint
        best or last.
    seconds
        Of the whole command.
    answers
        ``id`` and ``score`` of each, the best first.

    Examples
    --------
    >>> report = embed.predict("run", head="e12", relation="r3", top=3)
    >>> [answer["id"] for answer in report.answers]
    """

    run: str
    head: str | None
    relation: str | None
    tail: str | None
    checkpoint: str
    answers: list[dict[str, Any]] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        """Return what a person wants to read."""
        asked = f"({self.head or '?'}, {self.relation or ''}, {self.tail or '?'})"
        yield f"{shown(self.run)}: {asked.replace(', ,', ',')}"
        wide = max((len(str(one["id"])) for one in self.answers), default=0)
        for one in self.answers:
            yield f"{one['id']!s:<{wide}}  {one['score']:>10.4f}"
        if not self.answers:
            yield "all answers are edges of the graph: --known lists them"


@dataclass
class AnswerReport(JobReport):
    """Answers that were written.

    Attributes
    ----------
    answers, run
        The folders that were written and read.
    checkpoint
        best or last.
    questions, skipped
        How many were answered, and how many were not, as the run does not have their node or
        relation.
    count, bytes
        How many answers there are, and the size of the files.
    seconds
        Of the whole command.

    Examples
    --------
    >>> embed.answer("run", "answers", relation="r3").count
    """

    answers: str
    run: str
    checkpoint: str
    questions: int
    skipped: int
    count: int
    bytes: int

    def lines(self) -> Iterable[str]:
        """Return what a person wants to read."""
        yield (
            f"{shown(self.answers)}: {plural(self.count, 'answer')} to "
            f"{plural(self.questions, 'question')}, {format_bytes(self.bytes)}"
        )
        if self.skipped:
            yield f"{plural(self.skipped, 'question')} of unknown nodes or relations skipped"
        yield f"the {self.checkpoint} checkpoint of {shown(self.run)}, in {self.seconds:.1f} s"


@dataclass
class ExportReport(JobReport):
    """Vectors that were written.

    Attributes
    ----------
    vectors, run
        The folders that were written and read.
    checkpoint
        best or last.
    what
        nodes, relations, or relations and inverses.
    count, dimension, bytes
        How many there are, their values, and the size of the files.
    seconds
        Of the whole command.

    Examples
    --------
    >>> embed.export("run", "vectors").count
    """

    vectors: str
    run: str
    checkpoint: str
    what: str
    count: int
    dimension: int
    bytes: int

    def lines(self) -> Iterable[str]:
        """Return what a person wants to read."""
        yield (
            f"{shown(self.vectors)}: vectors of {plural(self.count, self.what[:-1])}, "
            f"{plural(self.dimension, 'value')} each, {format_bytes(self.bytes)}"
        )
        yield f"the {self.checkpoint} checkpoint of {shown(self.run)}, in {self.seconds:.1f} s"
