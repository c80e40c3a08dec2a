"""What happens to a run whose workers or client die, or whose worker has little memory or a GPU."""

import signal
import subprocess
import sys
import threading
import time

import networkx as nx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import CSR, ClusterSpec, Graph, centrality, etl, generate
from penstock.errors import CapacityError
from penstock.pipelines.centrality import tasks

THREADS = ClusterSpec(cluster="threads")


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """A table of 1,500 graphs, and what comes of it where nothing happens."""
    folder = tmp_path_factory.mktemp("edges")
    generate("zoo", folder / "zoo", graphs=1500, seed=1)
    csr = Graph.open(folder / "zoo").csr()
    sizes = pq.read_table(folder / "zoo/graphs.parquet")["nodes"].to_numpy()
    graph = np.repeat(np.repeat(np.arange(len(sizes)), sizes), np.diff(csr.indptr))
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    once = rows < csr.indices
    columns = {"graph_id": graph, "source": rows, "target": csr.indices}
    table = pa.table({name: column[once] for name, column in columns.items()})
    pq.write_table(table, folder / "edges.parquet", row_group_size=300_000)
    centrality(folder / "edges.parquet", folder / "out", metrics="closeness", cluster=THREADS)
    return folder


def start(edges, out, *more):
    words = ["centrality", str(edges / "edges.parquet"), str(out), "--metrics", "closeness"]
    words += ["-n", "2", "-q", *more]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock", *words],
        stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=out.parent,
    )  # fmt: skip


def wait_for_parts(process, out, count):
    deadline = time.monotonic() + 120
    while len(list(out.parent.glob(f".{out.name}.partial/scratch/part-*.json"))) < count:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "no parts after two minutes"
        time.sleep(0.01)


def finish(process):
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 0, said


def same(one, other):
    names = sorted(path.name for path in (other / "nodes").iterdir())
    assert names == sorted(path.name for path in (one / "nodes").iterdir())
    for name in names:
        assert (one / "nodes" / name).read_bytes() == (other / "nodes" / name).read_bytes()


@pytest.mark.slow
def test_a_run_that_was_killed_is_resumed(edges, tmp_path):
    process = start(edges, tmp_path / "out")
    wait_for_parts(process, tmp_path / "out", 3)
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        member.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    psutil.wait_procs(family, timeout=20)
    assert not (tmp_path / "out").exists()
    records = tmp_path.glob(".out.partial/scratch/part-*.json")
    kept = {path: path.stat().st_mtime_ns for path in records}
    assert len(kept) >= 3
    process = start(edges, tmp_path / "out", "--resume")
    wait_for_parts(process, tmp_path / "out", len(kept) + 1)
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in kept}.items()
    finish(process)
    same(tmp_path / "out", edges / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_a_worker_that_was_killed_costs_time_only(edges, tmp_path):
    process = start(edges, tmp_path / "out")
    wait_for_parts(process, tmp_path / "out", 2)
    children = psutil.Process(process.pid).children(recursive=True)
    workers = [c for c in children if "spawn_main" in " ".join(c.cmdline()) and not c.children()]
    assert workers
    workers[0].kill()
    finish(process)
    same(tmp_path / "out", edges / "out")


@pytest.fixture(scope="module")
def one_graph(tmp_path_factory):
    """One graph of many shares, and what comes of it where nothing happens."""
    folder = tmp_path_factory.mktemp("one")
    generate("sbm", folder / "graph", nodes=10_000, seed=1)
    centrality(
        folder / "graph", folder / "out", metrics="betweenness", samples=1800, cluster=THREADS
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "all"])
def test_a_large_graph_survives_kills(one_graph, tmp_path, victim):
    """Of a worker: it costs time only. Of the whole family: --resume keeps the shares."""
    words = ["centrality", str(one_graph / "graph"), str(tmp_path / "out")]
    words += ["--metrics", "betweenness", "--samples", "1800", "-n", "2", "-q"]

    def begin(*more):
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "penstock", *words, *more],
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def shares():
        return set(tmp_path.glob(".out.partial/scratch/share-*.json"))

    process = begin()
    deadline = time.monotonic() + 120
    while not shares():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "no shares after two minutes"
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    if victim == "worker":
        next(
            c for c in children if "spawn_main" in " ".join(c.cmdline()) and not c.children()
        ).kill()
    else:
        for member in [psutil.Process(process.pid), *children]:
            member.kill()
        process.communicate(timeout=60)
        psutil.wait_procs(children, timeout=20)
        assert not (tmp_path / "out").exists()
        kept = {path: path.stat().st_mtime_ns for path in shares()}
        process = begin("--resume")
        while len(shares()) <= len(kept) and process.poll() is None:
            time.sleep(0.01)
        assert kept.items() <= {path: path.stat().st_mtime_ns for path in shares()}.items()
    finish(process)
    same(tmp_path / "out", one_graph / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_pieces_wait_for_memory():
    budget, order = tasks._MemoryBudget(), []

    def take(name, size):
        with budget.hold(size, 100):
            order.append(name)
            time.sleep(0.05)

    with budget.hold(90, 100):
        waiting = [threading.Thread(target=take, args=("large", 500))]
        waiting[0].start()
        time.sleep(0.05)
        assert not order  # it is alone once the other is done
    waiting[0].join()
    assert order == ["large"]
    with budget.hold(50, 100), budget.hold(50, 100):
        pass


def test_a_graph_too_large_for_a_worker_is_refused_before_it_runs(tmp_path):
    with Graph.create(tmp_path / "g") as writer:
        size = 60_000
        ends = np.arange(size - 1)
        writer.edges(CSR.from_edges(ends, ends + 1, size))
        writer.nodes(np.arange(size))
    small = ClusterSpec(cluster="local", workers=1, memory_limit="2GB")
    with pytest.raises(CapacityError):
        centrality(
            tmp_path / "g", tmp_path / "out", metrics="component", distances=True, cluster=small
        )
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / ".out.partial").exists()


