"""A complete job: how many nodes have how many edges, counted by tasks or by ranks.

    python example_job.py GRAPH OUT [--parts 2] [--plan]

OUT/degrees.json   what was counted, of which graph, and the files that hold it
OUT/degrees.npy    nodes of degree 0, 1, 2, ...
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import App, Parameter
from pydantic import Field

from penstock.cluster.spec import ClusterSpec
from penstock.errors import InputError
from penstock.files import file_table, save_npy
from penstock.formats import Format
from penstock.graph import Graph
from penstock.options import ClientPath, options
from penstock.partition.part import Partition
from penstock.pipelines.job import Job, Workers, run_command
from penstock.pipelines.job.partial import PartialOutput, Records
from penstock.pipelines.job.plan import Need, Plan, PlanFlag, disk_need
from penstock.pipelines.output import CountsReport, Output


@options
class DegreeOptions:
    """Options of the job."""

    parts: Annotated[int | None, Field(ge=1)] = None
    """count on so many ranks, each with a part of the graph [default: on tasks]"""
    resume: Annotated[bool, Parameter(negative="")] = False
    """go on where an interrupted run of the same command stopped"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace the output if it holds degrees already"""


# -- the work: given paths and numbers, so that it can run again --------------------------------


def count_shard(graph: str, number: int, records: Records) -> None:
    """Count one shard and write its piece, then the record that it is whole; runs on a worker."""
    counts = np.bincount(np.diff(Graph.open(graph).shard(number).indptr))
    piece = f"shard-{number:05d}"
    save_npy(records.folder, f"{piece}.npy", counts)
    records.save(piece, {"nodes": int(counts.sum())}, [])


def count_part(comm: Any, partition: Path) -> Any:
    """Count one part, and add up with the other ranks; runs as a rank of a gang."""
    part = Partition.open(partition).part(comm.rank)
    degrees = np.diff(part.csr.indptr)[: len(part.owned)]
    counts = np.zeros(max(comm.allgather(int(degrees.max(initial=0)))) + 1, np.int64)
    counts += np.bincount(degrees, minlength=len(counts))
    return comm.allreduce(counts)


# -- the job: what it checks, plans, does and tells ----------------------------------------------
FORMAT = Format(
    "example-degrees", 1, "degrees.json", "directory of degrees",
    make="Make one with example_job.py", restore="Count again with --overwrite",
)  # fmt: skip


@dataclass
class DegreeReport(CountsReport):
    """What is told after a run."""

    out: str
    nodes: int
    highest: int
    resumed: int
    seconds: float

    def text(self) -> str:
        """Return what a person wants to read."""
        return f"{self.out}: {self.nodes:,} nodes, degrees up to {self.highest:,}"


class DegreeJob(Job[DegreeReport]):
    """Counts degrees."""

    command, kind = "example_job.py", "degrees"
    resumed = 0

    def __init__(self, graph: Path, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.graph, self.shards = Graph.open(graph), range(Graph.open(graph).num_shards)
        self.bytes = 8 * self.graph.num_nodes * (1 + len(self.shards))

    def check(self) -> None:
        if self.graph.num_edges == 0:
            raise InputError(f"{self.graph.path} has no edges", expected="a graph with some")
        self.need_disk(self.bytes, "the degrees")

    def identity(self) -> dict[str, Any]:
        return {"graph": str(self.graph.path), "version": self.graph.digest}

    def plan(self) -> Plan:
        k = self.options.parts
        where = f"{k} ranks, a part each" if k else f"{len(self.shards)} tasks, a shard each"
        what, disk = f"degrees of {self.graph.num_nodes:,} nodes", disk_need(self.out, self.bytes)
        return Plan(what, (("count", where),), Need(None), disk)

    def work(self, partial: PartialOutput) -> None:
        with self.workers(ranks=self.options.parts) as workers:
            if k := self.options.parts:
                path = workers.partition(self.graph, k)
                self.counts = workers.ranks(count_part, lambda: (path,), ranks=k)[0]
            else:
                self.counts = self.on_tasks(workers, partial.records)
        entry = save_npy(partial.result, "degrees.npy", self.counts)
        about = {"graph": str(self.graph.path), "graph_sha256": self.graph.digest}
        FORMAT.save(partial.result, {**about, "options": self.given, "files": file_table([entry])})

    def on_tasks(self, workers: Workers, records: Records) -> Any:
        todo = [i for i in self.shards if not records.done(f"shard-{i:05d}")]
        self.resumed = len(self.shards) - len(todo)
        sizes = [self.graph.manifest.shards[i].edges for i in todo]
        calls = [(str(self.graph.path), i, records) for i in todo]
        workers.tasks("count", count_shard, calls, sizes, "edges")
        pieces = [np.load(records.folder / f"shard-{i:05d}.npy") for i in self.shards]
        longest = max(map(len, pieces))
        return sum(np.pad(counts, (0, longest - len(counts))) for counts in pieces)

    def report(self, seconds: float) -> DegreeReport:
        nodes, highest = int(self.counts.sum()), len(self.counts) - 1
        return DegreeReport(str(self.out), nodes, highest, self.resumed, seconds)


def command(
    graph: ClientPath, out: ClientPath, /, *,
    options: DegreeOptions = DegreeOptions(), cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False, output: Output = Output(),
) -> None:  # fmt: skip
    """Count how many nodes of a graph have how many edges."""
    run_command(DegreeJob(graph, out, options, cluster, quiet=output.quiet), output, planned=plan)


if __name__ == "__main__":
    App(default_command=command, result_action="return_value")(sys.argv[1:])
