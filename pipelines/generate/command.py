"""``penstock generate rmat|sbm|kg|zoo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from penstock.pipelines.generate.options import (
    KnowledgeOptions,
    RmatOptions,
    SbmOptions,
    ZooOptions,
)
from penstock.pipelines.output import Output

app = App(
    name="generate",
    help="Make a graph: R-MAT, stochastic blocks, a knowledge graph, a zoo of small graphs.",
    help_format="plaintext",
    result_action="return_value",
)

Out = Annotated[Path, Parameter(help="the graph directory to write")]


@app.command(name="rmat")
def rmat(out: Out, /, *, options: RmatOptions | None = None, output: Output = Output()) -> None:
    """Make an R-MAT graph: skewed degrees and a small diameter, as in Graph500."""
    from penstock.pipelines.generate.rmat import generate_rmat

    options = options or RmatOptions()
    output.show(generate_rmat(out, options, quiet=output.quiet))


@app.command(name="sbm")
def sbm(out: Out, /, *, options: SbmOptions | None = None, output: Output = Output()) -> None:
    """Make a stochastic block model with features, labels and splits for a GNN to learn."""
    from penstock.pipelines.generate.sbm import generate_sbm

    options = options or SbmOptions()
    output.show(generate_sbm(out, options, quiet=output.quiet))


@app.command(name="kg")
def kg(out: Out, /, *, options: KnowledgeOptions | None = None, output: Output = Output()) -> None:
    """Make a knowledge graph whose tails can be told from head and relation."""
    from penstock.pipelines.generate.knowledge import generate_knowledge

    options = options or KnowledgeOptions()
    output.show(generate_knowledge(out, options, quiet=output.quiet))


@app.command(name="zoo")
def zoo(out: Out, /, *, options: ZooOptions | None = None, output: Output = Output()) -> None:
    """Make very many small graphs, of the sizes and degrees of SwarmGraph's table 3."""
    from penstock.pipelines.generate.zoo import generate_zoo

    options = options or ZooOptions()
    output.show(generate_zoo(out, options, quiet=output.quiet))
