"""Lists of ids in Parquet or Arrow IPC files: those of ``penstock walk``, or anybody's sentences.

Two passes over the files, as tasks: one counts the ids, one writes their numbers. With --graph the
numbers are those of its nodes, and the first pass only counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.csr import offsets_of
from penstock.errors import InputError, UsageError
from penstock.files import check_sums, read_file_table, save_npy
from penstock.graph import Graph, load_npy
from penstock.output import Pieces
from penstock.pipelines.tables.arrow import open_arrow
from penstock.pipelines.tables.columns import is_text
from penstock.pipelines.tables.parquet import open_parquet
from penstock.pipelines.tables.pieces import TARGET, Piece, batch_pieces, row_group_pieces
from penstock.pipelines.tables.read import read_rows
from penstock.pipelines.tables.rows import Rows
from penstock.pipelines.tables.sources import file_size, format_of
from penstock.pipelines.tables.text import TextShape
from penstock.pipelines.tables.types import bare_type, is_list
from penstock.pipelines.vectors.store import parquet_files
from penstock.pipelines.walk.output import FORMAT as WALKS
from penstock.pipelines.word2vec.inputs import CORPUS, Input, Prepared, vectors_given
from penstock.pipelines.word2vec.sentences import cut_sentences, looked_up, without_unknown
from penstock.pipelines.word2vec.vocabulary import COUNTS, Vocabulary, empty, load_ids, merged
from penstock.workers.word2vec.corpus import Encoded, EncodedPiece

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.pipelines.job.workers import Workers
    from penstock.pipelines.word2vec.options import Word2vecOptions

_NO_TEXT = TextShape((), "")


@dataclass(frozen=True)
class Lists:
    """What one task reads: a piece of a file, and its column of lists; ids: how many they hold."""

    piece: Piece
    column: str
    ids: int

    @property
    def name(self) -> str:
        """What its pieces are called."""
        return f"piece-{self.piece.number:05d}"

    def read(self) -> Iterator[tuple[pa.Array, Array, Rows]]:
        """Yield the ids of some lists, where each list begins, (lists + 1,) int64, and the rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for rows in read_rows(self.piece, {self.column: "list"}, _NO_TEXT):
            column = rows.columns[self.column]
            lengths = as_numpy(pc.fill_null(pc.list_value_length(column), 0))  # of null: empty
            ids, offsets = column.flatten(), offsets_of(lengths.astype(np.int64))
            if ids.null_count:
                place = int(np.argmax(as_numpy(ids.is_null())))
                raise InputError(
                    f"{self.piece.path} has a list with a null in it",
                    got=where(rows, offsets, place),
                    remedy="Leave such rows out",
                )
            if pa.types.is_dictionary(ids.type):
                ids = ids.dictionary_decode()
            yield ids, offsets, rows


def where(rows: Rows, offsets: Array, place: int) -> str:
    """Return in which row a value stands, for an error."""
    row = int(np.searchsorted(offsets, place, side="right")) - 1
    return f"row {rows.source.number(row)}, value {place - int(offsets[row]) + 1}"