METRICS = (
    "closeness,harmonic,betweenness,edge-betweenness,eccentricity,diameter,pagerank,component,"
    "strong-component,triangles,clustering"
)


@pytest.mark.parametrize("more", [{}, {"distances": True}, {"weighted": True}])
@pytest.mark.parametrize(
    "rows",
    [
        [(0, None, None), (1, 4, None), (2, None, None)],  # no nodes, one node, no nodes
        [(0, 1, 1), (0, 2, 2), (1, 5, 5)],  # self loops alone
        [(0, 1, None), (0, 2, None), (0, 3, None)],  # no edges
        [],
    ],
    ids=["small", "loops", "no edges", "nothing"],
)
def test_degenerate_graphs(tmp_path, rows, more):
    kinds = {"graph_id": pa.int64(), "source": pa.int64(), "target": pa.int64()}
    table = {n: pa.array([row[i] for row in rows], kinds[n]) for i, n in enumerate(kinds)}
    table["weight"] = pa.array([1.0] * len(rows), pa.float64())
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    report = centrality(
        tmp_path / "e.parquet", tmp_path / "out", metrics=METRICS, cluster=THREADS, **more
    )
    assert report.failed == 0
    assert report.graphs == len({row[0] for row in rows})
    found = pq.read_table(tmp_path / "out/nodes").to_pylist()
    ends = {(row[0], end) for row in rows for end in row[1:] if end is not None}
    assert {(row["graph"], row["node"]) for row in found} == ends
    for row in found:
        assert (row["closeness"], row["betweenness"], row["triangles"]) == (0, 0, 0)
    graphs = pq.read_table(tmp_path / "out/graphs").to_pylist()
    for row in graphs:
        size = len({end for graph, end in ends if graph == row["graph"]})
        assert (row["nodes"], row["components"]) == (size, size)
    assert sum(row["edges"] for row in graphs) == sum(a is not None and a == b for _, a, b in rows)


@pytest.mark.parametrize("empty", ["first", "middle", "last", "all"])
def test_graphs_of_a_zoo_that_have_lost_their_nodes(tmp_path, empty):
    """What etl drops leaves graphs without nodes, maybe where a shard ends."""
    loops = {"first": [0], "middle": [1, 2], "last": [3], "all": [0, 1, 2, 3]}[empty]
    rows = [(g, 1, 1 if g in loops else 2) for g in range(4)]
    table = {name: [row[i] for row in rows] for i, name in enumerate(("graph_id", "src", "dst"))}
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    options = {"format": "zoo", "self_loops": "drop", "drop_isolated": True}
    etl(tmp_path / "e.parquet", tmp_path / "zoo", **options)
    report = centrality(tmp_path / "zoo", tmp_path / "out", metrics=METRICS, cluster=THREADS)
    assert (report.graphs, report.failed) == (4, 0)
    found = pq.read_table(tmp_path / "out/nodes").to_pylist()
    assert [row["closeness"] for row in found] == [1.0] * len(found)
    assert sorted({row["graph"] for row in found}) == sorted(set(range(4)) - set(loops))


PAIRS = {
    "metrics": METRICS.replace("triangles,", ""),
    "weighted": True,
    "directed": True,
    "wf_improved": False,
    "normalized": False,
    "endpoints": True,
    "distances": True,
    "dtype": "float32",
    "scratch": "scratch",
    "overwrite": True,
    "resume": True,
}


# Each with all that follow; two of them for a quick run.
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("weighted", "dtype") else pytest.param(name, marks=pytest.mark.slow)
        for name in PAIRS
    ],
)
def test_options_in_pairs(tmp_path, name, monkeypatch):
    """Any two go together, and neither changes what the other means."""
    monkeypatch.chdir(tmp_path)
    graph = nx.gnp_random_graph(20, 0.15, seed=2)
    rows = [(7, a, b, 1.0 + (a + b) % 3) for a, b in graph.edges]
    names = ("graph_id", "source", "target", "weight")
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    pq.write_table(table, tmp_path / "e.parquet")
    for other in list(PAIRS)[list(PAIRS).index(name) :]:
        given = {name: PAIRS[name], other: PAIRS[other]}
        out = tmp_path / f"out-{other}"
        centrality(tmp_path / "e.parquet", out, **given, cluster=THREADS)
        if given.get("overwrite"):
            centrality(tmp_path / "e.parquet", out, **given, cluster=THREADS)
        true = nx.DiGraph() if given.get("directed") else nx.Graph()
        true.add_weighted_edges_from(row[1:] for row in rows)
        weight = "weight" if given.get("weighted") else None
        near = nx.closeness_centrality(
            true, distance=weight, wf_improved=given.get("wf_improved", True)
        )
        between = nx.betweenness_centrality(
            true,
            weight=weight,
            normalized=given.get("normalized", True),
            endpoints=given.get("endpoints", False),
        )
        found = {row["node"]: row for row in pq.read_table(out / "nodes").to_pylist()}
        for node in true:
            assert found[node]["closeness"] == pytest.approx(near[node], rel=1e-9)
            assert found[node]["betweenness"] == pytest.approx(between[node], rel=1e-9, abs=1e-13)
        if given.get("distances"):
            matrix = np.load(out / "distances/00000.npy").reshape(len(found), -1)
            far = dict(nx.shortest_path_length(true, weight=weight))
            order = sorted(true)
            none = np.inf if weight else -1
            wanted = [[far[a].get(b, none) for b in order] for a in order]
            np.testing.assert_allclose(matrix, wanted)
