"""Lists of ids in Parquet files: those of ``penstock walk``, or anybody's sentences.

Two passes over the files, as tasks: one counts the ids, one writes their numbers. With --graph the
numbers are those of its nodes, and the first pass only counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.errors import InputError, UsageError
from penstock.files import check_sums, read_file_table, save_npy
from penstock.graph import Graph, load_npy
from penstock.output import Pieces
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

_PIECE_IDS = 1 << 23  # of a task, unless a row group has more


@dataclass(frozen=True)
class Groups:
    """Row groups of a file that one task reads.

    row  of the file at which they begin; ids: how many they hold
    """

    number: int
    path: Path
    column: str
    groups: tuple[int, ...]
    row: int
    ids: int

    @property
    def name(self) -> str:
        """What its pieces are called."""
        return f"piece-{self.number:05d}"

    def read(self) -> tuple[pa.Array, Array]:
        """Return the ids of all lists, and where each list begins: (lists + 1,) int64."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.path, memory_map=True) as file:
                lists = file.read_row_groups(list(self.groups), columns=[self.column])
        except (pa.ArrowInvalid, OSError) as error:
            raise _unreadable(self.path, error) from error
        column = lists.column(0)
        chunks = [_flat(chunk) for chunk in column.chunks]
        ids = pa.concat_arrays([values for values, _ in chunks])
        lengths = np.concatenate([lengths for _, lengths in chunks])
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if ids.null_count:
            place = int(np.argmax(as_numpy(ids.is_null())))
            raise InputError(
                f"{self.path} has a list with a null in it, {self.where(offsets, place)}",
                expected="ids",
                remedy="Leave such rows out",
            )
        if pa.types.is_dictionary(ids.type):
            ids = ids.dictionary_decode()
        return ids, offsets

    def where(self, offsets: Array, place: int) -> str:
        """Return in which row a value stands, for an error."""
        row = int(np.searchsorted(offsets, place, side="right")) - 1
        return f"row {self.row + row}, value {place - int(offsets[row])}"


class ListsInput(Input):
    """Parquet files with a column of lists."""

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
        """The Parquet files, in order."""
        found: list[Path] = []
        for path in self.paths:
            found += parquet_files(path) if path.is_dir() else [path]
        return found

    def check(self) -> None:
        """Check the columns of every file."""
        self.groups = self._groups()
        if not self.groups:
            raise empty(self.what)

    @property
    def tokens(self) -> int:
        """How many ids all lists hold."""
        return sum(groups.ids for groups in self.groups)

    @property
    def scratch_bytes(self) -> int:
        """What their numbers take, and the lists' beginnings."""
        return 12 * self.tokens

    def count(self, workers: Workers, folder: Path) -> None:
        """Count the ids."""
        calls = [(groups,) for groups in self.groups]
        sizes = [groups.ids for groups in self.groups]
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
        todo = [groups for groups in self.groups if not records.done(groups.name)]
        workers.tasks(
            "encode",
            encode_ids,
            [(groups, folder, records) for groups in todo],
            [groups.ids for groups in todo],
            "ids",
            graph=None if self._graph is None else self._graph.path,
            internal=self.internal,
            longest=self.options.max_sentence,
        )
        return self._prepared(records, folder)

    def _prepared(self, records: Pieces, folder: Path) -> Prepared:
        pieces = []
        for groups in self.groups:
            counted, _ = records.load(groups.name)
            pieces.append(EncodedPiece(groups.name, counted["sentences"], counted["words"]))
        corpus = Encoded(folder)
        corpus.save(pieces)
        tokens = sum(piece.words for piece in pieces)
        if not tokens:
            raise empty(self.what)
        if self._graph is not None:
            total = np.zeros(self._graph.num_nodes, np.int64)
            for groups in self.groups:
                total += load_npy(folder / f"{groups.name}.counts.npy")
            save_npy(folder, COUNTS, total)
        return Prepared(corpus, folder / COUNTS, tokens)

    def _groups(self) -> list[Groups]:
        """Cut the files into what tasks read; the cuts follow from the files alone."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        found: list[Groups] = []
        for path in self.files:
            try:
                with pq.ParquetFile(path) as file:
                    column = self._column(path, file.schema_arrow)
                    about = file.metadata
            except (pa.ArrowInvalid, OSError) as error:
                raise _unreadable(path, error) from error
            leaf = next(
                i for i in range(about.num_columns)
                if about.schema.column(i).path.split(".")[0] == column
            )  # fmt: skip
            row = begin = ids = 0
            numbers: list[int] = []
            for number in range(about.num_row_groups):
                group = about.row_group(number)
                numbers.append(number)
                ids += group.column(leaf).num_values
                row += group.num_rows
                if ids >= _PIECE_IDS or number == about.num_row_groups - 1:
                    found.append(Groups(len(found), path, column, tuple(numbers), begin, ids))
                    begin, ids, numbers = row, 0, []
        return found

    def _column(self, path: Path, schema: pa.Schema) -> str:
        import pyarrow as pa

        def is_list(kind: pa.DataType) -> bool:
            of = pa.types
            return bool(of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind))

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
        if of.is_dictionary(kind):
            kind = kind.value_type
        if of.is_nested(kind):
            raise UsageError(
                f"{path} has lists of lists", expected="lists of ids", got=f"lists of {kind}"
            )
        if of.is_null(kind):  # lists without a value
            return
        strings = of.is_string(kind) or of.is_large_string(kind) or of.is_string_view(kind)
        numbers = of.is_integer(kind) or of.is_floating(kind)
        name = "strings" if strings else "numbers" if numbers else str(kind)
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


def count_ids(groups: Groups) -> pa.Table:
    """Return the ids of some row groups and how often each is; runs on a worker."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids, _ = groups.read()
    counted = pc.value_counts(ids)
    return pa.table({"id": counted.field("values"), "count": counted.field("counts")})


