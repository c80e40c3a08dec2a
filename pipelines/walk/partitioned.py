"""Walks on a graph that lies in parts, one on each rank of a gang."""

from __future__ import annotations

from typing import Any

from penstock.cluster import gang
from penstock.errors import CapacityError, GangError
from penstock.graph import Graph
from penstock.partition.manifest import PartitionManifest
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.job.parts import partition_into
from penstock.pipelines.walk.replicated import WalkJob
from penstock.sizes import format_bytes
from penstock.workers.walk.partitioned import walk_part
from penstock.workers.walk.waves import PartedWalk, memory_needed

# A rank that dies takes its world with it; parts that are written stay, and the rest is made anew.
_RETRIES = 2


def walk_partitioned(
    client: Any, job: WalkJob, todo: list[int], room: Capacity, *, ranks: int | None, quiet: bool
) -> None:
    """Walk the parts ``todo`` of the output on the ranks of ``client``'s MPI world."""
    k = ranks or room.workers
    path = partition_into(Graph.open(job.graph), k, quiet=quiet)
    needed = memory_needed(PartitionManifest.load(path), job.recipe, per_part=job.parts.per_part)
    if needed > room.memory:
        where = "GPU" if room.on_gpu else "worker"
        raise CapacityError(
            f"a part of {job.graph} and its walks do not fit on a {where}",
            expected=f"{format_bytes(needed)} for the largest of {k} parts",
            got=format_bytes(room.memory),
            remedy="Cut the graph into more parts, with more ranks (-n), or give workers more "
            "memory with --memory-limit",
        )
    left = todo
    for attempt in range(_RETRIES + 1):
        task = PartedWalk(
            path,
            job.recipe,
            job.starts,
            job.parts.walks,
            job.parts.per_part,
            tuple(left),
            job.write,
        )
        try:
            gang.run(
                client, walk_part, (task,),
                ranks=k, title="walk", total=_walks(job, left), unit="walks", quiet=quiet,
            )  # fmt: skip
            return
        except GangError as error:
            if attempt == _RETRIES or not error.may_retry:
                raise
            left = [number for number in left if not job.write.done(number)]


def _walks(job: WalkJob, numbers: list[int]) -> int:
    return sum(last - first for first, last in map(job.parts.range, numbers))
