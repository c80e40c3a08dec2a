"""One run of ``penstock etl``: it opens the input, plans, and makes a graph with its manifest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.cluster.connect import kind_for
from penstock.errors import BaseRefused, UsageError
from penstock.files import file_entry, link_same, save_json, save_text
from penstock.graph import Graph
from penstock.manifest import FILE_NAME as MANIFEST
from penstock.manifest import FORMAT, Manifest
from penstock.options import given_options, refuse_ignored
from penstock.output import Output, refuse_own_input
from penstock.paths import client_input
from penstock.pipelines.display import FromBase
from penstock.pipelines.etl.base import Base
from penstock.pipelines.etl.changes import change_graph
from penstock.pipelines.etl.nodes.coded import known_columns
from penstock.pipelines.etl.nodes.table import NODE_TABLES
from penstock.pipelines.etl.options import IGNORED_IN_TABLES, IGNORED_IN_ZOOS, EtlOptions
from penstock.pipelines.etl.reading.batch import Layout
from penstock.pipelines.etl.reading.layout import (
    KNOWN,
    ZOOS,
    NoRows,
    columns_by_position,
    default_direction,
    find_layout,
    guess_format,
)
from penstock.pipelines.etl.reading.pieces import find_pieces
from penstock.pipelines.etl.reading.read import spill_piece
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.etl.writing.build import EDGE_BYTES
from penstock.pipelines.etl.writing.make_rows import build_graph
from penstock.pipelines.etl.zoos.build import build_zoo
from penstock.pipelines.info import features_of, labels_of
from penstock.pipelines.job.capacity import TaskCapacity
from penstock.pipelines.job.context import Context
from penstock.pipelines.job.plan import Need
from penstock.pipelines.job.workers import Workers
from penstock.pipelines.tables.matrix import is_symmetric
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.sources import find_files, format_of, stamp_of
from penstock.sizes import format_bytes, plural

# The most bytes of a bin: small enough that all cores have work and a shard is a handy file.
_BIN_EDGES = 1 << 23


class EtlJob:
    """One run: its open input, and what its steps have found.

    edges, format, pieces  the input as the caller gave it, its format, and its pieces, one per task
    inputs, layout         its files, with stamps, but those of the base; the roles of their columns
    options                completed from the input
    partial, connected     the folder where the graph is made, and the workers
    relations, heldout     found on the way: names of relations; folders of edges held out
    time_cuts              the times from which edges are held out, if they are split by time
    changes                whether there are only changes of the base, instead of all edges
    counts                 the report of all this
    """

    layout: Layout
    removed: Layout | None = None
    partial: Output
    connected: Workers
    format = ""
    relations: tuple[Any, ...] = ()
    heldout: Sequence[Path] = ()
    time_cuts: tuple[Any, ...] | None = None

    def __init__(
        self, edges: str | Path | Iterable[str | Path] | None, options: EtlOptions, *_: bool
    ) -> None:
        """Find the files; ``open`` reads them."""
        listed = [edges] if isinstance(edges, str | Path) else list(edges or ())
        self.edges, self.options = [client_input(one) for one in listed], options
        self.counts = EtlReport("")
        self.pieces: dict[str, list[Piece]] = {}
        self.base: Base | None = None
        self.changes = not self.edges  # of the base, instead of all edges
        some = options.changes or (options.base is not None and options.nodes is not None)
        if (options.changes and self.edges) or not (some or self.edges):
            raise UsageError(
                "edges, or changes of --base, are needed, and not both",
                remedy="Give EDGES OUT, or OUT --base GRAPH with --add, --remove, --remove-nodes "
                "or --nodes",
            )
        changed = [*map(str, (*options.add, *options.remove))]
        self._find(self.edges or changed)

    @property
    def once(self) -> str | None:
        """The input, if every graph is one line of it; names of files are compared elsewhere."""
        return self.edges[0] if self.format == "json" else None

    def stamps(self) -> dict[str, Any]:
        """Return the stamps of all files that are read."""
        return {path: stamp_of(path) for path in self.inputs}

    def searched(self) -> list[str]:
        """Return the folders whose files are read, at any depth."""
        options = self.options
        tables = [options.nodes, options.remove_nodes, options.valid, options.test]
        tables = [one for one in tables if one is not None]
        # Only files with certain names belong to a TU data set, and no folders.
        return [*(() if self.format == "tu" else self.edges), *tables]

    def open(self) -> EtlJob:
        """Open the base, find the columns, and complete the options."""
        options = self.options
        if options.base is not None:  # a finished graph does not need it any more
            self.base = Base.open(options.base)
        edges, removed, reading = self.edges, list[str](), options
        if self.changes:
            assert self.base is not None
            self.options = options = self.base.completed(options)
            edges, removed = self._with_rows(options.add), self._with_rows(options.remove)
            reading = options if edges else self._removing
        listed = edges or removed or [*options.add, *options.remove]
        self.format = guess_format(listed, options) if listed else "parquet"
        if self.format == "tu" and len(edges) != 1:
            raise UsageError("a TU data set is one folder", got=f"{len(edges)} inputs")
        if self.format in ZOOS:
            refuse_ignored(options, IGNORED_IN_ZOOS)
            if self.base is not None:
                raise BaseRefused("--base is for one graph, and this is a zoo of graphs")
        known_columns(options)
        kinds = {format_of(path) or self.format for path in self.inputs}
        if self.format != "tu":
            text = not kinds <= {"parquet", "arrow", "npz", "json"}
            refuse_ignored(options, IGNORED_IN_TABLES, text)
        if edges or removed:
            layout = find_layout(edges or removed, reading, self.format)
        else:
            assert self.base is not None
            layout = Layout("source", "target", id_type=self.base.id_type)
            if self.base.manifest.times == "timestamp":
                layout = replace(layout, time_type="timestamp")
        if self.base is not None:
            layout = self.base.typed(layout)
        directed = options.directed
        if directed is None:
            directed, self.counts.directed_because = default_direction(self.format, layout)
        self.counts.directed = directed
        if directed and options.both_directions is not None:
            raise UsageError("--both-directions is for undirected graphs", remedy="--undirected")
        loops = options.self_loops
        if loops is None:
            self.counts.loops_because, loops = "the default of edges without relations", "drop"
            if layout.relation is not None:
                # A triple from a node to itself is a fact like any other.
                self.counts.loops_because, loops = "the default of edges with relations", "keep"
        both: Any = None if directed else self._both_directions()
        self.options = options = replace(
            options, directed=directed, self_loops=loops, both_directions=both
        )
        self.layout = layout = replace(layout, directed=directed)
        self.counts.columns, self.counts.columns_unread = columns_by_position(layout)
        if self.base is not None and edges:
            self.base.check(layout, options)
        held = {"valid": options.valid, "test": options.test}
        parts = {"train": edges, **{name: [one] for name, one in held.items() if one}}
        for name, paths in parts.items():
            if paths:
                self.pieces[name] = find_pieces(paths, self.format, layout, options)
        if removed:
            self._open_removed(removed)
        return self

    def _find(self, listed: list[str]) -> None:
        """Find all files that the run reads."""
        options = self.options
        self.format = guess_format(listed, options) if listed else "parquet"
        files = find_files(listed, None if self.format == "tu" else self.format)
        for path in (options.valid, options.test):
            files += [] if path is None else find_files([str(path)], self.format)
        for table in (options.nodes, options.remove_nodes):
            found = [] if table is None else find_files([str(table)])
            files += [path for path in found if format_of(path) in NODE_TABLES]
        if options.features is not None and options.features.is_file():
            files.append(str(options.features))
        if options.features_as is not None:
            files.append(str(options.features_as / MANIFEST))
        self.inputs = {path: stamp_of(path) for path in files}

    @property
    def _removing(self) -> EtlOptions:
        """The options that edges to remove are read by: without weights, and some without times."""
        options = replace(self.options, weight="none", since=None, until=None, window=None)
        # With merge_times an edge is the same at all times.
        return replace(options, time=None, merge_times=False) if options.merge_times else options

    def _with_rows(self, files: Iterable[Any]) -> list[str]:
        """Return files of edges to add or to remove; none if there are no rows in them."""
        listed, options = list(map(str, files)), self._removing
        try:
            if listed:
                find_layout(listed, options, guess_format(listed, options))
        except NoRows:
            return []
        return listed

    def _open_removed(self, files: list[str]) -> None:
        """Find the columns of edges to remove: their ends, relation and time."""
        assert self.base is not None
        options = self._removing
        kind = guess_format(files, options)
        layout = self.base.typed(find_layout(files, options, kind))
        if "train" in self.pieces:
            layout = replace(layout, relation_type=self.layout.relation_type)
        self.removed = replace(layout, directed=self.layout.directed)
        without = ("weights", "times")[: 1 + self.options.merge_times]
        self.base.check(self.removed, options, without=without)
        self.pieces["remove"] = find_pieces(files, kind, self.removed, options)

    def make(self, context: Context, out: Output) -> EtlReport:
        """Build the graph."""
        self.open()
        if self.base is not None:
            refuse_own_input(out.named, [self.base.graph.path])
        self.partial = out
        self._plan(context)
        self.connected = context.workers(input_bytes=self.size)
        manifest = self._build()
        counts = self.counts
        if counts.bad_rows:
            bad = {"skipped": counts.bad_rows, "first": counts.first_bad_rows}
            save_json(out.result / "bad_rows.json", bad)
            manifest = manifest.with_files([file_entry(out.result, "bad_rows.json")])
        given = given_options(self.options, passing=("scratch",))
        if self.changes and self.base is not None:
            given = self.base.of_nodes | given
        made: dict[str, Any] = {"by": "penstock etl", "edges": self.edges, "options": given}
        if self.base is not None:
            made |= {"base": self.base.graph.digest, "changes": counts.change_set}
            old, files = self.base.manifest.files, manifest.files.values()
            kept = link_same(self.base.graph.path, old, out.result, files)
            counts.from_base = FromBase("files", kept, len(manifest.files) - kept)
        manifest = replace(manifest, made=made)
        out.describe(FORMAT, manifest.to_dict())
        graph = Graph(out.result, manifest)
        counts.graph = str(out.named)
        counts.nodes, counts.edges, counts.graphs = manifest.nodes, manifest.edges, manifest.graphs
        counts.bytes = sum(entry.bytes for entry in manifest.files.values())
        counts.features, counts.labels = features_of(graph), labels_of(graph)
        counts.splits, counts.types = manifest.splits, manifest.types
        return counts

    def _plan(self, context: Context) -> None:
        """Describe how the input is read; no worker is started."""
        named = {role: getattr(self.layout, role) for role in KNOWN}
        columns = ", ".join(f"{r} {name}" for r, name in named.items() if name is not None)
        place = kind_for(context.cluster, self.size, None)
        memory = Need(None)
        if place in ("local", "threads"):
            has = context.cluster.worker_memory()
            fit = f"tasks are cut to fit into a worker's memory, {format_bytes(has)}"
            memory = Need(None, has, fit)
        files = len(self.inputs)
        kind = "directed" if self.counts.directed else "undirected"
        context.plan(
            f"a graph of {plural(files, 'file')}, {format_bytes(self.size)}",
            steps=(
                ("read", f"{self.format}: {columns}; on {place}"),
                ("build", f"{kind} edges, {self.counts.directed_because}"),
                ("self loops", f"{self.options.self_loops}, {self.counts.loops_because}"),
            ),
            memory=memory,
            scratch=self.scratch_bytes,
        )

    def read(self, keep: Any) -> list[tuple[str, Path, dict[str, Any]]]:
        """Read everything once, and find the relations; ``keep`` leaves each batch in a folder.

        ->  of each piece what its edges are for, its folder, and the result of ``spill_piece``
        """
        listed = [(use, piece) for use, part in self.pieces.items() for piece in part]
        unbounded = replace(self.layout, since=None, until=None)  # keep held-out edges whole
        layouts = {"train": self.layout, "remove": self.removed}
        folders = [self.partial.scratch / "pieces" / f"{i:05d}" for i in range(len(listed))]
        results = self.connected.tasks(
            "read",
            spill_piece,
            [
                (piece, layouts.get(use, unbounded), self.options, folder)
                for (use, piece), folder in zip(listed, folders, strict=True)
            ],
            [piece.bytes for _, piece in listed],
            "B",
            keep=keep,
        )
        for result in results:
            self.counts.count_input(result)
        self.relations = tuple(sorted({one for r in results for one in r["relations"]}))
        return list(zip((use for use, _ in listed), folders, results, strict=True))

    @cached_property
    def capacity(self) -> TaskCapacity:
        """How many tasks run at once, and how much memory each may use."""
        return self.connected.task_capacity

    @property
    def bin_edges(self) -> int:
        """How many edges a task can build at once."""
        most = max(1 << 16, min(_BIN_EDGES, self.capacity.task_memory // 2 // EDGE_BYTES))
        return self.chosen("bin-edges", most)

    def chosen(self, name: str, number: int) -> int:
        """Return what the run chose when it began, which decides how intermediate files are cut.

        A resumed run may have other workers, but must not cut again.
        """
        kept = self.partial.scratch / f"{name}.txt"
        if not kept.exists():
            save_text(kept, str(number))
        return int(kept.read_text(encoding="utf-8"))

    def _build(self) -> Manifest:
        if self.format in ZOOS:
            return build_zoo(self)
        if self.changes:
            return change_graph(self)
        return build_graph(self)

    def _both_directions(self) -> str:
        """Return what becomes of edges that are listed in both directions."""
        counts, asked = self.counts, self.options.both_directions
        matrices = asked is None and self.format == "npz"
        if matrices and all(map(is_symmetric, find_files(self.edges, "npz"))):
            asked = "once"
        counts.both_directions = asked or "add"
        return counts.both_directions

    @property
    def scratch_bytes(self) -> int:
        """Bytes on disk while the graph is made, about.

        Four times the input is enough for text, which shrinks, and compressed files, which grow.
        But a column of Parquet may be tiny indices into a few values, so 8 bytes per row count.
        Changes write at most all files of the base again.
        """
        columns = sum(getattr(self.layout, role) is not None for role in KNOWN)
        files = self.base.manifest.files.values() if self.base and self.changes else ()
        pieces = [piece for pieces in self.pieces.values() for piece in pieces]
        read = sum(max(4 * piece.bytes, 8 * (columns + 1) * piece.rows) for piece in pieces)
        return read + sum(entry.bytes for entry in files)

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(piece.bytes for pieces in self.pieces.values() for piece in pieces)