def encode_ids(
    groups: Groups,
    folder: Path,
    records: Pieces,
    *,
    graph: Path | None,
    internal: bool,
    longest: int,
) -> None:
    """Write the numbers of the ids of some row groups, and the record; runs on a worker."""
    ids, offsets = groups.read()
    if graph is None:
        tokens = looked_up(ids, load_ids(folder))
    else:
        tokens = _nodes(Graph.open(graph), groups, ids, offsets, internal=internal)
    offsets = cut_sentences(offsets, longest)
    tokens, offsets = without_unknown(tokens, offsets)
    piece = EncodedPiece(groups.name, len(offsets) - 1, len(tokens))
    files = piece.save(folder, tokens, offsets)
    if graph is not None:
        nodes = Graph.open(graph).num_nodes
        counts = np.bincount(tokens, minlength=nodes).astype(np.int64)
        files.append(save_npy(folder, f"{groups.name}.counts.npy", counts))
    records.save(groups.name, {"sentences": piece.sentences, "words": piece.words}, files)


def _nodes(graph: Graph, groups: Groups, ids: pa.Array, offsets: Array, *, internal: bool) -> Array:
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
            f"{graph.path} has no node {ids[place].as_py()!r}: {groups.path}, "
            f"{groups.where(offsets, place)}{more}",
            expected=f"ids of the graph, of type {graph.node_column('id').type}",
            remedy="Give the graph that the walks are of, or leave --graph out",
        )
    return found.astype(np.int32)


def _flat(chunk: pa.Array) -> tuple[pa.Array, Array]:
    """Return the values of lists, and the length of each; a null list is empty."""
    import pyarrow.compute as pc

    lengths = as_numpy(pc.fill_null(pc.list_value_length(chunk), 0)).astype(np.int64)
    return chunk.flatten(), lengths


def _unreadable(path: Path, error: BaseException) -> InputError:
    return InputError(
        f"cannot read {path} as Parquet",
        got=next(iter(str(error).splitlines()), type(error).__name__),
        remedy="Copy the file again from where it came from, or make the walks again",
    )
