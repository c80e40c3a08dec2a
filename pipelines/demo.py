"""``penstock demo``: everything once, small, from nothing, with what came of it.

The demo is a list of stages, STAGES. Each is the command that its title shows, called from Python;
it finds what earlier ones left in the folder. A job joins by adding its stage.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import Field

from penstock.cluster.spec import ClusterSpec
from penstock.errors import PenstockError
from penstock.files import refuse_existing, save_json
from penstock.options import ClientPath, options
from penstock.output_lock import refuse_strangers_link
from penstock.paths import client_path
from penstock.pipelines.output import Output
from penstock.sizes import format_count

KIND = "demo"
RANKS = 2
SMALL_GRAPHS = 200
# Features that alone tell a node's group poorly, and few enough edges between groups that parts
# have nodes without neighbours elsewhere, as real graphs have.
GROUPS = {"degree_inside": 14, "degree_outside": 1, "noise": 20}


@options
class DemoOptions:
    """Options of ``penstock demo``."""

    nodes: Annotated[int, Field(ge=1000, le=10_000_000)] = 20_000
    """nodes of the graph that is made"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace the folder if it holds a demo already"""


@dataclass
class DemoRun:
    """What stages know: where they write, how large the graph is, on how many ranks a gang runs."""

    folder: Path
    nodes: int
    ranks: int = RANKS

    def at(self, name: str) -> Path:
        """Return the place of something in the folder."""
        return self.folder / name


@dataclass(frozen=True)
class Done:
    """What came of a stage: a line for people, figures for programs, files or folders."""

    text: str
    figures: dict[str, Any]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """One step of the demo; ``command`` has {at} for the folder, {nodes} and {ranks}."""

    name: str
    command: str
    run: Callable[[DemoRun], Done]

    def title(self, run: DemoRun) -> str:
        """Return what the stage does, as a command."""
        return self.command.format(at=run.folder, nodes=run.nodes, ranks=run.ranks)


# The stages


