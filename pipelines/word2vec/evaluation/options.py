"""The options of ``penstock word2vec evaluate``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from pydantic import Field

from penstock.options import ClientPath, Rules, headings, options, refuse_ignored

Share = Annotated[float, Field(gt=0, lt=1)]

# Options that would be ignored.
_IGNORED: Rules = (
    (
        ("case_sensitive", "restrict"),
        "without --pairs or --analogies",
        lambda o: not (o.pairs or o.analogies),
    ),
    (("shares", "repeats", "l2", "seed"), "without --labels", lambda o: o.labels is None),
)


@options
@headings(pairs="What to evaluate by", case_sensitive="Words", shares="Labels")
class EvaluateOptions:
    """Options of ``penstock word2vec evaluate``."""

    pairs: tuple[ClientPath, ...] = ()
    """a file with two words and their judged similarity per line: Spearman's rank correlation of
    cosines with it; may be repeated"""
    analogies: tuple[ClientPath, ...] = ()
    """a file of analogies, four words per line, with sections that begin with a colon: accuracy of
    3CosAdd and 3CosMul; may be repeated"""
    labels: ClientPath | None = None
    """a graph with labels, or a table of id and label: F1 of one-vs-rest logistic
    regression, by training share"""
    candidates: str | None = None
    """evaluate only these ids, as if the others had no vector: a file (one per line, or the first
    column of Parquet or Arrow IPC), or type:NAME or label:NAME of the graph of --labels"""
    id_file: ClientPath | None = None
    """for an .npy file: the file of its ids [default: as in penstock similar]"""

    case_sensitive: Annotated[bool, Parameter(negative="")] = False
    """distinguish case [default: of words that differ only in case, the first counts]"""
    restrict: Annotated[int, Field(ge=1)] = 300_000
    """compare only with the first vectors, this many, which are those of the most frequent words"""

    shares: Annotated[tuple[Share, ...], Field(min_length=1)] = (
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
    )
    """training shares: fractions of the labelled ids to train on; the rest is predicted"""
    repeats: Annotated[int, Field(ge=1, le=10_000)] = 10
    """random splits per share, whose means are shown"""
    l2: Annotated[float, Field(gt=0)] = 1.0
    """L2 penalty of the classifier: half of it times the squared weights is added to the loss"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """random seed of the splits"""

    def __post_init__(self) -> None:
        refuse_ignored(self, _IGNORED)