class ListsInput(Input):
    """Files with a column of lists."""

    kind = "lists"

    def __init__(self, paths: Sequence[Path], options: Word2vecOptions) -> None:
        super().__init__(paths, options)
        self._graph = None if options.graph is None else Graph.open(options.graph)
        self._ids_of: dict[str, tuple[Path, Any]] = {}  # the first file of each type of ids

    @property
    def graph(self) -> Graph | None:
        """The graph of --graph."""
        return self._graph

    @property
    def internal(self) -> bool:
        """Whether ids are the numbers of a graph's nodes."""
        return False

    @property
    def files(self) -> list[Path]:
        """The files, in order."""
        found: list[Path] = []
        for path in self.paths:
            found += parquet_files(path) if path.is_dir() else [path]
        return found

    def check(self) -> None:
        """Check the columns of every file."""
        self.lists = [
            replace(one, piece=replace(one.piece, number=number))
            for number, one in enumerate(chain(*map(self._lists, self.files)))
        ]
        if not self.lists:
            raise empty(self.what)

    @property
    def tokens(self) -> int:
        """How many ids all lists hold."""
        return sum(one.ids for one in self.lists)

    @property
    def scratch_bytes(self) -> int:
        """What their numbers take, and the lists' beginnings."""
        return 12 * self.tokens

    def count(self, workers: Workers, folder: Path) -> None:
        """Count the ids."""
        calls = [(one,) for one in self.lists]
        sizes = [one.ids for one in self.lists]
        Vocabulary.of(
            merged(workers.tasks("count", count_ids, calls, sizes, "ids")),
            what=self.what,
            min_count=self.options.least_count(self.kind),
            max_vocab=self.options.max_vocab,
        ).save(folder)

    def prepare(self, workers: Workers, rows: int, scratch: Path) -> Prepared:
        """Write the numbers of the ids."""
        folder = scratch / CORPUS
        records = Pieces(folder, folder)
        todo = [one for one in self.lists if not records.done(one.name)]
        workers.tasks(
            "encode",
            encode_ids,
            [(one, folder, records) for one in todo],
            [one.ids for one in todo],
            "ids",
            graph=None if self._graph is None else self._graph.path,
            internal=self.internal,
            longest=self.options.max_sentence,
        )
        return self._prepared(records, folder)

    def _prepared(self, records: Pieces, folder: Path) -> Prepared:
        pieces = []
        for one in self.lists:
            counted, _ = records.load(one.name)
            pieces.append(EncodedPiece(one.name, counted["sentences"], counted["words"]))
        corpus = Encoded(folder)
        corpus.save(pieces)
        tokens = sum(piece.words for piece in pieces)
        if not tokens:
            raise empty(self.what)
        if self._graph is not None:
            total = np.zeros(self._graph.num_nodes, np.int64)
            for one in self.lists:
                total += load_npy(folder / f"{one.name}.counts.npy")
            save_npy(folder, COUNTS, total)
        return Prepared(corpus, folder / COUNTS, tokens)

    def _lists(self, path: Path) -> Iterator[Lists]:
        """Cut a file into what tasks read; the cuts follow from the file alone."""
        if format_of(str(path)) == "arrow":
            with open_arrow(str(path)) as file:
                column = self._column(path, file.schema)
                count = file.num_record_batches
                for piece in batch_pieces(str(path), count, file_size(str(path)), TARGET):
                    batches = map(file.get_batch, range(piece.start, piece.stop))
                    ids = sum(len(batch.column(column).flatten()) for batch in batches)
                    if ids:
                        yield Lists(piece, column, ids)
            return
        with open_parquet(str(path)) as file:
            column, about = self._column(path, file.schema_arrow), file.metadata
        names = [about.schema.column(i).path.split(".")[0] for i in range(about.num_columns)]
        leaf = names.index(column)
        for piece in row_group_pieces(str(path), about, [column], TARGET):
            groups = map(about.row_group, range(piece.start, piece.stop))
            yield Lists(piece, column, sum(group.column(leaf).num_values for group in groups))

    def _column(self, path: Path, schema: pa.Schema) -> str:
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

    def _check_ids(self, path: Path, kind: pa.DataType) -> None:
        """Refuse lists of lists, and files whose ids cannot be those of the others."""
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
                    expected="ids of one type in all of them, such as integers or strings",
                    got=f"{kind_there} and {kind}",
                )


