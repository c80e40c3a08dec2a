"""``penstock generate rmat|sbm|kg|zoo``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Group, Parameter

from penstock.options import ClientPath
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
    group_parameters=Group("Options", sort_key=5),
    result_action="return_value",
)

Out = Annotated[ClientPath, Parameter(help="the graph directory to write")]


@app.command(name="rmat", sort_key=1)
def rmat(out: Out, /, *, options: RmatOptions | None = None, output: Output = Output()) -> None:
    """R-MAT: skewed degrees and a small diameter, as in Graph500."""
    from penstock.pipelines.generate.rmat import generate_rmat

    options = options or RmatOptions()
    output.show(generate_rmat(out, options, quiet=output.quiet))


@app.command(name="sbm", sort_key=2)
def sbm(out: Out, /, *, options: SbmOptions | None = None, output: Output = Output()) -> None:
    """Stochastic blocks: features and labels for a GNN to learn."""
    from penstock.pipelines.generate.sbm import generate_sbm

    options = options or SbmOptions()
    output.show(generate_sbm(out, options, quiet=output.quiet))


@app.command(name="kg", sort_key=3)
def kg(out: Out, /, *, options: KnowledgeOptions | None = None, output: Output = Output()) -> None:
    """Triples whose tails can be told from head and relation."""
    from penstock.pipelines.generate.knowledge import generate_knowledge

    options = options or KnowledgeOptions()
    output.show(generate_knowledge(out, options, quiet=output.quiet))


@app.command(name="zoo", sort_key=4)
def zoo(out: Out, /, *, options: ZooOptions | None = None, output: Output = Output()) -> None:
    """Very many small graphs, as in SwarmGraph's table 3."""
    from penstock.pipelines.generate.zoo import generate_zoo

    options = options or ZooOptions()
    output.show(generate_zoo(out, options, quiet=output.quiet))
