"""The options of ``penstock word2vec train``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import Field, model_validator

from penstock.errors import UsageError
from penstock.kernels.word2vec_rules import MAX_DIMENSION, MAX_EPOCHS
from penstock.options import ClientPath, flag, headings, names_asked, options
from penstock.pipelines.walk.options import WalkingOptions

Count = Annotated[int, Field(ge=1)]

# What only some kinds of input have a meaning for.
_OF_GRAPHS = frozenset(WalkingOptions.__dataclass_fields__) - {"seed"} | {"same_walks", "pools"}
_OF_WORDS = ("min_count", "max_vocab", "max_sentence")


@options
@headings(
    dim="Training",
    min_count="Vocabulary",
    column="Input",
    app="Walks of a graph",
    seed="Training",
    start="Walks of a graph",
    same_walks="Walks of a graph",
    deterministic="Computation",
    resume="Output",
)
class Word2vecOptions(WalkingOptions):
    """Options of ``penstock word2vec train``."""

    walks: Count = 10
    """number of walks per start node, of an epoch"""

    dim: Annotated[int, Field(ge=1, le=MAX_DIMENSION)] = 128
    """dimension of the vectors"""
    window: Count = 5
    """window: contexts of a word are ceil(WINDOW / 2) words to each side, at every word"""
    negatives: Annotated[int, Field(ge=1, le=64)] = 5
    """negative samples of a window"""
    shared_windows: Annotated[int, Field(ge=1, le=64)] = 1
    """places in a row whose windows have the same negative samples: more reads fewer vectors"""
    pools: Annotated[bool | None, Parameter(negative="--no-pools")] = None
    """on cores, over a graph: negative samples of some walks in a row are of a pool that they have
    together, which reads fewer vectors [default: with --shared-windows 1]"""
    epochs: Annotated[int, Field(ge=1, lt=MAX_EPOCHS)] | None = None
    """passes over the corpus [default: 5; over a graph, whose walks are --walks, 1]"""
    lr: Annotated[float, Field(gt=0)] = 0.025
    """learning rate at the start; it falls linearly by words seen"""
    min_lr: Annotated[float, Field(ge=0)] = 0.0001
    """learning rate at the end"""
    sample: Annotated[float, Field(ge=0, le=1)] = 1e-3
    """subsampling of frequent words: those of a larger share of the corpus are left out at random;
    0: none is"""
    ns_exponent: Annotated[float, Field(ge=-2, le=2)] = 0.75
    """negative samples are drawn as often as counts of words to this power"""

    init: ClientPath | None = None
    """warm start from these vectors: what they know begins with them; new nodes of a graph with the
    mean of their neighbours, other words at random"""

    min_count: Count | None = None
    """words seen less often get no vector [default: 5 in text, 1 in walks and lists]"""
    max_vocab: Count | None = None
    """the most frequent words only, at most so many"""
    max_sentence: Annotated[int, Field(ge=2, le=100_000_000)] = 10_000
    """longer sentences are cut"""
    column: str | None = None
    """of Parquet: the column of lists [default: the only one, or path]"""
    graph: ClientPath | None = None
    """of walks and lists: the graph that they walk over. An id that it does not have is an error,
    every node gets a vector, and --init takes means of neighbours"""

    same_walks: Annotated[bool, Parameter(negative="")] = False
    """with several --epochs: train every one on the same walks [default: on new ones]"""

    deterministic: Annotated[bool, Parameter(negative="")] = False
    """the same bytes for the same seed, whatever the number of threads and ranks: --shards parts of
    the corpus are each trained in order, on a copy of the vectors each"""
    shards: Count | None = None
    """with --deterministic: into how many parts [default: 4]"""
    sync_words: Annotated[int, Field(ge=1000)] | None = None
    """with --deterministic or several ranks: words of all between two exchanges of what changed;
    fewer are better and slower [default: 5 for each word of the vocabulary, 100,000 at least, among
    GPUs 100; but fewer where else there were not 150 exchanges in all (among GPUs 300 of up to 100
    million words), or 50 of more than a billion words, on cores 2 for each word of the vocabulary
    at least]"""
    parts: Annotated[Count | None, Parameter(alias="-k")] = None
    """train on so many ranks [default: ranks of --cluster mpi, else 1]"""

    checkpoint_minutes: Annotated[float, Field(ge=0)] = 10.0
    """save a checkpoint to resume from so many minutes after the last; 0: none"""
    verify: Annotated[bool, Parameter(negative="")] = False
    """before anything else, compare every file of the graph, or of the walks, with its SHA-256"""

    resume: Annotated[bool, Parameter(negative="")] = False
    """go on from the last checkpoint of an interrupted run of the same command; --lr, --min-lr and
    --parts may be others"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace the output if it holds vectors already"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_lr > self.lr:
            raise UsageError(
                "--min-lr is where --lr falls to",
                expected=f"at most {self.lr:g}",
                got=f"--min-lr {self.min_lr:g}",
            )
        if not self.deterministic and self.shards is not None:
            raise UsageError(
                "--shards are of --deterministic training",
                remedy="Give --deterministic too, or leave --shards away",
            )

    @model_validator(mode="wrap")
    @classmethod
    def _check_given(cls, given: Any, make: Any) -> Any:
        """Refuse what would be ignored, also at its default."""
        made = make(given)
        object.__setattr__(made, "_asked", names_asked(given))
        if made.graph is not None and (over := made.given(*sorted(_OF_GRAPHS))):
            raise UsageError(
                f"option {flag(over[0])} is for walks that are made here, of a graph as the input",
                got="--graph, over which the input has walked already",
            )
        return made

    def given(self, *names: str) -> list[str]:
        """Return which of these options were given, or are not at their defaults."""
        asked: frozenset[str] = getattr(self, "_asked", frozenset())
        default = type(self)
        return [
            name for name in names
            if name in asked or getattr(self, name) != getattr(default, name)
        ]  # fmt: skip

    def check_kind(self, kind: str) -> None:
        """Raise UsageError where an option has no meaning for this kind of input."""
        refused: tuple[str, ...] = tuple(sorted(_OF_GRAPHS))
        why = "needs a graph as the input"
        if kind == "graph":
            refused, why = (*_OF_WORDS, "column", "graph"), "is for text, walks and lists"
        elif kind == "text":
            refused = (*refused, "column", "graph")
            why = "is not for text"
        elif kind == "walks":
            refused = (*refused, "column")
        if given := self.given(*refused):
            raise UsageError(f"option {flag(given[0])} {why}", got=f"an input of {kind}")
        if self.same_walks and self.rounds(kind) == 1:
            raise UsageError(
                "--same-walks is about epochs after the first, and there is one",
                remedy="Give --epochs 2 or more, or leave --same-walks away",
            )

    def rounds(self, kind: str) -> int:
        """Return the number of epochs."""
        return self.epochs if self.epochs is not None else 1 if kind == "graph" else 5

    def least_count(self, kind: str) -> int:
        """Return how often a word is seen at least."""
        return self.min_count if self.min_count is not None else 5 if kind == "text" else 1
