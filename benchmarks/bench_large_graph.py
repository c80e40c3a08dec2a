"""One large graph on all cores, compared with igraph and NetworKit, and on a GPU with its floor.

    python -P benchmarks/bench_large_graph.py [--quick] [--cpu] [--scale 20] [--gpu-scale 24]

The graph is R-MAT with GAP's parameters, undirected, made by ``penstock generate``. Penstock starts
from the mapped files of a directory; peers have the graph in their own form, whose making is not
timed. Ranks change by at most 1e-6 in the last step, as a sum; igraph's PRPACK has no such
limit and goes further. Results must be equal: ranks to 1e-9 of their sum (igraph's: 1e-5),
components and triangles exactly; communities must reach 99 % of igraph's modularity.

On a GPU, graphs are GAP's kron and urand (R-MAT of equal quadrants), PageRank has GAP's tolerance,
and betweenness four sources; values must equal those of cores. "from files" takes mapped files to
values on the host, and its floor is the copy of the graph from pinned memory. The others begin and
end in device memory; their floor is to read each index once a step (betweenness: twice) and each
value of a node as often as a step must, at the bandwidth of a copy. Gathers are not counted. Two
GPUs, warm ranks of mpiexec, take mapped files to values on the first rank's host, as one does.
``--only GPU --gpu-scale 27`` has GAP's own size; there the sum of betweenness is compared with the
lengths of shortest paths.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, alike, gpus, installed, main, on_gpu
from ranks import communicator, launched, with_gpu

import penstock
from penstock import Graph, generate
from penstock.kernels import community_rules
from penstock.kernels.centrality_rules import GraphBatch, betweenness_scale
from penstock.limits import cores
from penstock.pipelines.centrality.functions import one_graph, paths_of
from penstock.pipelines.centrality.one_graph import OneGraph
from penstock.threads import spread

CHANGE = 1e-6  # of the ranks in a step
GAP_CHANGE = 1e-4
# The floor over the time on one H200, of kron and urand at scale 24 (results/centrality.md).
SHARES = {
    ("PageRank", "from files"): (0.26, 0.22),
    ("PageRank", "in device memory"): (0.079, 0.051),
    ("components", "from files"): (0.40, 0.37),
    ("components", "in device memory"): (0.016, 0.010),
    ("betweenness", "from files"): (0.23, 0.19),
    ("betweenness", "in device memory"): (0.027, 0.039),
}
GAP_GRAPHS = {"kron": (0.57, 0.19, 0.19), "urand": (0.25, 0.25, 0.25)}
BANDWIDTH, COPY = 4.25e12, 55e9  # bytes per second of an H200, and from pinned memory


def made(
    path: Path, scale: int, a: float = 0.57, b: float = 0.19, c: float = 0.19, *, both: bool = True
) -> Graph:
    if not path.exists():
        generate("rmat", path, scale=scale, a=a, b=b, c=c, undirected=both, quiet=True)
    return Graph.open(path)


def once(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return each edge once."""
    csr = graph.csr()
    sources, targets = np.asarray(csr.sources()), np.asarray(csr.indices)
    chosen = sources <= targets
    return sources[chosen], targets[chosen]


@cache
def networkit_graph(graph: Graph) -> Any:
    import networkit

    networkit.setNumberOfThreads(cores())
    ends = tuple(each.astype(np.uint64) for each in once(graph))
    return networkit.GraphFromCoo(ends, n=graph.num_nodes)


@cache
def igraph_graph(graph: Graph) -> Any:
    import igraph

    return igraph.Graph(n=graph.num_nodes, edges=np.stack(once(graph), 1))


def ranks_by_networkit(graph: Any) -> np.ndarray:
    import networkit

    found = networkit.centrality.PageRank(graph, 0.85, CHANGE)
    found.norm = networkit.centrality.Norm.L1_NORM
    found.run()
    ranks = np.array(found.scores())
    return ranks / ranks.sum()


def components_by_networkit(graph: Any) -> np.ndarray:
    import networkit

    found = networkit.components.ConnectedComponents(graph)  # faster than its parallel one
    found.run()
    return np.array(found.getPartition().getVector(), np.int64)


def communities_by_networkit(graph: Any) -> np.ndarray:
    import networkit

    found = networkit.community.PLM(graph, True)
    found.run()
    return np.array(found.getPartition().getVector(), np.int64)


def clustering_by_igraph(graph: Any) -> np.ndarray:
    return np.array(graph.transitivity_local_undirected(mode="zero"))


def communities_by_igraph(graph: Any) -> np.ndarray:
    return np.array(graph.community_leiden("modularity", n_iterations=3).membership)


