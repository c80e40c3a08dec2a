"""graph.json: the content of a graph directory, written last, so that listed files are complete."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from penstock.errors import NotAGraph
from penstock.files import FileEntry
from penstock.formats import Content, Files, Format

FILE_NAME = "graph.json"
COPY_AGAIN = "Copy the graph again from its origin, or make it again with penstock etl"
FORMAT = Format(
    name="penstock-graph",
    version=1,
    file=FILE_NAME,
    thing="graph",
    make="Point to a directory that penstock etl or penstock generate wrote",
    restore=COPY_AGAIN,
    absent=NotAGraph,
    foreign=NotAGraph,
)

Count = Annotated[int, Field(ge=0)]
Times = Annotated[str, Field(pattern="^(timestamp|number)$")]
Labels = Annotated[str, Field(pattern="^(class|multi|value)$")]
Held = Annotated[str, Field(pattern="^(valid|test)$")]
DATE_PARTS = ("days", "month_sin", "month_cos", "weekday_sin", "weekday_cos")

_MAKING = ("made", "report", "identity")  # keys of graph.json


def graph_digest(root: Path) -> str:
    """Return a graph's identity: its content, with the SHA-256 of every file.

    How and when it was made does not count.
    """
    body = FORMAT.load(root)
    content = {key: value for key, value in body.items() if key not in _MAKING}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ShardEntry:
    """Rows ``start:stop`` of the graph live in ``shards/<number>``."""

    start: Count
    stop: Count
    edges: Count


@dataclass(frozen=True)
class FeatureEntry:
    """Node features: ``dense`` rows or ``sparse`` CSR triplets, in row-range files."""

    kind: str
    width: Count
    dtype: str
    starts: tuple[Count, ...]  # first row of each file
    nonzeros: Count

    def sparsity(self, nodes: int) -> float:
        """Return the share of zeros among all feature values."""
        return 1.0 - self.nonzeros / max(nodes * self.width, 1)


@dataclass(frozen=True)
class FeatureColumn:
    """How a column of the node table became features, so that a later graph can repeat it.

    mean, deviation  over the rows with a value, dates in days; with a deviation values are
                     standardised. None: not used
    categories       the categories, in the order of their features
    """

    name: str
    kind: Annotated[str, Field(pattern="^(number|boolean|category|date)$")]
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
class Manifest(Content):
    """The content of graph.json."""

    format: ClassVar[Format] = FORMAT
    nodes: Count
    edges: Count  # directed edges: an undirected one between two nodes counts twice
    directed: bool
    shards: tuple[ShardEntry, ...]
    dtypes: dict[str, str]  # indptr, indices and the edge columns that exist
    files: Files
    times: Times | None = None  # "timestamp" is nanoseconds since 1970; None: not known
    relations: tuple[str, ...] | None = None
    features: FeatureEntry | None = None
    feature_names: tuple[str, ...] | None = None  # all different; None: no names
    feature_columns: tuple[FeatureColumn, ...] | None = None  # if they come from the node table
    labels: Labels | None = None
    classes: tuple[str, ...] | None = None
    types: dict[str, Count] = field(default_factory=dict)  # nodes of each type, if they have any
    splits: dict[str, Count] = field(default_factory=dict)  # nodes in train, valid, test
    heldout: dict[Held, Count] = field(default_factory=dict)  # edges
    graphs: Count | None = None  # a zoo: the number of its small graphs
    made: dict[str, Any] = field(default_factory=dict)

    def feature_scales(self) -> dict[str, list[float]] | None:
        """Return mean and deviation of standardised columns; None: unknown."""
        if self.feature_columns is None:
            return None
        return {
            column.name: [column.mean, column.deviation]
            for column in self.feature_columns
            if column.mean is not None and column.deviation is not None
        }

    def save(self, root: Path) -> None:
        """Write ``root/graph.json``; do this last."""
        FORMAT.save(root, self.to_dict())

    def with_files(self, entries: Iterable[FileEntry]) -> Manifest:
        """Return the manifest with more files listed."""
        return replace(self, files=self.files | {entry.name: entry for entry in entries})

    def check(self) -> None:
        """Raise ValueError or KeyError if values contradict each other."""
        ends = [0, *(shard.stop for shard in self.shards)]
        if ends[:-1] != [shard.start for shard in self.shards] or ends[-1] != self.nodes:
            raise ValueError(f"shards that do not cover the rows 0 .. {self.nodes} in order")
        if sum(shard.edges for shard in self.shards) != self.edges:
            raise ValueError(f"shards that do not add up to {self.edges} edges")
        for name in ("indptr", "indices"):
            if name not in self.dtypes:
                raise KeyError(f"dtypes.{name}")
