"""How large a team each graph of a batch gets, and where the team's memory lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.kernels.centrality_rules import GraphBatch
from penstock.kernels.cuda.centrality.items import Items, by_size
from penstock.kernels.cuda.module import launch_blocks

C_IDS = {"int32": "int", "int64": "long long"}
NULL = np.uint64(0)
_BUSY = 8  # items a multiprocessor
_WARPS = 8  # graphs of a block that a warp each takes


@dataclass(frozen=True)
class Teams:
    """How graphs of up to ``nodes`` nodes are computed.

    threads   of a block; 0: a warp a graph
    sources   that are searched from at once, a lane each
    anywhere  the memory is in scratch, as it does not fit in a block
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
) -> None:
    """Run ``kernel<arguments(teams), WARP, GLOBAL, *flags>`` over items, a launch a size class.

    classes  by size; those whose memory a block does not have are left away, and the last one is
             cut to what it has
    memory   bytes of a graph of so many nodes
    """
    room = _attribute("MaxSharedMemoryPerBlockOptin")
    fits = [each for each in classes[:-1] if _block_bytes(each, memory) <= room]
    last = classes[-1]
    per_node = memory(last, 1 << 20) / (1 << 20)
    most = int((room - memory(last, 0)) / per_node) - 1
    fits.append(replace(last, nodes=min(last.nodes, max(most, fits[-1].nodes))))
    for number, chosen in by_size(items, tuple(each.nodes for each in fits)):
        teams = fits[number] if number < len(fits) else LARGEST
        size = memory(teams, int(chosen["nodes"].max()))
        warp = teams.threads == 0
        blocks = -(-len(chosen) // _WARPS) if warp else len(chosen)
        scratch: Any = NULL
        if teams.anywhere:
            blocks = min(blocks, processors())
            scratch = cp.empty(blocks * size, cp.uint8)
        words = ["true" if flag else "false" for flag in (warp, teams.anywhere, *flags)]
        launch_blocks(
            file,
            f"{kernel}<{arguments(teams)}, {', '.join(words)}>",
            blocks,
            32 * _WARPS if warp else teams.threads,
            cp.asarray(chosen.view(np.uint8)),
            np.int64(len(chosen)),
            *given,
            scratch,
            np.int64(size),
            *outputs,
            shared=0 if teams.anywhere else size * (_WARPS if warp else 1),
        )


def padded(size: int) -> int:
    """Return the next multiple of 16 bytes, at which a graph's memory begins."""
    return -(-size // 16) * 16


def _block_bytes(teams: Teams, memory: Callable[[Teams, int], int]) -> int:
    return memory(teams, teams.nodes) * (_WARPS if teams.threads == 0 else 1)


def summed(planned: Items, values: DeviceArray, nodes: int) -> DeviceArray:
    """Return a value a node: the sum of those that several items have, in their order."""
    found = values[:nodes]
    for owners, slots in planned.parts:
        found[cp.asarray(owners)] += values[cp.asarray(slots)]
    return found


def sources_of(batch: GraphBatch, sources: DeviceArray | None) -> tuple[Array, Array, DeviceArray]:
    """Return on the host where graphs and their sources begin, and the sources in order."""
    ptr = cp.asnumpy(batch.ptr)
    if sources is None:
        return ptr, ptr, cp.arange(batch.nodes, dtype=cp.int64)
    listed = cp.sort(cp.asarray(sources, cp.int64))
    return ptr, cp.asnumpy(cp.searchsorted(listed, cp.asarray(batch.ptr))), listed


def incoming(batch: GraphBatch) -> tuple[DeviceArray, DeviceArray, DeviceArray | None]:
    """Return the transposed CSR with its weights: its own where every edge is there both ways."""
    if not batch.directed:
        return batch.indptr, batch.indices, batch.weights
    edges = cp.arange(len(batch.indices), dtype=cp.int64)
    rows = cp.searchsorted(batch.indptr, edges, side="right") - 1
    indptr = cp.zeros(batch.nodes + 1, cp.int64)
    indptr[1:] = cp.cumsum(cp.bincount(batch.indices, minlength=batch.nodes)[: batch.nodes])
    order = cp.argsort(batch.indices, kind="stable")
    weights = None if batch.weights is None else batch.weights[order]
    return indptr, rows[order].astype(batch.indices.dtype), weights


def busy() -> int:
    """Return of how many items the GPU has enough to do."""
    return _BUSY * processors()


def processors() -> int:
    """Return how many multiprocessors the GPU has."""
    return _attribute("MultiProcessorCount")


def _attribute(name: str) -> int:
    return int(cp.cuda.Device().attributes[name])
