"""Walks on a graph in parts, one on each rank of a gang.

Walks go in waves. Every rank makes the walkers that start on its nodes. Then, in rounds, it moves
the walkers on its part as far as possible, and all ranks exchange those that leave their part,
until none is left. Each rank then knows some nodes of each path, and every node is known to one
rank; they send them to the ranks that write them.

Draws are counted, so neither parts nor waves nor order of arrival matter: the walks are those on
the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.csr import id_dtype
from penstock.errors import UsageError
from penstock.kernels import kernel
from penstock.kernels.walk_rules import Owned, Walkers, WalkGraph
from penstock.kernels.walkers import join, pack, start_walkers, unpack
from penstock.partition.manifest import PartitionManifest
from penstock.partition.part import Part, Partition, part_folder
from penstock.workers.plugin import resources
from penstock.workers.resources.device import to_device, to_host
from penstock.workers.walk.rows import WalkGraphSpec
from penstock.workers.walk.waves import PartitionedWalk, Wave, waves

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator


def walk_part(comm: AnyCommunicator, task: PartitionedWalk) -> None:
    """Walk as one rank of a gang: ``gang.run(client, walk_part, (task,), ranks=k)``.

    Progress counts walks, at the rank where they end. A wave is written while the next one walks.
    """
    with _opened(comm, task) as here, ThreadPoolExecutor(1) as aside:
        writing: list[Future[None]] = []
        for wave in waves(task, comm.size, here.rows.indices.itemsize):
            known = _walk_wave(comm, task, here, wave)
            paths = to_host(_gather(comm, known, wave.bounds))
            del known
            _finish(writing)
            writing = [
                aside.submit(task.write, number, task.files.range(number)[0], paths[rows])
                for number, rows in wave.files_of(comm.rank)
            ]
        _finish(writing)


def _finish(writing: list[Future[None]]) -> None:
    for future in writing:
        future.result()  # raises its error


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Here:
    """What one rank holds; ``assignment`` is in host memory."""

    rows: WalkGraph
    owned: Owned
    assignment: Array


@contextmanager
def _opened(comm: AnyCommunicator, task: PartitionedWalk) -> Iterator[_Here]:
    k = PartitionManifest.load(task.partition).k
    if k != comm.size:
        raise UsageError(
            f"{task.partition} has {k} parts, but the gang has {comm.size} ranks",
            remedy=f"Make a partition with penstock partition GRAPH -k {comm.size}",
        )
    names = part_folder(comm.rank), "assignment.npy", "local.npy"
    with resources().copies.hold(task.partition, *names) as path:
        partition = Partition.open(path)
        ids = id_dtype(partition.manifest.nodes)
        columns = graph_columns(partition.part(comm.rank), task.spec, ids)
        columns |= _node_columns(comm, partition, task.spec)
        yield _Here(
            task.spec.build(columns, _put),
            Owned(comm.rank, _put(partition.assignment), _put(partition.local)),
            partition.assignment,
        )


def _put(array: AnyArray) -> AnyArray:
    return to_device(np.asarray(array))


def graph_columns(part: Part, spec: WalkGraphSpec, ids: np.dtype[Any]) -> dict[str, Array]:
    """Return the columns that a spec needs of a part's rows, in the graph's order.

    Neighbours are ids of the whole graph.
    """
    csr, module = part.csr, kernel("halo", part.csr.indices)
    indices, order = module.global_rows(csr.indptr, csr.indices, part.global_ids.astype(ids))
    read = {"weights": spec.weighted, "relations": spec.relations, "times": spec.times}
    columns = {name: column[order] for name, column in csr.columns() if read[name]}
    return {"indptr": np.asarray(csr.indptr), "indices": indices, **columns}


def _node_columns(
    comm: AnyCommunicator, partition: Partition, spec: WalkGraphSpec
) -> dict[str, Array]:
    """Return the values of all nodes that expressions need; the ranks share them."""
    part, columns = partition.part(comm.rank), {}
    if spec.degrees:
        columns["degrees"] = np.zeros(partition.manifest.nodes, np.int32)
        columns["degrees"][part.owned] = part.csr.degrees()
    if spec.labels:
        columns["labels"] = np.full(partition.manifest.nodes, np.iinfo(np.int32).min)
        columns["labels"][part.owned] = np.asarray(part.labels(), np.int32)
    for column in columns.values():
        comm.allreduce(column, "max")
    return columns


# -- walks -----------------------------------------------------------------------------------------


def _walk_wave(comm: AnyCommunicator, task: PartitionedWalk, here: _Here, wave: Wave) -> AnyArray:
    rules, ids = task.spec.rules, here.rows.indices.dtype
    ranges = [task.files.range(number) for number, _ in wave.files]
    walks = np.concatenate([task.starts.numbers(*each) for each in ranges])
    starts = np.concatenate([task.starts.of(*each) for each in ranges])
    mine = np.flatnonzero(here.assignment[starts] == comm.rank)
    slots, nodes = to_device(mine), to_device(starts[mine])
    walkers = start_walkers(to_device(walks[mine]), slots, nodes, ids, comm.rank)
    shape = (wave.bounds[-1], rules.length)
    paths = np.full_like(here.rows.indices, -1, shape=shape)
    paths[slots, 0] = nodes
    module = kernel("walk", here.rows.indptr)
    while True:
        module.advance(here.rows, rules, here.owned, walkers, paths)
        comm.advance(int((walkers.to < 0).sum()))
        arrived = exchange_walkers(comm, walkers)
        if arrived is None:
            return paths
        walkers = arrived


def exchange_walkers(comm: AnyCommunicator, walkers: Walkers) -> Walkers | None:
    """Send each walker to its next rank; return the received ones.

    None if no rank has sent any: all have ended.
    """
    records = pack(walkers)
    outgoing = [records[walkers.to == rank] for rank in range(comm.size)]
    counts = [len(each) for each in outgoing]
    # Every rank learns how many come from each, and whether any rank sends any.
    came = comm.alltoall(np.array([(count, sum(counts)) for count in counts], np.int64))
    if not came[:, 1].any():
        return None
    words = records.shape[1]
    incoming = [np.empty_like(records, shape=(int(count), words)) for count in came[:, 0]]
    comm.alltoallv(outgoing, incoming)
    ids = walkers.node.dtype
    return join([unpack(each, ids) for each in incoming])


def _gather(comm: AnyCommunicator, paths: AnyArray, bounds: Sequence[int]) -> AnyArray:
    outgoing = [paths[low:high] for low, high in pairwise(bounds)]
    mine = bounds[comm.rank + 1] - bounds[comm.rank], paths.shape[1]
    incoming = [np.empty_like(paths, shape=mine) for _ in range(comm.size)]
    comm.alltoallv(outgoing, incoming)
    whole = incoming[0]
    for part in incoming[1:]:
        np.maximum(whole, part, out=whole)  # unknown nodes are -1
    return whole
