"""``penstock generate``: graphs for experiments, the same for the same seed.

generate("rmat", "g", scale=16)             skewed degrees, as in Graph500
generate("sbm", "g", nodes=10_000)          blocks with features and labels that a GNN can learn
generate("kg", "g", entities=10_000)        a knowledge graph with a planted rule
generate("zoo", "g", graphs=1_000_000)      very many small graphs
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from penstock.errors import UsageError
from penstock.pipelines.generate.options import (
    KnowledgeOptions,
    RmatOptions,
    SbmOptions,
    ZooOptions,
)
from penstock.pipelines.generate.report import GenerateReport
from penstock.pipelines.help_page import OPTIONS
from penstock.pipelines.job import declare

if TYPE_CHECKING:
    from penstock.output import Output


_DECLARED: dict[str, Any] = {
    "reads": None,
    "writes": "graph",
    "passing": ("memory",),
    "clustered": False,
    "resumable": False,
}


@declare.job("generate rmat", **_DECLARED)
def make_rmat(context: declare.Context, out: Output, options: RmatOptions) -> GenerateReport:
    """R-MAT: skewed degrees and a small diameter, as in Graph500.

    Parameters
    ----------
    out
        the graph directory to write
    """
    from penstock.pipelines.generate.rmat import RmatGenerator

    return RmatGenerator(options).make(context, out)


@declare.job("generate sbm", **_DECLARED)
def make_sbm(context: declare.Context, out: Output, options: SbmOptions) -> GenerateReport:
    """Stochastic blocks: features and labels for a GNN to learn.

    Parameters
    ----------
    out
        the graph directory to write
    """
    from penstock.pipelines.generate.sbm import SbmGenerator

    return SbmGenerator(options).make(context, out)


@declare.job("generate kg", **_DECLARED)
def make_kg(context: declare.Context, out: Output, options: KnowledgeOptions) -> GenerateReport:
    """Triples whose tails can be predicted from head and relation.

    Parameters
    ----------
    out
        the graph directory to write
    """
    from penstock.pipelines.generate.knowledge import KnowledgeGenerator

    return KnowledgeGenerator(options).make(context, out)


@declare.job("generate zoo", **_DECLARED)
def make_zoo(context: declare.Context, out: Output, options: ZooOptions) -> GenerateReport:
    """Very many small graphs, as in SwarmGraph's table 3.

    Parameters
    ----------
    out
        the graph directory to write
    """
    from penstock.pipelines.generate.zoo import ZooGenerator

    return ZooGenerator(options).make(context, out)


KINDS = {"rmat": make_rmat, "sbm": make_sbm, "kg": make_kg, "zoo": make_zoo}

app = App(name="generate", group_parameters=OPTIONS)
for _number, (_kind, _made) in enumerate(KINDS.items()):
    app.command(_made.command, name=_kind, sort_key=_number)


def generate(kind: str, out: str | Path, *, quiet: bool = True, **options: Any) -> GenerateReport:
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
        The options of ``penstock generate KIND``, such as ``scale`` of ``"rmat"`` or ``nodes`` of
        ``"sbm"``; ``seed`` of all. The same seed gives the same graph on any number of cores.

    Examples
    --------
    >>> generate("rmat", "g", scale=20, edge_factor=16, seed=1)
    """
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise UsageError(f"unknown kind of graph {kind!r}", expected=f"one of {known}")
    return KINDS[kind](out, quiet=quiet, **options)
