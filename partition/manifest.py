"""partition.json: what a partition holds, written last, so that what it names is whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.errors import CorruptFile, GraphError, NewerVersion
from penstock.files import FileEntry, save_json, sha256_of
from penstock.manifest import FILE_NAME as GRAPH_FILE

FORMAT = "penstock-partition"
VERSION = 1
FILE_NAME = "partition.json"


@dataclass(frozen=True)
class PartEntry:
    """The counts of one part."""

    nodes: int
    ghosts: int
    edges: int  # its load: the arcs of the rows it owns
    cut: int  # those among them that end at a ghost
    sends: int  # rows it sends in a halo exchange, a node once for each part that wants it


@dataclass(frozen=True)
class PartitionManifest:
    """The content of partition.json."""

    k: int
    method: str  # what was asked for
    path: str  # what made it
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
    files: dict[str, FileEntry] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def save(self, root: Path) -> None:
        """Write ``root/partition.json``; do this last."""
        body = asdict(self)
        body["files"] = {
            name: {"bytes": entry.bytes, "sha256": entry.sha256}
            for name, entry in sorted(self.files.items())
        }
        save_json(root / FILE_NAME, {"format": FORMAT, "version": VERSION, **body})

    @staticmethod
    def load(root: Path) -> PartitionManifest:
        """Read ``root/partition.json``, or say why it is not a partition of ours."""
        path = root / FILE_NAME
        body = _read_json(path)
        try:
            body = {key: body[key] for key in PartitionManifest.__dataclass_fields__ if key in body}
            body["parts"] = tuple(PartEntry(**part) for part in body["parts"])
            body["files"] = {n: FileEntry(n, **entry) for n, entry in body["files"].items()}
            body["steps"], body["columns"] = tuple(body["steps"]), tuple(body["columns"])
            return PartitionManifest(**body)
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptFile(
                f"{path} is damaged",
                expected="the keys that penstock writes",
                got=f"{type(error).__name__}: {error}",
                remedy=AGAIN,
            ) from error

    def check_files(self, root: Path) -> None:
        """Raise unless every listed file is there with its size (contents are not read)."""
        for entry in self.files.values():
            entry.check_size(root, listed_in=FILE_NAME, remedy=AGAIN)

    def check_graph(self, root: Path, graph: Path) -> None:
        """Raise if ``graph`` has changed since the partition in ``root`` was made."""
        got = sha256_of(graph / GRAPH_FILE)
        if got != self.graph_sha256:
            raise GraphError(
                f"{root} is stale: {graph} has changed since",
                expected=f"{GRAPH_FILE} with SHA-256 {self.graph_sha256}",
                got=got,
                remedy=AGAIN,
            )


AGAIN = "Make it again with penstock partition --overwrite"


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise GraphError(
            f"{path.parent} is not a partition",
            expected=f"a directory with {FILE_NAME}",
            got="no such file in it" if path.parent.is_dir() else "no such directory",
            remedy="Make one with penstock partition GRAPH -k K",
        )
    try:
        body = parse_json(path.read_bytes())
    except ValueError as error:
        raise CorruptFile(
            f"{path} is damaged", expected="JSON", got=str(error), remedy=AGAIN
        ) from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise CorruptFile(
            f"{path} is not the manifest of a partition",
            expected=f'"format": "{FORMAT}"',
            remedy=AGAIN,
        )
    if not isinstance(body.get("version"), int) or body["version"] > VERSION:
        raise NewerVersion(
            f"{path} was written by a later penstock",
            expected=f"partition format version {VERSION} or older",
            got=f"version {body.get('version')}",
            remedy="Upgrade with pip install -U penstock",
        )
    return body
