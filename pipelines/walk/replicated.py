"""Walks on workers that each hold the whole graph: plain tasks, a few files each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.kernels.walk_rules import WalkGraph
from penstock.limits import cores
from penstock.partition.threads import spread
from penstock.pipelines.job import Workers
from penstock.pipelines.walk.output import OutputFiles, WalkWriter
from penstock.pipelines.walk.starts import Starts
from penstock.workers.plugin import Resources, resources
from penstock.workers.walk.rows import WalkGraphSpec

# On a GPU walks of a file take milliseconds, and writing it most of a second: a task has several
# files, whose writing takes all cores, so that tasks of one process take turns.
_FILES_OF_GPU_TASK = 16
_turn = threading.Lock()


@dataclass(frozen=True)
class WalkTask:
    """One run, as its tasks see it.

    version  of the graph, so that a worker never takes rows of an older one for it
    """

    graph: Path
    version: str
    spec: WalkGraphSpec
    starts: Starts
    files: OutputFiles
    write: WalkWriter


def walk_replicated(workers: Workers, task: WalkTask, todo: list[int]) -> None:
    """Walk the files ``todo`` on workers that each have the whole graph."""
    size = _FILES_OF_GPU_TASK if workers.capacity.on_gpu else 1
    calls = [(task, todo[i : i + size]) for i in range(0, len(todo), size)]
    sizes = [task.files.walks_of(numbers) for _, numbers in calls]
    workers.tasks("walk", walk_files, calls, sizes, "walks")


def walk_files(job: WalkTask, numbers: list[int]) -> None:
    """Walk some files and write each; runs on a worker."""
    with held_rows(job.graph, job.version, job.spec) as rows:
        if hasattr(rows.indptr, "get"):
            # Paths are copied out of the pinned buffers, which the next walks are waiting for.
            made = ((n, first, paths.copy()) for n, first, paths in _on_gpu(job, rows, numbers))
            with _turn:
                spread(lambda file: job.write(*file), made, cores())
            return
        for number in numbers:
            first, last = job.files.range(number)
            walks = np.arange(first, last, dtype=np.int64)
            starts = job.starts.of(first, last)
            paths = kernel("walk", rows.indptr).walk(rows, job.spec.rules, walks, starts)
            job.write(number, first, paths)


def _on_gpu(job: WalkTask, rows: WalkGraph, numbers: list[int]) -> Iterator[tuple[int, int, Any]]:
    """Yield the files' walks one by one; the next ones walk meanwhile."""
    from penstock.kernels.cuda.stream import batches

    ranges = [job.files.range(number) for number in numbers]
    walks = np.concatenate([np.arange(*each, dtype=np.int64) for each in ranges])
    starts = np.concatenate([job.starts.of(*each) for each in ranges])
    # Only the job's last file is shorter, so batches are files.
    walked = batches(rows, job.spec.rules, walks, starts, job.files.walks_per_file)
    for number, (first, _), (_, paths) in zip(numbers, ranges, walked, strict=True):
        yield number, first, paths


@dataclass(frozen=True, eq=False)
class _Kept:
    """A walk graph as a worker's cache keeps it; what is only mapped counts for nothing."""

    rows: WalkGraph
    nbytes: int


@contextmanager
def held_rows(graph: Path, version: str, spec: WalkGraphSpec) -> Iterator[WalkGraph]:
    """Give the rows of a graph, which this worker keeps for the tasks to come."""
    held = resources()
    key = ("walk rows", str(graph), version, spec)
    with held.cache.hold(key, lambda: _load(held, graph, spec)) as kept:
        yield kept.rows


def _load(held: Resources, path: Path, spec: WalkGraphSpec) -> _Kept:
    graph = Graph.open(held.stage(path))
    put: Any = np.asarray
    if held.device is not None:
        import cupy

        put = cupy.asarray
    columns = columns_of(graph, spec)
    size = spec.bytes(graph.num_nodes, graph.num_edges, columns["indices"].itemsize)
    return _Kept(spec.build(columns, put), size)


def columns_of(graph: Graph, spec: WalkGraphSpec) -> dict[str, Any]:
    """Return the columns of a graph that a spec reads."""
    columns: dict[str, Any] = dict(graph.csr().arrays())
    if spec.degrees:
        columns["degrees"] = np.diff(columns["indptr"]).astype(np.int32)
    if spec.labels:
        columns["labels"] = np.asarray(graph.labels(), np.int32)
    return columns
