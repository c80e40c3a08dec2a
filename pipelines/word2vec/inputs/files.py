"""Files of sentences: lists of ids in Parquet or Arrow IPC files, or lines of text.

Tasks pass over the files twice: first they count the ids, then they write their numbers. With
--graph the numbers are those of its nodes, and the first pass is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy, one_array, read_column
from penstock.errors import InputError, UsageError
from penstock.files import FileEntry, check_sums, save_npy
from penstock.graph import Graph, load_npy
from penstock.output import Pieces
from penstock.pipelines.tables.arrow import open_arrow
from penstock.pipelines.tables.columns import is_text
from penstock.pipelines.tables.parquet import open_parquet
from penstock.pipelines.tables.pieces import (
    TARGET,
    batch_pieces,
    byte_range_pieces,
    row_group_pieces,
)
from penstock.pipelines.tables.sources import (
    codec_of,
    file_size,
    find_files,
    format_of,
    head_of,
    stamp_of,
)
from penstock.pipelines.tables.text import without_mark
from penstock.pipelines.tables.types import bare_type, is_list
from penstock.pipelines.walk.output import FORMAT as WALKS
from penstock.pipelines.walk.starts import refuse_unknown
from penstock.pipelines.word2vec.inputs import Input, Prepared, vectors_given
from penstock.pipelines.word2vec.inputs.sentences import Part, Sentences
from penstock.pipelines.word2vec.vocabulary import (
    COUNTS,
    IDS,
    Vocabulary,
    empty,
    merged,
    save_vocabulary,
)
from penstock.workers.word2vec.corpus import Encoded, EncodedPiece

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.pipelines.job.workers import Workers
    from penstock.pipelines.word2vec.options import Word2vecOptions

CORPUS = "corpus"  # in the scratch folder: the vocabulary, and the numbers of words
TEXT_TARGET = 1 << 24  # bytes of a piece of text
PIECE_WORDS = 1 << 24  # numbers written at a time
_UNPACKED = 4  # text is about this many times larger than compressed
# The least average bytes of a word with its blank, and of an id. Bytes of an id's number with the
# offset of its sentence.
_OF_WORD, _OF_ID, _OF_NUMBER = 5, 4, 12


class FilesInput(Input):
    """Files with a column of lists, or text."""

    def __init__(self, sources: list[str], options: Word2vecOptions, kind: str) -> None:
        graph = None if options.graph is None else Graph.open(options.graph)
        super().__init__(sources, options, kind, graph)
        self.searched = sources
        self._ids_of: dict[str, tuple[str, Any]] = {}  # the first file of each type of ids

    @cached_property
    def files(self) -> list[str]:
        """The files, in order."""
        return [file for one in self.sources for file in find_files([one], self.kind)]

    def check(self) -> None:
        """Cut every file into pieces for tasks, and check its columns or first bytes."""
        cut = self._text if self.kind == "text" else self._lists
        self.parts = [
            replace(one, piece=replace(one.piece, number=number))
            for number, one in enumerate(chain(*map(cut, self.files)))
        ]
        if not self.parts:
            raise empty(self.what)
        ids = sum(one.ids for one in self.parts)
        if all(one.piece.format == "parquet" for one in self.parts):
            self.tokens = ids
        self.scratch_bytes = _OF_NUMBER * ids

    def stamps(self) -> dict[str, Any]:
        """Return the stamps of the files, too, and their positions: pieces are numbered by them."""
        found: dict[str, Any] = {}
        for place, path in enumerate(self.files):
            found.setdefault(path, [*(stamp_of(path) or ())]).append(place)
        return found | super().stamps()

    def counted(self, workers: Workers, scratch: Path) -> Vocabulary:
        """Count the ids, unless the graph has them."""
        import pyarrow.parquet as pq

        if self.graph is not None:
            return super().counted(workers, scratch)
        folder, longest = scratch / CORPUS, self.options.max_sentence
        records = Pieces(folder, folder)
        if not records.done("counted"):
            calls = [(one,) for one in self.parts]
            files = save_vocabulary(
                folder,
                merged(self._tasks(workers, count_ids, calls, longest=longest)),
                what=self.what,
                min_count=self.options.least_count(self.kind),
                max_vocab=self.options.max_vocab,
            )
            records.save("counted", {}, files)
        return Vocabulary(pq.read_metadata(folder / IDS).num_rows, folder / IDS)

    def prepare(self, workers: Workers, scratch: Path) -> Prepared:
        """Write the numbers of the ids."""
        folder = scratch / CORPUS
        records = Pieces(folder, folder)
        self._tasks(
            workers,
            encode_ids,
            [(one, folder, records) for one in self.parts if not records.done(one.name)],
            graph=None if self.graph is None else self.graph.path,
            internal=self.internal,
            longest=self.options.max_sentence,
        )
        pieces: list[EncodedPiece] = []
        for one in self.parts:
            pieces += [EncodedPiece(*piece) for piece in records.load(one.name)[0]["pieces"]]
        corpus = Encoded(folder)
        corpus.save(pieces)
        tokens = sum(piece.words for piece in pieces)
        if not tokens:
            raise empty(self.what)
        if self.graph is not None:
            total = np.zeros(self.graph.num_nodes, np.int64)
            for one in self.parts:
                total += load_npy(folder / f"{one.name}.counts.npy")
            save_npy(folder, COUNTS, total)
        return Prepared(corpus, folder / COUNTS, tokens)

    def _tasks(
        self, workers: Workers, function: Any, calls: list[tuple[Any, ...]], **more: Any
    ) -> list[Any]:
        title, sizes = function.__name__.partition("_")[0], [one[0].piece.bytes for one in calls]
        return workers.tasks(title, function, calls, sizes, "B", **more)

    def _text(self, path: str) -> Iterator[Part]:
        packed = codec_of(path) is not None
        without_mark(head_of(path), path)  # reports damage before anything is read
        for piece in byte_range_pieces(path, "text", file_size(path), TEXT_TARGET, whole=packed):
            size = piece.bytes * (_UNPACKED if packed else 1)
            yield Part(piece, None, size // _OF_WORD + 1)

    def _lists(self, path: str) -> Iterator[Part]:
        """Cut a file into pieces for tasks; the cuts depend on the file alone."""
        if format_of(path) == "arrow":
            with open_arrow(path) as file:
                column, count = self._column(path, file.schema), file.num_record_batches
            for piece in batch_pieces(path, count, file_size(path), TARGET):
                yield Part(piece, column, piece.bytes // _OF_ID)
            return
        with open_parquet(path) as file:
            column, about = self._column(path, file.schema_arrow), file.metadata
        names = [about.schema.column(i).path.split(".")[0] for i in range(about.num_columns)]
        leaf = names.index(column)
        for piece in row_group_pieces(path, about, [column], TARGET):
            groups = map(about.row_group, range(piece.start, piece.stop))
            yield Part(piece, column, sum(group.column(leaf).num_values for group in groups))

    def _column(self, path: str, schema: pa.Schema) -> str:
        import pyarrow as pa

        lists = [field.name for field in schema if is_list(field.type)]
        wanted = self.options.column
        if wanted is None:
            wanted = lists[0] if len(lists) == 1 else "path"
        if wanted not in lists:
            raise UsageError(
                f"{path} has no column of lists {wanted!r}"
                if self.options.column or lists
                else f"{path} has no column of lists",
                expected=f"one of {', '.join(lists)}" if lists else "a list of ids in each row",
                got=f"columns {', '.join(schema.names)}",
                remedy="Name it with --column",
            )
        kind = schema.field(wanted).type
        if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type):
            raise vectors_given(path)
        self._check_ids(path, kind.value_type)
        return str(wanted)

    def _check_ids(self, path: str, kind: pa.DataType) -> None:
        """Refuse lists of lists, and files whose ids have another type than the others'."""
        import pyarrow as pa

        of = pa.types
        kind = bare_type(kind)
        if of.is_nested(kind):
            raise UsageError(
                f"{path} has lists of lists", expected="lists of ids", got=f"lists of {kind}"
            )
        if of.is_null(kind):  # lists without a value
            return
        numbers = of.is_integer(kind) or of.is_floating(kind)
        name = "strings" if is_text(kind) else "numbers" if numbers else str(kind)
        first = self._ids_of.setdefault(name, (path, kind))
        for other, kind_there in self._ids_of.values():
            if (other, kind_there) != first:
                raise UsageError(
                    f"{other} and {path} have ids of different types",
                    expected="ids of one type in all files, such as integers or strings",
                    got=f"{kind_there} and {kind}",
                )


