"""``penstock word2vec``: vectors of nodes and words, from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.options import ClientInput
from penstock.pipelines.help_page import group
from penstock.pipelines.job import declare
from penstock.pipelines.word2vec.evaluation import evaluate_vectors
from penstock.pipelines.word2vec.options import Word2vecOptions
from penstock.pipelines.word2vec.report import Word2vecReport

if TYPE_CHECKING:
    from penstock.output import Output
    from penstock.pipelines.word2vec.inputs import Input

__all__ = ["Word2vecOptions", "Word2vecReport", "word2vec"]


def _open(*given: Any) -> Input:
    from penstock.pipelines.word2vec.inputs import open_input

    return open_input(*given)


# The rates may change too: a diverged run resumes from its checkpoint with lower ones. A checkpoint
# records the finished sentences, so it fits any number of ranks.
@declare.job(
    "word2vec train",
    reads=declare.Source(
        _open,
        kind=list[ClientInput],
        verified=True,
        searched=lambda opened: opened.searched,
        tables=True,
    ),
    writes="vectors",
    files=("starts",),
    passing=("checkpoint_epochs", "checkpoint_minutes", "parts"),
    varying=("lr", "min_lr"),  # for a diverged run
    on_gpu=True,
)
def word2vec(
    context: declare.Context, inputs: Input, out: Output, options: Word2vecOptions
) -> Word2vecReport:
    """Train vectors on a graph, walked during training, on walks, or on text.

    Parameters
    ----------
    inputs
        a graph, a directory of walks, Parquet or Arrow IPC files with a column of lists, or text
        files (also .gz, .zst and .bz2), one sentence per line: paths, folders, globs or URLs
    out
        directory of vectors to write

    Examples
    --------
    >>> word2vec("follows", "vectors", app="node2vec", p=0.5, q=2, walks=10, dim=64)
    >>> word2vec(["a.txt.gz", "b.txt"], "words", min_count=10, epochs=3)
    """
    if not context.plans:
        from penstock.cluster.connect import begin_early

        begin_early(context.cluster, options.parts)
    from penstock.pipelines.word2vec.job import train

    return train(context, inputs, out, options)


app = group(word2vec, evaluate_vectors)
