"""The graph of yesterday: which ids and files the graph of today takes over from it.

A node that both have keeps its internal id; so do relations their numbers. New nodes get the ids of
nodes that are gone, then the next ones. If fewer nodes are new than gone, the nodes with the
highest ids move into the gaps: ids run from 0 without gaps, as in every graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_schema, reading_parquet
from penstock.errors import BaseRefused, UsageError
from penstock.graph import Graph
from penstock.graph_changes import WAYS, another_kind
from penstock.manifest import Manifest
from penstock.options import flag, given_options, refuse_ignored
from penstock.pipelines.etl.options import IGNORED_IN_CHANGES, EtlOptions
from penstock.sizes import need_memory

if TYPE_CHECKING:
    from penstock.pipelines.etl.nodes.sorted_ids import NodeIds
    from penstock.pipelines.etl.reading.batch import Layout

_NODE_BYTES = 100  # while ids are looked up: the ids, their hash table, positions
# Options of the base that hold for its changes, unless others are given.
_RULES = (
    "source",
    "target",
    "weight",
    "relation",
    "time",
    "source_type",
    "target_type",
    "self_loops",
    "duplicates",
    "both_directions",
    "merge_times",
    "since",
    "until",
    "window",
)
# And of a table of its nodes, with its name.
_OF_NODES = (
    "nodes",
    "node_id",
    "node_type",
    "label",
    "label_kind",
    "label_missing",
    "split",
    "split_nodes",
    "seed",
    "missing_features",
    "unknown_nodes",
)
_ATTRIBUTES = ("features", "feature_names", "feature_columns", "labels", "classes", "splits")
_TRIMS = ("min_degree", "largest_component", "drop_isolated")


@dataclass(frozen=True)
class Base:
    """Yesterday's graph, open."""

    graph: Graph

    @classmethod
    def open(cls, path: Path) -> Base:
        """Open a graph; a zoo is refused."""
        graph = Graph.open(path)
        if graph.manifest.graphs is not None:
            raise BaseRefused(f"--base {path} is a zoo", expected="one graph")
        return cls(graph)

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return self.graph.manifest

    @property
    def attributes(self) -> dict[str, Any]:
        """What its manifest has of its nodes' features, labels and splits."""
        return {name: getattr(self.manifest, name) for name in _ATTRIBUTES}

    @property
    def has_table(self) -> bool:
        """Whether a table lists its nodes."""
        return "nodes" in self.of_nodes or any(self.attributes.values())

    @property
    def cuts(self) -> list[int]:
        """The rows at which its shards begin."""
        return [entry.start for entry in self.manifest.shards]

    @property
    def of_nodes(self) -> dict[str, Any]:
        """The options by which it was made that hold for a table of its nodes."""
        made = self.manifest.made.get("options", {})
        return {name: made[name] for name in _OF_NODES if name in made}

    @property
    def id_type(self) -> str:
        """The type of its ids, as in Layout; with types of nodes, in nodes.parquet."""
        return str(read_schema(self.graph.ids_file).field("id").type).removeprefix("large_")

    def completed(self, options: EtlOptions) -> EtlOptions:
        """Return the options of a change of it, with the rules by which it was made."""
        refuse_ignored(options, IGNORED_IN_CHANGES)
        manifest, path = self.manifest, self.graph.path
        made, given = manifest.made.get("options", {}), given_options(options)
        if trimmed := [name for name in _TRIMS if made.get(name)]:
            raise UsageError(
                f"{path} was made with {flag(trimmed[0])}, and lacks edges that may be needed",
                remedy="Give all edges of today instead of --add and --remove",
            )
        if manifest.heldout:
            raise UsageError(
                f"{path} has held-out edges, among which edges to add may be",
                remedy="Give all edges of today instead of --add and --remove",
            )
        for name in ("duplicates", "self_loops", "merge_times"):
            before = made.get(name, getattr(EtlOptions(), name))
            if name in given and before not in (None, given[name]):
                raise another_kind(path, flag(name), before, given[name])
        found = {name: made[name] for name in _RULES if name in made and name not in given}
        for name, column in (("weight", "weights"), ("relation", "relations")):
            if column not in manifest.dtypes and name not in given:
                found[name] = "none"
        known = not manifest.types and self.id_type in ("int64", "uint64", "string")
        if known and options.id_type == "auto":
            found["id_type"] = self.id_type
        if options.directed not in (None, manifest.directed):
            ways = WAYS[manifest.directed], WAYS[not manifest.directed]
            raise another_kind(path, "edges", *ways)
        found["directed"] = manifest.directed
        if options.remove_nodes is not None:
            kept = ("node_id", "node_type")
            found |= {n: v for n, v in self.of_nodes.items() if n in kept and n not in given}
        if options.nodes is not None:
            found |= {n: value for n, value in self.of_nodes.items() if n not in given}
            if manifest.labels is not None:
                found["label_kind"] = manifest.labels
            if manifest.features is not None:
                found["features_as"] = path
        options = replace(options, **found)
        self._check_nodes(options)
        if options.time is None and (options.since or options.until):
            raise UsageError(f"{path} has no times", remedy="Leave --since and --until out")
        if options.source_type is None and options.node_type is not None:
            raise UsageError(f"{path} has no types of nodes", remedy="Leave --node-type out")
        if options.window is not None and options.merge_times:
            raise UsageError(
                f"{path} was made with --merge-times, and cannot take back what left the window",
                remedy="Give all edges of today instead of --add and --remove",
            )
        if options.both_directions == "once" and not options.directed:
            raise UsageError(
                f"{path} was made with --both-directions once, and does not keep which was first",
                remedy="--both-directions add, or all edges of today instead of --add and --remove",
            )
        return options

    def _check_nodes(self, options: EtlOptions) -> None:
        """Raise if a table of changed nodes would have other values than the base's nodes."""
        manifest, splits = self.manifest, options.split is not None or options.split_nodes
        for what, before, now, name in (
            ("labels", manifest.labels is not None, options.label is not None, "label"),
            ("splits", bool(manifest.splits), bool(splits), "split"),
        ):
            if options.nodes is not None and before != now:
                has, remedy = (f"no {what}", f"Leave --{name} out")
                if before:
                    has, remedy = what, f"Name their column with --{name}"
                raise UsageError(f"the nodes of {self.graph.path} have {has}", remedy=remedy)

    def typed(self, layout: Layout) -> Layout:
        """Return the layout of edges of today with the base's types of times and relations."""
        numbers = all(_is_whole(name) for name in self.manifest.relations or ())
        if layout.relation is not None and not numbers:
            layout = replace(layout, relation_type="string")
        if layout.time_type == "int64" and self.manifest.dtypes.get("times") == "float64":
            layout = replace(layout, time_type="float64")
        return layout

    def check(self, layout: Layout, options: EtlOptions, *, without: Collection[str] = ()) -> None:
        """Raise InputError unless edges of today are of the same kind; some columns may differ."""
        manifest = self.manifest
        if options.changes and layout.time is not None and "times" in manifest.dtypes:
            self._check_same("times", manifest.dtypes["times"], layout.time_dtype)
        kinds: dict[str, tuple[Any, Any]] = {
            "edges": (WAYS[manifest.directed], WAYS[bool(layout.directed)]),
            "weights": ("weights" in manifest.dtypes, layout.weight is not None),
            "relations": (manifest.relations is not None, layout.relation is not None),
            "times": (manifest.times, layout.time_kind),
            "types of nodes": (bool(manifest.types), options.source_type is not None),
        }
        for what, (before, now) in kinds.items():
            if what not in without:
                self._check_same(what, before, now)

    def _check_same(self, what: str, before: Any, now: Any) -> None:
        if before != now:
            raise another_kind(self.graph.path, what, before, now)

    def relations(self, names: Iterable[Any], *, text: bool) -> tuple[Any, ...]:
        """Return all relations by number, as text or numbers: the base's, then those of ``names``
        that it lacks.
        """
        known: list[Any] = list(self.manifest.relations or ())
        if not text:
            self._check_same("relations are numbers", all(map(_is_whole, known)), True)
            known = list(map(int, known))
        return (*known, *sorted({*names}.difference(known)))

    def find(self, ids: NodeIds) -> Array:
        """Return the base's internal id of each node, -1 if it has none: (ids,) int64."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        need_memory(
            len(ids) * _NODE_BYTES,
            f"the ids of {len(ids)} nodes, to find them in the base",
            remedy="Run this command on a machine with more memory",
        )
        wanted = ids.columns(range(len(ids)))["id"]
        wanted = wanted.combine_chunks() if isinstance(wanted, pa.ChunkedArray) else wanted
        found = np.full(len(ids), -1, np.int64)
        start, path = 0, self.graph.ids_file
        with reading_parquet(path), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(1 << 22, columns=["id"]):
                column = batch.column(0)
                if pa.types.is_integer(column.type) != pa.types.is_integer(wanted.type):
                    raise another_kind(self.graph.path, "ids", column.type, wanted.type)
                try:
                    column = column.cast(wanted.type)
                except pa.ArrowInvalid:
                    raise another_kind(self.graph.path, "ids", column.type, wanted.type) from None
                at = pc.index_in(column, value_set=wanted)
                known = np.asarray(at.is_valid())
                found[np.asarray(at.drop_null())] = start + np.flatnonzero(known)
                start += len(column)
        return found


def _is_whole(name: str) -> bool:
    """Return whether a text is a whole number as it is printed."""
    return name.removeprefix("-").isdecimal() and str(int(name)) == name


def stable_order(base_ids: Array) -> Array:
    """Return the position of the node that gets each internal id: (nodes,) int64.

    base_ids  (nodes,) the base's internal id of each node, -1 if it is new
    """
    count = len(base_ids)
    order = np.full(count, -1, np.int64)
    stays = (base_ids >= 0) & (base_ids < count)
    order[base_ids[stays]] = np.flatnonzero(stays)
    moved = np.flatnonzero(base_ids >= count)
    moved = moved[np.argsort(base_ids[moved])]
    order[order < 0] = np.concatenate([moved, np.flatnonzero(base_ids < 0)])
    return order
