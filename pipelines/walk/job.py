"""One run of ``penstock walk``: what it checks, how its files are walked, and its report."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrow import as_arrow, written_bytes
from penstock.cluster.count import check_ranks
from penstock.cluster.spec import ClusterSpec
from penstock.csr import id_dtype
from penstock.errors import CapacityError, warn
from penstock.files import refuse_own_input
from penstock.graph import Graph
from penstock.partition.manifest import PartitionManifest
from penstock.partition.part import partition_path
from penstock.pipelines.job import Job, Workers
from penstock.pipelines.job.following import sibling
from penstock.pipelines.job.partial import PartialOutput
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.output import Command
from penstock.pipelines.walk.choice import SamplerChoice, check_graph, choose
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.output import KIND, OutputFiles, WalkWriter, save_manifest
from penstock.pipelines.walk.partitioned import memory_of_part, walk_partitioned
from penstock.pipelines.walk.placement import Placement, choose_placement, ranks_wanted
from penstock.pipelines.walk.replicated import WalkTask, walk_replicated
from penstock.pipelines.walk.report import WalkReport
from penstock.pipelines.walk.starts import checked_count, find_starts, identity_of, listed_starts
from penstock.pipelines.walk.weights import inspect_weights
from penstock.pipelines.walk.window import what_window_left
from penstock.sizes import need_disk, plural

_SOME_IDS = 1 << 18  # as a file has them: it is tried what an id takes in Parquet


class WalkJob(Job[WalkReport]):
    """Walks over a graph, which lies whole on every worker or in parts on ranks."""

    command = "penstock walk"
    kind = KIND
    on_gpu = True

    def __init__(
        self,
        graph: Graph,
        out: Path,
        options: WalkOptions,
        cluster: str | ClusterSpec | None,
        *,
        quiet: bool,
    ) -> None:
        super().__init__(out, options, cluster, quiet=quiet)
        self.graph, self.version = graph, graph.digest
        self.result = WalkReport(str(out), options.app)

    def check(self) -> None:
        """Refuse what the graph does not have."""
        starts = self.options.starts
        refuse_own_input(self.out, [self.graph.path, *([] if starts is None else [starts])])
        check_graph(self.graph, self.options)

    def identity(self) -> dict[str, Any]:
        """Return the graph, and the file of starts as it is now."""
        return identity_of(self.graph, self.version, self.options)

    def plan(self) -> Plan:
        """Inspect the graph and the workers as a run does; return what would be walked where."""
        graph, options = self.graph, self.options
        listed = listed_starts(graph, options)
        files = self._output_files(graph.num_nodes if listed is None else len(listed))
        problem: CapacityError | None = None
        try:
            self._need_disk(files, 1.0)
        except CapacityError as error:
            problem = error
        with self._workers() as workers:
            has = workers.capacity
            choice = self._chosen(workers)
            try:
                placement = choose_placement(graph, options, choice.spec, has)
            except CapacityError as error:
                placement, problem = "replicated", error
        self.result.placement = placement
        where, there = f"a copy of the graph on each of {has.text()}", has.rows
        size: int | None = choice.spec.bytes(
            graph.num_nodes, graph.num_edges, id_dtype(graph.num_nodes).itemsize
        )
        if placement == "partitioned":
            k, there = options.parts or has.workers, has.memory
            path, where = partition_path(graph, k), f"a part of the graph on each of {k} ranks"
            if path.exists():
                manifest = PartitionManifest.load(path)
                size = memory_of_part(manifest, choice.spec, files)
            else:
                size, where = None, f"{where}, once it is cut, which this does first"
        return Plan(
            what=f"{plural(files.walks, 'walk')} of at most {plural(options.length, 'node')}, "
            f"{plural(files.count, 'file')}",
            steps=(("walk", f"{options.app}, {where}"), ("sampler", choice.instead or choice.why)),
            memory=Need(size, there, f"on every {has.worker}"),
            disk=disk_need(self.out.parent, self._disk_bytes(files)),
            problem=problem,
        )

    def work(self, partial: PartialOutput) -> None:
        """Walk every file that is not there yet, and write _walks.json."""
        options, graph = self.options, self.graph
        starts = find_starts(graph, options, partial.scratch)
        files = self._output_files(starts.count)
        named = graph.path if options.ids == "user" else None
        writer = WalkWriter(partial.records, named, self.version, options.npy)
        if not options.resume:  # before anything is done a file, of which there may be too many
            self._need_disk(files, 1.0)
        todo = [n for n in range(files.count) if not writer.done(n)]
        self._need_disk(files, len(todo) / max(files.count, 1))
        with self._workers() as workers:
            choice = self._chosen(workers)
            placement: Placement = choose_placement(graph, options, choice.spec, workers.capacity)
            task = WalkTask(graph.path, self.version, choice.spec, starts, files, writer)
            began = time.monotonic()
            if placement == "replicated":
                walk_replicated(workers, task, todo)
            else:
                walk_partitioned(workers, graph, task, todo, ranks=options.parts)
            self.result.seconds_by_step["walk"] = time.monotonic() - began
            self.result.placement, self.result.devices = placement, workers.capacity.text()
        self.result.resumed_files = files.count - len(todo)
        about = {
            "graph": str(graph.path),
            "graph_sha256": self.version,
            "options": self.given,
            "sampler": self.result.sampler,
            "length": options.length,
            "ids": options.ids,
        }
        counted = save_manifest(writer, files, about)
        self.result.files = files.count
        self.result.walks, self.result.nodes, self.result.bytes = (
            counted[name] for name in ("walks", "nodes", "bytes")
        )

    def report(self, seconds: float) -> WalkReport:
        """Return what was walked."""
        self.result.window = what_window_left(self.graph, self.options, self.result.steps)
        for text in (self.result.instead, self.result.window):
            if text:
                warn(text)
        self.result.seconds = seconds
        return self.result

    def following(self) -> list[Command]:
        """Return what the walks can be given to."""
        return [("word2vec", "train", self.out, sibling(self.out, "vectors"))]

    def _workers(self) -> AbstractContextManager[Workers]:
        """Connect to workers, or to the ranks of a world where the graph will lie in parts."""
        ranks = ranks_wanted(self.graph, self.options, self.cluster)
        if self.options.in_parts:  # before a partition is made
            check_ranks(self.cluster.cluster, self.cluster.workers, self.options.parts)
        size = sum(entry.bytes for entry in self.graph.manifest.files.values())
        return self.workers(input_bytes=size, ranks=ranks)

    def _chosen(self, workers: Workers) -> SamplerChoice:
        """Inspect the weights, choose the sampler, and report why."""
        statistics = inspect_weights(workers, self.graph, self.options)
        choice = choose(self.graph, self.options, statistics, workers.capacity.rows)
        self.result.sampler = choice.spec.rules.sampler.name.lower()
        self.result.why, self.result.instead = choice.why, choice.instead
        self.result.zero_rows = statistics.zero
        return choice

    def _output_files(self, starts: int) -> OutputFiles:
        count = checked_count(starts * self.options.walks)
        self.expected_nodes = count * min(self.options.length, _longest(self.options))
        return OutputFiles.of(count, self.options.length)

    def _need_disk(self, files: OutputFiles, left: float) -> None:
        """Raise CapacityError where the share of the walks that is ``left`` does not fit."""
        size = int(self._disk_bytes(files) * left)
        need_disk(
            self.out.parent,
            size,
            f"room for {files.walks:,} walks",
            fits=lambda free: f"about {files.walks * free // max(size, 1):,} walks of this length",
        )

    def _disk_bytes(self, files: OutputFiles) -> int:
        """Return about what the walks take: as if no walk ended early, and all went anywhere."""
        graph, options = self.graph, self.options
        nodes = files.walks * min(options.length, _longest(options))
        internal = id_dtype(graph.num_nodes).itemsize
        named: float = internal
        if graph.num_nodes:
            random = np.random.Generator(np.random.Philox(0))
            some = random.integers(graph.num_nodes, size=_SOME_IDS)
            named = written_bytes(graph.user_ids(some) if options.ids == "user" else as_arrow(some))
        return int(nodes * named + 12 * files.walks + options.npy * nodes * internal)


def _longest(options: WalkOptions) -> float:
    """Return how long walks are on average at most."""
    if options.app == "ppr":
        return 1 / (0.15 if options.stop is None else options.stop)
    if options.app == "metapath" and not options.cyclic:
        return len(options.relations) + 1
    return options.length