def make_tables(run: DemoRun) -> Done:
    """Make an edge table and a node table, as they come from somebody's warehouse."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstock.graph import SPLITS, Graph
    from penstock.pipelines.generate import generate

    with tempfile.TemporaryDirectory(dir=run.folder, prefix=".") as scratch:
        generate("sbm", Path(scratch) / "g", nodes=run.nodes, **GROUPS, quiet=True)
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
        nodes = pa.table(columns)
        pq.write_table(edges, run.at("edges.parquet"))
        pq.write_table(nodes, run.at("nodes.parquet"))
    return Done(
        f"{edges.num_rows:,} edges of {nodes.num_rows:,} nodes in 10 groups, 64 features",
        {"edges": edges.num_rows, "nodes": nodes.num_rows},
        ("edges.parquet", "nodes.parquet"),
    )


def read_tables(run: DemoRun) -> Done:
    """Turn the tables into a graph."""
    from penstock.pipelines.etl import etl

    report = etl(
        run.at("edges.parquet"),
        run.at("graph"),
        nodes=run.at("nodes.parquet"),
        label="group",
        split="split",
        feature_columns=("x*",),
    )
    text = (
        f"{report.nodes:,} nodes, {report.edges:,} directed edges "
        "(each edge stored in both directions)"
    )
    return Done(text, {"nodes": report.nodes, "arcs": report.edges}, ("graph",))


def cut_graph(run: DemoRun) -> Done:
    """Cut the graph into a part a rank."""
    from penstock.pipelines.partition import partition_graph

    report = partition_graph(run.at("graph"), k=RANKS, quiet=True)
    share = report.cut_share
    return Done(
        f"{RANKS} parts, {share:.1%} of the edges cut",
        {"parts": RANKS, "cut_share": share, "load_imbalance": report.load_imbalance},
        (f"graph/partition/k{RANKS}",),
    )


def make_walks(run: DemoRun) -> Done:
    """Walk over the graph from every node."""
    from penstock.pipelines.walk import walk, walk_array

    wanted: dict[str, Any] = {"app": "node2vec", "p": 2, "q": 0.5, "length": 40}
    # Compiles, so that the rate below is that of walks.
    walk_array(run.at("graph"), fraction=0.01, **wanted)
    report = walk(run.at("graph"), run.at("walks"), walks=5, **wanted)
    rate = report.steps / max(report.stage_seconds["walk"], 1e-9)
    return Done(
        f"{report.walks:,} walks of {report.nodes // report.walks} nodes, "
        f"{format_count(rate)} steps/s",
        {"walks": report.walks, "steps": report.steps, "steps_per_second": rate},
        ("walks",),
    )


def train_gnn(run: DemoRun) -> Done:
    """Train a network on the graph, on as many ranks as there are."""
    from penstock.pipelines.gnn import train

    ranks = run.ranks
    cluster = ClusterSpec(cluster="mpi", workers=ranks) if ranks > 1 else ClusterSpec()
    graph, out = run.at("graph"), run.at("run")
    report = train(graph, out, model="gcn", epochs=100, parts=ranks, cluster=cluster)
    trained = report.trained
    accuracy = trained.metrics["test"]["score"]
    figures = {
        "accuracy": accuracy,
        "epochs": trained.epochs,
        "epoch_seconds": trained.epoch_seconds,
        "ranks": ranks,
    }
    where = f"{ranks} ranks" if ranks > 1 else "one rank"
    epochs = f"{trained.epochs} epochs of {1e3 * trained.epoch_seconds:.3g} ms"
    return Done(f"accuracy {accuracy:.1%}, {epochs} on {where}", figures, ("run",))


def predict_groups(run: DemoRun) -> Done:
    """Predict the group of every node."""
    from penstock.pipelines.gnn import predict

    report = predict(run.at("run"), run.at("predictions"), parts=1)
    text = f"{report.nodes:,} predictions with the ids of the node table"
    return Done(text, {"predictions": report.nodes}, ("predictions",))


def compute_centralities(context: DemoRun) -> Done:
    """Compute centralities of many small graphs, which are read from a table."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstock.graph import Graph
    from penstock.pipelines.centrality import centrality
    from penstock.pipelines.generate import generate

    with tempfile.TemporaryDirectory(dir=context.folder, prefix=".") as scratch:
        generate("zoo", Path(scratch) / "zoo", graphs=SMALL_GRAPHS, quiet=True)
        csr = Graph.open(Path(scratch) / "zoo").csr()
        graph = pq.read_table(Path(scratch) / "zoo/nodes.parquet")["graph"].to_numpy()
        sources = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
        once = sources < csr.indices
        columns = {"graph_id": graph[sources], "source": sources, "target": csr.indices}
        table = pa.table({name: column[once] for name, column in columns.items()})
        pq.write_table(table, context.at("small.parquet"))
    report = centrality(
        context.at("small.parquet"), context.at("central"), metrics="closeness,betweenness"
    )
    rate = report.graphs / max(report.stage_seconds["compute"], 1e-9)
    return Done(
        f"closeness and betweenness of {report.graphs:,} graphs, {format_count(rate)} graphs/s",
        {"graphs": report.graphs, "graphs_per_second": rate},
        ("small.parquet", "central"),
    )


STAGES = (
    Stage(
        "tables",
        "penstock generate sbm --nodes {nodes} --degree-inside 14 --degree-outside 1 --noise 20, "
        "as two tables",
        make_tables,
    ),
    Stage(
        "graph",
        "penstock etl {at}/edges.parquet {at}/graph --nodes {at}/nodes.parquet --label group "
        "--split split --feature-columns 'x*'",
        read_tables,
    ),
    Stage("parts", f"penstock partition {{at}}/graph -k {RANKS}", cut_graph),
    Stage(
        "walks",
        "penstock walk {at}/graph {at}/walks --app node2vec --p 2 --q 0.5 --length 40 --walks 5",
        make_walks,
    ),
    Stage("gnn", "penstock gnn train {at}/graph {at}/run --epochs 100 -k {ranks}", train_gnn),
    Stage("predictions", "penstock gnn predict {at}/run {at}/predictions -k 1", predict_groups),
    Stage(
        "centralities",
        "penstock centrality {at}/small.parquet {at}/central --metrics closeness,betweenness",
        compute_centralities,
    ),
)


