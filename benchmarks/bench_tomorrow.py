"""What a night costs if a share of the edges has changed, over a rebuild.

    python -P benchmarks/bench_tomorrow.py [--quick] [--cpu] [--graph communities]

Random changes replace edges anywhere; concentrated ones replace edges among nodes that are next to
each other. Every result is compared with that of a rebuild, on threads of this process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import FULL, Case, Option, Side, main

import penstock
from penstock import Graph
from penstock.pipelines.vectors import Vectors, write_vectors

SHARES = (0.0, 0.001, 0.01, 0.1)
KINDS = ("random", "concentrated")
PARTS = 8
EPOCHS = 10  # until vectors made anew are as good as further training makes them
ACROSS = 1 / 2000  # of the edges of communities lead to another one
FEATURES, VECTORS = 64, 1 << 14  # of predictions; that are compared with each other
TOLERANCE = 1e-11  # of PageRank per node
BALL = 4  # a concentrated change is among nodes with this many times the edges that change


@dataclass(frozen=True)
class Job:
    """A job from a base and anew.

    run    (graph, output, the base's output or None) -> report
    good   whether the results of both ways, output and report, are the same, or as good
    kept   of a report from a base, the share that was taken over
    most   the most time over that of a rebuild, by share of random changes to R-MAT
    """

    run: Callable[[Path, Path, Path | None], Any]
    good: Callable[[Path, Any, Path, Any], bool]
    kept: Callable[[Any], float]
    most: dict[float, float]


def same_files(one: Path, _: Any, other: Path, __: Any) -> bool:
    """Return whether two directories of walks list the same files."""
    listed = [json.loads((path / "_walks.json").read_text())["files"] for path in (one, other)]
    return bool(listed[0] == listed[1])


def walks(**options: Any) -> Job:
    """Return the case of walks with these options."""
    return Job(
        lambda graph, out, base: penstock.walk(graph, out, base=base, **options),
        same_files,
        lambda report: float(report.from_base.kept / report.walks),
        {0.0: 0.4, 0.1: 1.5},
    )


def partition(graph: Path, _: Path, base: Path | None) -> Any:
    """Cut a graph, as yesterday's next to it or anew."""
    yesterday = None if base is None else graph.parent / f"yesterday/partition/k{PARTS}"
    return penstock.partition_graph(graph, k=PARTS, base=yesterday, overwrite=True)


def vectors(graph: Path, out: Path, base: Path | None) -> Any:
    """Train vectors: further on what changed, or anew for as long as they need."""
    given = {"dim": 32, "length": 40, "window": 10}
    if base is None:
        return penstock.word2vec(graph, out, epochs=EPOCHS, **given)
    return penstock.word2vec(graph, out, init=base, share=0.1, lr=0.005, **given)


def auc(out: Path) -> float:
    """Return how often an edge of the graph of vectors has a larger product than a random pair."""
    opened, random = Vectors.open(out), np.random.default_rng(0)
    graph = Graph.open(json.loads((out / "vectors.json").read_text())["graph"])
    rows = np.asarray(opened.values)[opened.find(graph.user_ids().combine_chunks())]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    csr = graph.csr()
    edges = random.integers(0, csr.edges, 100_000)
    ends = np.searchsorted(csr.indptr, edges, side="right") - 1
    near = (rows[ends] * rows[csr.indices[edges]]).sum(axis=1)
    far = (rows[ends] * rows[random.integers(0, csr.rows, len(ends))]).sum(axis=1)
    return float(np.mean(near > far))


def ends_of(graph: Graph) -> tuple[Any, Any]:
    """Return each undirected edge once."""
    csr = graph.csr()
    sources = np.repeat(np.arange(csr.rows), csr.degrees())
    once = sources <= csr.indices
    return sources[once], csr.indices[once]


def made_once(graph: Path, name: str, make: Callable[[Path, Graph], Any]) -> Path:
    """Return what is made of a graph, unless that was before."""
    opened = Graph.open(graph)
    out = graph.parent / f"{name}-{opened.digest[:16]}"
    if not out.exists():
        make(out, opened)
    return out


def featured(graph: Path) -> Path:
    """Return the graph with features, labels and splits, on the base of that of yesterday."""

    def make(out: Path, opened: Graph) -> None:
        ids, random = opened.user_ids().to_numpy(), np.random.default_rng(0)
        sources, targets = ends_of(opened)
        edges = out.with_suffix(".edges.parquet")
        pd.DataFrame({"source": ids[sources], "target": ids[targets]}).to_parquet(edges)
        columns = {
            f"x{n}": random.normal(size=len(ids)).astype(np.float32) for n in range(FEATURES)
        }
        about = {"id": ids, "label": ids % 7, "split": np.where(ids % 3, "train", "test")}
        pd.DataFrame(about | columns).to_parquet(out.with_suffix(".nodes.parquet"))
        base = None if graph.name == "yesterday" else featured(graph.parent / "yesterday")
        penstock.etl(
            edges,
            out,
            nodes=out.with_suffix(".nodes.parquet"),
            label="label",
            split="split",
            feature_columns=["x*"],
            base=base,
        )

    return made_once(graph, "featured", make)


def predictions() -> Job:
    """Return the case of predictions by two layers of SAGE."""

    def run(graph: Path, out: Path, base: Path | None) -> Any:
        weights = graph.parent / "run"
        if not weights.exists():
            penstock.gnn.train(featured(graph), weights, model="sage", epochs=2)
        given = {"graph": featured(graph), "base": base}
        return penstock.gnn.predict(weights, out, **given, cluster="threads")

    return Job(
        run,
        lambda one, _, other, __: same_tables(one, other),
        lambda report: report.from_base.kept / report.nodes,
        {0.0: 1.1, 0.1: 2.0},
    )


def same_tables(one: Path, other: Path) -> bool:
    """Return whether two outputs have the same rows."""
    tables = [pq.read_table(sorted(path.glob("part-*.parquet"))) for path in (one, other)]
    return bool(tables[0].equals(tables[1]))


def neighbours(graph: Path, out: Path, base: Path | None) -> Any:
    """Search the neighbours of random vectors, which move if the degree of a node changes."""

    def make(folder: Path, opened: Graph) -> None:
        random = np.random.default_rng(0)
        values = random.normal(size=(opened.num_nodes, 64))[:VECTORS]
        values += 0.1 * random.normal(size=(1 << 16, 64))[opened.degrees[:VECTORS]]
        folder.mkdir()
        write_vectors(folder, opened.user_ids().to_numpy()[:VECTORS], values.astype(np.float32))

    return penstock.similar(
        made_once(graph, "vectors", make), out=out, base=base, cluster="threads"
    )


def pagerank(graph: Path, out: Path, base: Path | None) -> Any:
    """Compute PageRank."""
    return penstock.centrality(graph, out, metrics="pagerank", tol=TOLERANCE, base=base)


def near_ranks(one: Path, _: Any, other: Path, __: Any) -> bool:
    """Return whether two outputs have the same ranks, as far as the tolerance decides them."""
    ranks = [pq.read_table(path / "nodes")["pagerank"].to_numpy() for path in (one, other)]
    return float(np.abs(ranks[0] - ranks[1]).mean()) < 2 * 0.85 / 0.15 * TOLERANCE


JOBS = {
    "predict": predictions(),
    "similar": Job(
        neighbours,
        lambda one, _, other, __: same_tables(one, other),
        lambda report: report.from_base.kept / report.ids,
        {0.0: 0.2, 0.001: 0.6},
    ),
    "pagerank": Job(pagerank, near_ranks, lambda report: 0.0, {0.0: 2.5, 0.1: 2.5}),
    "walk": walks(length=80),
    "walk short": walks(length=8, walks=10),
    "walk node2vec": walks(length=20, app="node2vec", p=0.5, q=2),
    "partition": Job(
        partition,
        lambda _, based, __, anew: based.cut_share <= 1.1 * anew.cut_share + 0.02,
        lambda report: float(report.made_by == "base"),
        {0.001: 0.12, 0.1: 0.12},
    ),
    "word2vec": Job(  # --scale 13: a rebuild takes EPOCHS epochs
        vectors,
        lambda one, _, other, __: auc(one) >= auc(other) - 0.01,
        lambda report: 1 - report.words / (report.rows * 10 * 40),
        {0.001: 0.05, 0.01: 0.05},
    ),
}


def communities(scale: int, path: Path) -> None:
    """Write edges: 64 nodes of a community know each other; few edges lead to another one."""
    random, nodes = np.random.default_rng(0), 1 << scale
    sources = np.repeat(np.arange(nodes), 5)
    targets = sources // 64 * 64 + random.integers(0, 64, len(sources))
    far = random.random(len(sources)) < ACROSS
    targets[far] = random.integers(0, nodes, int(far.sum()))
    pd.DataFrame({"source": sources, "target": targets}).to_parquet(path)


def change(graph: Graph, share: float, kind: str, folder: Path) -> tuple[Path, Path]:
    """Write the edges to add and to remove, as many of each."""
    random, csr = np.random.default_rng(1), graph.csr()
    ids = graph.user_ids().to_numpy()
    sources = np.repeat(np.arange(csr.rows), csr.degrees())
    inside = np.flatnonzero(sources < csr.indices)
    count = int(len(inside) * share / 2)
    if kind == "concentrated" and count:
        near = np.zeros(csr.rows, bool)
        near[csr.indices[csr.indptr[csr.rows // 2]]] = True
        while True:
            within = inside[near[sources[inside]] & near[csr.indices[inside]]]
            if len(within) >= BALL * count:
                break
            before = near.sum()
            near[csr.indices[near[sources]]] = True
            if near.sum() == before:
                near[np.flatnonzero(~near)[0]] = True
        within = within[: BALL * count]
        inside = within
    gone = random.choice(inside, count, replace=False)
    # Ends of new edges are those of others: nodes get them in proportion to their degree.
    ends = sources[random.choice(inside, count)], csr.indices[random.choice(inside, count)]
    files = []
    for name, (one, other) in {"add": ends, "remove": (sources[gone], csr.indices[gone])}.items():
        table = pd.DataFrame({"source": ids[one], "target": ids[other]})
        table[table.source != table.target].to_parquet(folder / f"{name}.parquet")
        files.append(folder / f"{name}.parquet")
    return files[0], files[1]


def ran(job: Job, today: Path, out: Path, base: Path | None) -> tuple[Path, Any]:
    shutil.rmtree(out, ignore_errors=True)
    return out, job.run(today, out, base)


def check(job: Job, values: dict[str, Any]) -> dict[str, Any]:
    (out, report), (anew, rebuilt) = values["ours"], values["anew"]
    assert job.good(out, report, anew, rebuilt), "not the result of a rebuild, or worse"
    kept = job.kept(report)
    assert kept <= 1
    return {"kept": kept}


def cases(given: argparse.Namespace) -> Iterator[Case]:
    folder = given.scratch
    yesterday = folder / "yesterday"
    if given.graph == "rmat":
        penstock.generate("rmat", yesterday, scale=given.scale, quiet=True)
    else:
        communities(given.scale, folder / "edges.parquet")
        penstock.etl(folder / "edges.parquet", yesterday, quiet=True)
    chosen = ("walk", "partition") if given.quick else JOBS
    for name in chosen:
        JOBS[name].run(yesterday, folder / name, None)
    for share in SHARES:
        for kind in KINDS if share and not given.quick else KINDS[:1]:
            add, remove = change(Graph.open(yesterday), share, kind, folder)
            today = folder / "today"
            shutil.rmtree(today, ignore_errors=True)
            penstock.etl([], today, base=yesterday, add=[add], remove=[remove], quiet=True)
            for name in chosen:
                job = JOBS[name]
                gated = kind == "random" and given.graph == "rmat"
                most = job.most.get(share) if gated else None
                run = partial(ran, job, today)
                anew = Side(partial(run, folder / "anew", None), most and 1 / most / FULL)
                yield Case(
                    f"{name}, {share:.1%} {kind}",
                    partial(run, folder / "based", folder / name),
                    partial(check, job),
                    {"anew": anew},
                    rounds=3,
                )


if __name__ == "__main__":
    options = Option("--scale", 16, 13), Option("--graph", "rmat", "rmat", "or communities")
    sys.exit(main(__doc__, cases, *options))
