"""One run of ``penstock centrality``: what it checks, and how its graphs are computed."""

from __future__ import annotations

import hashlib
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, InputError, UsageError
from penstock.files import save_npy
from penstock.graph import Graph
from penstock.output import Output, refuse_own_input
from penstock.pipelines.centrality.inputs import CentralityInput
from penstock.pipelines.centrality.inputs.directory import DirectoryInput
from penstock.pipelines.centrality.options import NODE_METRICS, OF_PATHS, CentralityOptions
from penstock.pipelines.centrality.output import KIND, CentralityWriter, save_manifest
from penstock.pipelines.centrality.pieces import PieceSpec, matrix_bytes
from penstock.pipelines.centrality.report import CentralityReport
from penstock.pipelines.centrality.sources import (
    Shares,
    error_bound,
    open_large,
    share_bytes,
    share_name,
    sum_share,
)
from penstock.pipelines.centrality.tasks import (
    REMEDY,
    CentralityTask,
    check_weights,
    compute_pieces,
    finish_graph,
)
from penstock.pipelines.job import Job, Workers
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.sizes import does_not_fit, plural

# A task has several pieces, some of which are read and written while one is computed: on a GPU,
# where a piece takes milliseconds, up to so many, on a core a few.
_PIECES_OF_GPU_TASK, _PIECES_OF_TASK = 64, 8
_TASKS_OF_WORKER = 8  # at least, so that the last ones are short


