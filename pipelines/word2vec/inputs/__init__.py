"""What vectors are trained on: a graph, walks, lists in Parquet, text.

An input says what it is, and makes a corpus that ranks can read; each kind has a module.

module   owns
graph    walks that are made while they are trained on, and never written
lists    lists of ids in Parquet files, those of ``penstock walk`` too
text     words between blanks, a sentence a line
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import InputError, UsageError
from penstock.files import file_entry
from penstock.graph import Graph
from penstock.output import Pieces, file_stamp
from penstock.pipelines.tables.sources import format_of
from penstock.pipelines.vectors.store import FORMAT as VECTORS
from penstock.pipelines.vectors.store import parquet_files
from penstock.pipelines.word2vec.vocabulary import COUNTS, IDS, load_ids
from penstock.workers.word2vec.corpus import Encoded, GraphWalks

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.pipelines.job.workers import Workers
    from penstock.pipelines.word2vec.options import Word2vecOptions

CORPUS = "corpus"  # of the scratch folder: the vocabulary, and the numbers of words


@dataclass(frozen=True)
class Counted:
    """How many words the vocabulary has, and the user's ids in their order.

    file  a Parquet file that has them in its column id
    """

    words: int
    ids: Callable[[], pa.Array]
    file: Path


@dataclass(frozen=True)
class Prepared:
    """A corpus that ranks can read.

    counts  a file of how often each word is, or None where walks are counted by the ranks
    tokens  of an epoch, as far as is known
    """

    corpus: Encoded | GraphWalks
    counts: Path | None
    tokens: int


class Input(ABC):
    """One kind of input.

    kind   what it is called
    files  that it reads
    """

    kind: ClassVar[str]

    def __init__(self, paths: Sequence[Path], options: Word2vecOptions) -> None:
        self.paths, self.options = list(paths), options

    @property
    def what(self) -> str:
        """What the input is called in messages."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{more}"

    @property
    def rows_are(self) -> str:
        """What gets a vector: nodes, where the graph is given, or words."""
        return "words" if self.graph is None else "nodes"

    @property
    def has_internal_ids(self) -> bool:
        """Whether vectors are by the numbers of a graph's nodes, and not by ids of the user."""
        return False

    @property
    def files(self) -> list[Path]:
        """Files that it reads."""
        return self.paths

    @property
    def graph(self) -> Graph | None:
        """The graph whose node v is word v, or None: words are found in the input."""
        return None

    @cached_property
    def bytes(self) -> int:
        """How large the files are."""
        return sum(path.stat().st_size for path in self.files)

    def check(self) -> None:  # noqa: B027 - an input may have nothing to check
        """Raise where options and input do not go together."""

    def verify(self, *, quiet: bool) -> None:
        """Compare files with the SHA-256 that is known of them."""
        if self.graph is None:
            raise UsageError(
                "--verify compares the files of a graph or of walks, and the input has neither",
                remedy="Leave --verify out",
            )
        Graph.open(self.graph.path, verify=True, quiet=quiet)

    def stamps(self) -> dict[str, Any]:
        """Return by what the files are known, and the graph."""
        found: dict[str, Any] = {} if self.graph is None else {**self.graph.stamps()}
        # Their places, too: what is encoded already has numbers by the order of the files.
        for place, path in enumerate(self.files):
            found.setdefault(str(path), file_stamp(path)).append(place)
        return found

    @property
    def scratch_bytes(self) -> int:
        """About what the encoded corpus takes of the disk, at most."""
        return 0

    @property
    def words(self) -> int | None:
        """How many words the vocabulary has, where that is known before the input is read."""
        return None if self.graph is None else self.graph.num_nodes

    @property
    def tokens(self) -> int | None:
        """Words of an epoch, where that is known before the input is read."""
        return None

    def held_bytes(self, workers: Workers, rows: int) -> int:
        """Return what a rank holds of a graph, which can keep ``rows`` bytes of one."""
        return 0

    def counted(self, workers: Workers, scratch: Path) -> Counted:
        """Return the vocabulary: the nodes of the graph, or what is counted in the input."""
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
        """Make the corpus, in ``scratch`` if need be, once the vocabulary is counted.

        rows  bytes in which a worker can keep a graph
        """


def open_input(
    paths: Sequence[Path], options: Word2vecOptions, *, verify: bool = False, quiet: bool
) -> Input:
    """Return the input, of the kind that its files are."""
    kinds = {path: _kind_of(path) for path in paths}
    kind = kinds[paths[0]]
    for path, other in kinds.items():
        if other != kind:
            raise UsageError(
                f"{paths[0]} and {path} are inputs of different kinds",
                expected="inputs of one kind",
                got=f"{kind} and {other}",
            )
    if kind in ("graph", "walks") and len(paths) > 1:
        raise UsageError(
            f"vectors are trained on one {'graph' if kind == 'graph' else 'directory of walks'}",
            got=f"{len(paths)} of them",
        )
    options.check_kind(kind)
    opened = _classes(kind)(paths, options)
    if verify:
        opened.verify(quiet=quiet)
    return opened


def _kind_of(path: Path) -> str:
    if not path.exists():
        raise InputError(
            f"there is no input {path}",
            expected="a graph, a directory of walks, Parquet files, or text files",
        )
    if path.is_dir():
        if (path / "graph.json").is_file():
            return "graph"
        if (path / "_walks.json").is_file():
            return "walks"
        if (path / VECTORS.file).is_file():
            raise vectors_given(path)
        if parquet_files(path):
            return "lists"
        raise UsageError(
            f"{path} is a directory, of none of the kinds that vectors are trained on",
            expected="a graph, a directory of walks, or of Parquet files",
            remedy="Name text files themselves: folder/*.txt",
        )
    return "lists" if format_of(str(path)) in ("parquet", "arrow") else "text"


def vectors_given(path: Path) -> UsageError:
    """Return the error of vectors where sentences belong."""
    return UsageError(
        f"{path} holds vectors, which are made of sentences and are none",
        expected="a graph, a directory of walks, Parquet with lists of ids, or text files",
        remedy=f"Name what the vectors shall be of; to begin with these, give --init {path}",
    )


def _classes(kind: str) -> Callable[..., Input]:
    if kind == "graph":
        from penstock.pipelines.word2vec.inputs.graph import GraphInput

        return GraphInput
    if kind == "text":
        from penstock.pipelines.word2vec.inputs.text import TextInput

        return TextInput
    from penstock.pipelines.word2vec.inputs.lists import ListsInput, WalksInput

    return WalksInput if kind == "walks" else ListsInput
