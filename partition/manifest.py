"""partition.json: the content of a partition, written last, when all listed files are complete."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import GraphError
from penstock.files import FileEntry, file_table
from penstock.formats import Format, filled, with_names
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
class PartitionManifest:
    """The content of partition.json."""

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
    files: dict[str, FileEntry] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of partition.json."""
        files = file_table(entry for _, entry in sorted(self.files.items()))
        return {**asdict(self), "files": files}

    @staticmethod
    def load(root: Path) -> PartitionManifest:
        """Read ``root/partition.json``, or raise the reason why it is not a Penstock partition."""
        body = FORMAT.load(root)
        with FORMAT.reading(root):
            body["files"] = with_names(body["files"])
            manifest = filled(PartitionManifest, body)
            if len(manifest.parts) != manifest.k:
                raise ValueError(f"{len(manifest.parts)} parts although k is {manifest.k}")
        return manifest

    def check_files(self, root: Path) -> None:
        """Raise unless every listed file exists with its size (contents are not read)."""
        for entry in self.files.values():
            entry.check_size(root, listed_in=FILE_NAME, remedy=AGAIN)

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
