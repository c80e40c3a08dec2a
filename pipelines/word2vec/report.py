"""The report of ``penstock word2vec train``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.paths import shown
from penstock.pipelines.display import CountsReport
from penstock.sizes import format_bytes, format_count, plural

if TYPE_CHECKING:
    from penstock.workers.word2vec.task import Trained


@dataclass
class Word2vecReport(CountsReport):
    """What a training run gave, for people and for ``--json``.

    kind      of the input
    rows_are  what has a vector each: nodes or words
    device    gpu or cpu: where ranks computed
    internal_ids  whether ids are numbers of nodes, as the walks hold them, and not the user's
    unseen    nodes that no counted walk came to
    known     words that began with vectors of --init, and how many with a mean of neighbours
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
    seconds: float
    train_seconds: float
    words_per_second: float | None
    resumed: float = 0.0
    unseen: int = 0
    known: int | None = None
    averaged: int = 0
    internal_ids: bool = False

    def text(self) -> str:
        """Return what a person wants to read."""
        what, rate = self.rows_are, self.words_per_second
        fast = "" if rate is None else f", {format_count(rate)} words/s"
        rank = "GPU" if self.on_gpu else "rank"
        where = plural(self.ranks, rank)
        lines = [
            f"{shown(self.vectors)}: {plural(self.rows, what[:-1])}, "
            f"{plural(self.dimension, 'dimension')}, {format_bytes(self.bytes)}",
            f"  loss {self.loss:.4f} in epoch {self.epochs} of {self.epochs}",
            f"  {plural(self.words, 'word')} in {self.seconds:.1f} s on {where}{fast}",
        ]
        if self.resumed:
            lines.append(f"  {self.resumed:.0%} was there from the run before")
        if self.known is not None:
            new = self.rows - self.known
            mean = f", {self.averaged:,} of them with the mean of their neighbours"
            more = f"; {new:,} are new{mean if self.averaged else ''}" if new else ""
            lines.append(f"  {self.known:,} began with the vectors of --init{more}")
        if self.internal_ids:
            lines.append(
                "  ids are internal numbers of nodes, as in the walks; with --graph the graph that "
                "was walked they are its ids"
            )
        if self.unseen:
            lines.append(f"  {self.unseen:,} {what} were not seen when walks were counted")
        return "\n".join(lines)


def report_of(
    trained: Trained, about: dict[str, Any], *, seconds: float, ranks: int, device: str
) -> Word2vecReport:
    """Return the report of a training run; ``about`` has what the job knows."""
    # Below a second or so it is the start that is timed.
    rate = trained.run_words / trained.seconds if trained.seconds > 1 else None
    return Word2vecReport(
        epochs=trained.epochs,
        loss=trained.loss,
        words=trained.words,
        kept=trained.kept,
        pairs=trained.pairs,
        ranks=ranks,
        device=device,
        seconds=seconds,
        train_seconds=trained.seconds,
        words_per_second=rate,
        resumed=trained.resumed,
        unseen=trained.unseen,
        **about,
    )
