"""What a night costs if a share of the edges has changed, over a rebuild.

    python -P benchmarks/bench_tomorrow.py [--quick] [--cpu] [--graph communities]

Random changes replace edges anywhere; concentrated ones replace edges among nodes that are next to
each other. Every result is compared with that of a rebuild, on threads of this process. The night
is all jobs, etl included. Jobs that train are also trained over several days of 1 % changes, each
from the day before: their mean score must be that of rebuilds, to one standard error (AUC: 0.002).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import FULL, Case, Option, Side, absent, clock, data, main, real

import penstock
from penstock import Graph
from penstock.files import sha256_of
from penstock.pipelines.vectors import Vectors, write_vectors

KINDS = ("random", "concentrated")
PARTS = 8
EPOCHS = 10  # until vectors made anew are as good as further training makes them
ACROSS = 1 / 2000  # of the edges of communities lead to another one
FEATURES, VECTORS = 64, 1 << 14  # of predictions; that are compared with each other
TOLERANCE = 1e-11  # of PageRank per node
NIGHT = 12.5, 6.6  # of the cost of a night from bases, that of a rebuild, full and quick
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
    """Return whether two directories of walks have the same files."""
    ours, anew = ({p.name: sha256_of(p) for p in path.glob("part-*")} for path in (one, other))
    return len(ours) > 0 and ours == anew


def walks(**options: Any) -> Job:
    """Return the case of walks with these options."""
    return Job(
        lambda graph, out, base: penstock.walk(graph, out, base=base, **options),
        same_files,
        lambda report: float(report.from_base.kept / report.walks),
        {0.0: 0.65, 0.1: 1.4},
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
        {0.0: 0.8, 0.1: 1.9},
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
        {0.0: 0.29, 0.001: 0.51},
    ),
    "pagerank": Job(pagerank, near_ranks, lambda report: 0.0, {0.0: 1.0, 0.1: 1.4}),
    "walk": walks(length=80),
    "walk short": walks(length=8, walks=10),
    "walk node2vec": walks(length=20, app="node2vec", p=0.5, q=2),
    "partition": Job(
        partition,
        lambda _, based, __, anew: based.cut_share <= 1.1 * anew.cut_share + 0.02,
        lambda report: float(report.made_by == "base"),
        {0.001: 0.12, 0.1: 0.14},
    ),
    "word2vec": Job(  # a rebuild takes EPOCHS epochs
        vectors,
        lambda one, _, other, __: auc(one) >= auc(other) - 0.01,
        lambda report: 1 - report.words / (report.rows * 10 * 40),
        {},
    ),
}


def night(folder: Path, today: Path, changes: tuple[Path, Path], base: bool) -> dict[str, Any]:
    """Run all jobs from yesterday's outputs or anew; return outputs, reports and seconds."""
    start, whole, yesterday = clock(), folder / "whole", folder / "yesterday"
    shutil.rmtree(whole, ignore_errors=True)
    if base:
        add, remove = ([file] for file in changes)
        penstock.etl([], whole, base=yesterday, add=add, remove=remove, quiet=True)
    else:
        penstock.etl(folder / "all.parquet", whole, quiet=True)
    found: dict[str, Any] = {"etl": (whole, None, clock() - start)}
    for name, job in JOBS.items():
        start = clock()
        out = folder / f"{name}-{'based' if base else 'anew'}"
        ended = ran(job, today, out, folder / name if base else None)
        found[name] = (*ended, clock() - start)
    return found


def check_night(values: dict[str, Any]) -> dict[str, Any]:
    """Compare the results of all jobs; return seconds from a base and anew, by job."""
    ours, anew = values["ours"], values["anew"]
    one, other = (Graph.open(found["etl"][0]) for found in (ours, anew))
    assert one.num_edges == other.num_edges
    for name, job in JOBS.items():
        check(job, {"ours": ours[name][:2], "anew": anew[name][:2]})
    return {name: f"{ours[name][2]:.2f} of {anew[name][2]:.2f} s" for name in ours}


@dataclass(frozen=True)
class Days:
    """A job that trains over several days.

    graphs  (folder, days, quick) -> the graphs of the first day and of those that follow
    train   (graph, output, yesterday's output or None)
    score   (output) -> score, and of how many cases it is the mean
    times   of the cost of a warm start, that of a rebuild, full (None: not measured) and quick
    within  how much lower the mean score may be; None: by one standard error
    """

    graphs: Callable[[Path, int, bool], list[Path]]
    train: Callable[[Path, Path, Path | None], Any]
    score: Callable[[Path], tuple[float, int]]
    times: tuple[float | None, float]
    within: float | None = None


def changed_daily(first: Path, days: int) -> list[Path]:
    """Return a graph and those of the days after; every day 1 % of the edges is replaced."""
    graphs = [first]
    for day in range(1, days + 1):
        before = graphs[-1]
        add, remove = change(Graph.open(before), 0.01, "random", first.parent, seed=day)
        graphs.append(first.parent / f"day-{day}")
        penstock.etl([], graphs[-1], base=before, add=[add], remove=[remove], quiet=True)
    return graphs


