"""A complete job: how many nodes have how many edges, counted by tasks or by ranks.

    python example_job.py GRAPH OUT [--parts 2] [--plan] [--resume]

OUT/degrees.json   what was counted, of which graph, and the files that hold it
OUT/degrees.npy    nodes of degree 0, 1, 2, ...
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import App
from pydantic import Field

from penstock.errors import InputError
from penstock.files import file_table, save_npy
from penstock.formats import Format
from penstock.graph import Graph
from penstock.options import options
from penstock.output import Output, Pieces
from penstock.partition.part import Partition
from penstock.pipelines.display import JobReport
from penstock.pipelines.job.declare import Context, job

FORMAT = Format(
    "example-degrees", 1, "degrees.json", "directory of degrees",
    make="Make one with example_job.py", restore="Count again with --overwrite",
)  # fmt: skip


@options
class DegreeOptions:
    """Options of the job."""

    parts: Annotated[int | None, Field(ge=1)] = None
    """count on this many ranks, each with a part of the graph [default: on tasks]"""


@dataclass
class DegreeReport(JobReport):
    """What is printed after a run."""

    out: str
    nodes: int
    highest: int
    resumed: int

    def lines(self) -> list[str]:
        """Return what a person wants to read."""
        return [f"{self.out}: {self.nodes:,} nodes, degrees up to {self.highest:,}"]


def count_shard(graph: str, number: int, pieces: Pieces) -> None:
    """Count one shard and write its piece, then the record that it is whole; runs on a worker."""
    counts = np.bincount(np.diff(Graph.open(graph).shard(number).indptr))
    save_npy(pieces.folder, f"shard-{number}.npy", counts)
    pieces.save(f"shard-{number}", {"nodes": int(counts.sum())}, [])


def count_part(comm: Any, partition: Path) -> Any:
    """Count one part, and add up with the other ranks; runs as a rank of a gang."""
    part = Partition.open(partition).part(comm.rank)
    degrees = np.diff(part.csr.indptr)[: len(part.owned)]
    counts = np.zeros(max(comm.allgather(int(degrees.max(initial=0)))) + 1, np.int64)
    counts += np.bincount(degrees, minlength=len(counts))
    return comm.allreduce(counts)


@job("degrees", writes="degrees")
def degrees(context: Context, graph: Graph, out: Output, options: DegreeOptions) -> DegreeReport:
    """Count how many nodes of a graph have how many edges."""
    if graph.num_edges == 0:
        raise InputError(f"{graph.path} has no edges", expected="a graph with some")
    k, shards, pieces = options.parts, range(graph.num_shards), out.pieces
    context.plan(
        f"degrees of {graph.num_nodes:,} nodes",
        steps=(("count", f"{k} ranks, a part each" if k else f"{len(shards)} tasks"),),
        disk=8 * graph.num_nodes * (1 + len(shards)),
    )
    workers = context.workers(ranks=k)
    todo = [i for i in shards if not pieces.done(f"shard-{i}")]
    if k:
        path = workers.partition(graph, k)
        counts = workers.ranks(count_part, lambda: (path,), ranks=k)[0]
    else:
        sizes = [graph.manifest.shards[i].edges for i in todo]
        calls = [(str(graph.path), i, pieces) for i in todo]
        workers.tasks("count", count_shard, calls, sizes, "edges")
        found = [np.load(pieces.folder / f"shard-{i}.npy") for i in shards]
        longest = max(map(len, found))
        counts = sum(np.pad(each, (0, longest - len(each))) for each in found)
    entry = save_npy(out.result, "degrees.npy", counts)
    about = {"graph": str(graph.path), "options": out.options, "files": file_table([entry])}
    out.describe(FORMAT, about)
    resumed = len(shards) - len(todo)
    return DegreeReport(str(out.named), int(counts.sum()), len(counts) - 1, resumed)


if __name__ == "__main__":
    App(default_command=degrees.command, result_action="return_value")(sys.argv[1:])