def check_ranks(values: dict[str, Any]) -> None:
    for name, ranks in values.items():
        most = 1e-5 if name == "igraph" else 1e-9  # which has another limit
        assert np.abs(np.asarray(ranks) - values["ours"]).sum() < most, name


def check_numbers(labels: np.ndarray) -> None:
    """Check that groups are numbered by their first nodes."""
    np.testing.assert_array_equal(labels, community_rules.numbered(labels))


def check_components(values: dict[str, Any]) -> None:
    check_numbers(values["ours"])
    for name, labels in values.items():
        pairs = np.unique(np.stack([values["ours"], np.asarray(labels)]), axis=1).shape[1]
        assert pairs == len(np.unique(labels)) == len(np.unique(values["ours"])), name


def check_communities(graph: Graph, values: dict[str, Any]) -> dict[str, float]:
    check_numbers(values["ours"])
    csr = graph.csr()
    matrix = community_rules.adjacency(csr.indptr, csr.indices, None)
    found = {}
    for name, labels in values.items():
        numbers = np.unique(np.asarray(labels), return_inverse=True)[1]
        found[f"modularity, {name}"] = community_rules.modularity(matrix, numbers)
    for name, value in found.items():
        least = 0.99 if "igraph" in name else 0.97
        assert found["modularity, ours"] >= least * value, (name, found)
    return found


def numbered(graph: Graph) -> OneGraph:
    """Return a graph whose nodes are named by their numbers, which need not be looked up."""
    return replace(one_graph(graph), find=None)


def on_cores(graph: Graph, sources: np.ndarray, metric: str) -> np.ndarray:
    """Compute a metric on all cores, betweenness with a thread for each source."""
    if metric == "PageRank":
        return penstock.pagerank(graph, tol=GAP_CHANGE / graph.num_nodes, device="cpu")
    if metric == "components":
        return penstock.components(graph, device="cpu")
    one, found = numbered(graph), list[np.ndarray]()
    assert one.batch.graphs == 1  # made once
    spread(lambda s: found.append(penstock.betweenness(one, sources=[s], device="cpu")), sources)
    return np.sum(found, axis=0)


def on_device(rows: Any, metric: str, sources: np.ndarray, kept: dict[str, int]) -> Timed:
    """Compute a metric of rows in device memory; keep the number of steps of PageRank."""
    from penstock.kernels.cuda import centrality, components, pagerank

    def work() -> Any:
        if "PageRank" in metric:
            found, kept["steps"] = pagerank.pagerank(
                [rows], directed=False, tolerance=GAP_CHANGE / rows.rows, dtype=dtype_of(metric)
            )
            return found
        if metric == "components":
            return components.components([rows], symmetric=True)
        return centrality.betweenness(batch, sources)[0]

    batch = batch_of(rows)
    run = on_gpu(work, repeats=1, warm=0)
    return Timed(run.seconds, run.value.get() * (scale_of(rows) if metric == "betweenness" else 1))


def batch_of(rows: Any) -> GraphBatch:
    """Return rows in device memory as a batch of one graph."""
    import cupy as cp

    return GraphBatch(cp.asarray([0, rows.rows]), rows.indptr, rows.indices)


def scale_of(rows: Any) -> np.ndarray:
    """Return the factor of betweenness."""
    how = {"directed": False, "normalized": True, "endpoints": False}
    return betweenness_scale(np.array([0, rows.rows]), **how)


def dtype_of(metric: str) -> str:
    """Return the type of what nodes give in a step of PageRank."""
    return "float32" if "float32" in metric else "float64"


def check_paths(rows: Any, sources: np.ndarray, values: dict[str, Any]) -> None:
    """Compare the sum of betweenness with the lengths of paths, by another kernel."""
    from penstock.kernels.cuda import centrality

    found = centrality.shortest_paths(batch_of(rows), sources)
    inside = float(found.total.sum() - found.reached.sum())
    np.testing.assert_allclose(values["ours"].sum(), inside * scale_of(rows)[0], rtol=1e-9)


def check_device(truth: Any, metric: str, values: dict[str, Any]) -> None:
    close = 0 if metric == "components" else 1e-6 if "float32" in metric else 1e-9
    np.testing.assert_allclose(values["ours"], truth(), rtol=close, atol=0)


