"""``penstock demo``: every job once, small, from nothing, with its result.

The demo is a flow: ``flow.yaml`` in its folder, which ``penstock run`` runs again. Its stages are
the jobs; two functions here make the tables that it begins with, as a warehouse provides them. A
job joins by adding its stage to FLOW, and its result to RESULTS.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import Field

from penstock.errors import PenstockError
from penstock.files import save_json, save_text
from penstock.options import ClientPath, options
from penstock.output import refuse_existing
from penstock.paths import client_path
from penstock.pipelines.display import CountsReport, Display, table_text

KIND = "demo"
RANKS = 2
# Features that alone predict a node's group poorly, and few enough edges between groups that parts
# have nodes without neighbours elsewhere, as real graphs have.
GROUPS = {"degree_inside": 14, "degree_outside": 1, "noise": 20}

FLOW = """\
# What `penstock demo` ran: `penstock run flow.yaml` runs what has changed since.
name: demo
folder: .
variables: {nodes: NODES, ranks: RANKS, small_graphs: 200}
stages:
  tables: {python: "penstock.pipelines.demo:make_tables", nodes: "{{nodes}}"}
  graph:
    job: etl
    input: tables/edges.parquet
    nodes: "{{stage.tables}}/nodes.parquet"
    label: group
    split: split
    feature_columns: ["x*"]
    expect: {nodes: ">= 1000"}
  parts: {job: partition, input: graph, k: RANKS}
  walks: {job: walk, input: graph, app: node2vec, p: 2, q: 0.5, length: 40, walks: 5}
  vectors:
    job: word2vec train
    input: graph
    app: node2vec
    p: 2
    q: 0.5
    length: 40
    walks: 5
    dim: 64
  groups: {job: word2vec evaluate, input: vectors, labels: "{{stage.graph}}", shares: [0.5]}
  model: {job: gnn train, input: graph, after: parts, epochs: 100, parts: "{{ranks}}"}
  score: {job: gnn evaluate, input: model, expect: {accuracy: ">= 0.5"}}
  predictions: {job: gnn predict, input: model, after: score, parts: 1}
  triples: {job: generate kg, entities: 2000, triples: 30000}
  knowledge: {job: embed train, input: triples, dim: 64, epochs: 8}
  ranks: {job: embed evaluate, input: knowledge, filtered: true, expect: {mrr: "> 0"}}
  small: {python: "penstock.pipelines.demo:make_small_graphs", graphs: "{{small_graphs}}"}
  central: {job: centrality, input: small/small.parquet, metrics: "closeness,betweenness"}
"""


@options
class DemoOptions:
    """Options of ``penstock demo``."""

    nodes: Annotated[int, Field(ge=1000, le=10_000_000)] = 20_000
    """nodes of the graph that is made"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace the folder if it holds a demo already"""


# Stages that are functions


def make_tables(out: Path, *, nodes: int) -> dict[str, int]:
    """Make an edge table and a node table, as a warehouse provides them."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstock.graph import SPLITS, Graph
    from penstock.pipelines.generate import generate

    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".") as scratch:
        generate("sbm", Path(scratch) / "g", nodes=nodes, **GROUPS, quiet=True)
        graph = Graph.open(Path(scratch) / "g")
        csr, features = graph.csr(), graph.features()
        sources = np.repeat(np.arange(graph.num_nodes), np.diff(csr.indptr))
        once = sources < csr.indices
        names = pa.array([f"p{number:07}" for number in range(graph.num_nodes)])
        ends = {"source": sources[once], "target": csr.indices[once]}
        edges = pa.table({name: names.take(pa.array(nodes)) for name, nodes in ends.items()})
        columns = {
            "id": names,
            "group": pa.array(graph.manifest.classes).take(pa.array(graph.labels())),
            "split": pa.array(SPLITS).take(graph.node_column("split").combine_chunks()),
        }
        assert features is not None
        columns |= {f"x{i}": pa.array(features[:, i]) for i in range(features.shape[1])}
        table = pa.table(columns)
        pq.write_table(edges, out / "edges.parquet")
        pq.write_table(table, out / "nodes.parquet")
    return {"edges": edges.num_rows, "nodes": table.num_rows}


def make_small_graphs(out: Path, *, graphs: int) -> dict[str, int]:
    """Make a table of many small graphs."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstock.graph import Graph
    from penstock.pipelines.generate import generate

    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".") as scratch:
        generate("zoo", Path(scratch) / "zoo", graphs=graphs, quiet=True)
        csr = Graph.open(Path(scratch) / "zoo").csr()
        graph = pq.read_table(Path(scratch) / "zoo/nodes.parquet")["graph"].to_numpy()
        sources = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
        once = sources < csr.indices
        columns = {"graph_id": graph[sources], "source": sources, "target": csr.indices}
        table = pa.table({name: column[once] for name, column in columns.items()})
        pq.write_table(table, out / "small.parquet")
    return {"graphs": graphs, "edges": table.num_rows}


# The results of the stages: one line each, from its report

Reported = Mapping[str, Any]


