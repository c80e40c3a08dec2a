"""partition.json: the content of a partition, written last, when all listed files are complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from penstock.errors import GraphError
from penstock.formats import Content, Files, Format
from penstock.manifest import FILE_NAME as GRAPH_FILE
from penstock.manifest import graph_digest

FILE_NAME = "partition.json"
AGAIN = "Make it again with penstock partition --overwrite"
FORMAT = Format(
    name="penstock-partition",
    version=1,
    file=FILE_NAME,
    thing="partition",
    make="Make one with penstock partition GRAPH -k K",
    restore=AGAIN,
)


@dataclass(frozen=True)
class PartEntry:
    """The counts of one part."""

    nodes: int
    ghosts: int
    edges: int  # its load: the directed edges of the rows it owns
    cut: int  # those among them that end at a ghost
    sends: int  # rows it sends in a halo exchange, a node once per part that needs it


@dataclass(frozen=True)
class PartitionManifest(Content):
    """The content of partition.json."""

    format: ClassVar[Format] = FORMAT
    k: int
    method: str  # as requested
    made_by: str  # the method that made it
    seed: int
    steps: tuple[dict[str, str], ...]  # everything that was tried, in order
    nodes: int
    edges: int
    directed: bool
    graph_sha256: str  # of the graph.json it was made from
    parts: tuple[PartEntry, ...]
    columns: tuple[str, ...]  # edge columns that the parts hold
    features: str | None  # "dense" or "sparse"
    feature_width: int
    labels: str | None  # "class", "multi" or "value"
    splits: bool
    whole_cut: float = 0.0  # the share of edges cut when the graph was last cut whole
    files: Files = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def check(self) -> None:
        """Raise ValueError if values contradict each other."""
        if len(self.parts) != self.k:
            raise ValueError(f"{len(self.parts)} parts although k is {self.k}")

    def check_graph(self, root: Path, graph: Path) -> None:
        """Raise if ``graph`` has changed since the partition in ``root`` was made."""
        got = graph_digest(graph)
        if got != self.graph_sha256:
            raise GraphError(
                f"{root} is stale: {graph} has changed since",
                expected=f"{GRAPH_FILE} with SHA-256 {self.graph_sha256}",
                got=got,
                remedy=AGAIN,
            )
