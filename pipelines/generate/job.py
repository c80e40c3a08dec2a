"""One run of ``penstock generate``: shared by all kinds of graphs, from the plan to the report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar

from penstock.formats import Format
from penstock.manifest import FORMAT
from penstock.output import Output
from penstock.pipelines.generate.budget import INTERPRETER, Budget
from penstock.pipelines.generate.report import GenerateReport
from penstock.pipelines.job.context import Context
from penstock.pipelines.job.plan import Need
from penstock.sizes import format_bytes
from penstock.writer import GrowingGraph

EDGES = Format(
    name="penstock-edges",
    version=1,
    file="_graph.json",
    thing="list of edges",
    make="Make one with penstock generate rmat --format parquet",
    restore="Make it again with --overwrite",
)


class Generator(ABC):
    """Makes one graph in this process, piece by piece, within a limit of memory.

    kind          of the output, as on the command line
    title         the name of such a graph in the report
    nodes, edges  approximate numbers
    drawn         number of drawn edges, after ``fill``
    details       further lines of the report
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    nodes = edges = drawn = 0

    def __init__(self, options: Any) -> None:
        self.options = options
        self.budget = Budget(options.memory)
        self.budget.take(INTERPRETER, "Python itself")
        self.details: dict[str, Any] = {}

    @abstractmethod
    def sizes(self) -> int:
        """Reserve memory for the arrays of the graph's size; return its approximate bytes on
        disk."""

    @abstractmethod
    def fill(self, graph: GrowingGraph, *, quiet: bool) -> None:
        """Write every piece, and report how many edges were ``drawn``."""

    def make(self, context: Context, out: Output) -> GenerateReport:
        """Plan the graph, and write it."""
        size = self.sizes()
        context.plan(
            f"{self.title}, at most {self.nodes:,} nodes, about {self.edges:,} edges drawn",
            steps=(("draw", "edges, by seed, again for every range of rows that fits in memory"),),
            memory=Need(
                None,
                where=f"at most {format_bytes(self.budget.limit)}, "
                f"on {self.budget.threads} threads",
            ),
            disk=size,
        )
        return self.write(out, quiet=context.quiet)

    def write(self, out: Output, *, quiet: bool) -> GenerateReport:
        """Write the graph."""
        graph = GrowingGraph(out.result)
        self.fill(graph, quiet=quiet)
        made = graph.manifest
        out.describe(FORMAT, made.to_dict())
        return GenerateReport(
            path=str(out.named),
            kind=self.title,
            nodes=made.nodes,
            edges=made.edges,
            drawn=self.drawn,
            shards=len(made.shards),
            bytes=sum(entry.bytes for entry in made.files.values()),
            details=self.details,
        )

    @property
    def how(self) -> dict[str, Any]:
        """The provenance in the manifest: everything that affects the bytes."""
        made = {"by": f"penstock generate {self.kind}", **asdict(self.options)}
        for elsewhere in ("memory", "format"):
            made.pop(elsewhere, None)
        return made