def _model(report: Reported) -> str:
    where = f"{report['ranks']} ranks" if report["ranks"] > 1 else "one rank"
    epochs = f"{report['epochs']} epochs of {1e3 * report['epoch_seconds']:.3g} ms"
    return f"accuracy {report['metrics']['test']['score']:.1%}, {epochs} on {where}"


def _groups(report: Reported) -> str:
    (half,) = report["labels"]["shares"]
    return f"groups from half of the vectors: micro F1 {half['micro_f1']:.1%}"


RESULTS: dict[str, Callable[[Reported], str]] = {
    "tables": lambda report: (
        f"{report['edges']:,} edges of {report['nodes']:,} nodes in 10 groups, 64 features"
    ),
    "graph": lambda report: (
        f"{report['nodes']:,} nodes, {report['edges']:,} directed edges "
        "(each edge stored in both directions)"
    ),
    "parts": lambda report: f"{report['k']} parts, {report['cut_share']:.1%} of the edges cut",
    "walks": lambda report: (
        f"{report['walks']:,} walks of {report['nodes'] // report['walks']} nodes"
    ),
    "vectors": lambda report: f"{report['rows']:,} vectors, loss {report['loss']:.3f}",
    "groups": _groups,
    "model": _model,
    "score": lambda report: f"accuracy {report['accuracy']:.1%}, macro F1 {report['macro_f1']:.1%}",
    "predictions": lambda report: f"{report['nodes']:,} predictions with the ids of the node table",
    "triples": lambda report: f"{report['edges']:,} triples of {report['nodes']:,} entities",
    "knowledge": lambda report: f"vectors of entities and relations, loss {report['loss']:.3f}",
    "ranks": lambda report: f"filtered MRR {report['mrr']:.3f}, Hits@10 {report['hits10']:.3f}",
    "small": lambda report: f"{report['graphs']:,} small graphs, {report['edges']:,} edges",
    "central": lambda report: f"closeness and betweenness of {report['graphs']:,} graphs",
}


# The whole


@dataclass
class DemoReport(CountsReport):
    """The result of every stage."""

    folder: str
    ranks: int
    seconds: float = 0.0
    accuracy: float | None = None
    stages: list[dict[str, Any]] = field(default_factory=list)
    alone: str | None = None  # why there are no ranks
    report: str | None = None  # the page about the run

    def text(self) -> str:
        """Return the closing table."""
        rows = [(one["name"], one["text"], f"{one['seconds']:.1f}") for one in self.stages]
        lines = [table_text([("stage", "result", "s"), *rows]), ""]
        if self.alone:
            lines.append(f"trained on one rank, as there is no MPI here: {self.alone}")
        lines.append(f"all of it {self.seconds:.1f} s, in {self.folder}")
        if self.report is not None:
            lines.append(self.report)
        return "\n".join(lines)


def run_demo(folder: Path, options: DemoOptions, *, quiet: bool) -> DemoReport:
    """Run all stages into ``folder``."""
    from penstock.pipelines.flow.document import read_flow
    from penstock.pipelines.flow.options import RunOptions
    from penstock.pipelines.flow.run import FlowRun
    from penstock.workers.ahead import compile_ahead

    begun = time.monotonic()
    # From the last stage on: the first one compiles what it calls by itself.
    compile_ahead("centrality", "embed train", "gnn train", "word2vec train")
    folder = folder.resolve()
    refuse_existing(folder, overwrite=options.overwrite, kind=KIND)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_json(folder / f"{KIND}.json", {"state": "begun"})
    why = why_alone()
    ranks = 1 if why else RANKS
    text = FLOW.replace("NODES", str(options.nodes)).replace("RANKS", str(ranks))
    save_text(folder / "flow.yaml", text)
    ran = FlowRun(read_flow(folder / "flow.yaml"), RunOptions(), quiet=quiet).run()
    if (failure := ran.failure()) is not None:
        raise failure
    report = DemoReport(str(folder), ranks, alone=why, report=ran.report)
    for name, one in ran.stages.items():
        own = one["report"]
        stage = {"name": name, "seconds": one["seconds"], "text": RESULTS[name](own)}
        report.stages.append({**stage, "metrics": one["metrics"]})
    report.accuracy = ran.stages["score"]["report"]["accuracy"]
    report.seconds = round(time.monotonic() - begun, 3)
    save_json(folder / f"{KIND}.json", {"state": "done", **report.to_dict()})
    return report


def why_alone() -> str | None:
    """Return why there can be no ranks here, or None."""
    from penstock.cluster.mpi.launcher import find_launcher, loaded_library

    try:
        find_launcher(None, loaded_library())
    except PenstockError as error:
        return error.what
    return None


def command(
    folder: Annotated[ClientPath, Parameter(help="the folder to write")] = Path("penstock-demo"),
    /,
    *,
    options: DemoOptions | None = None,
    output: Display = Display(),
) -> None:
    """Do everything once, small: tables, a graph, parts, walks, training, centralities."""
    options = options or DemoOptions()
    output.show(run_demo(client_path(folder), options, quiet=output.quiet or output.json))
