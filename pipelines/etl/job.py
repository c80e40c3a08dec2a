"""``penstock etl`` as a job: what it reads, what identifies it, and from tables to a manifest."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.cluster.connect import kind_for
from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.files import file_entry, save_json
from penstock.graph import Graph
from penstock.manifest import Manifest
from penstock.output import Output, refuse_own_input
from penstock.pipelines.display import Command
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.batch import Layout
from penstock.pipelines.etl.reading.layout import (
    KNOWN,
    columns_by_position,
    default_direction,
    find_layout,
    guess_format,
    has_relations,
)
from penstock.pipelines.etl.reading.pieces import find_pieces
from penstock.pipelines.etl.reading.stamps import Inputs
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.etl.writing.build import EDGE_BYTES
from penstock.pipelines.info import features_of, labels_of
from penstock.pipelines.job import Job
from penstock.pipelines.job.capacity import TaskCapacity
from penstock.pipelines.job.following import after_graph
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.sources import find_files
from penstock.sizes import format_bytes, plural

# Bins are no larger than this, so that all cores have work and a shard stays a handy file.
_BIN_EDGES = 1 << 23


class EtlJob(Job[EtlReport]):
    """Makes a graph of tables of edges on workers, or of a TU folder in this process.

    Its steps are given the job itself, by which they know:

    edges, format, pieces  what is read: as it was given, as what, and cut into tasks by its use
    inputs, layout         its files as they were when the run began; what their columns are
    partial, connected     where the graph grows, and the workers that are at it
    relations, heldout     found on the way: names of relations; folders of edges held out
    counts                 what the run tells of all this
    """

    command = "penstock etl"
    kind = "graph"
    format: str
    inputs: Inputs
    layout: Layout  # a TU folder has none
    partial: Output

    def __init__(
        self,
        edges: list[str],
        out: Path,
        options: EtlOptions,
        cluster: str | ClusterSpec | None,
        *,
        quiet: bool,
    ) -> None:
        super().__init__(out, options, cluster, quiet=quiet)
        self.edges, self.counts = edges, EtlReport(str(out))
        self.pieces: dict[str, list[Piece]] = {}
        self.relations: tuple[Any, ...] = ()
        self.heldout: dict[str, list[Path]] = {}

    @property
    def reads_tables(self) -> bool:
        """Whether the edges come from tables or text, rather than from a TU folder."""
        return self.format != "tu"

    def check(self) -> None:
        """Find the inputs and their columns, and whether intermediate data fits on the disk."""
        edges, options = self.edges, self.options
        tables = [one for one in (options.nodes, options.valid, options.test) if one is not None]
        refuse_own_input(self.out, edges)
        self.format = guess_format(edges, options)
        if not self.reads_tables and len(edges) != 1:
            raise UsageError("a TU data set is one folder", got=f"{len(edges)} inputs")
        self.inputs = Inputs.of(edges, self.format, options)
        # Of a TU data set files of certain names are read, and none of folders in it.
        searched = [*(edges if self.reads_tables else ()), *tables]
        refuse_own_input(self.out, self.inputs.to_dict(), searched=searched)
        if self.reads_tables:
            self.layout = find_layout(edges, options, self.format)
            if options.missing_features != "error" and not (
                options.features or options.feature_columns
            ):
                raise UsageError(
                    "--missing-features needs --features or --feature-columns, the features"
                )
            if options.label_missing is not None and options.label is None:
                raise UsageError("--label-missing needs --label, the column of labels")
        directed = options.directed
        if directed is None:
            layout = self.layout if self.reads_tables else None
            directed, self.counts.directed_because = default_direction(self.format, layout)
        self.counts.directed = directed
        if directed and options.both_directions is not None:
            raise UsageError("--both-directions is for undirected graphs", remedy="--undirected")
        loops = options.self_loops
        if loops is None:
            layout = self.layout if self.reads_tables else None
            self.counts.loops_because, loops = "the default of edges without relations", "drop"
            if has_relations(edges, layout, options):
                # A triple from a node to itself is a fact like any other.
                self.counts.loops_because, loops = "the default of edges with relations", "keep"
        both = None if directed else self._both_directions()
        self.options = options = replace(
            options, directed=directed, self_loops=loops, both_directions=both
        )
        if not self.reads_tables:
            return
        self.counts.columns, self.counts.columns_unread = columns_by_position(self.layout)
        parts = {"train": edges, "valid": [options.valid], "test": [options.test]}
        for name, paths in parts.items():
            if paths != [None]:
                self.pieces[name] = find_pieces(paths, self.format, self.layout, options)
        # Text shrinks and compressed files grow: four times the input has held for both.
        self.need_disk(0, "the making of this graph", scratch=4 * self._size)

    def identity(self) -> dict[str, Any]:
        """Return the inputs, as they are now and as they are read."""
        found: dict[str, Any] = {"edges": self.edges, "inputs": self.inputs.to_dict()}
        if self.reads_tables:
            found |= {"pieces": self.pieces, "cluster": asdict(self.given_cluster)}
        return found

    def plan(self) -> Plan:
        """Say what is read as what; no worker is started."""
        columns, where, memory = "a TU folder", "in this process", Need(None)
        if self.reads_tables:
            named = {role: getattr(self.layout, role) for role in KNOWN}
            columns = ", ".join(f"{r} {name}" for r, name in named.items() if name is not None)
            kind = kind_for(self.cluster, self._size, None)
            where = f"on {kind}"
            if kind in ("local", "threads"):
                has = self.cluster.worker_memory()
                fit = f"tasks are cut to fit into what a worker has, {format_bytes(has)}"
                memory = Need(None, has, fit)
        files = len(self.inputs.to_dict())
        kind = "directed" if self.counts.directed else "undirected"
        return Plan(
            what=f"a graph of {plural(files, 'file')}, {format_bytes(self._size)}",
            steps=(
                ("read", f"{self.format}: {columns}; {where}"),
                ("build", f"{kind} edges, {self.counts.directed_because}"),
                ("self loops", f"{self.options.self_loops}, {self.counts.loops_because}"),
            ),
            memory=memory,
            disk=disk_need(self._disk, 4 * self._size) if self.reads_tables else Need(None),
        )

    def work(self, partial: Output) -> None:
        """Build the graph, and write graph.json."""
        self.partial = partial
        manifest = self._build() if self.reads_tables else self._build_tu()
        if self.counts.bad_rows:
            bad = {"skipped": self.counts.bad_rows, "first": self.counts.first_bad_rows}
            save_json(partial.result / "bad_rows.json", bad)
            manifest = manifest.with_files([file_entry(partial.result, "bad_rows.json")])
        made = {"by": self.command, "edges": self.edges, "options": self.given}
        replace(manifest, made=made).save(partial.result)

    def report(self, seconds: float) -> EtlReport:
        """Return what was read and made."""
        graph, counts = Graph.open(self.out), self.counts
        manifest = graph.manifest
        counts.nodes, counts.edges, counts.graphs = manifest.nodes, manifest.edges, manifest.graphs
        counts.bytes = sum(entry.bytes for entry in manifest.files.values())
        counts.features, counts.labels = features_of(graph), labels_of(graph)
        counts.splits, counts.types = manifest.splits, manifest.types
        counts.seconds = seconds
        return counts

    def following(self) -> list[Command]:
        """Return what the graph can be given to."""
        return after_graph(self.out, Graph.open(self.out).manifest)

    def read(self, step: Any, calls: list[Any], pieces: list[Piece]) -> list[Any]:
        """Run the step that reads the edges; a file that changes meanwhile ends the run."""
        with self.inputs.reading_edges():
            sizes = [piece.bytes for piece in pieces]
            return self.connected.tasks("read", step, calls, sizes, "B")

    @cached_property
    def capacity(self) -> TaskCapacity:
        """How many tasks run at once, and what memory each may use."""
        return self.connected.task_capacity

    @property
    def bin_edges(self) -> int:
        """How many edges a task can build at once."""
        return max(1 << 16, min(_BIN_EDGES, self.capacity.task_memory // 2 // EDGE_BYTES))

    def _build(self) -> Manifest:
        with self.workers(input_bytes=self._size), self.inputs.reading_nodes():
            if self.format == "zoo":
                from penstock.pipelines.etl.zoos.build import build_zoo

                return build_zoo(self)
            from penstock.pipelines.etl.steps import build_graph

            return build_graph(self)

    def _build_tu(self) -> Manifest:
        from penstock.pipelines.etl.zoos.tu import build_tu

        with self.inputs.reading_edges():
            return build_tu(self.edges[0], self.options, self.partial.result, self.counts)

    def _both_directions(self) -> str:
        """Return what becomes of edges that are listed in both directions."""
        counts, asked = self.counts, self.options.both_directions
        if asked is None and self.format == "npz":
            from penstock.pipelines.tables.matrix import is_symmetric

            if all(map(is_symmetric, find_files(self.edges, "npz"))):
                counts.both_because, asked = "the default of a symmetric matrix", "once"
        counts.both_directions = asked or "add"
        return counts.both_directions

    @property
    def _disk(self) -> Path:
        return self.options.scratch or self.out.parent

    @property
    def _size(self) -> int:
        return sum(piece.bytes for pieces in self.pieces.values() for piece in pieces)
