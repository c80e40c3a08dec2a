"""``penstock embed answer``: the best answers to many questions, as tasks.

_answers.json         of which run, by which options, and which files hold them; written last
part-00000.parquet    question, head, relation, tail, rank, score: one row per answer, best first
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_column
from penstock.errors import InputError, UsageError
from penstock.files import FileRanges, file_table, part_name, save_npy
from penstock.formats import Format
from penstock.kernels.embed_rules import Side
from penstock.output import Output
from penstock.pipelines.embed.options import AnswerOptions
from penstock.pipelines.embed.prediction import prediction_task, relation_number
from penstock.pipelines.embed.report import AnswerReport
from penstock.pipelines.embed.run import Run
from penstock.pipelines.job.declare import Context, RunFolder
from penstock.pipelines.job.plan import Need
from penstock.pipelines.tables.read import read_columns
from penstock.sizes import plural
from penstock.workers.embed.evaluation.evaluate import SHOWN, unknown
from penstock.workers.embed.evaluation.predict import (
    BLOCK,
    QUESTIONS,
    AnswerTask,
    answer_questions,
)
from penstock.workers.embed.source import BLOCK_BYTES
from penstock.workers.embed.storage.versions import Checkpoints
from penstock.workers.embed.warm import IDS

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = Format(
    name="penstock-answers",
    version=1,
    file="_answers.json",
    thing="directory of answers",
    make="Make one with penstock embed answer RUN OUT",
    restore="Restore the file, or ask again with --overwrite",
)
_FILES, _ROWS_OF_FILE = 64, (1 << 8, 1 << 14)
_ANSWER = 40  # bytes on the disk, about
_MEMORY = 500_000_000  # of a process


def answer_all(
    context: Context, folder: RunFolder, out: Output, options: AnswerOptions
) -> AnswerReport:
    """Answer the questions of the files that are not there yet."""
    at, run = folder.path, Run.load(folder.path)
    asked = prediction_task(folder, run, options)
    questions, skipped = _questions(at, run, options)
    low, high = _ROWS_OF_FILE
    count = questions.shape[1]
    files = FileRanges(count, min(max(-(-count // _FILES), low), high))
    task = AnswerTask(asked, out.scratch, files, out.pieces)
    geometry = Checkpoints(at / "checkpoints").load(asked.checkpoint).geometry
    slot = geometry.slot_bytes(1)
    workers = context.workers(input_bytes=count * slot * geometry.partitions >> 12)
    has = workers.capacity
    block = BLOCK * (geometry.width * 8 + asked.top * 32)
    needed = 2 * min(slot, BLOCK_BYTES) + block + _MEMORY
    remedy = "Give workers more memory with --memory-limit, or start fewer with -n"
    memory = Need(needed, has.memory, f"on every {has.worker}", remedy=remedy)
    context.plan(
        f"{plural(asked.top, 'answer')} to each of {plural(count, 'question')}, "
        f"{plural(files.count, 'file')}",
        steps=(("answer", f"the {asked.checkpoint} checkpoint of {at}, on {has.text()}"),),
        memory=Need(needed) if has.on_gpu else memory,
        disk=count * asked.top * _ANSWER,
        scratch=questions.nbytes,
    )
    save_npy(out.scratch, QUESTIONS, questions)
    todo = [n for n in range(files.count) if not out.pieces.done(part_name(n))]
    calls = [(task, n) for n in todo]
    workers.tasks("answer", answer_questions, calls, files.sizes(todo), "questions")
    records = [out.pieces.load(part_name(n)) for n in range(files.count)]
    entries = [entry for _, found in records for entry in found]
    about = {
        "run": str(at),
        "checkpoint": asked.checkpoint,
        "options": out.options,
        "questions": count,
        "files": file_table(entries),
    }
    out.describe(FORMAT, about)
    return AnswerReport(
        answers=str(out.named),
        run=str(at),
        checkpoint=asked.checkpoint,
        questions=count,
        skipped=skipped,
        count=sum(counts["answers"] for counts, _ in records),
        bytes=sum(entry.bytes for entry in entries),
    )


def _questions(at: Path, run: Run, options: AnswerOptions) -> tuple[Array, int]:
    """Return nodes, relations and sides, (3, n) int64, and how many questions were skipped."""
    if options.queries is None:
        relation = relation_number(options.relation, at, run)
        every = np.arange(run.nodes, dtype=np.int64)
        end = Side.HEAD if options.side == "head" else Side.TAIL
        return np.stack([every, np.full_like(every, relation), np.full_like(every, end)]), 0
    import pyarrow as pa
    import pyarrow.compute as pc

    table = {name: column.cast(pa.string()) for name, column in
             read_columns(str(options.queries), ("head", "tail", "relation")).items()}  # fmt: skip
    if not {"head", "tail"} & {*table}:
        raise InputError(f"{options.queries} has no questions", expected="columns head or tail")
    rows = len(next(iter(table.values())))
    columns = {name: _texts(table, name, rows) for name in ("head", "tail")}
    given = {name: np.asarray(pc.is_valid(column)) for name, column in columns.items()}
    if len(bad := np.flatnonzero(given["head"] == given["tail"])):
        raise InputError(
            f"{options.queries}, row {int(bad[0])} is not a question",
            expected="a head or a tail, and the other one empty",
            got="both" if given["head"][bad[0]] else "neither",
        )
    sides = np.where(given["head"], int(Side.TAIL), int(Side.HEAD)).astype(np.int64)
    names = pc.coalesce(columns["head"], columns["tail"])
    ids = read_column(at / IDS, "id").combine_chunks().cast(pa.string())
    nodes = _numbers(names, ids)
    relations, types = np.zeros(rows, np.int64), None
    if run.relations is not None and "relation" in table:
        types = _texts(table, "relation", rows)
        relations = _numbers(types, pa.array(run.relations, pa.string()))
    else:
        relations[:] = relation_number(options.relation, at, run)
    good = (nodes >= 0) & (relations >= 0)
    skipped = int(np.count_nonzero(~good))
    if skipped and options.unknown == "error":
        strange = pc.unique(names.filter(pa.array(nodes < 0))).to_pylist()
        lost = [] if types is None else pc.unique(types.filter(pa.array(relations < 0))).to_pylist()
        lists = len(strange), strange[:SHOWN], len(lost), lost[:SHOWN]
        raise unknown(skipped, *lists, str(options.queries), what="question")
    if not good.any():
        raise UsageError(f"{options.queries} asks nothing that {at} can answer")
    return np.stack([nodes, relations, sides])[:, good], skipped


def _texts(table: Mapping[str, pa.Array], name: str, rows: int) -> pa.Array:
    """Return a column, nulls for what is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if name not in table:
        return pa.nulls(rows, pa.string())
    return pc.if_else(pc.equal(table[name], ""), pa.scalar(None, pa.string()), table[name])


def _numbers(names: pa.Array, ids: pa.Array) -> Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(names, value_set=ids).cast(pa.int64())
    return np.asarray(pc.fill_null(found, -1))