class CentralityJob(Job[CentralityReport]):
    """Centralities of all graphs of an input, or of one graph."""

    command = "penstock centrality"
    kind = KIND
    on_gpu = True

    def __init__(
        self,
        source: CentralityInput,
        out: Path,
        options: CentralityOptions,
        cluster: str | ClusterSpec | None,
        *,
        quiet: bool,
    ) -> None:
        super().__init__(out, options, cluster, quiet=quiet)
        self.source = source
        self.result = CentralityReport(str(out), list(options.names))

    def check(self) -> None:
        """Refuse what the graphs do not have, and what does not fit on the disk."""
        source, options = self.source, self.options
        if options.weighted and not source.has_weights:
            raise UsageError(
                f"{source.path} has no weights",
                remedy="Leave --weighted out, or give them to etl or in a column",
            )
        searched = () if isinstance(source, DirectoryInput) else (source.path,)
        refuse_own_input(self.out, [source.path], searched=searched)
        if options.sampled and not source.one:
            raise UsageError(
                "--samples and --epsilon are for one large graph",
                got=f"{source.path}, whose graphs have ids",
                remedy="Leave them out, or make the one graph a directory with penstock etl",
            )
        if source.directed and options.wanted & {"triangles"}:
            raise UsageError(
                "triangles are those of undirected graphs",
                got=f"{source.path}, which is directed",
                remedy="Take clustering, or read the graphs as undirected ones",
            )
        size, scratch = self._disk_bytes()
        self.need_disk(size, f"the centralities of {source.path}", scratch=scratch)

    def identity(self) -> dict[str, Any]:
        """Return the input."""
        return self.source.identity()

    def plan(self) -> Plan:
        """Say how the graphs would be cut into tasks, and what a task takes of its worker."""
        source, specs = self.source, self.source.specs
        most, there, problem = None, None, None
        where = "tables are surveyed first"
        how = f"{plural(len(source.files), 'file')}, surveyed first"
        if specs is not None:
            how = f"{plural(source.graphs, 'graph')} in {plural(len(specs), 'task')}"
            if source.one and self.options.wanted & OF_PATHS:
                shares = self._shares_of_one()
                how = f"{plural(len(shares.listed), 'source')} in {plural(shares.count, 'task')}"
            most = max((spec.bytes(self.options) for spec in specs), default=0)
            where = "on every worker"
            with self.workers(input_bytes=source.bytes) as workers:
                there = workers.task_capacity.worker_memory
                try:
                    self._refuse_too_large(workers, specs)
                except CapacityError as error:
                    problem = error
        return Plan(
            what=f"{', '.join(self.options.names)} of {source.path}",
            steps=(("compute", how),),
            memory=Need(most, there, where=where),
            disk=disk_need(self.out.parent, sum(self._disk_bytes())),
            problem=problem,
        )

    def work(self, partial: Output) -> None:
        """Compute what is not there yet, and write centrality.json."""
        writer = CentralityWriter(partial.pieces)
        with self.workers(input_bytes=self.source.bytes) as workers:
            began = time.monotonic()
            specs = self.source.prepare(workers, partial)
            self._refuse_too_large(workers, specs)
            task = CentralityTask(self.options, writer, workers.task_capacity.worker_memory)
            self.result.seconds_by_step["read"] = time.monotonic() - began
            began = time.monotonic()
            todo = [n for n in range(len(specs)) if not writer.done(n)]
            self.result.resumed_pieces = len(specs) - len(todo)
            missing = most_costly_first({n: specs[n] for n in todo})
            large = {n: spec for n, spec in missing.items() if spec.large}
            self._large(workers, task, large)
            self._pieces(workers, task, {n: missing[n] for n in missing if n not in large})
            self.result.seconds_by_step["compute"] = time.monotonic() - began
            self.result.devices = workers.capacity.text()
        self.source.check_unchanged()
        about = {
            **self.source.about(),
            "metrics": list(self.options.names),
            "options": self.given,
        }
        counted = save_manifest(writer, specs, self.source.failures, about)
        self.result.pieces = len(specs)
        for name in ("graphs", "nodes", "failed", "lost", "bytes"):
            setattr(self.result, name, counted[name])

    def report(self, seconds: float) -> CentralityReport:
        """Return what was computed."""
        self.result.seconds = seconds
        return self.result

    def _pieces(self, workers: Workers, task: CentralityTask, specs: dict[int, PieceSpec]) -> None:
        """Compute pieces in the order that they are given."""
        at_once = workers.task_capacity.tasks
        several = in_tasks(specs, at_once, on_gpu=workers.capacity.on_gpu)
        calls = [(task, each) for each in several]
        sizes = [sum(spec.graphs for _, spec in each) for each in several]
        workers.tasks("centrality", compute_pieces, calls, sizes, "graphs")

    def _large(self, workers: Workers, task: CentralityTask, specs: dict[int, PieceSpec]) -> None:
        """Compute shares of the sources of large graphs, then what follows from them."""
        if not specs:
            return
        options, records = self.options, task.writer.records
        sizes: dict[int, tuple[int, int, str | None]] = {}
        if isinstance(self.source, DirectoryInput) and self.source.one:
            self._refuse_bad_weights(workers, self.source.graph)
            sizes[0] = self.source.nodes, int(self.source.edges[0]), None
        else:
            calls = [(spec, n, records) for n, spec in specs.items()]
            work = [spec.items for spec in specs.values()]
            opened = workers.tasks(
                "open", open_large, calls, work, "edges", weighted=options.weighted
            )
            for n, (spec, *size) in zip(list(specs), opened, strict=True):
                specs[n], sizes[n] = spec, (size[0], size[1], size[2])
            self._refuse_too_large(workers, list(specs.values()))
        drawn, work, ends = [], [], []
        version = hashlib.sha256(str(self.identity()).encode()).hexdigest()
        for n, (nodes, edges, failed) in sizes.items():
            shares, listed = self._shares(nodes, edges), f"sources-{n:05d}.npy"
            save_npy(records.folder, listed, shares.listed)
            ends.append((task, n, specs[n], listed, shares.count))
            if failed is not None or not options.wanted & OF_PATHS:
                continue
            for share in range(shares.count):
                if records.done(share_name(n, share)):
                    self.result.resumed_pieces += 1
                    continue
                given = (specs[n], version, options, records, listed)
                drawn.append((*given, n, share, shares.count))
                work.append(len(shares.share(share)))
        workers.tasks("sources", sum_share, drawn, work, "sources")
        workers.tasks("finish", finish_graph, ends, [1] * len(ends), "graphs")

    def _shares(self, nodes: int, edges: int) -> Shares:
        if not self.options.wanted & OF_PATHS:
            return Shares(np.empty(0, np.int64), 0)
        shares = Shares.of(nodes, edges, self.options)
        if self.options.sampled:
            self.result.samples = len(shares.listed)
            self.result.error_bound = error_bound(nodes, len(shares.listed))
        return shares

    def _shares_of_one(self) -> Shares:
        """Return the shares of an input that is one graph."""
        edges = self.source.edges
        assert edges is not None
        return self._shares(self.source.nodes, int(edges[0]))

    def _refuse_bad_weights(self, workers: Workers, graph: Graph) -> None:
        if not self.options.weighted:
            return
        calls = [(str(graph.path), n) for n in range(graph.num_shards)]
        sizes = [shard.edges for shard in graph.manifest.shards]
        found = workers.tasks("weights", check_weights, calls, sizes, "edges")
        for number, wrong in enumerate(found):
            if wrong:
                raise InputError(
                    f"{graph.path} has weights that are no lengths",
                    expected="numbers that are not negative",
                    got=f"in shard {number}, {wrong}",
                )

    def _refuse_too_large(self, workers: Workers, specs: list[PieceSpec]) -> None:
        """Raise CapacityError where a piece does not fit into what a worker has."""
        if not specs:
            return
        most = max(specs, key=lambda spec: spec.bytes(self.options))
        what = f"a task of {most.graphs:,} graphs" if most.graphs > 1 else "one graph"
        if most.graphs == 1 and most.ids is not None:
            what = f"graph {most.ids[0].as_py()}"
        remedy = REMEDY
        if self.options.distances:
            what, remedy = f"{what} with its distances", f"{REMEDY}; or leave --distances out"
        needs, has = most.bytes(self.options), workers.task_capacity.worker_memory
        if needs > has:
            raise does_not_fit(what, "on a worker", needs, has, remedy=remedy)
        capacity = workers.capacity
        if capacity.on_gpu:
            needs = most.bytes(self.options, on_gpu=True)
            if needs > capacity.memory:
                raise capacity.too_small(what, needs, remedy="Take --device cpu, or a larger GPU")

    def _disk_bytes(self) -> tuple[int, int]:
        """Return about what the output takes, and what text and the sums of shares do."""
        source, options = self.source, self.options
        size = source.nodes * (source.id_bytes + 8 * len(options.wanted.intersection(NODE_METRICS)))
        if source.sizes is None or source.edges is None:
            return size, source.scratch_bytes
        edges = int(source.edges.sum())
        if "edge-betweenness" in options.wanted:
            rows = edges if source.directed else edges // 2
            size += rows * (2 * source.id_bytes + 8)
        if options.distances:
            size += matrix_bytes(source.sizes, options)
        if not source.one:
            return size, 0
        shares = self._shares_of_one()
        share = share_bytes(source.nodes, edges, options)
        return size, 8 * len(shares.listed) + shares.count * share