class WalksInput(FilesInput):
    """A directory that ``penstock walk`` wrote."""

    def __init__(self, sources: list[str], options: Word2vecOptions, kind: str) -> None:
        super().__init__(sources, options, kind)
        self.folder, self.searched = Path(sources[0]), ()  # only the parts are read
        self.about = WALKS.load(self.folder)
        self.internal = self.about.get("ids") == "internal"

    @cached_property
    def files(self) -> list[str]:
        """The parts that the manifest lists."""
        with WALKS.reading(self.folder):
            names = [name for name in self.about["files"] if name.endswith(".parquet")]
        return [str(self.folder / name) for name in sorted(names)]

    def verify(self, *, quiet: bool) -> None:
        """Compare the parts, and the files of the graph if there is one, with their SHA-256."""
        table = WALKS.files(self.folder, self.about)
        parts = [table[Path(file).name] for file in self.files]
        check_sums(self.folder, parts, remedy=WALKS.restore, quiet=quiet)
        if self.graph is not None:
            super().verify(quiet=quiet)

    def check(self) -> None:
        """Check the files, and that the walks belong to the graph."""
        folder = self.folder
        WALKS.files(folder, self.about)
        super().check()
        graph = self.graph
        if graph is not None and self.internal:
            version = self.about.get("graph_sha256")
            if version != graph.digest:
                raise InputError(
                    f"{folder} holds internal ids of another graph than {graph.path}",
                    expected=f"walks of the graph with SHA-256 {graph.digest[:12]}...",
                    got=f"{str(version)[:12]}..., of {self.about.get('graph')}",
                    remedy="Walk again, or with --ids user",
                )


