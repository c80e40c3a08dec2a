"""Nearest neighbours of all ids: one run of ``penstock similar --all``.

_neighbours.json      the vectors, the metric, and the files; written last
part-00000.parquet    id, neighbour, score: one row per pair, ids in order, each one's nearest first
_index.*              the index of an approximate search, which a later run brings forward
"""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.arrow import as_arrow, one_array, read_column, take
from penstock.errors import UsageError
from penstock.files import (
    FileEntry,
    FileRanges,
    file_table,
    part_name,
    save_npy,
)
from penstock.formats import Format
from penstock.graph import load_npy
from penstock.kernels import kernel
from penstock.output import Output, Pieces
from penstock.pipelines.candidates import rows_of_file
from penstock.pipelines.display import FromBase
from penstock.pipelines.job.declare import Context
from penstock.pipelines.job.plan import Need
from penstock.pipelines.similar.approximate import IDS, INDEX, Index
from penstock.pipelines.similar.base import SimilarBase, save_vectors
from penstock.pipelines.similar.options import SimilarOptions
from penstock.pipelines.similar.report import AllReport
from penstock.pipelines.similar.some import chosen_rows, rows_among
from penstock.pipelines.tables.sources import stamp_of
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.vectors.indexes import index_bytes
from penstock.pipelines.vectors.store import as_ids
from penstock.sizes import plural
from penstock.vector_parts import save_table
from penstock.workers.plugin import resources
from penstock.workers.resources.device import to_device, to_host
from penstock.writer import write_table

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = Format(
    name="penstock-neighbours",
    version=1,
    file="_neighbours.json",
    thing="directory of neighbours",
    make="Make one with penstock similar VECTORS --all OUT",
    restore="Restore the file, or search again with --overwrite",
)

_FILES, _ROWS_OF_FILE = 64, (1 << 10, 1 << 16)
_SCRATCH_ON_CPU, _SCRATCH_ON_GPU = 64 << 20, 2 << 30  # bytes of blocks during the search
_gpu = threading.Lock()  # one task at a time computes there


@dataclass(frozen=True)
class SimilarTask:
    """One run, for its tasks.

    values, ids  files of the vectors and of their ids
    version      of the vectors and of the candidates
    among        file of the rows that may be neighbours; None: all
    index        file of the rows of the keys of their index; None: all pairs are compared
    base         earlier neighbours
    """

    values: Path
    ids: Path
    version: str
    files: FileRanges
    k: int
    cosine: bool
    pieces: Pieces
    among: Path | None = None
    index: Path | None = None
    base: SimilarBase | None = None


@dataclass(frozen=True, eq=False)
class _Kept:
    """Vectors that a worker keeps between tasks.

    chosen  the rows of candidates, None: all; near, lengths  their vectors, and their lengths
    """

    values: AnyArray
    chosen: Array | None
    near: AnyArray
    lengths: AnyArray
    ids: pa.Array
    nbytes: int

    def search(self, task: SimilarTask, rows: Array, among: Array | None) -> tuple[Array, Array]:
        """Return the nearest of rows and their scores, among all candidates or some."""
        on_gpu = hasattr(self.values, "get")
        with _gpu if on_gpu else nullcontext():
            queries = self.values[to_device(rows) if on_gpu else rows]
            near, lengths, skip = self.near, self.lengths, rows_among(rows, self.chosen)
            if among is not None:
                chosen = to_device(among) if on_gpu else among
                near, lengths, skip = near[chosen], lengths[chosen], rows_among(rows, among)
            found = kernel("neighbours", near).nearest(
                queries,
                near,
                task.k,
                cosine=task.cosine,
                skip=to_device(skip[:, None]) if on_gpu else skip[:, None],
                lengths=lengths,
            )
            at, scores = map(to_host, found)
        return (at if among is None else np.where(at >= 0, among[at], -1)), scores


