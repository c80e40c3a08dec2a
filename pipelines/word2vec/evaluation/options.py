"""The options of ``penstock word2vec evaluate``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import Field, model_validator

from penstock.errors import UsageError
from penstock.options import ClientPath, flag, headings, names_asked, options

Share = Annotated[float, Field(gt=0, lt=1)]

_OF_WORDS = ("case_sensitive", "restrict")
_OF_LABELS = ("shares", "repeats", "l2", "seed")


@options
@headings(pairs="What to evaluate by", case_sensitive="Words", shares="Labels")
class EvaluateOptions:
    """Options of ``penstock word2vec evaluate``."""

    pairs: tuple[ClientPath, ...] = ()
    """a file of word pairs and a judgement, a line each: Spearman's rank correlation with cosines;
    may be repeated"""
    analogies: tuple[ClientPath, ...] = ()
    """a file of analogies, a b c d a line, with sections that begin with a colon: accuracy of
    3CosAdd and 3CosMul; may be repeated"""
    labels: ClientPath | None = None
    """a graph with labels, or a Parquet file of id and label: F1 of one-vs-rest logistic
    regression by training share"""
    id_file: ClientPath | None = None
    """of an .npy file: the file of its ids [default: as penstock similar]"""

    case_sensitive: Annotated[bool, Parameter(negative="")] = False
    """words differ where only their case does [default: the first of such words stands for all]"""
    restrict: Annotated[int, Field(ge=1)] = 300_000
    """the first so many vectors only, which are those of the most frequent words"""

    shares: Annotated[tuple[Share, ...], Field(min_length=1)] = (
        0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9,
    )  # fmt: skip
    """training shares: parts of the labelled ids to train on; the rest is predicted"""
    repeats: Annotated[int, Field(ge=1)] = 10
    """random splits, of which the means are shown"""
    l2: Annotated[float, Field(gt=0)] = 1.0
    """L2 penalty: half of it times the squared weights is added to the loss"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """random seed of the splits"""

    @model_validator(mode="wrap")
    @classmethod
    def _check_given(cls, given: Any, make: Any) -> Any:
        """Refuse what would be ignored, also at its default."""
        made, asked = make(given), names_asked(given)
        by_words = bool(made.pairs or made.analogies)
        for names, used, what in (
            (_OF_WORDS, by_words, "--pairs or --analogies"),
            (_OF_LABELS, made.labels is not None, "--labels"),
        ):
            for name in names:
                if not used and name in asked:
                    raise UsageError(f"{flag(name)} needs {what}")
        return made
