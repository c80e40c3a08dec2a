"""The size of each graph's team in a batch, and the position of the team's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import AnyArray, Array, DeviceArray
from penstock.csr import CSR
from penstock.kernels.centrality_rules import SCRATCH, GraphBatch
from penstock.kernels.cuda.centrality.items import Items, by_size
from penstock.kernels.cuda.module import launch_blocks
from penstock.kernels.cuda.transpose import transpose
from penstock.kernels.cuda.uploads import to_gpu

NULL = np.uint64(0)
_BUSY = 2  # items per multiprocessor; a batch of more graphs has one item per graph
_WARPS = 8  # graphs of a block, one per warp
_SUM_BYTES = 24  # of a node of an item
_THREADS = 2048  # the most that a multiprocessor runs at a time


@dataclass(frozen=True)
class Teams:
    """How graphs of up to ``nodes`` nodes are computed.

    threads   of a block; 0: one warp per graph
    sources   searched from at once, one lane each
    anywhere  the memory is scratch, as it does not fit in a block
    """

    nodes: int
    threads: int
    sources: int
    anywhere: bool = False


LARGEST = Teams(1 << 31, 1024, 32, anywhere=True)


def run(
    file: str,
    kernel: str,
    arguments: Callable[[Teams], str],
    items: Array,
    classes: tuple[Teams, ...],
    memory: Callable[[Teams, int], int],
    given: tuple[Any, ...],
    outputs: tuple[Any, ...],
    *flags: bool,
    stash: Callable[[Teams, int], int] | None = None,
) -> None:
    """Run ``kernel<arguments(teams), WARP, GLOBAL, *flags>`` over items, one launch per size class.

    classes  by size; those whose memory exceeds a block's are skipped, and the last one is cut to
             fit
    memory   bytes of a graph of a given number of nodes
    stash    additional bytes of device memory per team, for such a graph
    """
    fits = that_fit(classes, memory)
    for number, chosen in by_size(items, tuple(each.nodes for each in fits)):
        teams = fits[number] if number < len(fits) else LARGEST
        most = int(chosen["nodes"].max())
        size = memory(teams, most)
        blocks = _blocks(len(chosen), teams)
        more: tuple[Any, ...] = ()
        each = 0 if stash is None else stash(teams, most)
        if teams.anywhere:
            blocks = min(blocks, processors(), max(1, SCRATCH // (size + each)))
        if stash is not None:
            # Only as many as run at a time: each continues with another item.
            blocks = min(blocks, _running(teams, 0 if teams.anywhere else size))
            more = (cp.empty(blocks * _teams_a_block(teams) * each, cp.uint8), np.int64(each))
        scratch = cp.empty(blocks * size, cp.uint8) if teams.anywhere else NULL
        rest = words(not teams.threads, teams.anywhere, *flags)
        instance = f"{kernel}<{arguments(teams)}, {rest}>"
        launch_teams(
            file, instance, chosen, teams, size, (*given, *more, scratch), outputs, blocks=blocks
        )


def launch_teams(
    file: str,
    instance: str,
    items: Array,
    teams: Teams,
    size: int,
    given: tuple[Any, ...],
    outputs: tuple[Any, ...],
    *,
    blocks: int | None = None,
) -> None:
    """Run ``instance(items, count, *given, size, *outputs)``, with ``size`` bytes per team."""
    launch_blocks(
        file,
        instance,
        blocks or _blocks(len(items), teams),
        teams.threads or 32 * _WARPS,
        to_gpu(items.view(np.uint8)),
        np.int64(len(items)),
        *given,
        np.int64(size),
        *outputs,
        shared=0 if teams.anywhere else size * _teams_a_block(teams),
    )


def that_fit(classes: tuple[Teams, ...], memory: Callable[[Teams, int], int]) -> tuple[Teams, ...]:
    """Return the classes whose memory fits in a block, the last one cut to fit."""
    if not classes:
        return ()
    limit, last = shared_memory(), classes[-1]
    fits = [
        each for each in classes[:-1] if memory(each, each.nodes) * _teams_a_block(each) <= limit
    ]
    per_node = memory(last, 1 << 20) / (1 << 20)
    most = int((limit - memory(last, 0)) / per_node) - 1
    return (*fits, replace(last, nodes=min(last.nodes, max(most, fits[-1].nodes))))


def _teams_a_block(teams: Teams) -> int:
    return 1 if teams.threads else _WARPS


def _blocks(items: int, teams: Teams) -> int:
    return -(-items // _teams_a_block(teams))


def _running(teams: Teams, size: int) -> int:
    threads = teams.threads or 32 * _WARPS
    each = min(_THREADS // threads, shared_memory() // max(size * _teams_a_block(teams), 1))
    return max(each, 1) * processors()


def words(*flags: bool) -> str:
    """Return flags as arguments of a template."""
    return ", ".join("true" if flag else "false" for flag in flags)


def padded(size: int) -> int:
    """Return the next multiple of 16 bytes, where a graph's memory begins."""
    return -(-size // 16) * 16


def summed(planned: Items, values: DeviceArray, nodes: int) -> DeviceArray:
    """Return one value per node: the sum over its items, in their order."""
    found = values[:nodes]
    for owners, slots in planned.parts:
        found[cp.asarray(owners)] += values[cp.asarray(slots)]
    return found


def sources_of(batch: GraphBatch, sources: DeviceArray | None) -> tuple[Array, Array, DeviceArray]:
    """Return on the host the starts of graphs and of their sources, and the sources in order."""
    ptr = cp.asnumpy(batch.ptr)
    if sources is None:
        return ptr, ptr, cp.arange(batch.nodes, dtype=cp.int64)
    listed = cp.sort(cp.asarray(sources, cp.int64))
    return ptr, cp.asnumpy(cp.searchsorted(listed, cp.asarray(batch.ptr))), listed


def incoming(batch: GraphBatch) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """Return the transposed CSR with its weights: the CSR itself if edges are stored both ways."""
    if not batch.directed:
        return batch.indptr, batch.indices, batch.weights
    rows = CSR(batch.indptr, batch.indices, weights=batch.weights)
    (into,) = transpose([rows], weighted=True)
    return into.indptr, into.indices, into.weights


def busy(batch: GraphBatch) -> int:
    """Return the number of items that keep the GPU busy, and whose sums fit."""
    fits = SCRATCH // max(_SUM_BYTES * batch.nodes, 1) * batch.graphs
    return max(1, min(_BUSY * processors(), fits))


def processors() -> int:
    """Return the number of multiprocessors of the GPU."""
    return _attribute("MultiProcessorCount")


def shared_memory() -> int:
    """Return the most bytes of shared memory of a block."""
    return _attribute("MaxSharedMemoryPerBlockOptin")


def _attribute(name: str) -> int:
    return _attributes(cp.cuda.Device().id)[name]


@cache
def _attributes(device: int) -> dict[str, int]:
    """Return a device's attributes: each time CuPy queries a hundred from the driver."""
    return {name: int(value) for name, value in cp.cuda.Device(device).attributes.items()}
