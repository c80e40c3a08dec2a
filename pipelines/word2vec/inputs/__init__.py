"""The inputs of a training: a graph, walks, lists in Parquet, text.

An input makes a corpus that ranks can read; each kind has a module.

module     owns
graph      walks that are made during training, and never written
files      lists of ids, text, and the output of ``penstock walk``: tasks count and number them
sentences  how a task reads lists and text
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.files import file_entry
from penstock.graph import Graph
from penstock.output import Pieces
from penstock.pipelines.tables.sources import file_size, find_files, format_of, is_folder, stamp_of
from penstock.pipelines.vectors.store import FORMAT as VECTORS
from penstock.pipelines.word2vec.vocabulary import COUNTS, IDS, load_ids
from penstock.workers.word2vec.corpus import Encoded, GraphWalks

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.graph_changes import RowPrints
    from penstock.pipelines.job.workers import Workers
    from penstock.pipelines.word2vec.options import Word2vecOptions

_LISTS = ("parquet", "arrow")
CORPUS = "corpus"  # in the scratch folder: the vocabulary, and the numbers of words


@dataclass(frozen=True)
class Counted:
    """The number of words, and the user's ids in their order.

    file  a Parquet file that has them in its column id
    """

    words: int
    ids: Callable[[], pa.Array]
    file: Path


@dataclass(frozen=True)
class Prepared:
    """A corpus that ranks can read.

    counts  a file with the count of each word; None: ranks count walks
    tokens  words of an epoch; None: not known
    """

    corpus: Encoded | GraphWalks
    counts: Path | None
    tokens: int


class Input(ABC):
    """One input: files, folders, globs and URLs, all of one kind."""

    def __init__(self, sources: Sequence[str], options: Word2vecOptions, kind: str) -> None:
        self.sources, self.options, self.kind = list(sources), options, kind

    @property
    def what(self) -> str:
        """The name of the input in messages."""
        more = f" and {len(self.sources) - 1} more" if len(self.sources) > 1 else ""
        return f"{self.sources[0]}{more}"

    @property
    def rows_are(self) -> str:
        """The rows of the vectors: nodes, if the graph is given, or words."""
        return "words" if self.graph is None else "nodes"

    @property
    def has_internal_ids(self) -> bool:
        """Whether vectors are by the numbers of a graph's nodes, and not by ids of the user."""
        return False

    @property
    @abstractmethod
    def files(self) -> list[str]:
        """Files that it reads."""

    @property
    def searched(self) -> Sequence[str]:
        """Folders that it reads at any depth."""
        return ()

    @property
    def graph(self) -> Graph | None:
        """The graph whose node v is word v; None: words are found in the input."""
        return None

    @property
    def rows(self) -> RowPrints | None:
        """Bits of the rows of the graph that is walked; None: it walks none."""
        return None

    @cached_property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(map(file_size, self.files))

    def check(self) -> None:  # noqa: B027 - an input may have nothing to check
        """Raise if the options do not fit the input."""

    def verify(self, *, quiet: bool) -> None:
        """Compare files with their recorded SHA-256."""
        if self.graph is None:
            raise UsageError(
                "--verify compares the files of a graph or of walks, and the input has neither",
                remedy="Leave --verify out",
            )
        Graph.open(self.graph.path, verify=True, quiet=quiet)

    def stamps(self) -> dict[str, Any]:
        """Return the stamps of the files and of the graph."""
        found: dict[str, Any] = {} if self.graph is None else {**self.graph.stamps()}
        # Their positions count too: encoded pieces are numbered by the order of the files.
        for place, path in enumerate(self.files):
            found.setdefault(path, [*(stamp_of(path) or ())]).append(place)
        return found

    @property
    def scratch_bytes(self) -> int:
        """A bound of the encoded corpus's bytes on disk."""
        return 0

    @property
    def words(self) -> int | None:
        """The number of words in the vocabulary, if known before the input is read."""
        return None if self.graph is None else self.graph.num_nodes

    @property
    def tokens(self) -> int | None:
        """Words of an epoch, if known before the input is read."""
        return None

    def held_bytes(self, workers: Workers, rows: int) -> int:
        """Return the bytes that a rank holds of a graph, if it can keep ``rows`` bytes."""
        return 0

    def counted(self, workers: Workers, scratch: Path) -> Counted:
        """Return the vocabulary: the nodes of the graph, or words counted in the input."""
        if self.graph is not None:
            return Counted(self.graph.num_nodes, self.graph.user_ids, self.graph.ids_file)
        folder = scratch / CORPUS
        records = Pieces(folder, folder)
        if not records.done("counted"):
            self.count(workers, folder)
            files = [file_entry(folder, name) for name in (IDS, COUNTS)]
            records.save("counted", {}, files)
        ids = load_ids(folder)
        return Counted(len(ids), lambda: ids, folder / IDS)

    def count(self, workers: Workers, folder: Path) -> None:
        """Count the words of an input without a graph, and write the vocabulary."""
        raise NotImplementedError

    @abstractmethod
    def prepare(self, workers: Workers, rows: int, scratch: Path) -> Prepared:
        """Make the corpus, in ``scratch`` if needed, once the vocabulary is counted.

        rows  bytes that a worker can use for a graph
        """


def open_input(
    sources: Sequence[str], options: Word2vecOptions, *, verify: bool = False, quiet: bool
) -> Input:
    """Return the input, by the kind of its files."""
    kinds = {source: _kind_of(source) for source in sources}
    kind = kinds[sources[0]]
    for source, other in kinds.items():
        if other != kind:
            raise UsageError(
                f"{sources[0]} and {source} are inputs of different kinds",
                expected="inputs of one kind",
                got=f"{kind} and {other}",
            )
    if kind in ("graph", "walks") and len(sources) > 1:
        raise UsageError(
            f"training takes one {'graph' if kind == 'graph' else 'directory of walks'}",
            got=f"{len(sources)} of them",
        )
    options.check_kind(kind)
    opened = _class_of(kind)(sources, options, kind)
    if verify:
        opened.verify(quiet=quiet)
    return opened


def _kind_of(source: str) -> str:
    for manifest, kind in (("graph.json", "graph"), ("_walks.json", "walks")):
        if Path(source, manifest).is_file():
            return kind
    if Path(source, VECTORS.file).is_file():
        raise vectors_given(source)
    kinds = {"lists" if format_of(file) in _LISTS else "text" for file in find_files([source])}
    if len(kinds) > 1 and not is_folder(source):
        raise UsageError(f"the files of {source} are of different kinds", expected="one kind")
    return min(kinds)  # the lists of a folder, if it has any


def vectors_given(path: str) -> UsageError:
    """Return the error of an input that is vectors, not sentences."""
    return UsageError(
        f"{path} holds vectors, which are not sentences",
        expected="a graph, a directory of walks, Parquet with lists of ids, or text files",
        remedy=f"Name the input of the training; to begin with these vectors, give --init {path}",
    )


def _class_of(kind: str) -> type[Input]:
    if kind == "graph":
        from penstock.pipelines.word2vec.inputs.graph import GraphInput

        return GraphInput
    from penstock.pipelines.word2vec.inputs.files import FilesInput, WalksInput

    return WalksInput if kind == "walks" else FilesInput