def find_neighbours(task: SimilarTask, number: int) -> None:
    """Find the neighbours of one file's ids and write them; runs on a worker."""
    first, last = task.files.range(number)
    made = last - first
    key = ("vectors", str(task.values), task.version, task.index is None)
    with resources().cache.hold(key, lambda: _load(task)) as kept:
        of = np.arange(first, last, dtype=np.int64)
        if task.index is not None:  # mapped by every task: usearch does not share it among threads
            queries, skip = kept.values[first:last], rows_among(of, kept.chosen)[:, None]
            index = _open_index(task, kept.values.shape[1])
            rows, scores = index.search(queries, kept.near, task.k, skip, kept.lengths)
        elif task.base is not None:
            rows, scores, made = task.base.merge(first, last, partial(kept.search, task))
        else:
            rows, scores = kept.search(task, of, None)
        there = rows >= 0
        if kept.chosen is not None:
            rows = kept.chosen[rows]
        pairs = np.broadcast_to(of[:, None], rows.shape)[there], rows[there], scores[there]
        entry = _save(task, number, kept.ids, *pairs)
    count = int(there.sum())
    counts = {"ids": last - first, "pairs": count, "made": made}
    task.pieces.save(part_name(number), counts, [entry])


def _save(
    task: SimilarTask, number: int, ids: pa.Array, of: Array, rows: Array, scores: Array
) -> FileEntry:
    import pyarrow as pa

    columns = {"id": take(ids, of), "neighbour": take(ids, rows), "score": as_arrow(scores)}
    name, repeated = f"{part_name(number)}.parquet", ["id", "neighbour"]
    table = pa.table(columns)
    return write_table(task.pieces.result, name, [table], use_dictionary=repeated)


def _load(task: SimilarTask) -> _Kept:
    values: AnyArray = load_npy(task.values)
    ids = as_ids(read_column(task.ids, "id"))
    on_gpu = resources().device is not None and task.index is None
    if on_gpu:
        import cupy

        values = cupy.asarray(np.ascontiguousarray(values))
    chosen, near = None, values
    if task.among is not None:
        chosen = np.array(load_npy(task.among))
        near = values[to_device(chosen) if on_gpu else chosen]
    lengths = kernel("neighbours", near).norms(near)
    held = (values, *(() if chosen is None else (near,)), lengths)
    size = sum(0 if isinstance(one, np.memmap) else one.nbytes for one in held)
    return _Kept(values, chosen, near, lengths, ids, int(size))


