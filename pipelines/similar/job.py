"""Everyone's nearest neighbours: one run of ``penstock similar --all``.

_neighbours.json      of which vectors, by what, and which files hold them; written last
part-00000.parquet    id, neighbour, score: a row a pair, ids in order, each one's nearest first
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.arrow import as_arrow, read_column, take
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, UsageError
from penstock.files import FileEntry, atomic, file_entry, file_table, part_name, save_npy
from penstock.formats import Format
from penstock.graph import load_npy
from penstock.kernels import kernel
from penstock.output import Output, Pieces
from penstock.pipelines.display import Command
from penstock.pipelines.job import Job, Workers
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.similar.options import SimilarOptions
from penstock.pipelines.similar.report import AllReport
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.vectors.store import as_ids
from penstock.sizes import plural
from penstock.vector_parts import save_table
from penstock.workers.plugin import resources
from penstock.workers.resources.device import to_device, to_host

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "neighbours"
FORMAT = Format(
    name="penstock-neighbours",
    version=1,
    file=f"_{KIND}.json",
    thing="directory of neighbours",
    make="Make one with penstock similar VECTORS --all OUT",
    restore="Restore the file, or search again with --overwrite",
)

# Files of so many ids follow from the job alone, so that any cluster writes the same.
_FILES = 64
_ROWS_OF_FILE = (1 << 10, 1 << 16)
_SCRATCH_ON_CPU, _SCRATCH_ON_GPU = 64 << 20, 2 << 30  # bytes, of blocks while they are searched
_gpu = threading.Lock()  # one task at a time computes there


@dataclass(frozen=True)
class SimilarTask:
    """One run, as its tasks see it.

    values, ids  files of the vectors and of their ids; version: of the vectors
    rows         ids a file
    """

    values: Path
    ids: Path
    version: str
    count: int
    rows: int
    k: int
    cosine: bool
    records: Pieces

    @property
    def files(self) -> int:
        """How many files."""
        return -(-self.count // self.rows)

    def range(self, number: int) -> tuple[int, int]:
        """Return the rows of a file: first, and one after the last."""
        return number * self.rows, min(self.count, (number + 1) * self.rows)


@dataclass(frozen=True, eq=False)
class _Kept:
    """Vectors as a worker keeps them between tasks."""

    values: AnyArray
    lengths: AnyArray
    ids: pa.Array
    nbytes: int


def find_neighbours(task: SimilarTask, number: int) -> None:
    """Find the neighbours of one file's ids and write them; runs on a worker."""
    first, last = task.range(number)
    with _held(task) as kept:
        skip = np.arange(first, last, dtype=np.int64)[:, None]
        with _gpu if hasattr(kept.values, "get") else nullcontext():
            found = kernel("neighbours", kept.values).nearest(
                kept.values[first:last], kept.values, task.k,
                cosine=task.cosine, skip=to_device(skip), lengths=kept.lengths,
            )  # fmt: skip
            rows, scores = map(to_host, found)
        entry = _save(task, number, kept.ids, np.broadcast_to(skip, rows.shape), rows, scores)
    counts = {"ids": last - first, "pairs": int(rows.size)}
    task.records.save(part_name(number), counts, [entry])


def _save(
    task: SimilarTask, number: int, ids: pa.Array, of: Array, rows: Array, scores: Array
) -> FileEntry:
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = f"{part_name(number)}.parquet"
    columns = {
        "id": take(ids, of.ravel()),
        "neighbour": take(ids, rows.ravel()),
        "score": as_arrow(scores.ravel()),
    }
    root = task.records.result
    with atomic(root / name) as temporary:
        pq.write_table(
            pa.table(columns), temporary, compression="zstd", use_dictionary=["id", "neighbour"]
        )
    return file_entry(root, name)


@contextmanager
def _held(task: SimilarTask) -> Iterator[_Kept]:
    with resources().cache.hold(
        ("vectors", str(task.values), task.version), lambda: _load(task)
    ) as kept:
        yield kept


def _load(task: SimilarTask) -> _Kept:
    values: AnyArray = load_npy(task.values)
    ids = as_ids(read_column(task.ids, "id"))
    if resources().device is not None:
        import cupy

        values = cupy.asarray(np.ascontiguousarray(values))
    lengths = kernel("neighbours", values).norms(values)
    mapped = 0 if isinstance(values, np.memmap) else values.nbytes
    return _Kept(values, lengths, ids, int(lengths.nbytes + mapped))


