"""A complete job, by tasks or ranks: example_job.py GRAPH OUT [--parts 2] [--plan] [--resume]."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import App
from pydantic import Field

from penstock.files import file_table, save_npy
from penstock.formats import Format
from penstock.graph import Graph
from penstock.options import options
from penstock.output import Output, Pieces
from penstock.partition.part import Partition
from penstock.pipelines.display import JobReport
from penstock.pipelines.job.declare import Context, job

FORMAT = Format("example-degrees", 1, "degrees.json", "directory of degrees")


@options
class DegreeOptions:
    parts: Annotated[int | None, Field(ge=1)] = None
    """count on this many ranks, each with a part of the graph [default: on tasks]"""


@dataclass
class DegreeReport(JobReport):
    out: str
    nodes: int
    resumed: int

    def lines(self) -> list[str]:
        return [f"{self.out}: degrees of {self.nodes:,} nodes"]


def count_shard(graph: str, number: int, pieces: Pieces) -> None:
    """Count one shard and write its piece, then the record that it is whole; runs on a worker."""
    counts = np.bincount(np.diff(Graph.open(graph).shard(number).indptr))
    save_npy(pieces.folder, f"shard-{number}.npy", counts)
    pieces.save(f"shard-{number}", {}, [])


def count_part(comm: Any, partition: Path) -> Any:
    """Count one part, and add up with the other ranks; runs as a rank of a gang."""
    part = Partition.open(partition).part(comm.rank)
    degrees = np.diff(part.csr.indptr)[: len(part.owned)]
    most = max(comm.allgather(int(degrees.max(initial=0))))
    return comm.allreduce(np.bincount(degrees, minlength=most + 1))


@job("degrees", writes="degrees")
def degrees(context: Context, graph: Graph, out: Output, options: DegreeOptions) -> DegreeReport:
    """Count how many nodes of a graph have how many edges."""
    k, shards, pieces = options.parts, range(graph.num_shards), out.pieces
    where = f"{k} ranks, one part each" if k else f"{len(shards)} tasks"
    context.plan(f"degrees of {graph.num_nodes:,} nodes", steps=(("count", where),), disk=1 << 20)
    workers, todo = context.workers(ranks=k), [i for i in shards if not pieces.done(f"shard-{i}")]
    if k:
        path = workers.partition(graph, k)
        counts = workers.ranks(count_part, lambda: (path,), ranks=k)[0]
    else:
        sizes = [graph.manifest.shards[i].edges for i in todo]
        calls = [(str(graph.path), i, pieces) for i in todo]
        workers.tasks("count", count_shard, calls, sizes, "edges")
        found = [np.load(pieces.folder / f"shard-{i}.npy") for i in shards]
        counts = sum(np.pad(each, (0, max(map(len, found)) - len(each))) for each in found)
    entry = save_npy(out.result, "degrees.npy", counts)
    out.describe(FORMAT, {"options": out.options, "files": file_table([entry])})
    return DegreeReport(str(out.named), int(counts.sum()), len(shards) - len(todo))


if __name__ == "__main__":
    App(default_command=degrees.command, result_action="return_value")(sys.argv[1:])
