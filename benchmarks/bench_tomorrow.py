"""What a night costs if a share of the edges has changed, over a rebuild.

    python -P benchmarks/bench_tomorrow.py [--quick] [--cpu] [--graph communities]

Random changes replace edges anywhere; concentrated ones replace edges among nodes that are next to
each other. Every result is compared with that of a rebuild, on threads of this process. Jobs that
train are also trained over several days of 1 % changes, each from the day before: their mean score
must be that of rebuilds, to one standard error (AUC: 0.002).

Nights are all jobs, etl included, from the outputs of a rebuild of yesterday's graph, which runs
once, and with whose time theirs are compared. Of the night with 1 % at random all results are
compared: exact ones with those of a rebuild today, partition and vectors by quality. Every step is
printed as it ends, with its bytes on disk, links left out. On a GPU (``--gpu``) there are only
nights, with several changes of one large graph.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from filecmp import cmp
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from graphs import fb15k
from harness import (
    FULL,
    Case,
    Option,
    Side,
    Timed,
    absent,
    clock,
    data,
    duration,
    main,
    wanted,
)

import penstock
from penstock import CSR, Graph
from penstock.pipelines.vectors import Vectors, write_vectors
from penstock.threads import spread

KINDS = ("random", "concentrated")
PARTS = 8
EPOCHS = 10  # until vectors made anew are as good as further training makes them
ACROSS = 1 / 2000  # of the edges of communities lead to another one
FEATURES, VECTORS = 32, 1 << 14  # of predictions; that are compared with each other
TOLERANCE = 1e-11  # of PageRank per node
OF_NIGHT = 12.5, 6.6  # a rebuild over a night of 1 % at random, full and quick
BALL = 4  # a change is among this many times the edges that change
GPU_EPOCHS = 5  # of vectors, which more would improve
BEGUN = time.monotonic()
WARM, GPU_WARM = 10, 18  # the scale of a first night, which compiles kernels
NIGHTS = [(share, kind) for share in (0.01, 0.001, 0.1) for kind in KINDS]


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
    names, others = (sorted(file.name for file in path.glob("part-*")) for path in (one, other))
    if not names or names != others:
        return False
    with ThreadPoolExecutor() as pool:
        return all(pool.map(lambda n: cmp(one / n, other / n, shallow=False), names))


def walks(**options: Any) -> Job:
    """Return the case of walks with these options."""
    return Job(
        lambda graph, out, base: penstock.walk(graph, out, base=base, **options),
        same_files,
        lambda report: float(report.from_base.kept / report.walks),
        {0.0: 0.65, 0.1: 1.4},
    )


def partition(graph: Path, _: Path, base: Path | None, method: str = "auto") -> Any:
    """Cut a graph, as yesterday's next to it or anew."""
    yesterday = None if base is None else graph.parent / f"yesterday/partition/k{PARTS}"
    return penstock.partition_graph(graph, k=PARTS, method=method, base=yesterday, overwrite=True)


def vectors(graph: Path, out: Path, base: Path | None, epochs: int = EPOCHS) -> Any:
    """Train vectors: further on what changed, or anew for as long as they need."""
    given = {"dim": 32, "length": 40, "window": 10}
    if base is None:
        return penstock.word2vec(graph, out, epochs=epochs, **given)
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


def edges_of(rows: CSR) -> tuple[Any, Any]:
    """Return the edges of rows whose source is the lower end."""
    sources = rows.sources()
    once = sources < rows.indices
    return sources[once], rows.indices[once]


def write_edges(graph: Graph, folder: Path) -> None:
    """Write each undirected edge once, a file for each shard."""
    ids = graph.user_ids().to_numpy()
    folder.mkdir()

    def write(number: int) -> None:
        write_table(folder / f"{number}.parquet", ids, *edges_of(graph.shard(number)))

    spread(write, range(graph.num_shards))


def write_table(file: Path, ids: Any, sources: Any, targets: Any) -> None:
    table = pa.table({"source": ids[sources], "target": ids[targets]})
    pq.write_table(table, file, compression=None, use_dictionary=False)