def most_costly_first(specs: dict[int, PieceSpec]) -> dict[int, PieceSpec]:
    """Return pieces by falling cost; those of about equal cost as they lie on the disk."""
    order = sorted(specs, key=lambda n: (-round(2 * math.log2(specs[n].cost + 1)), n))
    return {n: specs[n] for n in order}


def in_tasks(
    specs: dict[int, PieceSpec], at_once: int, *, on_gpu: bool
) -> list[list[tuple[int, PieceSpec]]]:
    """Pack pieces, in the order that they are given, into tasks, of which ``at_once`` run.

    On CPUs by cost: a task takes a share of what is left, and the last ones a piece each, so that
    no worker ends late.
    """
    listed = list(specs.items())
    share = _TASKS_OF_WORKER * at_once
    if on_gpu:
        size = min(max(len(listed) // share, 1), _PIECES_OF_GPU_TASK)
        return [listed[i : i + size] for i in range(0, len(listed), size)]
    found: list[list[tuple[int, PieceSpec]]] = []
    left = sum(spec.cost for spec in specs.values())
    remaining = 0.0
    for number, spec in listed:
        if not found or spec.cost > remaining or len(found[-1]) == _PIECES_OF_TASK:
            found.append([])
            remaining = left / share
        found[-1].append((number, spec))
        remaining, left = remaining - spec.cost, left - spec.cost
    return found