def write_neighbours(
    context: Context, vectors: Vectors, out: Output, options: SimilarOptions
) -> AllReport:
    """Search for the missing files."""
    import pyarrow as pa

    count, mapped = len(vectors), vectors.mapped
    if count < 2:
        raise UsageError(f"{vectors.path} has {plural(count, 'vector')}", expected="at least two")
    if mapped is None or mapped.suffix != ".npy":  # so that tasks can map them
        mapped = None
    low, high = _ROWS_OF_FILE
    file = options.candidates
    among = None if file is None else rows_of_file(file, vectors.ids)
    stamps = vectors.stamps() | ({} if file is None else {str(file): stamp_of(str(file))})
    near = count - 1 if among is None else len(among)
    task = SimilarTask(
        values=mapped or out.scratch / "vectors.npy",
        ids=out.scratch / "ids.parquet",
        version=str(stamps),
        files=FileRanges(count, min(max(-(-count // _FILES), low), high)),
        k=min(options.k, near),
        cosine=options.metric == "cosine",
        pieces=out.pieces,
        among=None if among is None else out.scratch / "candidates.npy",
        index=out.scratch / "keys.npy" if options.approximate else None,
    )
    # Work grows with the square: all processes are worthwhile before the input is large.
    workers = context.workers(input_bytes=count * vectors.values.nbytes >> 12)
    has = workers.capacity
    width = vectors.ids.nbytes // count
    how, indexed = "exactly", 0
    if options.approximate:
        how, indexed = "by an HNSW index", index_bytes(near, vectors.dimension, cosine=task.cosine)
    files = plural(task.files.count, "file")
    remedy = "Give workers more memory with --memory-limit, or start fewer with -n"
    scratch = _SCRATCH_ON_CPU
    if has.on_gpu:
        scratch = _SCRATCH_ON_GPU + vectors.values.nbytes
        remedy = "Search on the CPU with --device cpu, which only maps the vectors"
    context.plan(
        f"{plural(task.k, 'neighbour')} of each of {count:,} ids, {files}",
        steps=(("similar", f"by {options.metric}, {how}, on {has.text()}"),),
        memory=Need(
            8 * count + indexed + scratch, has.memory, f"on every {has.worker}", remedy=remedy
        ),
        # Ids, once each, neighbours and scores, without compression.
        disk=count * (width + task.k * (width + 4)) + indexed,
        scratch=0 if mapped else vectors.values.nbytes,
    )
    vectors.check_finite()
    save_table(out.scratch, task.ids.name, pa.table({"id": vectors.ids}))
    if mapped is None:
        save_npy(out.scratch, task.values.name, vectors.values)
    values, own = chosen_rows(vectors.values, np.arange(count), among)
    if among is not None:
        save_npy(out.scratch, "candidates.npy", among)
    began, indexed_by = time.monotonic(), None
    if task.index is not None:
        indexed_by = _save_index(task, options.index, vectors, values, among, quiet=context.quiet)
    indexing = time.monotonic() - began
    kept = vectors.values
    if options.base is not None:
        given = task, vectors, options.tolerance
        base, kept = SimilarBase.open(options.base, *given, out.scratch)
        task = replace(task, base=base)
    todo = [n for n in range(task.files.count) if not task.pieces.done(part_name(n))]
    began = time.monotonic()
    calls = [(task, n) for n in todo]
    workers.tasks("similar", find_neighbours, calls, task.files.sizes(todo), "ids")
    searching, recall = time.monotonic() - began, None
    if task.index is not None:
        index = _open_index(task, vectors.dimension)
        recall = index.recall(vectors.values, values, task.k, own[:, None])
    pieces = [*map(part_name, range(task.files.count)), *(["index"] if task.index else [])]
    entries = [entry for piece in pieces for entry in task.pieces.load(piece)[1]]
    if not options.approximate and among is None:
        tolerant = kept if options.tolerance else None
        entries.append(save_vectors(task.pieces.result, vectors, tolerant))
    made = [task.pieces.load(part_name(n))[0]["made"] for n in range(task.files.count)]
    about = {
        "vectors": str(vectors.path),
        "options": out.options,
        "metric": options.metric,
        "k": task.k,
        "ids": count,
        "dimension": vectors.dimension,
        **({} if recall is None else {"recall": recall}),
        "files": file_table(entries),
    }
    out.describe(FORMAT, about)
    return AllReport(
        str(out.named),
        options.metric,
        task.k,
        ids=count,
        zeros=int(np.count_nonzero(~vectors.values.any(axis=1))) if task.cosine else 0,
        files=task.files.count,
        resumed_files=task.files.count - len(todo),
        bytes=sum(file.bytes for file in entries),
        devices=has.text(),
        seconds_by_step={"similar": searching, **({"index": indexing} if task.index else {})},
        recall=recall,
        index=indexed_by,
        from_base=None if task.base is None else FromBase("ids", count - sum(made), sum(made)),
    )


def _save_index(
    task: SimilarTask,
    before: Path | None,
    vectors: Vectors,
    values: Array,
    among: Array | None,
    *,
    quiet: bool,
) -> dict[str, int]:
    """Write the index of values and the rows of its keys; return what differs from before."""
    assert task.index is not None
    if task.pieces.done("index"):
        return task.pieces.load("index")[0]
    earlier = None if before is None else _earlier_index(before, task, vectors, among)
    index, counts = Index.built(values, earlier, cosine=task.cosine, quiet=quiet)
    save_npy(task.index.parent, task.index.name, index.rows)
    ids = vectors.ids if among is None else take(vectors.ids, among)
    task.pieces.save("index", counts, index.save(task.pieces.result, ids))
    return counts


def _earlier_index(
    before: Path, task: SimilarTask, vectors: Vectors, among: Array | None
) -> tuple[Path, Array]:
    """Return the file of an earlier index, and the row of each of its keys among these vectors."""
    body = FORMAT.load(before)
    with FORMAT.reading(before):
        same = (body["metric"] == "cosine") == task.cosine
        same = same and body["dimension"] == vectors.dimension
    if INDEX not in FORMAT.files(before, body, sums=True):
        raise UsageError(f"{before} has no index", remedy="Name an output of --approximate")
    rows = rows_among(vectors.find(one_array(read_column(before / IDS, "id"))), among)
    if not same or (rows < 0).all():
        raise UsageError(
            f"the index of {before} belongs to other vectors",
            expected=f"the metric, the dimension and some of the ids of {vectors.path}",
            remedy="Leave --index out, to build a new one",
        )
    return before / INDEX, rows


def _open_index(task: SimilarTask, dimension: int) -> Index:
    assert task.index is not None
    index = Index.of(load_npy(task.index), dimension, cosine=task.cosine)
    index.found.view(str(task.pieces.result / INDEX))
    return index