class WalksInput(ListsInput):
    """A directory that ``penstock walk`` wrote."""

    kind = "walks"

    def __init__(self, paths: Sequence[Path], options: Word2vecOptions) -> None:
        super().__init__(paths, options)
        self.about = WALKS.load(paths[0])

    @property
    def files(self) -> list[Path]:
        """The parts that the manifest lists."""
        with WALKS.reading(self.paths[0]):
            names = [name for name in self.about["files"] if name.endswith(".parquet")]
        return [self.paths[0] / name for name in sorted(names)]

    def verify(self, *, quiet: bool) -> None:
        """Compare the parts with their SHA-256, and so the files of the graph, if there is one."""
        with WALKS.reading(self.paths[0]):
            table = read_file_table(self.about["files"])
        parts = [table[path.name] for path in self.files]
        check_sums(self.paths[0], parts, remedy=WALKS.restore, quiet=quiet)
        if self.graph is not None:
            super().verify(quiet=quiet)

    def check(self) -> None:
        """Check the files, and whether the walks are those of the graph."""
        folder = self.paths[0]
        with WALKS.reading(folder):
            for entry in read_file_table(self.about["files"]).values():
                if entry.name.endswith(".parquet"):
                    entry.check_size(folder, listed_in=WALKS.file, remedy=WALKS.restore)
        super().check()
        if self._graph is not None and self.internal:
            version = self.about.get("graph_sha256")
            if version != self._graph.digest:
                raise InputError(
                    f"{self.paths[0]} holds internal ids of another graph than {self._graph.path}",
                    expected=f"walks of the graph with SHA-256 {self._graph.digest[:12]}...",
                    got=f"{str(version)[:12]}..., of {self.about.get('graph')}",
                    remedy="Walk again, or with --ids user",
                )

    @property
    def has_internal_ids(self) -> bool:
        """Whether walks hold the numbers of nodes, and there is no graph that has their ids."""
        return self.internal and self._graph is None

    @property
    def internal(self) -> bool:
        """Whether walks hold the numbers of nodes, which are not looked up."""
        return bool(self.about.get("ids") == "internal")


# -- tasks -----------------------------------------------------------------------------------------


def count_ids(lists: Lists) -> pa.Table:
    """Return the ids of some lists and how often each is; runs on a worker."""
    import pyarrow as pa
    import pyarrow.compute as pc

    counted = [pc.value_counts(ids) for ids, *_ in lists.read()]
    names = ["id", "count"]
    return merged([pa.table([*map(one.field, ("values", "counts"))], names) for one in counted])


def encode_ids(
    lists: Lists,
    folder: Path,
    records: Pieces,
    *,
    graph: Path | None,
    internal: bool,
    longest: int,
) -> None:
    """Write the numbers of the ids of some lists, and the record; runs on a worker."""
    opened = None if graph is None else Graph.open(graph)
    tokens, ends = [np.empty(0, np.int32)], [np.zeros(1, np.int64)]
    for ids, offsets, rows in lists.read():
        if opened is None:
            found = looked_up(ids, load_ids(folder))
        else:
            found = _nodes(opened, ids, offsets, rows, internal=internal)
        found, offsets = without_unknown(found, cut_sentences(offsets, longest))
        tokens.append(found)
        ends.append(offsets[1:] + ends[-1][-1])
    words, offsets = np.concatenate(tokens), np.concatenate(ends)
    piece = EncodedPiece(lists.name, len(offsets) - 1, len(words))
    files = piece.save(folder, words, offsets)
    if opened is not None:
        counts = np.bincount(words, minlength=opened.num_nodes).astype(np.int64)
        files.append(save_npy(folder, f"{lists.name}.counts.npy", counts))
    records.save(lists.name, {"sentences": piece.sentences, "words": piece.words}, files)


def _nodes(graph: Graph, ids: pa.Array, offsets: Array, rows: Rows, *, internal: bool) -> Array:
    """Return the nodes of a graph that ids are; InputError where it does not have one."""
    if internal:
        found = as_numpy(ids).astype(np.int64)
        found = np.where(found < graph.num_nodes, found, -1)
    else:
        found = np.asarray(graph.internal_ids(ids))
    unknown = np.flatnonzero(found < 0)
    if len(unknown):
        place = int(unknown[0])
        more = f" (and {len(unknown) - 1:,} more)" if len(unknown) > 1 else ""
        raise InputError(
            f"{graph.path} has no node {ids[place].as_py()!r}: {rows.source.path}, "
            f"{where(rows, offsets, place)}{more}",
            expected=f"ids of the graph, of type {graph.node_column('id').type}",
            remedy="Give the graph that the walks are of, or leave --graph out",
        )
    return found.astype(np.int32)