def made(folder: Path, kind: str, scale: int) -> Path:
    """Return yesterday's graph, with features, labels and splits of its nodes."""
    if kind == "rmat":
        penstock.generate("rmat", folder / "made", scale=scale, quiet=True)
    else:
        communities(scale, folder / "edges.parquet")
        penstock.etl(folder / "edges.parquet", folder / "made", quiet=True)
    opened, path = Graph.open(folder / "made"), folder / "yesterday"
    ids = opened.user_ids().to_numpy()
    values = np.random.default_rng(0).standard_normal((1 << 16, FEATURES), np.float32)
    split = np.where(ids % 3, 0, 2).astype(np.int8)  # to train, and to test
    with Graph.create(path) as writer:
        writer.edges(opened.csr())
        writer.nodes(ids, label=(ids % 7).astype(np.int32), split=split)
        writer.features(values[ids % len(values)], [f"x{n}" for n in range(FEATURES)])
        writer.add(directed=False, labels="class", classes=tuple("0123456"))
    shutil.rmtree(folder / "made")
    return path


def weights_of(graph: Path) -> Path:
    """Return the run that predicts, trained on the first graph that asks for it."""
    weights = graph.parent / "run"
    if not weights.exists():
        penstock.gnn.train(graph, weights, model="sage", epochs=2)
    return weights


def predict(graph: Path, out: Path, base: Path | None) -> Any:
    """Predict by two layers of SAGE."""
    given = {"graph": graph, "split_by": "graph", "base": base}
    return penstock.gnn.predict(weights_of(graph), out, **given, cluster="threads")


def same_tables(one: Path, _: Any, other: Path, __: Any) -> bool:
    """Return whether two outputs have the same rows."""
    tables = [pq.read_table(sorted(path.glob("part-*.parquet"))) for path in (one, other)]
    return bool(tables[0].equals(tables[1]))


def neighbours(graph: Path, out: Path, base: Path | None) -> Any:
    """Search the neighbours of random vectors, which move if the degree of a node changes."""
    opened, random = Graph.open(graph), np.random.default_rng(0)
    folder = graph.parent / f"vectors-{opened.digest[:16]}"
    if not folder.exists():
        ids, degrees = opened.user_ids().to_numpy()[:VECTORS], opened.degrees[:VECTORS]
        values = random.normal(size=(VECTORS, 64))[: len(ids)]
        values += 0.1 * random.normal(size=(1 << 16, 64))[degrees % (1 << 16)]
        folder.mkdir()
        write_vectors(folder, ids, values.astype(np.float32))
    return penstock.similar(folder, out=out, base=base, cluster="threads")


def pagerank(graph: Path, out: Path, base: Path | None) -> Any:
    """Compute PageRank."""
    return penstock.centrality(graph, out, metrics="pagerank", tol=TOLERANCE, base=base)


def near_ranks(one: Path, _: Any, other: Path, __: Any) -> bool:
    """Return whether two outputs have the same ranks, as far as the tolerance decides them."""
    ranks = [pq.read_table(path / "nodes")["pagerank"].to_numpy() for path in (one, other)]
    return float(np.abs(ranks[0] - ranks[1]).mean()) < 2 * 0.85 / 0.15 * TOLERANCE


JOBS = {
    "predict": Job(
        predict,
        same_tables,
        lambda report: report.from_base.kept / report.nodes,
        {0.0: 0.87, 0.1: 1.2},
    ),
    "similar": Job(
        neighbours,
        same_tables,
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
        {0.001: 0.15, 0.1: 0.15},
    ),
    "word2vec": Job(  # a rebuild takes EPOCHS epochs
        vectors,
        lambda one, _, other, __: auc(one) >= auc(other) - 0.01,
        lambda report: 1 - report.words / (report.rows * 10 * 40),
        {},
    ),
}


def written(folder: Path) -> float:
    """Return the GB of files that are no links."""
    stats = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum(one.st_size for one in stats if one.st_nlink == 1) / 1e9


def etl(folder: Path, out: Path, base: Path | None) -> Any:
    """Read today's edges: what changed since yesterday, or all."""
    if base is None:
        return penstock.etl(folder / "all", out, quiet=True)
    add, remove = ([folder / f"{name}.parquet"] for name in ("add", "remove"))
    return penstock.etl([], out, base=folder / "yesterday", add=add, remove=remove, quiet=True)


