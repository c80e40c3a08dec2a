"""One run of ``penstock centrality``: what it checks, and how its graphs are computed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrow import read_column
from penstock.cluster.spec import ClusterSpec
from penstock.errors import InputError, UsageError
from penstock.files import save_npy
from penstock.graph import Graph
from penstock.pipelines.centrality.options import OF_PATHS, CentralityOptions
from penstock.pipelines.centrality.output import KIND, CentralityWriter, save_manifest
from penstock.pipelines.centrality.pieces import Zoo
from penstock.pipelines.centrality.report import CentralityReport
from penstock.pipelines.centrality.sources import Shares, error_bound, sum_share
from penstock.pipelines.centrality.tasks import (
    CentralityTask,
    check_weights,
    compute_piece,
    finish_graph,
)
from penstock.pipelines.job import Job, Workers
from penstock.pipelines.job.partial import PartialOutput
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.sizes import need_disk

_LISTED = "sources.npy"
_ITEM_BYTES = 40  # of a node or an edge while a piece is computed, its arrays on the way included


class CentralityJob(Job[CentralityReport]):
    """Centralities of all graphs of a zoo, or of one graph."""

    command = "penstock centrality"
    kind = KIND
    on_gpu = True

    def __init__(
        self,
        graph: Graph,
        out: Path,
        options: CentralityOptions,
        cluster: ClusterSpec,
        *,
        quiet: bool,
    ) -> None:
        super().__init__(out, options, cluster, quiet=quiet)
        self.graph, self.version = graph, graph.digest
        self.zoo = Zoo.of(graph)
        self.one = graph.manifest.graphs is None
        starts = np.array([shard.start for shard in graph.manifest.shards], np.int64)
        self.pieces = [(0, 1)] if self.one else self.zoo.pieces(starts)
        self.result = CentralityReport(str(out), list(options.names))

    def check(self) -> None:
        """Refuse what the graph does not have, and what does not fit on the disk."""
        manifest, options = self.graph.manifest, self.options
        if options.weighted and "weights" not in manifest.dtypes:
            raise UsageError(
                f"{self.graph.path} has no weights",
                remedy="Leave --weighted away, or give them to etl",
            )
        if options.sampled and not self.one:
            raise UsageError(
                "--samples and --epsilon are for one large graph",
                got=f"a zoo of {manifest.graphs:,} graphs",
            )
        if manifest.directed and options.wanted & {"triangles"}:
            raise UsageError(
                "triangles are those of undirected graphs",
                got=f"{self.graph.path}, which is directed",
                remedy="Take clustering, or make the graph with etl --undirected",
            )
        need_disk(
            self.out.parent, self._disk_bytes(), f"the centralities of {self.zoo.graphs} graphs"
        )

    def identity(self) -> dict[str, Any]:
        """Return the graph."""
        return {"graph": str(self.graph.path), "version": self.version}

    def plan(self) -> Plan:
        """Say how the graphs would be cut into tasks, and what a task takes."""
        items = self.zoo.edges + np.diff(self.zoo.ptr)
        if self.one:
            shares = Shares.of(self.graph, self.options)
            how = f"{len(shares.listed):,} sources in {shares.count} tasks"
            most = int(items.sum())
        else:
            how = f"{self.zoo.graphs:,} graphs in {len(self.pieces)} tasks"
            most = max((int(items[first:stop].sum()) for first, stop in self.pieces), default=0)
        return Plan(
            command=self.command,
            out=str(self.out),
            what=f"{', '.join(self.options.names)} of {self.graph.num_nodes:,} nodes",
            steps=(("compute", how),),
            memory=Need(most * _ITEM_BYTES, where="for every task that runs"),
            disk=disk_need(self.out.parent, self._disk_bytes()),
        )

    def amount(self) -> tuple[str, float]:
        """Return what all shortest paths cost."""
        paths = "paths" if self.options.wanted & OF_PATHS else "edges"
        cost = float(self.zoo.costs.sum()) if paths == "paths" else float(self.graph.num_edges)
        return f"centrality of {paths}", cost

    def work(self, partial: PartialOutput) -> None:
        """Compute what is not there yet, and write centrality.json."""
        writer = CentralityWriter(partial.records)
        task = CentralityTask(self.graph.path, self.version, self.options, writer)
        size = sum(entry.bytes for entry in self.graph.manifest.files.values())
        with self.workers(input_bytes=size) as workers:
            began = time.monotonic()
            (self._one_graph if self.one else self._zoo)(workers, task)
            self.result.stage_seconds["compute"] = time.monotonic() - began
            self.result.devices = workers.capacity.text()
        ids: Any = None
        if not self.one:
            ids = read_column(self.graph.path / "graphs.parquet", "id").combine_chunks()
        about = {
            "graph": str(self.graph.path),
            "graph_sha256": self.version,
            "metrics": list(self.options.names),
            "options": self.given,
        }
        counted = save_manifest(writer, len(self.pieces), ids, about)
        self.result.parts = len(self.pieces)
        for name in ("graphs", "nodes", "failed", "bytes"):
            setattr(self.result, name, counted[name])

    def report(self, seconds: float) -> CentralityReport:
        """Return what was computed."""
        self.result.seconds = seconds
        return self.result

    def _zoo(self, workers: Workers, task: CentralityTask) -> None:
        """Compute the pieces, the most costly first, so that no worker ends late."""
        costs = self.zoo.costs
        todo = [
            n for n in range(len(self.pieces)) if not (self.options.resume and task.write.done(n))
        ]
        self.result.resumed_parts = len(self.pieces) - len(todo)
        todo.sort(key=lambda n: -float(costs[slice(*self.pieces[n])].sum()))
        calls = [(task, n, *self.pieces[n]) for n in todo]
        sizes = [stop - first for _, _, first, stop in calls]
        workers.tasks("centrality", compute_piece, calls, sizes, "graphs")

    def _one_graph(self, workers: Workers, task: CentralityTask) -> None:
        """Compute shares of the sources, then what follows from them."""
        graph, records = self.graph, task.write.records
        if self.options.weighted:
            calls = [(str(graph.path), n) for n in range(graph.num_shards)]
            sizes = [shard.edges for shard in graph.manifest.shards]
            for number, wrong in enumerate(
                workers.tasks("weights", check_weights, calls, sizes, "edges")
            ):
                if wrong:
                    raise InputError(
                        f"{graph.path} has weights that are no lengths",
                        expected="numbers that are not negative",
                        got=f"in shard {number}, {wrong}",
                    )
        shares = Shares.of(graph, self.options)
        if self.options.sampled:
            self.result.samples = len(shares.listed)
            self.result.error_bound = error_bound(graph.num_nodes, len(shares.listed))
        save_npy(records.folder, _LISTED, shares.listed)
        if self.options.wanted & OF_PATHS:
            numbers = range(shares.count)
            done = [n for n in numbers if self.options.resume and records.done(f"share-{n:05d}")]
            self.result.resumed_parts = len(done)
            todo = sorted(set(numbers) - set(done))
            given = (graph.path, self.version, self.options, records, _LISTED)
            drawn = [(*given, n, shares.count) for n in todo]
            sizes = [len(shares.share(n)) for n in todo]
            workers.tasks("centrality", sum_share, drawn, sizes, "sources")
        workers.tasks("finish", finish_graph, [(task, _LISTED, shares.count)], [1], "graphs")

    def _disk_bytes(self) -> int:
        """Return about what the output and the sums of shares take."""
        columns = len(self.options.names) + 2
        size = self.graph.num_nodes * 8 * columns
        if "edge-betweenness" in self.options.wanted:
            size += self.graph.num_edges * 24
        if self.options.distances:
            each = 8 if self.options.weighted else 4
            size += int((np.diff(self.zoo.ptr).astype(np.float64) ** 2).sum()) * each
        if self.one:
            shares = Shares.of(self.graph, self.options)
            size += shares.count * 5 * 8 * self.graph.num_nodes
        return size