# -- tasks -----------------------------------------------------------------------------------------


def count_ids(part: Part, *, longest: int) -> pa.Table:
    """Return the ids of a part and their counts; runs on a worker."""
    import pyarrow as pa
    import pyarrow.compute as pc

    total = pa.table({"id": pa.nulls(0), "count": pa.array([], pa.int64())})
    waiting, rows = [total], 0
    for sentences in part.read(longest):
        counted = pc.value_counts(sentences.ids)
        waiting.append(pa.table({"id": counted.field("values"), "count": counted.field("counts")}))
        rows += len(counted)
        if rows > len(total):
            total, rows = merged(waiting), 0
            waiting = [total]
    return merged(waiting)


def encode_ids(
    part: Part,
    folder: Path,
    records: Pieces,
    *,
    graph: Path | None,
    internal: bool,
    longest: int,
) -> None:
    """Write the numbers of the ids of a part, and the record; runs on a worker."""
    opened = None if graph is None else Graph.open(graph)
    vocabulary = None if opened is not None else one_array(read_column(folder / IDS, "id"))
    counts = np.zeros(0 if opened is None else opened.num_nodes, np.int64)
    pieces: list[EncodedPiece] = []
    files: list[FileEntry] = []
    waiting: list[tuple[Array, Array]] = []

    def save() -> None:
        """Write the collected sentences."""
        words = np.concatenate([tokens for tokens, _ in waiting])
        ends = np.cumsum(np.concatenate([[0], *(np.diff(offsets) for _, offsets in waiting)]))
        piece = EncodedPiece(f"{part.name}.{len(pieces)}", len(ends) - 1, len(words))
        files.extend(piece.save(folder, words, ends.astype(np.int64, copy=False)))
        pieces.append(piece)
        waiting.clear()

    for sentences in part.read(longest):
        if opened is None:
            tokens = _looked_up(sentences.ids, vocabulary)
        else:
            tokens = _nodes(opened, sentences, internal=internal)
            counts += np.bincount(tokens, minlength=opened.num_nodes)
        waiting.append(without_unknown(tokens, sentences.offsets))
        if sum(len(tokens) for tokens, _ in waiting) >= PIECE_WORDS:
            save()
    if any(len(offsets) > 1 for _, offsets in waiting):
        save()
    if opened is not None:
        files.append(save_npy(folder, f"{part.name}.counts.npy", counts))
    about = [[piece.name, piece.sentences, piece.words] for piece in pieces]
    records.save(part.name, {"pieces": about}, files)


def without_unknown(tokens: Array, offsets: Array) -> tuple[Array, Array]:
    """Return tokens and offsets without negative numbers, which are not words."""
    in_vocabulary = tokens >= 0
    if in_vocabulary.all():
        return tokens, offsets
    before = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum(in_vocabulary, out=before[1:])
    return tokens[in_vocabulary], before[offsets]


def _looked_up(ids: pa.Array, vocabulary: pa.Array) -> Array:
    """Return the positions of ids in a vocabulary, (ids,) int32; -1 for unknown ids."""
    import pyarrow.compute as pc

    if ids.type != vocabulary.type:  # files of different types have a merged type
        ids = ids.cast(vocabulary.type)
    found = pc.index_in(ids, value_set=vocabulary)
    return as_numpy(found.fill_null(-1)).astype(np.int32, copy=False)


def _nodes(graph: Graph, sentences: Sentences, *, internal: bool) -> Array:
    """Return the nodes of ids in a graph; InputError for an unknown id."""
    ids = sentences.ids
    if internal:
        found = as_numpy(ids).astype(np.int64)
        found = np.where(found < graph.num_nodes, found, -1)
    else:
        found = np.asarray(graph.internal_ids(ids))
    refuse_unknown(graph, found, lambda at: f"{ids[at].as_py()!r}: {sentences.where(at)}")
    return found.astype(np.int32)