def least(graph: Graph, metric: str, where: str, kept: dict[str, int]) -> Timed:
    """Return the seconds that the copy of the graph takes, or the least traffic of a metric."""
    nodes, edges = graph.num_nodes, graph.num_edges
    if where == "from files":
        return Timed((4 * edges + 8 * nodes) / COPY)
    of_metric = {
        "PageRank": kept["steps"] * (4 * edges + 40 * nodes),
        "PageRank, float32": kept["steps"] * (4 * edges + 32 * nodes),
        "components": 28 * nodes,
        "betweenness": 8 * edges + 240 * nodes,
    }
    return Timed(of_metric[metric] / BANDWIDTH)


def as_rank(path: str, metric: str, out: str) -> None:
    """Compute a metric from files as a rank of mpiexec; the first keeps values and seconds."""
    comm = communicator(with_gpu(), on_gpus=True)
    from penstock.pipelines.centrality.compute import labels_of_rows, ranks_of_rows
    from penstock.workers.resources.upload import upload_rows

    graph = Graph.open(Path(path))
    given = {"directed": False, "tolerance": GAP_CHANGE / graph.num_nodes, "ranks": comm}
    taken: dict[str, list[float]] = {"files": [], "memory": []}
    for _ in range(4):
        comm.barrier()
        start = time.perf_counter()
        rows = upload_rows([graph.shard(n) for n in range(graph.num_shards)], ranks=comm)
        comm.synchronize()
        held = time.perf_counter()
        if "PageRank" in metric:
            values = ranks_of_rows(rows, {}, dtype=dtype_of(metric), **given)[0]
        else:
            values = labels_of_rows("components", rows, symmetric=True, ranks=comm)
        end = time.perf_counter()
        taken["files"].append(end - start)
        taken["memory"].append(end - held)
    if comm.rank == 0:
        np.save(Path(out) / "values.npy", values)
        found = {name: min(seconds[1:]) for name, seconds in taken.items()}
        (Path(out) / "seconds.json").write_text(json.dumps(found))
    comm.leave()


def on_ranks(count: int, graph: Graph, metric: str, folder: Path, kept: dict[str, float]) -> Timed:
    """Compute a metric on GPUs of this many ranks."""
    words = [__file__, "--rank", str(graph.path), metric, str(folder)]
    said = launched(count, words, gpus=True)
    seconds = folder / "seconds.json"
    assert seconds.exists(), said
    found = json.loads(seconds.read_text())
    seconds.unlink()
    kept[f"from device memory, {count}"] = found["memory"]
    return Timed(found["files"], np.load(folder / "values.npy"))


def check_equal(kept: dict[str, float], values: dict[str, Any]) -> dict[str, float]:
    alike(values)
    return kept


def two_gpus(graph: Graph, name: str, folder: Path) -> Iterator[Case]:
    """Yield the cases of two GPUs."""
    for metric, ratio in (("PageRank", 1.34), ("PageRank, float32", None), ("components", 1.14)):
        kept: dict[str, float] = {}
        yield Case(
            f"{metric}, {name}, 2 GPUs, from files",
            partial(on_ranks, 2, graph, metric, folder, kept),
            partial(check_equal, kept),
            {"one GPU": Side(partial(on_ranks, 1, graph, metric, folder, kept), ratio)},
            (graph.num_edges, "edges"),
            rounds=1,
            needs=[gpus(2)],
        )


def beside_cores(graph: Graph, directed: Graph, scale: int) -> Iterator[Case]:
    """Yield cases of a GPU that cores have, too; ``directed`` for strong components."""
    sources = np.sort(np.random.default_rng(0).choice(graph.num_nodes, 256, replace=False))

    def distances(device: str) -> np.ndarray:
        one = one_graph(graph)
        batch = one.merged_on_gpu() if device == "gpu" else one.batch
        found = paths_of(batch, sources) if device == "cpu" else on_one_gpu(batch)
        return np.asarray(found.total)

    def on_one_gpu(batch: Any) -> Any:
        from penstock.kernels.cuda import centrality
        from penstock.workers.resources.device import to_host

        found = centrality.shortest_paths(batch, sources)
        return found._replace(total=to_host(found.total))

    for name, call, of in (
        ("clustering", partial(penstock.clustering, graph), graph),
        ("distances from 256 nodes", distances, graph),
        ("strong components", partial(penstock.strong_components, directed), directed),
    ):
        yield Case(
            f"{name}, R-MAT {scale}, GPU, from files",
            partial(call, device="gpu"),
            partial(alike, rtol=1e-9, atol=1e-12),
            {"cores": Side(partial(call, device="cpu"), once=True)},
            (of.num_edges, "edges"),
            rounds=3,
        )


