"""What docs/word2vec.md and docs/similar.md name is what the code has."""

import re

import pytest

from penstock.pipelines.similar.options import SimilarOptions
from penstock.pipelines.walk.options import WalkingOptions
from penstock.pipelines.word2vec.evaluation.options import EvaluateOptions
from penstock.pipelines.word2vec.export import ExportOptions
from penstock.pipelines.word2vec.options import Word2vecOptions


def names(*kinds):
    return {name.replace("_", "-") for kind in kinds for name in kind.__dataclass_fields__}


@pytest.mark.parametrize(
    ("page", "kinds", "elsewhere"),
    [
        ("word2vec", (Word2vecOptions, EvaluateOptions, ExportOptions), {"walks", "plan"}),
        ("similar", (SimilarOptions,), {"all", "source", "target"}),
    ],
)
def test_every_option_is_told(root, page, kinds, elsewhere):
    text = (root / f"docs/{page}.md").read_text()
    flags = set(re.findall(r"(?<![\w-])--?([a-z][a-z0-9]*(?:-[a-z0-9]+)*)", text))
    known = names(*kinds)
    assert known - names(WalkingOptions) <= flags
    assert flags - elsewhere <= known
