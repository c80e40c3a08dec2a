"""The evaluation of each of the five papers, as far as it can be had here.

    python -P benchmarks/papers.py legend|morphling|flowwalker|full-w2v|swarmgraph [--quick]
        [--gpu] [--peers VENV/bin/python] [--json FILE] [--svg FILE]

Every table and figure is a case: with the paper's parameters, and its own numbers beside ("paper"
in the figures), or skipped with the reason, such as data or hardware that is not to be had. The
machine is this one: the device is a GPU if there is one. docs/papers.md shows the results.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bench_centrality as centralities
import bench_embed as embeds
import bench_gnn as gnns
import bench_gpu_io as queues
import bench_order as orders
import bench_walk as walks
import bench_word2vec as words
import gnn_rates as rates
from graphs import cora, cora_like, products_like
from harness import (
    Case,
    Option,
    Side,
    Timed,
    absent,
    data,
    epochs_of,
    gpus,
    installed,
    main,
    on_gpu,
    real,
    tampered,
    timed,
    wanted,
)

import penstock
from penstock.kernels.cpu import walk as kernels_of_walks
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules
from penstock.partition.order import beta, cover, prefetch

# Legend: embeddings out of core.

IO = {6: (8, 8), 8: (15, 16), 10: (24, 24), 12: (34, 36), 14: (48, 50), 16: (63, 66)}
COVER = 80  # of 16 partitions
BUFFERS = {  # of Twitter: partitions in memory and in all, epoch, MRR and Hits@10 (None: Marius)
    (3, 12): (230.6, 0.412, 0.574),
    (3, 8): (181.0, 0.398, 0.555),
    (3, 6): (171.4, 0.406, 0.570),
    (4, 8): (None, None, None),
}


def embedded(graph: Path, run: Path, test: bool, **how: Any) -> Timed:
    """Train; return the median of the epochs after the first, with loss, scores and waits."""
    trained = penstock.embed.train(graph, run, overwrite=True, quiet=True, **how).trained
    lines = epochs_of(run)
    later = lines[1:] or lines
    found = {"loss": trained.loss, "kernels train": trained.utilization}
    if test:
        found |= penstock.embed.evaluate(run, filtered=True, quiet=True).scores
    return Timed(statistics.median(line["seconds"] for line in later), found)


def check_io(n: int, values: dict[str, Any]) -> dict[str, Any]:
    figures = orders.check(n, values)
    assert figures["prefetch"] <= IO[n][1]
    if "cover" in values:
        figures |= {"cover": values["cover"].io, "paper, COVER": COVER}
    return figures | {"paper, BETA": IO[n][0], "paper, Legend": IO[n][1]}


def check_buffer(paper: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
    mine, whole = values["ours"], values["in memory"]
    assert 0 < mine["mrr"] <= 1
    assert mine["mrr"] >= 0.95 * whole["mrr"], (mine, whole)
    names = ("paper, s an epoch of Twitter", "its MRR", "its Hits@10")
    return {**mine, "MRR in memory": whole["mrr"], **dict(zip(names, paper, strict=True))}


def check_loss(values: dict[str, Any]) -> dict[str, Any]:
    mine, other = values.values()
    # Negatives come from the partitions in memory, which an order decides.
    np.testing.assert_allclose(mine["loss"], other["loss"], rtol=0.05)
    paper = {"paper, of Twitter": 0.9679}
    return {"kernels train": mine["kernels train"], "other": other["kernels train"], **paper}


def legend(given: argparse.Namespace) -> Iterator[Case]:
    for n in IO:
        theirs = {"beta": Side(partial(beta, n))}
        if n == 16:
            theirs["cover"] = Side(partial(cover, n))
        yield Case(f"table 6, {n} partitions", partial(prefetch, n), partial(check_io, n), theirs)
    epochs = 2 if given.quick else 20
    how = {"model": "complex", "dim": 100, "epochs": epochs, "validate_every": epochs}
    if data() is None:
        graph, _ = embeds.knowledge(given.scratch)
        run = partial(embedded, graph, given.scratch / "run", True, **how)
        inside = Side(run, once=True)
        for (some, of), paper in BUFFERS.items():
            yield Case(
                f"table 3 on FB15k-237, {some} / {of} in memory",
                partial(run, partitions=of, buffer=some),
                partial(check_buffer, paper),
                {"in memory": inside},
                rounds=1,
            )
    yield absent("table 3, Marius 2 / 8", "our buffers hold three partitions or more")
    made = given.scratch / "rmat"
    scale = 12 if given.quick else 20 if gpus(1)() is None else 16
    penstock.generate("rmat", made, scale=scale, edge_factor=32, quiet=True)
    how = {"model": "dot", "dim": 100, "partitions": 8, "epochs": 3, "lr": 0.01}
    run = partial(embedded, made, given.scratch / "run", False, **how)
    # Epochs after the first are timed, so that one run of each suffices.
    plain = {"without prefetch, paper 1.30": Side(partial(run, prefetch=False), once=True)}
    yield Case(f"table 5 and figure 16, R-MAT {scale}", run, check_loss, plain, rounds=1)
    for order, partitions in (("beta", 8), ("cover", 16)):
        theirs = {order: Side(partial(run, order=order, partitions=partitions))}
        yield Case(f"figure 18, R-MAT {scale}, {order}", run, check_loss, theirs, rounds=1)
    dot, complex_ = (
        {(model, embeds.BOTH): (None, None)} for model in (embeds.Model.DOT, embeds.Model.COMPLEX)
    )
    yield from embeds.step_cases(dot | complex_, given, title="figures 17 and 21, ")
    edges = 2000 if given.quick else 50_000 if gpus(1)() is None else 10_000
    for dim in (50, 100, 150, 200):
        title = f"figure 23, {edges:,} edges, {dim} values, "
        yield from embeds.step_cases(complex_, given, title=title, dim=dim, edges=edges)
    if gpus(1)() is None:
        given.size = 16 if given.quick else 512
        for case in queues.cases(given):
            yield replace(case, name=f"figures 19 and 20, {case.name}")
    else:
        yield absent("figures 19 and 20: direct access", "for a GPU")
    yield absent("figures 10 to 15", "Twitter, LiveJournal, Freebase86M are not here")
    yield absent("table 4", "Twitter is not here; bench_embed_ranks.py has a graph of its size")


# Morphling: full-batch GNNs, three layers of GCN with 32 hidden values.

SHAPES = {  # nodes, edges (both ways), features, their nonzeros a node (0: dense), classes; memory
    "Corafull": (19_793, 126_842, 8710, 57, 70, None),
    "Physics": (34_493, 495_924, 8415, 33, 5, None),
    "PPI": (56_944, 1_612_348, 50, 0, 121, None),
    "Flickr": (88_250, 899_756, 500, 46, 7, None),
    "ogbn-arxiv": (169_343, 1_166_243, 128, 0, 40, (0.57, 1.14, 0.34)),
    "Yelp": (716_847, 13_954_819, 300, 0, 100, (2.59, 14.01, 5.04)),
    "Reddit": (232_965, 114_615_892, 602, 0, 41, (4.40, 48.12, 8.75)),
    "ogbn-products": (2_449_029, 61_859_140, 100, 0, 47, (7.00, 57.12, 11.84)),
    "AmazonProducts": (1_569_960, 264_339_468, 200, 0, 107, (9.03, 140.24, 25.10)),
}
LARGEST = 5e8  # bytes of features and edges of graphs that are trained on CPUs


def shaped(nodes: int, edges: int, width: int, nonzeros: int, classes: int) -> Any:
    """Return a graph of a data set's sizes, with a power law or features as given."""
    if nonzeros:
        return cora_like(nodes, edges // 2, width, nonzeros, classes)
    if gpus(1)() is None:
        return gnns.on_device(nodes, edges, width, classes)
    return products_like(nodes, edges, width, classes)


def morphling(given: argparse.Namespace) -> Iterator[Case]:
    graphs: dict[str, Any] = {"Cora": gnns.Graph(cora, **gnns.SPARSE, quick=True)}
    papers: dict[str, Any] = {}
    for name, (nodes, edges, width, nonzeros, classes, memory) in SHAPES.items():
        size = 4.0 * (nodes * (nonzeros or width) + edges)
        if size > LARGEST and gpus(1)() is not None:
            yield absent(f"figures 3 and 5, as large as {name}", "for a GPU")
            continue
        make = partial(shaped, nodes, edges, width, nonzeros, classes)
        way = gnns.SPARSE if nonzeros else {"epochs": 10}
        papers[f"as large as {name}"] = memory
        graphs[f"as large as {name}"] = gnns.Graph(make, **way)
    for case in gnns.graph_cases(graphs, given):
        yield replace(case, check=partial(check_memory, papers.get(case.name), case.check))
    yield from gnns.accuracies(given)
    yield absent("figures 6 and 7: MPI", "bench_gnn_distributed.py, on the ranks that are here")
    yield absent("NELL", "61,278 one-hot features of 65,755 nodes are no workload of their own")


def check_memory(paper: Any, check: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    names = ("paper, GB", "its PyG", "its DGL")
    return check(values) | (dict(zip(names, paper, strict=True)) if paper else {})


# FlowWalker: walks by reservoir over dynamic weights.

GRAPHS = {  # scale and edge factor of R-MAT of about the graph's size
    "YT": (20, 3),
    "CP": (22, 4),
    "LJ": (22, 10),
    "OK": (21, 37),
}
A100 = {  # seconds of the paper, table 2: FlowWalker, the best other
    "deepwalk": {"YT": (0.45, 0.93), "CP": (0.42, 0.30), "LJ": (0.95, 1.25), "OK": (0.99, 1.84)},
    "ppr": {"YT": (0.23, 1.03), "CP": (0.10, 0.29), "LJ": (0.74, 2.76), "OK": (0.69, 2.91)},
    "node2vec": {"YT": (0.89, 12.68), "CP": (0.44, 7.13), "LJ": (1.86, 18.16), "OK": (2.60, 24.7)},
    "metapath": {"YT": (0.01, 0.04), "CP": (0.02, 0.09), "LJ": (0.05, 0.13), "OK": (0.07, 0.10)},
}
RESERVOIR, ITS, ALIAS = Sampler.RESERVOIR, Sampler.ITS, Sampler.ALIAS
APPS = {app: replace(rules, sampler=RESERVOIR) for app, rules in walks.RULES.items()}


def flowwalker(given: argparse.Namespace) -> Iterator[Case]:
    device = gpus(1)() is None
    if device:
        import bench_walk_gpu
    for name, (scale, factor) in GRAPHS.items():
        if given.quick:
            scale = 12
        elif not device:
            scale -= 5
        title = f"R-MAT {scale} x {factor} for {name}"
        names = {app: f"table 2, {app}, {title}" for app in APPS}
        if not any(wanted(each, given) for each in names.values()):
            continue
        path = given.scratch / name
        base = walks.make_graph(path, scale, factor)
        for app, rules in APPS.items():
            walker: Any = walks.Walker(base, rules, os.cpu_count() or 1)
            if device:
                load = bench_walk_gpu.Workload(base, 4_000_000)
                walker = bench_walk_gpu.Walker(load, app, rules)
                walker.check = partial(walker.check, base)
            tables = replace(rules, sampler=Sampler.REJECTION)
            other = walks.Walker(base, tables, os.cpu_count() or 1)
            yield Case(
                names[app],
                walker,
                partial(check_walks, walker, A100[app][name]),
                {} if device else {"by tables, rejection": Side(other)},
                rounds=3,
            )
        if given.quick:
            break
    sizes = (8, 64, 512, 4096, *((32_768, 131_072) if device else ()))
    for size in sizes[:2] if given.quick else sizes:
        sampling = Sampling(size, (16 if given.quick else 28 if device else 22), device)
        ways = {"ITS, with its table": ITS, "alias, with its table": ALIAS}
        sides = {name: Side(partial(sampling, way)) for name, way in ways.items()}
        for method in ("zprs", "dprs") if device else ():
            sides[f"{method.upper()} as published"] = Side(partial(sampling, method=method))
        work = float(sampling.elements), "elements"
        name = f"figure 6, a sample of {size} elements"
        yield Case(name, sampling, sampling.check, sides, work, rounds=3)
    base = walks.make_graph(given.scratch / "LJ13", 12 if given.quick else 17, 10)
    for count, length in ((1000, 80), (10_000, 80), (100_000, 80), (100_000, 5), (100_000, 20)):
        rules = replace(APPS["deepwalk"], length=length)
        walker = walks.Walker(base, rules, os.cpu_count() or 1, walks=count)
        work = float(count * (length - 1)), "steps"
        name = f"figure 13, {count:,} queries of {length} nodes, on cores"
        yield Case(name, walker, walker.check, {}, work, rounds=3)
    if device:
        scale = 16 if given.quick else 22
        base = walks.make_graph(given.scratch / "unscrambled", scale, scramble=False)
        load = bench_walk_gpu.Workload(base, 4_000_000)
        for case in bench_walk_gpu.ablation(load, base):
            yield replace(case, name=f"figure 14, {case.name}")
    else:
        yield absent("figures 7, 14 and 15, ablation", "for a GPU")
    yield absent("table 2, EU to SK", "these graphs are not here; R-MAT 26: results/walk.md")
    yield absent("table 3, memory", "no table is built: the graph and the paths are all")
    yield absent("figure 8", "a graph of Douyin's")
    yield absent("figure 10, sizes of pools and rows", "results/walk.md has three sizes of rows")
    yield absent("figure 11", "needs a profiler")
    yield absent("figure 12, numbers drawn for elements", "our sampler draws one for a row")


class Sampling:
    """One sample of each of many rows of a size, from weights without a table."""

    def __init__(self, size: int, elements: int, device: bool) -> None:
        self.size, self.elements, self.device = size, 1 << elements, device
        self.draw, self.graph = np.random.default_rng(), None

    def rows(self, count: int) -> WalkGraph:
        """Return rows of as many elements, in the memory of the device."""
        xp: Any = np
        if self.device:
            import cupy as xp
        ends = xp.minimum(xp.arange(max(count, self.size) + 1), count) * self.size
        drawn = xp.random.default_rng(0).random(count * self.size, dtype=np.float32)
        targets = xp.tile(xp.arange(self.size, dtype=np.int32), count)
        return WalkGraph(ends, targets, weights=1 + 4 * drawn)

    def sampled(self, graph: WalkGraph, starts: Any, sampler: Sampler, **how: Any) -> Any:
        """Sample from the rows of starts."""
        rules = WalkRules(2, sampler=sampler, seed=int(self.draw.integers(1 << 62)))
        if not self.device:
            made = graph if sampler == RESERVOIR else kernels_of_walks.tables(graph, rules)
            return kernels_of_walks.walk(made, rules, np.arange(len(starts)), starts)
        import cupy as cp

        from penstock.kernels.cuda import walk
        from penstock.kernels.cuda.walk.reservoir import walk_reservoir

        numbers = cp.arange(len(starts), dtype=cp.int64)
        if sampler == RESERVOIR:
            return walk_reservoir(graph, rules, numbers, cp.asarray(starts), **how)
        return walk.walk(walk.tables(graph, rules), rules, numbers, cp.asarray(starts))

    def __call__(self, sampler: Sampler = RESERVOIR, **how: Any) -> Timed:
        count = self.elements // self.size
        self.graph = self.graph or self.rows(count)
        starts: Any = np.arange(count, dtype=np.int32)
        if self.device:
            import cupy as cp

            starts = cp.asarray(starts)  # not in the time
        work = partial(self.sampled, self.graph, starts, sampler, **how)
        return Timed((on_gpu(work, 3) if self.device else timed(work)).seconds)

    def check(self, values: dict[str, Any]) -> dict[str, Any]:
        """Check the chances of a row's elements."""
        row = self.rows(1)

        def made(numbers: Any, starts: Any, length: int) -> Any:
            found = self.sampled(row, starts.astype(np.int32), RESERVOIR)
            return tampered(found.get() if self.device else found)

        arrays = row.indptr, row.indices, row.weights
        host = WalkGraph(*(each.get() if self.device else each for each in arrays))
        least = walks.check_step(made, host, WalkRules(2, sampler=RESERVOIR), 0, -1, self.draw)
        assert least > walks.LEAST_CHANCE, f"chance {least:.1e}"
        return {"least chance": least}


def check_walks(walker: Any, paper: tuple[float, float], values: dict[str, Any]) -> dict[str, Any]:
    named = {"paper, s on an A100": paper[0], "its best other": paper[1]}
    return dict(walker.check(values)) | named


# FULL-W2V: word vectors.

BILLION = 555_514  # vocabulary
QUALITY = {"ws353": 0.5923, "SimLex999": 0.3582, "3CosAdd": 0.2978}  # table 7, a billion words


def roofline(count: int) -> dict[str, Side]:
    """Return the times of a training's operations and bytes at the rates of this machine.

    A word that is kept has six contexts, each with the word and five negatives: a product of 128
    values and two updates. Its row is read and written once, like those of word and negatives.
    """
    share = words.shares(count)
    kept = count * float((share * np.minimum(1, np.sqrt(1e-3 / share) + 1e-3 / share)).sum())
    operations, moved = kept * 6 * 6 * words.DIM * 6, kept * 7 * 2 * 4 * words.DIM
    if gpus(1)() is None:
        import cupy as cp

        about = cp.cuda.Device().attributes
        flops = about["MultiProcessorCount"] * 128 * 2 * about["ClockRate"] * 1e3
        memory = rates.copy_rate(2 << 30)
    else:
        threads = os.cpu_count() or 1
        flops, memory = rates.product_rate(threads), rates.read_rate(1 << 28, threads)
    bounds = {"operations": operations / flops, "bytes from memory": moved / memory}
    return {
        f"figure 1, {name}": Side(partial(Timed, seconds), floor=True)
        for name, seconds in bounds.items()
    }


def full_w2v(given: argparse.Namespace) -> Iterator[Case]:
    count, epochs = (200_000 if given.quick else words.TEXT8[1]), 1 if given.quick else 5
    corpus = words.zipf(given.scratch / "zipf.txt", count)
    theirs = partial(words.by_gensim, corpus, given.scratch / "theirs", epochs)
    yield Case(
        "figure 6, throughput on a corpus of Text8's sizes",
        partial(words.ours, corpus, given.scratch / "out", epochs=epochs),
        words.check_vectors,
        {
            "gensim": Side(theirs, needs=[installed("gensim")], once=True),
            **roofline(count * epochs),
        },
        (count * epochs, "words"),
        rounds=3,
    )
    large = words.zipf(given.scratch / "large.txt", count, BILLION)
    yield Case(
        "figure 7, throughput with the vocabulary of One Billion Words",
        partial(words.ours, large, given.scratch / "of_large", epochs=1),
        words.check_vectors,
        work=(count, "words"),
        rounds=3,
    )
    if data() is None:
        text = words.write_text(given.scratch / "text.txt", 1_000_000 if given.quick else 0)
        epochs = 1 if given.quick else 3
        ours = partial(words.ours, text, given.scratch / "text", epochs=epochs)
        given.epochs = epochs
        theirs = partial(words.by_gensim, text, given.scratch / "gensim", epochs)

        def check(values: dict[str, Any]) -> dict[str, Any]:
            return words.check_text(text, given, values) | {"paper, a billion words": QUALITY}

        sides = {"gensim": Side(theirs, once=True)}
        needs = [installed("gensim")]
        yield Case("table 7, quality", ours, check, sides, rounds=1, needs=needs)
    yield absent("table 7 on One Billion Words", "the corpus is not here")
    yield absent("tables 4 to 6: memory traffic, stalls", "needs ncu: results/word2vec.md")
    yield absent("table 1: batching", "sentences are made on the device, without batches of a host")


# SwarmGraph: many small graphs.

GROUPS = {"G1": (0, 128), "G2": (128, 256), "G3": (256, 384), "G4": (384, 512)}
# Of igraph's time over ours, the least measured.
PROTEINS = {"betweenness": 1.5, "closeness": 3.3, "distances": 2.0}
TABLE_3 = {"betweenness": 1.4, "closeness": 12, "distances": 1.0}
MINUTES = {"betweenness": (218, 30), "closeness": (13, 2), "distances": (17.5, 2.4)}  # 1, 8 GPUs


def proteins() -> list[list[list[int]]]:
    """Return the rows of each graph of PROTEINS."""
    folder = real("zoo/PROTEINS")
    texts = []
    for name in ("graph_indicator", "A"):
        with gzip.open(folder / f"PROTEINS_{name}.txt.gz", "rt") as file:
            texts.append(np.loadtxt(file, np.int64, delimiter=","))
    owner, edges = texts[0] - 1, texts[1] - 1
    first = np.searchsorted(owner, np.arange(owner[-1] + 2))
    graphs = [[[] for _ in range(n)] for n in np.diff(first)]
    for a, b in edges:
        graphs[owner[a]][a - first[owner[a]]].append(int(b - first[owner[a]]))
    return [[sorted(set(row)) for row in rows] for rows in graphs]


def by_igraph(made: list[Any], metric: str) -> list[Any]:
    if metric == "distances":
        return [graph.distances() for graph in made]
    if metric == "closeness":
        return [np.concatenate([graph.closeness() for graph in made])]
    return [np.concatenate([graph.betweenness(directed=False) for graph in made])]


def check_metric(metric: str, about: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    mine, theirs = values["ours"], values["igraph, one core"]
    theirs = np.concatenate([np.ravel(one) for one in theirs])
    if metric == "distances":
        near = np.isfinite(theirs)
        np.testing.assert_array_equal(mine[near], theirs[near])
    else:  # closeness of one component is the same by igraph
        close = 1e-9 if metric == "betweenness" else 0
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=close)
    return about


def connected(rows: list[list[int]]) -> bool:
    return nx.is_connected(nx.from_dict_of_lists(dict(enumerate(rows))))


def swarmgraph(given: argparse.Namespace) -> Iterator[Case]:
    if data() is None:
        every = [rows for rows in proteins() if connected(rows)]
        for group, (least, most) in GROUPS.items():
            some = [rows for rows in every if least <= len(rows) < most]
            if not some:
                yield absent(f"figure 6, {group}", "PROTEINS has no such graph")
                continue
            yield from swarm_cases(f"figure 6, {group} of PROTEINS", some, PROTEINS, {})
    else:
        yield absent("figure 6", data() or "")
    zoo = centralities.zoo(given.scratch / "zoo", 20 if given.quick else 200)
    rows = np.split(zoo.indices, zoo.indptr[1:-1])
    some = [[(row - a).tolist() for row in rows[a:b]] for a, b in pairwise(zoo.ptr)]
    some = [graph for graph in some if connected(graph)]
    for count in [1] if given.quick else [1, 10, 100]:
        title = f"figure 7, graphs of table 3: {count}"
        yield from swarm_cases(title, some[:count], TABLE_3, {})
    yield from swarm_cases(f"figure 8, {len(some)} graphs of table 3", some, TABLE_3, MINUTES)
    if gpus(1)() is None:
        import bench_centrality_gpu as on_gpus

        given.graphs, given.parquet = (20_000, 0) if given.quick else (100_000, 20_000)
        for case in on_gpus.cases(given):
            yield replace(case, name=f"figure 8, {case.name}")
    yield absent(
        "figure 7: without pipelining", "pieces are always read ahead: results/centrality.md"
    )
    yield absent("figure 8, eight GPUs", "bench_centrality_gpu.py has two")


def swarm_cases(
    title: str,
    some: list[Any],
    ratios: dict[str, float],
    paper: dict[str, Any],
) -> Iterator[Case]:
    """Yield a case for each metric of graphs."""
    batch = replace(centralities.batch_of(some), directed=False)
    needs, made = [installed("igraph")], list[Any]()
    if not needs[0]():
        import igraph

        ends = [[(a, b) for a, row in enumerate(rows) for b in row if a < b] for rows in some]
        made = [igraph.Graph(n=len(g), edges=e) for g, e in zip(some, ends, strict=True)]
    for metric, ratio in ratios.items():
        about: dict[str, Any] = {"graphs": len(some)}
        if metric in paper:
            names = "paper, minutes for 1 M on a Titan V", "on 8"
            about |= dict(zip(names, paper[metric], strict=True))
        yield Case(
            f"{title}, {metric}",
            partial(centralities.values_of, batch, metric, normalized=False),
            partial(check_metric, metric, about),
            {"igraph, one core": Side(partial(by_igraph, made, metric), ratio, needs=needs)},
            (len(some), "graphs"),
            needs=needs,
        )


PAPERS: dict[str, Callable[[argparse.Namespace], Iterator[Case]]] = {
    "legend": legend,
    "morphling": morphling,
    "flowwalker": flowwalker,
    "full-w2v": full_w2v,
    "swarmgraph": swarmgraph,
}

if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in (*PAPERS, "-h", "--help"):
        sys.exit(f"usage: papers.py {'|'.join(PAPERS)} [--quick]")
    cases = PAPERS.get(sys.argv[1], legend)
    sys.argv[1:2] = [] if sys.argv[1] in PAPERS else sys.argv[1:2]
    sys.exit(main(__doc__, cases, Option("--seeds", 5, 1, "of quality"), gpu=cases))