def gpu_cases(given: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases of a GPU: of each graph and metric from files, and in device memory."""
    from penstock.workers.resources.upload import upload_rows

    folder = given.scratch if given.graphs == "" else Path(given.graphs)
    if not given.quick:
        scale = given.scale
        directed = made(folder / f"d{scale}", scale, both=False)
        yield from beside_cores(made(folder / f"r{scale}", scale), directed, scale)
    for number, (name, quadrants) in enumerate(GAP_GRAPHS.items()):
        graph = made(folder / f"{name}{given.gpu_scale}", given.gpu_scale, *quadrants)
        sources = np.sort(np.random.default_rng(0).choice(graph.num_nodes, 4, replace=False))
        ranks = partial(penstock.pagerank, graph, tol=GAP_CHANGE / graph.num_nodes)
        calls: dict[str, Any] = {
            "PageRank": ranks,
            "PageRank, float32": partial(ranks, dtype="float32"),
            "components": partial(penstock.components, graph),
            "betweenness": partial(penstock.betweenness, numbered(graph), sources=sources),
        }
        (rows,) = upload_rows([graph.shard(n) for n in range(graph.num_shards)])
        kept = {"steps": 1}
        truths = cache(partial(on_cores, graph, sources))
        for metric, call in calls.items():
            truth = partial(truths, metric.removesuffix(", float32"))
            for where, ours in (
                ("from files", partial(call, device="gpu")),
                ("in device memory", partial(on_device, rows, metric, sources, kept)),
            ):
                shares = SHARES.get((metric, where)) if given.gpu_scale == 24 else None
                share = shares and shares[number]
                run = partial(least, graph, metric, where, kept)
                check = partial(check_device, truth, metric)
                if metric == "betweenness" and given.gpu_scale > 24:  # cores take minutes
                    check = partial(check_paths, rows, sources)
                yield Case(
                    f"{metric}, {name} {given.gpu_scale}, GPU, {where}",
                    ours,
                    check,
                    {"floor": Side(run, share, floor=True)},
                    (graph.num_edges, "edges"),
                    rounds=3,
                )
        del rows
        if name == "kron":
            yield from two_gpus(graph, f"{name} {given.gpu_scale}", folder)


def cases(given: argparse.Namespace) -> Iterator[Case]:
    folder = given.scratch if given.graphs == "" else Path(given.graphs)
    large = made(folder / f"r{given.scale}", given.scale)
    small = made(folder / f"r{given.small}", given.small)
    graphs = {"networkit": networkit_graph, "igraph": igraph_graph}

    def side(name: str, of: Graph, function: Callable[[Any], Any], *ratios: float) -> Side:
        """Return a peer's side, whose first run, which is not timed, makes its graph."""
        return Side(lambda: function(graphs[name](of)), *ratios, needs=[installed(name)])

    for title, graph, ours, check, peers in (
        (
            f"PageRank, R-MAT {given.scale}",
            large,
            partial(penstock.pagerank, tol=CHANGE / large.num_nodes, device="cpu"),
            check_ranks,
            {"networkit": (ranks_by_networkit, 3.4, 1.5)},
        ),
        (
            f"connected components, R-MAT {given.scale}",
            large,
            partial(penstock.components, device="cpu"),
            check_components,
            {"networkit": (components_by_networkit, 7.5, 1.0)},
        ),
        (
            f"PageRank, R-MAT {given.small}",
            small,
            partial(penstock.pagerank, tol=CHANGE / small.num_nodes),
            check_ranks,
            {"igraph": (lambda g: np.array(g.pagerank()), 3.9, 2.8)},
        ),
        (
            f"clustering, R-MAT {given.small}",
            small,
            penstock.clustering,
            partial(alike, rtol=1e-9, atol=1e-12),
            {"igraph": (clustering_by_igraph, 5.0, 1.7)},
        ),
        (
            f"communities, R-MAT {given.small}",
            small,
            penstock.communities,
            partial(check_communities, small),
            {
                "igraph": (communities_by_igraph, 2.4, 1.7),
                "networkit": (communities_by_networkit, 0.5),
            },
        ),
    ):
        sides = {name: side(name, graph, *peer) for name, peer in peers.items()}
        yield Case(title, partial(ours, graph), check, sides, (graph.num_edges, "edges"), rounds=3)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        sys.exit(as_rank(*sys.argv[2:]))
    sizes = Option("--scale", 20, 14, "of the large graph"), Option("--small", 16, 13, "of others")
    sizes += (Option("--gpu-scale", 24, 18, "of graphs on a GPU"),)
    folder = Option("--graphs", "", "", "a folder to keep graphs in, r22 and so on")
    sys.exit(main(__doc__, cases, *sizes, folder, gpu=gpu_cases))