def of_communities(folder: Path, days: int, quick: bool) -> list[Path]:
    """Return graphs of communities."""
    communities(11 if quick else 13, folder / "edges.parquet")
    penstock.etl(folder / "edges.parquet", folder / "day-0", quiet=True)
    return changed_daily(folder / "day-0", days)


def of_blocks(folder: Path, days: int, quick: bool) -> list[Path]:
    """Return graphs with features and labels."""
    penstock.generate(
        "sbm", folder / "day-0", nodes=5000 if quick else 20_000, noise=16, quiet=True
    )
    return changed_daily(folder / "day-0", days)


def of_knowledge(folder: Path, days: int, quick: bool) -> list[Path]:
    """Return graphs of FB15k-237, or of generated triples; 1 % comes and goes every day."""
    named = ["head", "relation", "tail"]
    if quick:
        penstock.generate("kg", folder / "kg", entities=3000, triples=40_000, quiet=True)
        kg = Graph.open(folder / "kg")
        ids, names = kg.user_ids().to_pandas().to_numpy(), np.array(kg.manifest.relations)
        csr = kg.csr()
        parts = {"train": (csr.sources(), csr.indices, csr.relations)}
        for name in ("valid", "test"):
            held = kg.heldout(name)
            parts[name] = held["sources"], held["targets"], held["relations"]
        tables = {
            name: pd.DataFrame({"head": ids[h], "relation": names[r], "tail": ids[t]})
            for name, (h, t, r) in parts.items()
        }
    else:
        with tarfile.open(real("kg/FB15k-237.tar.gz")) as archive:
            archive.extractall(folder, filter="data")
        files = {name: next(folder.rglob(f"{name}.txt")) for name in ("train", "valid", "test")}
        tables = {n: pd.read_csv(f, sep="\t", names=named, dtype=str) for n, f in files.items()}
    random, train, graphs = np.random.default_rng(0), tables["train"], list[Path]()
    count = len(train) // 100
    kept = days if quick else max(days, 10)  # a full run begins as the measured ten days do
    late = random.permutation(len(train))[: kept * count].reshape(kept, count)
    there = np.ones(len(train), bool)
    there[late] = False
    for day in range(days + 1):
        if day:
            there[random.choice(np.flatnonzero(there), count, replace=False)] = False
            there[late[day - 1]] = True
        known = set(train[there]["head"]) | set(train[there]["tail"])
        paths = {}
        for name, table in (tables | {"train": train[there]}).items():
            paths[name] = folder / f"{name}-{day}.tsv"
            table = table[table["head"].isin(known) & table["tail"].isin(known)]
            table.to_csv(paths[name], sep="\t", header=False, index=False)
        graphs.append(folder / f"day-{day}")
        given = {"valid": paths["valid"], "test": paths["test"], "format": "triples"}
        base = graphs[-2] if day else None
        penstock.etl(paths["train"], graphs[-1], base=base, quiet=True, **given)
    return graphs


def embeddings(graph: Path, out: Path, base: Path | None) -> Any:
    """Train ComplEx: further on all edges, or anew."""
    given = {"dim": 64, "validate_every": 1000, "quiet": True}
    if base is None:
        return penstock.embed.train(graph, out, epochs=20, **given)
    return penstock.embed.train(graph, out, init=base, shrink=0.95, lr=0.1, epochs=1, **given)


def classes(graph: Path, out: Path, base: Path | None) -> Any:
    """Train GraphSAGE: further, or anew."""
    given = {"model": "sage", "quiet": True}
    if base is None:
        return penstock.gnn.train(graph, out, epochs=100, **given)
    return penstock.gnn.train(graph, out, init=base, epochs=10, **given)


def mrr(run: Path) -> tuple[float, int]:
    """Return the filtered MRR of the test set."""
    found = penstock.embed.evaluate(run, filtered=True, quiet=True)
    return found.scores["mrr"], found.scores["ranks"]


def accuracy(run: Path) -> tuple[float, int]:
    """Return the share of test nodes whose class is right."""
    graph = Graph.open(json.loads((run / "run.json").read_text())["graph"])
    return penstock.gnn.evaluate(run).scores["accuracy"], len(graph.split("test"))


TRAINED = {
    "embed": Days(of_knowledge, embeddings, mrr, (16.0, 10.7)),
    "word2vec": Days(
        of_communities, vectors, lambda out: (auc(out), 100_000), (None, 23.0), within=0.002
    ),
    "gnn": Days(of_blocks, classes, accuracy, (None, 5.3)),
}