class SimilarJob(Job[AllReport]):
    """The nearest neighbours of every id."""

    command = "penstock similar"
    kind = KIND
    on_gpu = True

    def __init__(
        self,
        vectors: Vectors,
        out: Path,
        options: SimilarOptions,
        cluster: str | ClusterSpec | None,
        *,
        quiet: bool,
    ) -> None:
        super().__init__(out, options, cluster, quiet=quiet)
        self.vectors = vectors
        self.k = min(options.k, len(vectors) - 1)
        self.result = AllReport(str(out), options.metric, self.k, ids=len(vectors))

    def check(self) -> None:
        """Refuse what has no neighbours, and what does not fit on the disk."""
        if len(self.vectors) < 2:
            raise UsageError(
                f"{self.vectors.path} has {plural(len(self.vectors), 'vector')}",
                expected="two at least",
            )
        if self.out.resolve() == self.vectors.path.resolve():
            raise UsageError(f"--all {self.out} names the vectors themselves")
        size = self._disk_bytes()
        scratch = 0 if self._mapped() else self.vectors.values.nbytes
        self.need_disk(size, f"the neighbours of {len(self.vectors):,} ids", scratch=scratch)

    def identity(self) -> dict[str, Any]:
        """Return the vectors, as they are now."""
        return {"vectors": str(self.vectors.path), "version": self.vectors.digest}

    def plan(self) -> Plan:
        """Say how many files there would be, and what a worker needs."""
        with self._workers() as workers:
            problem, has = self._too_large(workers), workers.capacity
        task = self._task(Output.at(self.out))
        return Plan(
            what=f"{plural(self.k, 'neighbour')} of each of {len(self.vectors):,} ids, "
            f"{plural(task.files, 'file')}",
            steps=(("similar", f"by {self.options.metric}, exactly, on {has.text()}"),),
            memory=Need(self._memory(on_gpu=has.on_gpu), has.memory, f"on every {has.worker}"),
            disk=disk_need(self.out.parent, self._disk_bytes()),
            problem=problem,
        )

    def work(self, partial: Output) -> None:
        """Search the files that are not there yet, and write _neighbours.json."""
        import pyarrow as pa

        self.vectors.check_finite()
        task = self._task(partial)
        save_table(partial.scratch, task.ids.name, pa.table({"id": self.vectors.ids}))
        if not self._mapped():
            save_npy(partial.scratch, task.values.name, self.vectors.values)
        todo = [n for n in range(task.files) if not task.records.done(part_name(n))]
        with self._workers() as workers:
            if (problem := self._too_large(workers)) is not None:
                raise problem
            began = time.monotonic()
            sizes = [last - first for first, last in map(task.range, todo)]
            workers.tasks("similar", find_neighbours, [(task, n) for n in todo], sizes, "ids")
            self.result.seconds_by_step["similar"] = time.monotonic() - began
            self.result.devices = workers.capacity.text()
        files = [entry for n in range(task.files) for entry in task.records.load(part_name(n))[1]]
        body = {
            "vectors": str(self.vectors.path),
            "options": self.given,
            "metric": self.options.metric,
            "k": self.k,
            "ids": task.count,
            "files": file_table(files),
        }
        FORMAT.save(partial.result, body)
        if task.cosine:
            self.result.zeros = len(self.vectors) - int(_nonzero(self.vectors.values))
        self.result.files, self.result.resumed_files = task.files, task.files - len(todo)
        self.result.bytes = sum(file.bytes for file in files)

    def report(self, seconds: float) -> AllReport:
        """Return what was found."""
        self.result.seconds = seconds
        return self.result

    def following(self) -> list[Command]:
        """Return how a graph is made of the neighbours."""
        columns = ("--source", "id", "--target", "neighbour")
        return [("etl", self.out, self.out.with_name(f"{self.out.name}-graph"), *columns)]

    def _task(self, partial: Output) -> SimilarTask:
        count = len(self.vectors)
        low, high = _ROWS_OF_FILE
        mapped = self._mapped()
        return SimilarTask(
            values=partial.scratch / "vectors.npy" if mapped is None else mapped,
            ids=partial.scratch / "ids.parquet",
            version=str(self.vectors.digest),
            count=count,
            rows=min(max(-(-count // _FILES), low), high),
            k=self.k,
            cosine=self.options.metric == "cosine",
            records=partial.pieces,
        )

    def _mapped(self) -> Path | None:
        """Return the file in which the values lie as tasks can map them."""
        values = self.vectors.values
        name = getattr(values, "filename", None) if isinstance(values, np.memmap) else None
        return None if name is None else Path(name)

    def _workers(self) -> AbstractContextManager[Workers]:
        # Work grows with the square: it takes all processes before the input is large.
        return self.workers(input_bytes=len(self.vectors) * self.vectors.values.nbytes >> 12)

    def _memory(self, *, on_gpu: bool) -> int:
        values = self.vectors.values.nbytes if on_gpu else 0  # a CPU only maps them
        return 8 * len(self.vectors) + values + (_SCRATCH_ON_GPU if on_gpu else _SCRATCH_ON_CPU)

    def _too_large(self, workers: Workers) -> CapacityError | None:
        """Return the error of vectors that do not fit on a worker, None where they do."""
        has = workers.capacity
        needs = self._memory(on_gpu=has.on_gpu)
        if needs <= has.memory:
            return None
        remedy = "Search on the CPU with --device cpu, where vectors are only mapped"
        if not has.on_gpu:
            remedy = "Give workers more memory with --memory-limit, or start fewer with -n"
        return has.too_small(f"{len(self.vectors):,} vectors", needs, remedy=remedy)

    def _disk_bytes(self) -> int:
        """Return what ids, once each, neighbours and scores take: compressed it is less."""
        width = self.vectors.ids.nbytes // max(len(self.vectors), 1)
        return int(len(self.vectors) * (width + self.k * (width + 4)))


def _nonzero(values: Array) -> int:
    step = 1 << 16
    return sum(
        int(values[start : start + step].any(axis=1).sum()) for start in range(0, len(values), step)
    )
