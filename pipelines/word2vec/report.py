"""The report of ``penstock word2vec train``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from penstock.paths import shown
from penstock.pipelines.display import Command, JobReport
from penstock.sizes import format_bytes, format_count, plural


@dataclass
class Word2vecReport(JobReport):
    """The results of a training run, for people and for ``--json``.

    kind      of the input
    rows_are  what the vectors belong to: nodes or words
    device    gpu or cpu
    internal_ids  whether ids are numbers of nodes, as in the walks, and not the user's
    unseen    nodes that no counted walk visited
    known     words that began with vectors of --init; averaged: with a mean of neighbours
    """

    vectors: str
    input: str
    kind: str
    rows: int
    rows_are: str
    dimension: int
    epochs: int
    loss: float
    words: int
    kept: int
    pairs: int
    ranks: int
    device: str
    on_gpu: bool
    bytes: int
    train_seconds: float
    words_per_second: float | None
    resumed: float = 0.0
    unseen: int = 0
    known: int | None = None
    averaged: int = 0
    internal_ids: bool = False

    def following(self) -> list[Command]:
        """Return the command to run next."""
        from penstock.pipelines.vectors.store import first_id

        path = Path(self.vectors)
        return [("similar", path, str(first_id(path)))]

    def lines(self) -> Iterable[str]:
        """Return the report as text."""
        what, rate = self.rows_are, self.words_per_second
        fast = "" if rate is None else f", {format_count(rate)} words/s"
        where = plural(self.ranks, "GPU" if self.on_gpu else "rank")
        yield (
            f"{shown(self.vectors)}: {plural(self.rows, what[:-1])}, "
            f"{plural(self.dimension, 'dimension')}, {format_bytes(self.bytes)}"
        )
        yield f"loss {self.loss:.4f} in epoch {self.epochs} of {self.epochs}"
        yield f"{plural(self.words, 'word')} in {self.seconds:.1f} s on {where}{fast}"
        if self.resumed:
            yield f"{self.resumed:.0%} was trained before this run"
        if self.known is not None:
            new = self.rows - self.known
            mean = f", {self.averaged:,} of them with the mean of their neighbours"
            more = f"; {new:,} are new{mean if self.averaged else ''}" if new else ""
            yield f"{self.known:,} began with the vectors of --init{more}"
        if self.internal_ids:
            yield (
                "ids are internal numbers of nodes, as in the walks; give --graph to get its ids"
            )
        if self.unseen:
            yield f"{self.unseen:,} {what} were not seen when walks were counted"
