"""Walks as an array in this process, for notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype
from penstock.errors import UsageError, warn
from penstock.graph import Graph
from penstock.limits import available_memory
from penstock.pipelines.walk.choice import SamplerChoice, check_graph, choose
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.starts import checked_count, listed_starts, named
from penstock.pipelines.walk.weights import inspect_weights
from penstock.sizes import need_memory
from penstock.temporary import TemporaryFolder
from penstock.workers.resources.device import computes_on_gpu, gpu, unused_gpu
from penstock.workers.walk.held import columns_of, walk_on_threads
from penstock.workers.walk.starts import numbers_of


def array_of_walks(graph: Any, options: WalkOptions, device: str) -> Array:
    """Return the walks of ``options`` as (walks, length) internal ids."""
    if isinstance(graph, CSR):
        with TemporaryFolder("penstock-walk") as folder:
            return _walked(on_disk(graph, folder / "graph"), options, device)
    return _walked(graph if isinstance(graph, Graph) else Graph.open(graph), options, device)


def _walked(graph: Graph, options: WalkOptions, device: str) -> Array:
    if options.in_parts:
        raise UsageError(
            "walk_array walks a whole graph, in this process",
            got="parts" if options.parts else "placement='partitioned'",
            remedy="Use penstock.walk, which walks a graph in parts, and writes the walks to disk",
        )
    if options.npy:
        raise UsageError("walk_array writes no files, and has no option npy")
    check_graph(graph, options)
    on_gpu = _wanted_gpu(device)
    listed = listed_starts(graph, options)
    nodes = np.arange(graph.num_nodes) if listed is None else listed
    starts = np.tile(nodes.astype(id_dtype(graph.num_nodes)), options.walks)
    checked_count(len(nodes), options.walks, graph.num_nodes)
    numbers = numbers_of(np.arange(len(starts)), len(nodes), None if named(options) else nodes)
    need_memory(
        len(starts) * options.length * starts.itemsize,
        f"an array of {len(starts):,} walks of {options.length} nodes",
        remedy="Request fewer walks at a time, or use penstock.walk, which writes them to disk",
    )
    statistics = inspect_weights(None, graph, options)
    choice = choose(graph, options, statistics, available_memory() // 2)
    if choice.instead:
        warn(choice.instead)
    if on_gpu:
        return _on_gpu(graph, choice, numbers, starts)
    rows = choice.spec.build(columns_of(graph, choice.spec))
    paths = np.empty((len(starts), options.length), starts.dtype)
    walk_on_threads(rows, choice.spec.rules, numbers, starts, paths)
    return paths


def _wanted_gpu(device: str) -> bool:
    """Return whether to walk on this process' GPU; warn with the reason if it has an unused one."""
    if device != "auto":
        return computes_on_gpu(device)
    unused = unused_gpu()
    if unused is not None:
        warn(
            f"walks are computed on the CPU, although {unused.host} has a GPU: {unused.reason}. "
            f"{unused.remedy}, or give device='cpu'"
        )
    return gpu()


def _on_gpu(graph: Graph, choice: SamplerChoice, numbers: Array, starts: Array) -> Array:
    import cupy

    from penstock.kernels.cuda.stream import batches

    rows = choice.spec.build(columns_of(graph, choice.spec), cupy.asarray)
    rules = choice.spec.rules
    paths = np.empty((len(starts), rules.length), starts.dtype)
    for first, made in batches(rows, rules, numbers, starts):
        paths[first : first + len(made)] = made
    return paths


def on_disk(csr: CSR, path: Path) -> Graph:
    """Return a graph of these rows at ``path``."""
    with Graph.create(path) as writer:
        writer.edges(csr)
        writer.nodes()
    return Graph.open(path)
