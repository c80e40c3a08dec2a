"""One run of ``penstock walk``: what it checks, how its parts are walked, and what it tells."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from penstock.cluster.count import check_ranks
from penstock.cluster.spec import ClusterSpec
from penstock.csr import id_dtype
from penstock.errors import CapacityError, UsageError
from penstock.graph import Graph
from penstock.kernels.walk_rules import MAX_WALKS
from penstock.partition.manifest import PartitionManifest
from penstock.partition.part import partition_path
from penstock.pipelines.job import Job, Workers
from penstock.pipelines.job.partial import PartialOutput, file_stamp
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.walk.choice import SamplerChoice, check_graph, choose
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.output import KIND, Parts, WalkWriter, save_manifest
from penstock.pipelines.walk.partitioned import memory_of_part, walk_partitioned
from penstock.pipelines.walk.placement import Placement, choose_placement, ranks_wanted
from penstock.pipelines.walk.replicated import WalkTask, walk_replicated
from penstock.pipelines.walk.report import WalkReport
from penstock.pipelines.walk.starts import find_starts, listed_starts
from penstock.pipelines.walk.survey import WeightStatistics, survey, weighted
from penstock.pipelines.walk.window import what_window_left
from penstock.sizes import need_disk


class WalkJob(Job[WalkReport]):
    """Walks over a graph, which lies whole on every worker or in parts on ranks."""

    command = "penstock walk"
    kind = KIND
    on_gpu = True

    def __init__(
        self, graph: Graph, out: Path, options: WalkOptions, cluster: ClusterSpec, *, quiet: bool
    ) -> None:
        super().__init__(out, options, cluster, quiet=quiet)
        self.graph, self.version = graph, graph.digest
        self.told = WalkReport(str(out), options.app)

    def check(self) -> None:
        """Refuse what the graph does not have."""
        check_graph(self.graph, self.options)

    def identity(self) -> dict[str, Any]:
        """Return the graph, and the file of starts as it is now."""
        found: dict[str, Any] = {"graph": str(self.graph.path), "version": self.version}
        starts = self.options.starts
        if starts is not None and starts.is_file():
            found["inputs"] = {str(starts): file_stamp(starts)}
        return found

    def plan(self) -> Plan:
        """Look at the graph and the workers as a run does, and say what would be walked where."""
        graph, options = self.graph, self.options
        listed = listed_starts(graph, options)
        parts = self._parts(graph.num_nodes if listed is None else len(listed))
        problem: CapacityError | None = None
        try:
            self._need_disk(parts, 1.0)
        except CapacityError as error:
            problem = error
        with self._workers() as workers:
            has = workers.capacity
            choice = self._chosen(workers)
            try:
                placement = choose_placement(graph, options, choice.recipe, has)
            except CapacityError as error:
                placement, problem = "replicated", error
        self.told.placement, self.told.devices = placement, has.text()
        where, there = f"a copy of the graph on each of {has.text()}", has.rows
        size: int | None = choice.recipe.bytes(
            graph.num_nodes, graph.num_edges, id_dtype(graph.num_nodes).itemsize
        )
        if placement == "partitioned":
            k, there = options.parts or has.workers, has.memory
            path, where = partition_path(graph, k), f"a part of the graph on each of {k} ranks"
            if path.exists():
                manifest = PartitionManifest.load(path)
                size = memory_of_part(manifest, choice.recipe, parts)
            else:
                size, where = None, f"{where}, once it is cut, which this does first"
        return Plan(
            command=self.command,
            out=str(self.out),
            what=f"{parts.walks:,} walks of at most {options.length} nodes, {parts.count} parts",
            steps=(("walk", f"{options.app}, {where}"), ("sampler", choice.instead or choice.why)),
            memory=Need(size, there, f"on every {has.worker}"),
            disk=disk_need(self.out.parent, self._disk_bytes(parts)),
            problem=problem,
        )

    def work(self, partial: PartialOutput) -> None:
        """Walk every part that is not there yet, and write _walks.json."""
        options, graph = self.options, self.graph
        starts = find_starts(graph, options, partial.scratch)
        parts = self._parts(starts.count)
        named = graph.path if options.ids == "user" else None
        writer = WalkWriter(partial.records, named, self.version, options.npy)
        todo = [n for n in range(parts.count) if not (options.resume and writer.done(n))]
        self._need_disk(parts, len(todo) / max(parts.count, 1))
        with self._workers() as workers:
            choice = self._chosen(workers)
            placement: Placement = choose_placement(graph, options, choice.recipe, workers.capacity)
            task = WalkTask(graph.path, self.version, choice.recipe, starts, parts, writer)
            began = time.monotonic()
            if placement == "replicated":
                walk_replicated(workers, task, todo)
            else:
                walk_partitioned(workers, graph, task, todo, ranks=options.parts)
            self.told.stage_seconds["walk"] = time.monotonic() - began
            self.told.placement, self.told.devices = placement, workers.capacity.text()
        self.told.resumed_parts = parts.count - len(todo)
        about = {
            "graph": str(graph.path),
            "graph_sha256": self.version,
            "options": self.given,
            "sampler": self.told.sampler,
            "length": options.length,
            "ids": options.ids,
        }
        counted = save_manifest(writer, parts, about)
        self.told.parts = parts.count
        self.told.walks, self.told.nodes, self.told.bytes = (
            counted[name] for name in ("walks", "nodes", "bytes")
        )

    def report(self, seconds: float) -> WalkReport:
        """Return what was walked."""
        self.told.window = what_window_left(self.graph, self.options, self.told.steps)
        self.told.seconds = seconds
        return self.told

    def amount(self) -> tuple[str, float] | None:
        """Return the nodes of all walks, as if none ended early."""
        told = self.told
        kind = f"walk {told.app} {told.sampler}, {told.placement} on {told.devices}"
        return kind, self.expected_nodes

    def _workers(self) -> Any:
        """Connect to workers, or to the ranks of a world where the graph will lie in parts."""
        ranks = ranks_wanted(self.graph, self.options, self.cluster)
        if self.options.in_parts:  # before a partition is made
            check_ranks(self.cluster.cluster, self.cluster.workers, self.options.parts)
        size = sum(entry.bytes for entry in self.graph.manifest.files.values())
        return self.workers(input_bytes=size, ranks=ranks)

    def _chosen(self, workers: Workers) -> SamplerChoice:
        """Look at the weights, choose the sampler, and tell the report why."""
        look = WeightStatistics()
        if weighted(self.graph, self.options):
            look = survey(workers, self.graph, self.options)
        choice = choose(self.graph, self.options, look, workers.capacity.rows)
        self.told.sampler = choice.recipe.rules.sampler.name.lower()
        self.told.why, self.told.instead = choice.why, choice.instead
        self.told.zero_rows = look.zero
        return choice

    def _parts(self, starts: int) -> Parts:
        count = starts * self.options.walks
        if count > MAX_WALKS:
            raise UsageError(
                f"these are {count:,} walks", expected=f"{MAX_WALKS:,} at most in one run"
            )
        self.expected_nodes = count * min(self.options.length, _longest(self.options))
        return Parts.of(count, self.options.length)

    def _need_disk(self, parts: Parts, left: float) -> None:
        """Raise CapacityError where the share of the walks that is ``left`` does not fit."""
        size = int(self._disk_bytes(parts) * left)
        need_disk(
            self.out.parent,
            size,
            f"room for {parts.walks:,} walks",
            fits=lambda free: f"about {parts.walks * free // max(size, 1):,} walks of this length",
        )

    def _disk_bytes(self, parts: Parts) -> int:
        """Return about what the walks take: as if no walk ended early, nor was compressed."""
        graph, options = self.graph, self.options
        nodes = parts.walks * min(options.length, _longest(options))
        internal = id_dtype(graph.num_nodes).itemsize
        named = internal
        if options.ids == "user" and graph.num_nodes:
            sample = graph.user_ids(range(min(graph.num_nodes, 1000)))
            named = -(-sample.nbytes // len(sample))
        return int(nodes * named + 12 * parts.walks + options.npy * nodes * internal)


def _longest(options: WalkOptions) -> float:
    """Return how long walks are on average at most."""
    if options.app == "ppr":
        return 1 / (0.15 if options.stop is None else options.stop)
    if options.app == "metapath" and not options.cyclic:
        return len(options.relations) + 1
    return options.length
