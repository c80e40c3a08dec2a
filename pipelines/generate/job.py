"""``penstock generate`` as a job: what all kinds of graphs share, from the checks to the report."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar

from penstock.graph import Graph
from penstock.output import Output
from penstock.pipelines.display import Command
from penstock.pipelines.generate.budget import INTERPRETER, Budget
from penstock.pipelines.generate.pieces import Pieces
from penstock.pipelines.generate.report import GenerateReport
from penstock.pipelines.job import Job
from penstock.pipelines.job.following import after_graph
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.sizes import format_bytes, need_disk


class GenerateJob(Job[GenerateReport]):
    """Makes one graph in this process, piece by piece, within a limit of memory.

    title         what the report calls such a graph
    nodes, edges  about how many there will be; bytes: about their size on the disk; 0: not known
    details       what the report says besides
    """

    kind = "graph"
    resumable = False
    title: ClassVar[str]
    nodes = edges = bytes = 0
    drawn: int

    def check(self) -> None:
        """Refuse what fits neither in memory nor on the disk."""
        self.budget = Budget(self.options.memory)
        self.budget.take(INTERPRETER, "Python itself")
        self.bytes = self.sizes()
        self.details: dict[str, Any] = {}
        need_disk(self.out.parent, self.bytes, "the graph")

    @abstractmethod
    def sizes(self) -> int:
        """Set memory aside for what has the size of the graph; return about its bytes on disk."""

    @abstractmethod
    def fill(self, pieces: Pieces) -> None:
        """Write every piece, and say how many edges were ``drawn``."""

    def plan(self) -> Plan:
        """Say how large it will be, about."""
        limit = f"at most {format_bytes(self.budget.limit)}, on {self.budget.threads} threads"
        size = f"at most {self.nodes:,} nodes, about {self.edges:,} edges drawn"
        return Plan(
            what=f"{self.title}, {size if self.bytes else 'which is too large'}",
            steps=(("draw", "edges, by seed, again for every range of rows that fits in memory"),),
            memory=Need(None, where=limit),
            disk=disk_need(self.out.parent, self.bytes) if self.bytes else Need(None),
        )

    def work(self, partial: Output) -> None:
        """Write the graph, and graph.json last."""
        pieces = Pieces(partial.result)
        self.fill(pieces)
        pieces.manifest.save(pieces.root)
        Graph.open(pieces.root)
        self.made = pieces.manifest

    def report(self, seconds: float) -> GenerateReport:
        """Return what was made."""
        return GenerateReport(
            path=str(self.out),
            kind=self.title,
            nodes=self.made.nodes,
            edges=self.made.edges,
            drawn=self.drawn,
            shards=len(self.made.shards),
            bytes=sum(entry.bytes for entry in self.made.files.values()),
            seconds=round(seconds, 3),
            details=self.details,
        )

    def following(self) -> list[Command]:
        """Return what the graph can be given to."""
        return after_graph(self.out, self.made)

    @property
    def how(self) -> dict[str, Any]:
        """What the manifest says about how it was made: all that shaped its bytes."""
        made = {"by": self.command, **asdict(self.options)}
        for elsewhere in ("memory", "overwrite", "format"):
            made.pop(elsewhere, None)
        return made
