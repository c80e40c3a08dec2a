"""``penstock generate``: graphs to try things on, the same for the same seed.

generate("rmat", "g", scale=16)             skewed degrees, as in Graph500
generate("sbm", "g", nodes=10_000)          blocks with features and labels that a GNN can learn
generate("kg", "g", entities=10_000)        a knowledge graph with a planted rule
generate("zoo", "g", graphs=1_000_000)      very many small graphs side by side
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.paths import client_path

if TYPE_CHECKING:
    from penstock.pipelines.generate.report import Report

KINDS = ("rmat", "sbm", "kg", "zoo")


def generate(kind: str, out: str | Path, *, quiet: bool = True, **options: Any) -> Report:
    """Make a random graph, and save it in the directory ``out``.

    Parameters
    ----------
    kind
        ``"rmat"``, ``"sbm"`` (stochastic block model, with features and labels), ``"kg"`` (a
        knowledge graph) or ``"zoo"`` (many small graphs).
    out
        Directory to write.
    quiet
        Print no progress.
    **options
        The options of ``penstock generate KIND``, as ``scale`` of ``"rmat"`` or ``nodes`` of
        ``"sbm"``; ``seed`` of all. The same seed gives the same graph on any number of cores.

    Returns
    -------
    Report
        Counts, sizes and times; ``text()`` and ``to_dict()``.

    Raises
    ------
    UsageError
        An unknown kind, or options that it does not have.
    CapacityError
        It does not fit on the disk or in memory.
    OutputExists
        ``out`` is taken, and ``overwrite`` is not set.

    Examples
    --------
    >>> generate("rmat", "g", scale=20, edge_factor=16, seed=1)
    """
    from penstock.pipelines.generate import options as known

    path = client_path(out)
    if kind == "rmat":
        from penstock.pipelines.generate.rmat import generate_rmat

        return generate_rmat(path, known.RmatOptions(**options), quiet=quiet)
    if kind == "sbm":
        from penstock.pipelines.generate.sbm import generate_sbm

        return generate_sbm(path, known.SbmOptions(**options), quiet=quiet)
    if kind == "kg":
        from penstock.pipelines.generate.knowledge import generate_knowledge

        return generate_knowledge(path, known.KnowledgeOptions(**options), quiet=quiet)
    if kind == "zoo":
        from penstock.pipelines.generate.zoo import generate_zoo

        return generate_zoo(path, known.ZooOptions(**options), quiet=quiet)
    raise UsageError(f"there is no kind of graph {kind!r}", expected=f"one of {', '.join(KINDS)}")