def say(line: str) -> None:
    """Print a step of a night as it ends."""
    print(f"{time.monotonic() - BEGUN:7.1f} s  {line}", file=sys.stderr, flush=True)


def night(folder: Path, graph: Path, jobs: dict[str, Job], base: bool) -> Timed:
    """Run etl and jobs from yesterday's outputs or anew; return outputs, reports and seconds."""
    found, total, made = dict[str, Any](), 0.0, "-based" if base else ""
    steps = {"etl": (graph if base else folder / "whole", partial(etl, folder))}
    steps |= {n: (folder / f"{n}{made}", partial(job.run, graph)) for n, job in jobs.items()}
    for name, (out, run) in steps.items():
        shutil.rmtree(out, ignore_errors=True)
        start = clock()
        report = run(out, folder / name if base else None)
        found[name] = out, report, clock() - start
        size = written(out if out.exists() else graph / "partition")
        total += size
        say(f"{name}{made}: {duration(found[name][2])}, {size:.2f} GB of {total:.1f}")
    return Timed(sum(seconds for *_, seconds in found.values()), found)


def check_night(
    folder: Path, jobs: dict[str, Job], whole: bool, values: dict[str, Any]
) -> dict[str, Any]:
    """Compare a night with a rebuild of today, or by quality with yesterday's; return seconds.

    whole  all results, not only the partition
    """
    ours, before = values["ours"], values["anew"]
    for name, job in jobs.items() if whole else [("partition", jobs["partition"])]:
        anew = before[name][:2]
        if name not in ("partition", "word2vec"):
            anew = ran(job, folder / "today", folder / "anew", None)
        kept = check(job, {"ours": ours[name][:2], "anew": anew})["kept"]
        say(f"{name} compared, {kept:.3f} kept")
    shutil.rmtree(folder / "anew", ignore_errors=True)
    return {name: f"{ours[name][2]:.2f} of {before[name][2]:.2f} s" for name in ours}


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
        how = {"sep": "\t", "names": ["head", "relation", "tail"], "dtype": str}
        tables = {n: pd.read_csv(f, **how) for n, f in fb15k(folder / "texts").items()}
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
        if not wanted(f"{name} over days", given):
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


def some_edges(graph: CSR, count: int, random: np.random.Generator) -> tuple[Any, Any]:
    """Return about ``count`` edges at random."""
    at = np.flatnonzero(random.random(graph.edges, np.float32) < 2 * count / max(graph.edges, 1))
    sources, targets = np.searchsorted(graph.indptr, at, side="right") - 1, graph.indices[at]
    once = sources < targets
    return sources[once], targets[once]


