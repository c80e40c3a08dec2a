"""The inputs of a training: a graph, walks, lists in Parquet, text.

An input makes a corpus that ranks can read; each kind has a module.

module     owns
graph      walks that are made during training, and never written
files      lists of ids, text, and the output of ``penstock walk``: tasks count and number them
sentences  how a task reads lists and text
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.options import shown
from penstock.paths import client_input
from penstock.pipelines.tables.sources import file_size, find_files, format_of, is_folder
from penstock.pipelines.vectors.store import FORMAT as VECTORS
from penstock.pipelines.word2vec.vocabulary import Vocabulary
from penstock.workers.word2vec.corpus import Encoded, GraphWalks

if TYPE_CHECKING:
    from penstock.graph_changes import RowPrints
    from penstock.pipelines.job.workers import Workers
    from penstock.pipelines.word2vec.inputs.files import FilesInput
    from penstock.pipelines.word2vec.inputs.graph import GraphInput
    from penstock.pipelines.word2vec.options import Word2vecOptions

_LISTS = ("parquet", "arrow")


@dataclass(frozen=True)
class Prepared:
    """A corpus that ranks can read.

    counts  a file with the count of each word; None: ranks count walks
    tokens  words of an epoch
    """

    corpus: Encoded | GraphWalks
    counts: Path | None
    tokens: int


class Input(ABC):
    """One input: files, folders, globs and URLs, all of one kind.

    what           its name in messages
    graph          the graph whose node v is word v; None: words are found in the input
    rows_are       the rows of the vectors: nodes, if the graph is given, or words
    internal       whether ids are numbers of a graph's nodes, which need no look-up
    searched       folders that it reads at any depth
    tokens         words of an epoch; None: not known before the input is read
    scratch_bytes  a bound of the encoded corpus's bytes on disk
    """

    internal = False
    searched: Sequence[str] = ()
    tokens: int | None = None
    scratch_bytes = 0

    def __init__(
        self, sources: list[str], options: Word2vecOptions, kind: str, graph: Graph | None
    ) -> None:
        self.sources, self.options, self.kind, self.graph = sources, options, kind, graph
        self.what = sources[0]
        if len(sources) > 1:
            self.what += f" and {len(sources) - 1} more"
        self.rows_are = "words" if graph is None else "nodes"

    @property
    @abstractmethod
    def files(self) -> list[str]:
        """Files that it reads."""

    @cached_property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(map(file_size, self.files))

    @abstractmethod
    def check(self) -> None:
        """Raise if the options do not fit the input."""

    def verify(self, *, quiet: bool) -> None:
        """Compare files with their recorded SHA-256."""
        if self.graph is None:
            raise UsageError(
                "--verify compares the files of a graph or of walks, and the input has neither",
                remedy="Leave --verify out",
            )
        Graph.open(self.graph.path, verify=True, quiet=quiet)

    def rows(self) -> RowPrints | None:
        """Return bits of the rows of the graph that is walked; None: it walks none."""
        return None

    def stamps(self) -> dict[str, Any]:
        """Return the stamps of the graph."""
        return {} if self.graph is None else {**self.graph.stamps()}

    def choose(self, scratch: Path | None) -> None:
        """Choose what is trained again of what --init was trained on.

        scratch  has what was chosen when the run began; None: it begins
        """
        return

    def held_bytes(self, workers: Workers) -> int:
        """Return the bytes that a rank holds of a graph."""
        return 0

    def counted(self, workers: Workers, scratch: Path) -> Vocabulary:
        """Return the vocabulary: the nodes of the graph, or words counted in the input."""
        assert self.graph is not None
        return Vocabulary(self.graph.num_nodes, self.graph.ids_file)

    @abstractmethod
    def prepare(self, workers: Workers, scratch: Path) -> Prepared:
        """Make the corpus, in ``scratch`` if needed, once the vocabulary is counted."""


def open_input(inputs: Any, options: Word2vecOptions, verify: bool, quiet: bool) -> Input:
    """Open the input, by the kind of its files: a graph, a path, or several paths."""
    several = [inputs] if isinstance(inputs, str | Path | Graph) else inputs
    several = list(several) if isinstance(several, Iterable) else []
    if not several or not all(isinstance(one, str | Path | Graph) for one in several):
        raise UsageError(
            "vectors are trained on files",
            expected="a graph, or at least one path",
            got=shown(inputs),
            remedy="Write sentences to a text file, one per line, and give its path",
        )
    sources = [client_input(one.path if isinstance(one, Graph) else one) for one in several]
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
    opened.check()
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


def _class_of(kind: str) -> type[GraphInput | FilesInput]:
    if kind == "graph":
        from penstock.pipelines.word2vec.inputs.graph import GraphInput

        return GraphInput
    from penstock.pipelines.word2vec.inputs.files import FilesInput, WalksInput

    return WalksInput if kind == "walks" else FilesInput
