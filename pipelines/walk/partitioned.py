"""Walks on a graph in parts, one on each rank of a gang."""

from __future__ import annotations

from pathlib import Path

from penstock.files import FileRanges
from penstock.graph import Graph
from penstock.partition.manifest import PartitionManifest
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.job.plan import Need
from penstock.pipelines.job.workers import Workers
from penstock.pipelines.walk.replicated import WalkTask
from penstock.workers.walk.partitioned import walk_part
from penstock.workers.walk.rows import WalkGraphSpec
from penstock.workers.walk.waves import PartitionedWalk, memory_of_part

_REMEDY = (
    "Cut the graph into more parts, with more ranks (-n), or give workers more memory with "
    "--memory-limit"
)


def need_of_part(path: Path, spec: WalkGraphSpec, files: FileRanges, has: Capacity) -> Need:
    """Return what a rank needs for the largest part and its walks."""
    size = memory_of_part(PartitionManifest.load(path), spec, files)
    return Need(size, has.memory, f"on every {has.worker}", remedy=_REMEDY)


def walk_partitioned(
    workers: Workers, graph: Graph, task: WalkTask, todo: list[int], *, ranks: int | None
) -> None:
    """Walk the files ``todo`` of the output on ranks; a lost rank's files are walked again."""
    has = workers.capacity
    k = ranks or has.workers
    path = workers.partition(graph, k)
    problem = need_of_part(path, task.spec, task.files, has).problem(f"{task.graph} in {k} parts")
    if problem is not None:
        raise problem

    def left() -> tuple[int, ...]:
        return tuple(number for number in todo if not task.write.done(number))

    def arguments() -> tuple[PartitionedWalk]:
        return (PartitionedWalk(path, task.spec, task.starts, task.files, left(), task.write),)

    workers.ranks(
        walk_part,
        arguments,
        ranks=k,
        title="walk",
        total=lambda: sum(task.files.sizes(left())),
        unit="walks",
    )