def near_edges(graph: CSR, count: int) -> tuple[Any, Any]:
    """Return ``count`` edges among nodes that are next to each other."""
    near, degrees = np.zeros(graph.rows, bool), graph.degrees()
    near[graph.rows // 2] = True
    while True:
        before = near.copy()
        near[graph.indices[np.repeat(before, degrees)]] = True
        if np.array_equal(near, before):
            near[np.flatnonzero(~near)[:1]] = True
        if degrees[near].sum() < count:
            continue
        sources, targets = edges_of(graph)
        both = np.flatnonzero(near[sources] & near[targets])[:count]
        if len(both) == count:
            return sources[both], targets[both]


def change(graph: Graph, share: float, kind: str, folder: Path, seed: int = 1) -> tuple[Path, Path]:
    """Write the edges to add and to remove, as many of each."""
    random, ids = np.random.default_rng(seed), graph.user_ids().to_numpy()
    count = int(graph.num_edges / 2 * share / 2)
    if kind == "concentrated" and count:
        sources, targets = near_edges(graph.csr(), BALL * count)
    else:
        sources, targets = some_edges(graph.csr(), BALL * count, random)
    gone = random.choice(len(sources), count, replace=False)
    # Ends of new edges are those of others: nodes get them in proportion to their degree.
    added = [ends[random.choice(len(ends), count)] for ends in (sources, targets)]
    files = []
    for name, (one, other) in {"add": added, "remove": (sources[gone], targets[gone])}.items():
        files.append(folder / f"{name}.parquet")
        write_table(files[-1], ids, one[one != other], other[one != other])
    return files[0], files[1]


def ran(job: Job, today: Path, out: Path, base: Path | None) -> tuple[Path, Any]:
    shutil.rmtree(out, ignore_errors=True)
    return out, job.run(today, out, base)


def check(job: Job, values: dict[str, Any]) -> dict[str, Any]:
    (out, report), (anew, rebuilt) = values["ours"], values["anew"]
    assert job.good(out, report, anew, rebuilt), f"{out.name}: not as a rebuild, or worse"
    kept = job.kept(report)
    assert kept <= 1
    return {"kept": kept}


def copy(changes: tuple[Path, Path]) -> None:
    """Copy the files of what changed."""
    for file in changes:
        shutil.copyfile(file, file.with_suffix(".copied"))


def rebuilt(folder: Path, scale: int, jobs: dict[str, Job]) -> Timed:
    """Make yesterday's graph and the outputs of all jobs."""
    folder.mkdir()
    yesterday = made(folder, "rmat", scale)
    write_edges(Graph.open(yesterday), folder / "all")
    say(f"R-MAT {scale} made")
    weights_of(yesterday)
    say("weights trained")
    found = night(folder, yesterday, jobs, False)
    for name in ("all", "whole"):
        shutil.rmtree(folder / name)
    return found


def gpu_cases(given: argparse.Namespace) -> Iterator[Case]:
    """Yield nights of one large graph."""
    jobs = {name: job for name, job in JOBS.items() if name != "walk short"}
    jobs["word2vec"] = replace(jobs["word2vec"], run=partial(vectors, epochs=GPU_EPOCHS))
    # As auto does, because METIS would take too long.
    jobs["partition"] = replace(jobs["partition"], run=partial(partition, method="streaming"))
    yield from nights(given.scratch, jobs, given.gpu_scale, GPU_WARM, NIGHTS)


def nights(
    scratch: Path,
    jobs: dict[str, Job],
    scale: int,
    warm: int,
    changes: list[tuple[float, str]],
    gates: tuple[float | None, float | None] = (None, None),
) -> Iterator[Case]:
    """Yield nights of one graph, after a rebuild of yesterday's."""

    def changed(folder: Path, share: float, kind: str) -> tuple[Path, Path]:
        files = change(Graph.open(folder / "yesterday"), share, kind, folder)
        say(f"{share:.1%} {kind} changed")
        return files

    folder = scratch / "first"
    rebuilt(folder, min(warm, scale), jobs)
    changed(folder, *changes[0])
    night(folder, folder / "today", jobs, True)
    shutil.rmtree(folder)
    folder = scratch / "large"
    before = rebuilt(folder, scale, jobs)
    for share, kind in changes:
        files = changed(folder, share, kind)
        yield Case(
            f"night, R-MAT {scale}, {share:.1%} {kind}",
            partial(night, folder, folder / "today", jobs, True),
            partial(check_night, folder, jobs, (share, kind) == NIGHTS[0]),
            {
                "anew": Side(partial(Timed, before.seconds, before.value), *gates),
                "floor": Side(partial(copy, files), floor=True),
            },
            rounds=1,
        )


def cases(given: argparse.Namespace) -> Iterator[Case]:
    yield from cases_of_nights(given)
    yield from cases_of_days(given)


def cases_of_nights(given: argparse.Namespace) -> Iterator[Case]:
    """Yield cases of each job, and of all, by what changed."""
    folder = given.scratch
    yesterday = made(folder, given.graph, given.scale)
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
    if wanted(f"night, R-MAT {given.scale}", given):  # takes long to make
        yield from nights(folder, dict(JOBS), given.scale, WARM, NIGHTS[:1], OF_NIGHT)


if __name__ == "__main__":
    options = [Option("--scale", 16, 13), Option("--graph", "rmat", "rmat", "or communities")]
    options += [Option("--shares", "0,0.01,0.1", "0,0.001,0.01,0.1"), Option("--days", 3, 2)]
    options += [Option("--gpu-scale", 24, 12, "of the graph of a GPU")]
    sys.exit(main(__doc__, cases, *options, gpu=gpu_cases))