def trained(job: Days, graphs: list[Path], folder: Path, warm: bool) -> list[Path]:
    """Train every day but the first, from the day before or anew."""
    before, found = folder / "first", list[Path]()
    for day, graph in enumerate(graphs[1:], 1):
        out = folder / f"{'warm' if warm else 'anew'}-{day}"
        shutil.rmtree(out, ignore_errors=True)
        job.train(graph, out, before if warm else None)
        found.append(out)
        before = out
    return found


def check_days(job: Days, values: dict[str, Any]) -> dict[str, Any]:
    """Compare the mean scores of all days."""
    scores = {side: [job.score(run) for run in values[side]] for side in ("ours", "anew")}
    means = {side: float(np.mean([one for one, _ in found])) for side, found in scores.items()}
    # Of a mean of values between 0 and 1, at most.
    error = float(np.sqrt(means["anew"] * (1 - means["anew"]) / scores["anew"][0][1]))
    found = {side: [round(one, 4) for one, _ in each] for side, each in scores.items()}
    within = error if job.within is None else job.within
    assert means["ours"] >= means["anew"] - within, f"{found}, standard error {error:.4f}"
    return {**found, "error": round(error, 4)}


def cases_of_days(given: argparse.Namespace) -> Iterator[Case]:
    """Yield a case for each job that trains."""
    for name, job in TRAINED.items():
        if given.only and not any(word in f"{name} over days" for word in given.only.split(",")):
            continue  # its graphs take long to make
        if name == "embed" and not given.quick and data():
            yield absent(f"{name} over days", "needs real data: set PENSTOCK_DATA")
            continue
        folder = given.scratch / f"{name}-days"
        folder.mkdir()
        graphs = job.graphs(folder, given.days, given.quick)
        job.train(graphs[0], folder / "first", None)
        full, quick = job.times
        anew = Side(partial(trained, job, graphs, folder, False), full, quick, once=True)
        ours = partial(trained, job, graphs, folder, True)
        yield Case(f"{name} over days", ours, partial(check_days, job), {"anew": anew}, rounds=1)


def communities(scale: int, path: Path) -> None:
    """Write edges: 64 nodes of a community know each other; few edges lead to another one."""
    random, nodes = np.random.default_rng(0), 1 << scale
    sources = np.repeat(np.arange(nodes), 5)
    targets = sources // 64 * 64 + random.integers(0, 64, len(sources))
    far = random.random(len(sources)) < ACROSS
    targets[far] = random.integers(0, nodes, int(far.sum()))
    pd.DataFrame({"source": sources, "target": targets}).to_parquet(path)


def change(graph: Graph, share: float, kind: str, folder: Path, seed: int = 1) -> tuple[Path, Path]:
    """Write the edges to add and to remove, as many of each."""
    random, csr = np.random.default_rng(seed), graph.csr()
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


def night_case(
    given: argparse.Namespace, folder: Path, today: Path, changes: tuple[Path, Path]
) -> Case:
    """Return the case of all jobs, with the time to copy what changed as floor."""
    opened = Graph.open(today)
    ids = opened.user_ids().to_numpy()
    sources, targets = ends_of(opened)
    pd.DataFrame({"source": ids[sources], "target": ids[targets]}).to_parquet(
        folder / "all.parquet"
    )
    for name, job in JOBS.items():
        if not (folder / name).exists() and name != "partition":
            job.run(folder / "yesterday", folder / name, None)
        ran(job, today, folder / "warm", folder / name)  # makes what it reads of today's graph

    def copy() -> None:
        for file in changes:
            shutil.copyfile(file, folder / "copied")

    run = partial(night, folder, today, changes)
    sides = {"anew": Side(partial(run, False), *NIGHT), "floor": Side(copy, floor=True)}
    return Case("night, 1 % random", partial(run, True), check_night, sides, rounds=1)


def cases(given: argparse.Namespace) -> Iterator[Case]:
    yield from cases_of_nights(given)
    yield from cases_of_days(given)


def cases_of_nights(given: argparse.Namespace) -> Iterator[Case]:
    """Yield cases of each job, and of all, by what changed."""
    folder = given.scratch
    yesterday = folder / "yesterday"
    if given.graph == "rmat":
        penstock.generate("rmat", yesterday, scale=given.scale, quiet=True)
    else:
        communities(given.scale, folder / "edges.parquet")
        penstock.etl(folder / "edges.parquet", yesterday, quiet=True)
    # word2vec takes longer than all others together: it is in the night.
    chosen = [*JOBS][:-1] if not given.quick else ["walk", "partition"]
    for name in chosen:
        JOBS[name].run(yesterday, folder / name, None)
    for share in map(float, given.shares.split(",")):
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
            if share == 0.01 and kind == "random":
                yield night_case(given, folder, today, (add, remove))


if __name__ == "__main__":
    options = [Option("--scale", 16, 13), Option("--graph", "rmat", "rmat", "or communities")]
    options += [Option("--shares", "0,0.01,0.1", "0,0.001,0.01,0.1"), Option("--days", 3, 2)]
    sys.exit(main(__doc__, cases, *options))
