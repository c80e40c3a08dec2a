"""``penstock etl`` as a job: what it reads, what identifies it, and from tables to a manifest."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from penstock.cluster.connect import kind_for
from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.files import file_entry, save_json
from penstock.graph import Graph
from penstock.manifest import Manifest
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.batch import Layout, Piece
from penstock.pipelines.etl.reading.layout import (
    columns_by_position,
    default_direction,
    find_layout,
    guess_format,
)
from penstock.pipelines.etl.reading.pieces import find_pieces
from penstock.pipelines.etl.reading.stamps import Inputs
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.etl.run import EtlRun, with_files
from penstock.pipelines.etl.stages import build_graph
from penstock.pipelines.job import Job
from penstock.pipelines.job.following import after_graph
from penstock.pipelines.job.partial import PartialOutput, kept_bytes
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.output import Command
from penstock.sizes import format_bytes, need_disk

_ROLES = ("source", "target", "weight", "relation", "time", "graph")


class EtlJob(Job[EtlReport]):
    """Makes a graph of tables of edges on workers, or of a TU folder in this process."""

    command = "penstock etl"
    kind = "graph"
    layout: Layout | None = None  # None: a TU folder

    def __init__(
        self,
        edges: list[str],
        out: Path,
        options: EtlOptions,
        cluster: ClusterSpec | None,
        *,
        quiet: bool,
    ) -> None:
        super().__init__(out, options, cluster, quiet=quiet)
        self.edges, self.told = edges, EtlReport(str(out))
        self.pieces: dict[str, list[Piece]] = {}

    def check(self) -> None:
        """Find the inputs and their columns, and whether intermediate data fits on the disk."""
        edges, options = self.edges, self.options
        self.format = guess_format(edges, options)
        if self.format == "tu" and len(edges) != 1:
            raise UsageError("a TU data set is one folder", got=f"{len(edges)} inputs")
        self.inputs = Inputs.of(edges, self.format, options)
        if self.format != "tu":
            self.layout = find_layout(edges, options, self.format)
        directed = options.directed
        if directed is None:
            directed, self.told.directed_because = default_direction(self.format, self.layout)
        self.told.directed = directed
        self.options = options = replace(options, directed=directed)
        if self.layout is None:
            return
        self.told.columns, self.told.columns_unread = columns_by_position(self.layout)
        parts = {"train": edges, "valid": [options.valid], "test": [options.test]}
        for name, paths in parts.items():
            if paths != [None]:
                self.pieces[name] = find_pieces(paths, self.format, self.layout, options)
        # Text shrinks and compressed files grow: four times the input has held for both.
        held = kept_bytes(self.out, options.scratch) if options.resume else 0
        need_disk(self._disk, max(0, 4 * self._size - held), "the making of this graph")

    def identity(self) -> dict[str, Any]:
        """Return the inputs, as they are now and as they are read."""
        found: dict[str, Any] = {"edges": self.edges, "inputs": self.inputs.to_dict()}
        if self.layout is not None:
            found |= {"pieces": self.pieces, "cluster": asdict(self.asked_cluster)}
        return found

    def plan(self) -> Plan:
        """Say what is read as what; no worker is started."""
        layout, where, memory = self.layout, "in this process", Need(None)
        columns = "a TU folder"
        if layout is not None:
            named = {role: getattr(layout, role) for role in _ROLES}
            columns = ", ".join(f"{r} {name}" for r, name in named.items() if name is not None)
            kind = kind_for(self.cluster, self._size, None)
            where = f"on {kind}"
            if kind in ("local", "threads"):
                has = self.cluster.worker_memory()
                fit = f"tasks are cut to fit into what a worker has, {format_bytes(has)}"
                memory = Need(None, has, fit)
        files = len(self.inputs.to_dict())
        kind = "directed" if self.told.directed else "undirected"
        return Plan(
            command=self.command,
            out=str(self.out),
            what=f"a graph of {files} file{'s' * (files != 1)}, {format_bytes(self._size)}",
            steps=(
                ("read", f"{self.format}: {columns}; {where}"),
                ("build", f"{kind} edges, {self.told.directed_because}"),
            ),
            memory=memory,
            disk=Need(None) if layout is None else disk_need(self._disk, 4 * self._size),
        )

    def work(self, partial: PartialOutput) -> None:
        """Build the graph, and write graph.json."""
        if self.layout is None:
            from penstock.pipelines.etl.zoos.tu import build_tu

            with self.inputs.reading_edges():
                manifest = build_tu(self.edges[0], self.options, partial.result, self.told)
        else:
            manifest = self._built(partial, self.layout)
        if self.told.bad_rows:
            bad = {"skipped": self.told.bad_rows, "first": self.told.first_bad_rows}
            save_json(partial.result / "bad_rows.json", bad)
            manifest = with_files(manifest, [file_entry(partial.result, "bad_rows.json")])
        made = {"by": self.command, "edges": self.edges, "options": self.given}
        replace(manifest, made=made).save(partial.result)

    def report(self, seconds: float) -> EtlReport:
        """Return what was read and made."""
        graph, told = Graph.open(self.out), self.told
        told.nodes, told.edges, told.graphs = (
            graph.num_nodes,
            graph.num_edges,
            graph.manifest.graphs,
        )
        told.bytes = sum(entry.bytes for entry in graph.manifest.files.values())
        told.seconds = seconds
        return told

    def amount(self) -> tuple[str, float] | None:
        """Return the bytes to read; a TU folder is not measured."""
        if self.layout is None:
            return None
        kind = kind_for(self.cluster, self._size, None)
        return f"etl {self.format}, {kind}, {self.cluster.workers or 'all'} workers", self._size

    def following(self) -> list[Command]:
        """Return what the graph can be given to."""
        return after_graph(self.out, Graph.open(self.out).manifest)

    def _built(self, partial: PartialOutput, layout: Layout) -> Manifest:
        with self.workers(input_bytes=self._size) as workers:
            can = workers.task_capacity
            run = EtlRun(
                workers,
                self.edges,
                self.options,
                layout,
                partial,
                can.task_memory,
                can.tasks,
                self.told,
                self.inputs,
            )
            with self.inputs.reading_nodes():
                if self.format != "zoo":
                    return build_graph(run, self.pieces)
                from penstock.pipelines.etl.zoos.build import build_zoo

                return build_zoo(run, self.pieces["train"])

    @property
    def _disk(self) -> Path:
        return self.options.scratch or self.out.parent

    @property
    def _size(self) -> int:
        return sum(piece.bytes for pieces in self.pieces.values() for piece in pieces)
