"""The options of ``penstock word2vec train``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from pydantic import Field

from penstock.errors import UsageError
from penstock.kernels.word2vec_rules import MAX_DIMENSION, MAX_EPOCHS
from penstock.options import ClientPath, Rules, headings, options, refuse_ignored
from penstock.pipelines.walk.options import WalkingOptions

Count = Annotated[int, Field(ge=1)]

# Options that only some kinds of input use.
_OF_GRAPHS = (*(n for n in WalkingOptions.__dataclass_fields__ if n != "seed"), "pools")
_OF_WORDS = ("min_count", "max_vocab", "max_sentence")
# Options that would be ignored.
_IGNORED: Rules = (
    (
        (*_OF_GRAPHS, "same_walks"),
        "with --graph, because the input is walks already",
        lambda o: o.graph is not None,
    ),
    (
        ("min_count", "max_vocab"),
        "with --graph, because every node has a vector",
        lambda o: o.graph is not None,
    ),
    (("shards",), "without --deterministic", lambda o: not o.deterministic),
)
# Options that depend on the kind of the input.
_IGNORED_OF_INPUT: Rules = (
    (
        (*_OF_GRAPHS, "same_walks", "share"),
        "unless the input is a graph",
        lambda o, kind: kind != "graph",
    ),
    ((*_OF_WORDS, "column", "graph"), "if the input is a graph", lambda o, kind: kind == "graph"),
    (("column", "graph"), "if the input is text", lambda o, kind: kind == "text"),
    (("column",), "if the input is walks", lambda o, kind: kind == "walks"),
    (("same_walks",), "with one of --epochs", lambda o, kind: o.rounds(kind) == 1),
)


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
)
class Word2vecOptions(WalkingOptions):
    """Options of ``penstock word2vec train``."""

    walks: Count = 10
    """number of walks per start node and epoch"""

    dim: Annotated[int, Field(ge=1, le=MAX_DIMENSION)] = 128
    """dimension of the vectors"""
    window: Count = 5
    """context window: ceil(WINDOW / 2) words on each side of every word"""
    negatives: Annotated[int, Field(ge=1, le=64)] = 5
    """negative samples per window"""
    shared_windows: Annotated[int, Field(ge=1, le=64)] = 1
    """number of consecutive windows that share negative samples: more read fewer vectors"""
    pools: Annotated[bool | None, Parameter(negative="--no-pools")] = None
    """on CPUs, over a graph: consecutive walks draw their negative samples from a shared pool, so
    that fewer vectors are read [default: with --shared-windows 1]"""
    epochs: Annotated[int, Field(ge=1, lt=MAX_EPOCHS)] | None = None
    """passes over the corpus [default: 5, over a graph 1]"""
    lr: Annotated[float, Field(gt=0)] = 0.025
    """initial learning rate; it falls linearly with the trained words"""
    min_lr: Annotated[float, Field(ge=0)] = 0.0001
    """final learning rate"""
    sample: Annotated[float, Field(ge=0, le=1)] = 1e-3
    """subsampling threshold: words with a larger share of the corpus are left out at random; 0: no
    subsampling"""
    ns_exponent: Annotated[float, Field(ge=-2, le=2)] = 0.75
    """exponent of word counts in the distribution of negative samples"""

    init: ClientPath | None = None
    """warm start from these vectors: known ids begin with their vector; new nodes of a graph begin
    with the mean of their neighbours, other new words at random"""

    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """over a graph: train on walks from nodes that are new, or whose edges differ from those that
    the vectors of --init were trained on, and from this share of the others; without --init all
    are new [default: on walks from all]"""

    min_count: Count | None = None
    """least count of a word that gets a vector [default: 5 in text, 1 in walks and lists]"""
    max_vocab: Count | None = None
    """keep at most this many words, the most frequent ones"""
    max_sentence: Annotated[int, Field(ge=2, le=100_000_000)] = 10_000
    """longer sentences are split"""
    column: str | None = None
    """for Parquet: the column of lists [default: the only one, or path]"""
    graph: ClientPath | None = None
    """for walks and lists: their graph. Every node gets a vector, an id that is not in the graph is
    an error, and --init uses means of neighbours"""

    same_walks: Annotated[bool, Parameter(negative="")] = False
    """with several --epochs: train each on the same walks [default: on new ones]"""

    deterministic: Annotated[bool, Parameter(negative="")] = False
    """the same bytes for the same seed, on any number of threads and ranks: the corpus is divided
    into --shards, and each is trained in order on its own copy of the vectors"""
    shards: Count | None = None
    """with --deterministic: number of shards [default: 4]"""
    sync_words: Annotated[int, Field(ge=1000)] | None = None
    """with --deterministic or several ranks: words that all ranks train between two exchanges;
    fewer give better vectors, but are slower [default: 5 per word of the vocabulary and at least
    100,000, on GPUs 100 per word; fewer in short runs]"""
    parts: Annotated[Count | None, Parameter(alias="-k")] = None
    """number of ranks to train on [default: ranks of --cluster mpi, else 1]"""

    checkpoint_epochs: Annotated[int, Field(ge=0)] = 0
    """epochs between checkpoints; 0: only --checkpoint-minutes counts"""
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 10.0
    """minutes between checkpoints; 0: only --checkpoint-epochs counts"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_lr > self.lr:
            raise UsageError(
                "--lr falls to --min-lr, which is larger",
                expected=f"at most {self.lr:g}",
                got=f"--min-lr {self.min_lr:g}",
            )
        refuse_ignored(self, _IGNORED)

    def check_kind(self, kind: str) -> None:
        """Raise UsageError if this kind of input would ignore an option."""
        refuse_ignored(self, _IGNORED_OF_INPUT, kind)

    def rounds(self, kind: str) -> int:
        """Return the number of epochs."""
        return self.epochs if self.epochs is not None else 1 if kind == "graph" else 5

    def least_count(self, kind: str) -> int:
        """Return the least count of a word."""
        return self.min_count if self.min_count is not None else 5 if kind == "text" else 1
