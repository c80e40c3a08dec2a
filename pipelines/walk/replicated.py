"""Walks on workers that each hold the whole graph: plain tasks, a few files each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.files import FileRanges
from penstock.kernels import kernel
from penstock.kernels.walk_rules import WalkGraph
from penstock.limits import cores
from penstock.pipelines.job.workers import Workers
from penstock.pipelines.walk.base import Base
from penstock.pipelines.walk.output import WalkWriter
from penstock.threads import spread
from penstock.workers.walk.held import held_rows
from penstock.workers.walk.rows import WalkGraphSpec
from penstock.workers.walk.starts import Starts

# On a GPU walks of a file take milliseconds, and writing it most of a second: a task has several
# files, whose writing uses all cores, so tasks of one process take turns.
_FILES_OF_GPU_TASK = 16
_turn = threading.Lock()


@dataclass(frozen=True)
class WalkTask:
    """One run, for its tasks.

    version  of the graph, so that a worker never uses rows of an older one
    base     yesterday's walks
    """

    graph: Path
    version: str
    spec: WalkGraphSpec
    starts: Starts
    files: FileRanges
    write: WalkWriter
    base: Base | None = None


def walk_replicated(workers: Workers, task: WalkTask, todo: list[int]) -> None:
    """Walk the files ``todo`` on workers that each have the whole graph."""
    size = _FILES_OF_GPU_TASK if workers.capacity.on_gpu else 1
    calls = [(task, todo[i : i + size]) for i in range(0, len(todo), size)]
    sizes = [sum(task.files.sizes(numbers)) for _, numbers in calls]
    workers.tasks("walk", walk_files, calls, sizes, "walks")


def walk_files(job: WalkTask, numbers: list[int]) -> None:
    """Walk some files and write each; runs on a worker."""
    if job.base is not None:
        numbers = [number for number in numbers if not _linked(job, job.base, number)]
    if not numbers:
        return
    with held_rows(job.graph, job.version, job.spec) as rows:
        if hasattr(rows.indptr, "get"):
            # Copy paths out of the pinned buffers, which the next walks need.
            made = ((n, first, paths.copy()) for n, first, paths in _on_gpu(job, rows, numbers))
            with _turn:
                spread(lambda file: job.write(*file), made, cores())
            return
        for number in numbers:
            first, last = job.files.range(number)
            walks = job.starts.numbers(first, last)
            starts = job.starts.of(first, last)
            paths = kernel("walk", rows.indptr).walk(rows, job.spec.rules, walks, starts)
            job.write(number, first, paths)


def _linked(job: WalkTask, base: Base, number: int) -> bool:
    """Return whether a file of walks is that of the base, and now a link to it."""
    first, last = job.files.range(number)
    if base.internal != (job.write.graph is None):
        return False
    there = base.part(number, first, last, job.starts.count, npy=job.write.npy)
    if there is None:
        return False
    job.write.link(number, base.path, *there)
    return True


def _on_gpu(job: WalkTask, rows: WalkGraph, numbers: list[int]) -> Iterator[tuple[int, int, Any]]:
    """Yield the files' walks one by one; the next ones walk meanwhile."""
    from penstock.kernels.cuda.stream import batches

    ranges = [job.files.range(number) for number in numbers]
    walks = np.concatenate([job.starts.numbers(*each) for each in ranges])
    starts = np.concatenate([job.starts.of(*each) for each in ranges])
    # Only the job's last file is shorter, so batches are files.
    walked = batches(rows, job.spec.rules, walks, starts, job.files.each)
    for number, (first, _), (_, paths) in zip(numbers, ranges, walked, strict=True):
        yield number, first, paths
