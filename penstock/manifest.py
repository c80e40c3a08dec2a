"""graph.json: what a graph directory holds, written last, so that what it names is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from penstock.errors import NotAGraph
from penstock.files import FileEntry, file_table
from penstock.formats import Format, filled, with_names

FILE_NAME = "graph.json"
COPY_AGAIN = "Copy the graph again from where it came from, or make it again with penstock etl"
FORMAT = Format(
    name="penstock-graph",
    version=1,
    file=FILE_NAME,
    thing="graph",
    make="Point to a directory that penstock etl or penstock generate wrote",
    restore="Restore the file or make the graph again with penstock etl",
    absent=NotAGraph,
    foreign=NotAGraph,
)

DATE_PARTS = ("days", "month_sin", "month_cos", "weekday_sin", "weekday_cos")

_MAKING = ("made", "report", "identity")  # keys of graph.json


def graph_digest(root: Path) -> str:
    """Return what a graph is known by: its content, with the SHA-256 of every file.

    How and when it was made does not count.
    """
    body = FORMAT.load(root)
    content = {key: value for key, value in body.items() if key not in _MAKING}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ShardEntry:
    """Rows ``start:stop`` of the graph live in ``shards/<number>``."""

    start: int
    stop: int
    edges: int


@dataclass(frozen=True)
class FeatureEntry:
    """Node features: ``dense`` rows or ``sparse`` CSR triplets, in row-range files."""

    kind: str
    width: int
    dtype: str
    starts: tuple[int, ...]  # first row of each file
    nonzeros: int

    def sparsity(self, nodes: int) -> float:
        """Return the share of zeros among all feature values."""
        return 1.0 - self.nonzeros / max(nodes * self.width, 1)


@dataclass(frozen=True)
class FeatureColumn:
    """How a column of the node table became features, so that a later graph can have the same.

    kind             number, boolean, category or date
    mean, deviation  over the rows that have a value, of a date in days; with a deviation values are
                     standardised. None: not taken
    categories       those of a category, in the order of its features
    """

    name: str
    kind: str
    mean: float | None = None
    deviation: float | None = None
    categories: tuple[str, ...] = ()

    def features(self) -> tuple[str, ...]:
        """Return the names of the features."""
        if self.kind == "category":
            return tuple(f"{self.name}={one}" for one in self.categories)
        if self.kind == "date":
            return tuple(f"{self.name}:{part}" for part in DATE_PARTS)
        return (self.name,)


@dataclass(frozen=True)
class Manifest:
    """The content of graph.json."""

    nodes: int
    edges: int  # directed edges: an undirected one between two nodes counts twice
    directed: bool
    shards: tuple[ShardEntry, ...]
    dtypes: dict[str, str]  # indptr, indices and the edge columns that exist
    files: dict[str, FileEntry]
    times: str | None = None  # "timestamp" (nanoseconds since 1970) or "number"; None: not known
    relations: tuple[str, ...] | None = None
    features: FeatureEntry | None = None
    feature_names: tuple[str, ...] | None = None  # all different; None: they have no names
    feature_columns: tuple[FeatureColumn, ...] | None = None  # of the node table, if they are
    labels: str | None = None  # "class", "multi" or "value"
    classes: tuple[str, ...] | None = None
    types: dict[str, int] = field(default_factory=dict)  # nodes of each type, if they have any
    splits: dict[str, int] = field(default_factory=dict)  # nodes in train, valid, test
    heldout: dict[str, int] = field(default_factory=dict)  # edges in valid, test
    graphs: int | None = None  # a zoo: how many small graphs lie side by side
    made: dict[str, Any] = field(default_factory=dict)

    def feature_scales(self) -> dict[str, list[float]] | None:
        """Return mean and deviation by which columns were standardised; None: not known."""
        if self.feature_columns is None:
            return None
        return {
            column.name: [column.mean, column.deviation]
            for column in self.feature_columns
            if column.mean is not None and column.deviation is not None
        }

    def to_dict(self) -> dict[str, Any]:
        """Return what graph.json says."""
        files = file_table(entry for _, entry in sorted(self.files.items()))
        return {**asdict(self), "files": files}

    def save(self, root: Path) -> None:
        """Write ``root/graph.json``; do this last."""
        FORMAT.save(root, self.to_dict())

    def with_files(self, entries: Iterable[FileEntry]) -> Manifest:
        """Return the manifest with more files listed."""
        return replace(self, files=self.files | {entry.name: entry for entry in entries})

    @staticmethod
    def load(root: Path) -> Manifest:
        """Read ``root/graph.json``, or say why it is not a graph of ours."""
        body = FORMAT.load(root)
        with FORMAT.reading(root):
            body["files"] = with_names(body["files"])
            manifest = filled(Manifest, body, FILE_NAME)
            manifest._check()
        return manifest

    def _check(self) -> None:
        """Raise ValueError or KeyError where values do not go together."""
        counts: list[tuple[int, ...]] = [(one.start, one.stop, one.edges) for one in self.shards]
        counts += [
            (*self.types.values(), *self.splits.values(), *self.heldout.values(), self.graphs or 0)
        ]
        if (held := self.features) is not None:
            counts += [(held.width, held.nonzeros, *held.starts)]
        for count in (self.nodes, self.edges, *chain.from_iterable(counts)):
            if count < 0:
                raise ValueError(f"{count} where a count should be")
        ends = [0, *(shard.stop for shard in self.shards)]
        if ends[:-1] != [shard.start for shard in self.shards] or ends[-1] != self.nodes:
            raise ValueError(
                f"shards that do not hold the rows 0 .. {self.nodes}, one after another"
            )
        if sum(shard.edges for shard in self.shards) != self.edges:
            raise ValueError(f"shards that do not add up to {self.edges} edges")
        if self.labels not in (None, "class", "multi", "value"):
            raise ValueError(f"labels of kind {self.labels!r}")
        if self.times not in (None, "timestamp", "number"):
            raise ValueError(f"times of kind {self.times!r}")
        if not set(self.heldout) <= {"valid", "test"}:
            raise KeyError(f"heldout {sorted(self.heldout)}")
        self._check_feature_columns()
        for name in ("indptr", "indices"):
            if name not in self.dtypes:
                raise KeyError(f"dtypes.{name}")

    def _check_feature_columns(self) -> None:
        columns = self.feature_columns or ()
        for column in columns:
            if column.kind not in ("number", "boolean", "category", "date"):
                raise ValueError(f"feature columns of kind {column.kind!r}")
            if column.kind == "date" and (column.mean is None or column.deviation is None):
                raise KeyError("feature_columns.mean")
        width = sum(len(column.features()) for column in columns)
        if columns and (self.features is None or self.features.width != width):
            raise ValueError(f"feature columns of {width} features, which are not there")

    def check_files(self, root: Path) -> None:
        """Raise unless every listed file is there with its size (contents are not read)."""
        for entry in self.files.values():
            entry.check_size(root, listed_in=FILE_NAME, remedy=COPY_AGAIN)
