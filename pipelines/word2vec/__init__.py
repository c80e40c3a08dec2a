"""``penstock word2vec``: vectors of nodes and words, from Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.options import shown
from penstock.paths import client_path
from penstock.pipelines.job import run
from penstock.pipelines.word2vec.options import Word2vecOptions
from penstock.pipelines.word2vec.report import Word2vecReport

__all__ = ["Word2vecOptions", "Word2vecReport", "word2vec"]


def word2vec(
    inputs: str | Path | Graph | Sequence[str | Path],
    out: str | Path,
    *,
    cluster: str | ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> Word2vecReport:
    """Train vectors by skip-gram with negative samples, and write them in the directory ``out``.

    Parameters
    ----------
    inputs
        A graph or its directory, whose walks are made while they are trained on; a directory of
        walks; or one or several Parquet files with a column of lists, or text files.
    out
        Directory to write: ``vectors.json``, Parquet with your ids, ``vectors.npy``.
    cluster
        Where it runs, as for ``connect`` [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``Word2vecOptions``, as ``dim``, ``window``, ``epochs``, and for a graph those of
        walks, as ``app``, ``walks``, ``p`` and ``q``: the options of ``penstock word2vec train``.

    Returns
    -------
    Word2vecReport
        Counts, the loss, times and words per second; ``text()`` and ``to_dict()``.

    Raises
    ------
    UsageError
        Options that contradict each other or the input.
    InputError
        An empty corpus, text that is not UTF-8, ids that the graph does not have.
    CapacityError
        The vocabulary does not fit into memory or on the disk.
    OutputExists
        ``out`` is taken, and neither ``resume`` nor ``overwrite`` is set.
    PenstockError
        The loss became NaN or infinite.

    Examples
    --------
    >>> word2vec("follows", "vectors", app="node2vec", p=0.5, q=2, walks=10, dim=64)
    >>> word2vec(["a.txt.gz", "b.txt"], "words", min_count=10, epochs=3)
    """
    from penstock.pipelines.word2vec.job import Word2vecJob

    several = [inputs] if isinstance(inputs, str | Path | Graph) else inputs
    several = list(several) if isinstance(several, Iterable) else []
    if not several or not all(isinstance(one, str | Path | Graph) for one in several):
        raise UsageError(
            "vectors are trained on what lies in files",
            expected="a graph, or paths of inputs, one at least",
            got=shown(inputs),
            remedy="Write sentences to a text file, a line each, and name it",
        )
    paths = [one.path if isinstance(one, Graph) else client_path(one) for one in several]
    given = Word2vecOptions(**options)
    return run(Word2vecJob(paths, client_path(out), given, cluster, quiet=quiet))