# The whole


@dataclass
class DemoReport:
    """What came of every stage."""

    folder: str
    ranks: int
    seconds: float = 0.0
    stages: list[dict[str, Any]] = field(default_factory=list)

    def add(self, stage: Stage, done: Done, seconds: float) -> None:
        """Take what one stage did."""
        found = {"name": stage.name, "seconds": round(seconds, 3), "text": done.text}
        self.stages.append({**found, "files": list(done.files), **done.figures})

    def figure(self, name: str) -> Any:
        """Return a figure of the stage that has it; None where none has."""
        return next((stage[name] for stage in self.stages if name in stage), None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        known = {
            "accuracy": self.figure("accuracy"),
            "steps_per_second": self.figure("steps_per_second"),
        }
        start = {"folder": self.folder, "ranks": self.ranks, "seconds": round(self.seconds, 3)}
        return {**start, **known, "stages": self.stages}

    def text(self) -> str:
        """Return the closing table."""
        from io import StringIO

        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name, how in (("stage", {}), ("what came of it", {}), ("s", {"justify": "right"})):
            table.add_column(name, **how)  # type: ignore[arg-type]
        table.add_column(f"in {self.folder}")
        for stage in self.stages:
            files = ", ".join(stage["files"])
            table.add_row(stage["name"], stage["text"], f"{stage['seconds']:.1f}", files)
        console = Console(file=StringIO(), width=shutil.get_terminal_size((100, 24)).columns)
        console.print(table)
        assert isinstance(console.file, StringIO)
        drawn = "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())
        return f"{drawn.strip()}\n\n{self._learnt()}"

    def _learnt(self) -> str:
        lines = [f"accuracy on the test nodes {self.figure('accuracy'):.1%}"]
        lines.append(f"walks {format_count(self.figure('steps_per_second'))} steps/s")
        lines.append(f"all of it {self.seconds:.1f} s")
        return "\n".join(lines)


def demo(folder: str | Path = "penstock-demo", *, quiet: bool = True, **options: Any) -> DemoReport:
    """Run all stages into ``folder``; the options are those of DemoOptions."""
    return run_demo(client_path(folder), DemoOptions(**options), quiet=quiet)


def run_demo(folder: Path, options: DemoOptions, *, quiet: bool) -> DemoReport:
    """Run all stages; ``demo`` with its options checked."""
    begun = time.monotonic()
    refuse_strangers_link(folder)
    folder = folder.resolve()
    refuse_existing(folder, overwrite=options.overwrite, kind=KIND)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_json(folder / f"{KIND}.json", {"state": "begun"})
    why = why_alone()
    run = DemoRun(folder, options.nodes, 1 if why else RANKS)
    report = DemoReport(str(folder), run.ranks)
    for number, stage in enumerate(STAGES, 1):
        if not quiet:
            print(f"{number}/{len(STAGES)} {stage.title(run)}", file=sys.stderr, flush=True)
            if stage.name == "gnn" and why:
                print(f"    on one rank, as there is no MPI here: {why}", file=sys.stderr)
        start = time.monotonic()
        done = stage.run(run)
        report.add(stage, done, time.monotonic() - start)
    report.seconds = time.monotonic() - begun
    save_json(folder / f"{KIND}.json", {"state": "done", **report.to_dict()})
    return report


def why_alone() -> str | None:
    """Return why there can be no ranks here, or None."""
    from penstock.cluster.mpi.mpiexec import find_launcher, loaded_library

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
    output: Output = Output(),
) -> None:
    """Do everything once, small: tables, a graph, parts, walks, training, centralities."""
    options = options or DemoOptions()
    output.show(run_demo(client_path(folder), options, quiet=output.quiet or output.json))
