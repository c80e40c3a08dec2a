"""``penstock embed answer``: the best answers to many questions, as tasks.

_answers.json         the run, the options and the list of files; written last
part-00000.parquet    question, head, relation, tail, rank, score: one row per answer, best first
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy, read_column
from penstock.errors import InputError, UsageError
from penstock.files import FileRanges, file_table, part_name, save_npy
from penstock.formats import Format
from penstock.graph import Graph
from penstock.output import Output
from penstock.pipelines.embed.evaluation import numbers_of_names, unknown_names
from penstock.pipelines.embed.options import AnswerOptions
from penstock.pipelines.embed.prediction import prediction_task, relation_number
from penstock.pipelines.embed.report import AnswerReport
from penstock.pipelines.embed.run import Run
from penstock.pipelines.job.declare import Context, RunFolder
from penstock.pipelines.job.plan import Need
from penstock.pipelines.tables.columns import cast_rows, nulls_of
from penstock.pipelines.tables.read import read_columns
from penstock.pipelines.vectors.store import as_ids
from penstock.sizes import plural
from penstock.vector_parts import save_table
from penstock.workers.embed.edges import Edges
from penstock.workers.embed.evaluation.predict import (
    ASKED,
    BLOCK,
    NEW,
    NEW_EDGES,
    NEW_IDS,
    QUESTIONS,
    AnswerTask,
    answer_questions,
    vectors_of_new,
)
from penstock.workers.embed.source import BLOCK_BYTES
from penstock.workers.embed.spec import DISTANCES
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
_FILES, _ROWS_OF_FILE = 64, (1 << 12, 1 << 14)  # each file reads all edges
_ANSWER = 40  # bytes of an answer on the disk, about
_MEMORY = 500_000_000  # of a process


def answer_all(
    context: Context, folder: RunFolder, out: Output, options: AnswerOptions
) -> AnswerReport:
    """Answer the questions of the files that do not exist yet."""
    import pyarrow as pa

    at, run = folder.path, Run.load(folder.path)
    asked, found = prediction_task(folder, run, options)
    ids = as_ids(read_column(at / IDS, "id"))
    edges = None
    if options.new is not None:
        if run.training.model in DISTANCES:
            raise UsageError(
                f"--new does not work with {run.training.model}",
                expected="a run whose scores are products",
            )
        new, edges = _new_nodes(options, run, ids)
        ids, asked = pa.concat_arrays([ids, new]), replace(asked, new=out.scratch)
    questions, skipped = _questions(at, run, options, ids)
    low, high = _ROWS_OF_FILE
    count = questions.shape[1]
    files = FileRanges(count, min(max(-(-count // _FILES), low), high))
    asked, geometry = replace(asked, number=found.number), found.geometry
    task = AnswerTask(asked, out.scratch, files, out.pieces)
    slot = geometry.bytes
    workers = context.workers(input_bytes=count * slot * geometry.partitions >> 12)
    has = workers.capacity
    block = BLOCK * (geometry.width * 8 + asked.top * 32)
    needed = 2 * min(slot, BLOCK_BYTES) + block + _MEMORY
    memory = Need(needed) if has.on_gpu else has.need(needed, "Start fewer workers with -n")
    context.plan(
        f"{plural(asked.top, 'answer')} to each of {plural(count, 'question')}, "
        f"{plural(files.count, 'file')}",
        steps=(("answer", f"the {asked.checkpoint} checkpoint of {at}, on {has.text()}"),),
        memory=memory,
        disk=count * asked.top * _ANSWER,
        scratch=questions.nbytes,
    )
    save_npy(out.scratch, QUESTIONS, questions)
    if edges is not None:
        save_table(out.scratch, NEW_IDS, pa.table({"id": ids[run.nodes :]}))
        known = np.stack([edges.heads, edges.relations, edges.tails])
        if asked.graph is not None and not Graph.open(asked.graph).manifest.directed:
            known = np.concatenate([known, known[::-1]], axis=1)
        save_npy(out.scratch, NEW_EDGES, known)
        save_npy(out.scratch, NEW, vectors_of_new(asked, edges, len(ids) - run.nodes))
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


def _new_nodes(options: AnswerOptions, run: Run, ids: pa.Array) -> tuple[pa.Array, Edges]:
    """Return the ids of new nodes, and their edges to nodes of the run."""
    import pyarrow as pa
    import pyarrow.compute as pc

    path = options.new
    assert path is not None
    table = _texts_of(path, ("head", "relation", "tail"))
    for name in ("head", "tail", *(() if run.relations is None else ("relation",))):
        if name not in table:
            raise InputError(f"{path} has no column {name}", expected="head, relation and tail")
    heads, relations, tails = found = numbers_of_names(run, ids, table)
    new_ends = (heads < 0).astype(int) + (tails < 0)
    if options.unknown == "error" and ((relations < 0) | (new_ends == 2)).any():
        found[::2, new_ends < 2] = 0
        raise unknown_names(table, found, str(path))
    of = np.flatnonzero((new_ends == 1) & (relations >= 0))
    if not len(of):
        raise InputError(
            f"{path} has no edge between a new node and a node of the run",
            expected="edges with one end that the run does not have",
        )
    rows = pa.array(of)
    is_head = pa.array(heads[of] < 0)
    names = pc.if_else(is_head, table["head"].take(rows), table["tail"].take(rows))
    new, bad = cast_rows(names, ids.type)
    bad |= nulls_of(new)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError(
            f"{path}, row {int(of[row])}: a new node has no id of the run's type",
            expected=str(ids.type),
            got=repr(names[row].as_py()),
        )
    new = new.dictionary_encode()
    numbers = len(ids) + as_numpy(new.indices).astype(np.int64)
    heads, tails = (np.where(end[of] < 0, numbers, end[of]) for end in (heads, tails))
    return new.dictionary, Edges(heads, relations[of], tails)


def _questions(at: Path, run: Run, options: AnswerOptions, ids: pa.Array) -> tuple[Array, int]:
    """Return heads, relations, tails and rows, (4, n) int64, and the number of skipped questions.

    One of head, relation and tail is ASKED; the row is the question's in its file. ``ids`` are the
    run's, followed by those of new nodes.
    """
    if options.queries is None:
        relation = relation_number(options.relation, at, run)
        every = np.arange(run.nodes, dtype=np.int64)
        asked = np.full_like(every, ASKED)
        ends = (asked, every) if options.side == "head" else (every, asked)
        return np.stack([ends[0], np.full_like(every, relation), ends[1], every]), 0

    table = _texts_of(options.queries, ("head", "tail", "relation"))
    if not {"head", "tail"} & {*table}:
        raise InputError(f"{options.queries} has no questions", expected="columns head or tail")
    rows, number = len(next(iter(table.values()))), 0
    names = {name: _texts(table, name, rows) for name in ("head", "relation", "tail")}
    heads, types, tails = names.values()
    if options.relation is not None and "relation" in table:
        raise UsageError(
            "--relation has no effect: the questions have a column of relations",
            remedy="Leave the option out, or the column",
        )
    if run.relations is None or (
        "relation" not in table and (options.relation or heads.null_count or tails.null_count)
    ):
        number, types = relation_number(options.relation, at, run), None
        del names["relation"]
    found = numbers_of_names(run, ids, names, number)
    empty = np.stack([np.asarray(column.is_null()) for column in (heads, tails)])
    lacks_type = np.zeros(rows, bool) if types is None else np.asarray(types.is_null())
    bad = np.flatnonzero(empty.all(axis=0) | ((empty.sum(axis=0) + lacks_type) != 1))
    if len(bad):
        raise InputError(
            f"{options.queries}, row {int(bad[0])} is not a question",
            expected="one of head, relation and tail empty, and the others given",
            got=", ".join(
                "nothing" if column is None else repr(column[int(bad[0])].as_py())
                for column in (heads, types, tails)
            ),
        )
    found[:, lacks_type & (found >= run.nodes).any(axis=0)] = -1  # relations of new nodes
    found[np.stack([empty[0], lacks_type, empty[1]])] = ASKED
    good = (found != -1).all(axis=0)
    skipped = int(np.count_nonzero(~good))
    if skipped and options.unknown == "error":
        raise unknown_names(names, found, str(options.queries), what="question")
    if not good.any():
        raise UsageError(f"{at} cannot answer any question of {options.queries}")
    return np.concatenate([found, np.arange(rows)[None]])[:, good], skipped


def _texts_of(path: Path, names: Sequence[str]) -> dict[str, pa.Array]:
    """Read columns of names, as text."""
    import pyarrow as pa

    found = read_columns(str(path), names)
    for name, column in found.items():
        if pa.types.is_nested(column.type):
            raise InputError(f"{path}: {name} is not a name", got=str(column.type))
        found[name], bad = cast_rows(column, pa.string())
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise InputError(f"{path}, row {row}: {name} is not a text", got=str(column[row]))
    return found


def _texts(table: Mapping[str, pa.Array], name: str, rows: int) -> pa.Array:
    """Return a column, with nulls for empty values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if name not in table:
        return pa.nulls(rows, pa.string())
    return pc.if_else(pc.equal(table[name], ""), pa.scalar(None, pa.string()), table[name])
