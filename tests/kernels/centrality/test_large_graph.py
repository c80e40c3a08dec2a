"""Kernels of one large graph, in row ranges: the twins against each other, NetworkX and SciPy."""

from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from thread_ranks import on_threads

from penstock.csr import CSR
from penstock.kernels.centrality_rules import GraphBatch
from penstock.kernels.cpu import centrality as cpu_centrality
from penstock.kernels.cpu import components as cpu_components
from penstock.kernels.cpu import degrees as cpu_degrees
from penstock.kernels.cpu import pagerank as cpu_pagerank
from penstock.kernels.cpu import strong_components as cpu_strong
from penstock.kernels.cpu import transpose as cpu_transpose
from penstock.kernels.naive import components as naive_components
from penstock.kernels.naive import degrees as naive_degrees
from penstock.kernels.naive import pagerank as naive_pagerank
from penstock.kernels.naive import strong_components as naive_strong
from penstock.kernels.naive import transpose as naive_transpose
from penstock.temporary import TemporaryFolder


class Cuda:
    """Kernels on a GPU, given and giving arrays of the host."""

    def __init__(self, noun):
        self.noun = noun

    def __getattr__(self, name):
        import cupy

        from penstock.workers.resources.upload import upload_rows

        def call(rows, *, ranks=None, **options):
            # Of an undirected graph a rank holds its share of the edges.
            shared = options.get("symmetric", True) and not options.get("directed", False)
            options = {
                key: cupy.asarray(value) if isinstance(value, np.ndarray) else value
                for key, value in options.items()
            }
            module = import_module(f"penstock.kernels.cuda.{self.noun}")
            there = upload_rows(rows, weighted=True, ranks=ranks if shared else None)
            if ranks is not None:
                options["ranks"] = ranks
            return on_host(getattr(module, name)(there, **options))

        return call


def on_host(found):
    if isinstance(found, CSR):
        return CSR(found.indptr.get(), found.indices.get(), found.weights.get())
    if isinstance(found, tuple | list):
        return type(found)(on_host(each) for each in found)
    return found.get() if hasattr(found, "get") else found


def backends(noun, *modules):
    cuda = pytest.param(Cuda(noun), id="cuda", marks=pytest.mark.gpu)
    named = [pytest.param(each, id=each.__name__.split(".")[2]) for each in modules]
    return pytest.mark.parametrize("kernels", [*named, cuda])


PAGERANK = backends("pagerank", naive_pagerank, cpu_pagerank)
DIRECTED = pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])


@st.composite
def row_ranges(draw, *, most=12):
    """Draw a multigraph with loops, parallel edges, isolated nodes, weights of 0; and its rows."""
    directed = draw(st.booleans())
    size = draw(st.integers(1, most))
    node = st.integers(0, size - 1)
    edges = draw(st.lists(st.tuples(node, node, st.sampled_from([0, 1, 2.5])), max_size=3 * most))
    graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
    graph.add_nodes_from(range(size))
    graph.add_weighted_edges_from(edges)
    csr = rows_of(size, edges, directed=directed)
    cuts = sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=3))})
    return graph, [csr.row_range(a, b) for a, b in pairwise(cuts)]


def rows_of(size, edges, *, directed):
    both = edges if directed else [*edges, *((b, a, w) for a, b, w in edges if a != b)]
    table = np.array(both, np.float64).reshape(-1, 3)
    ends = table[:, :2].astype(np.int64)
    return CSR.from_edges(ends[:, 0], ends[:, 1], size, weights=table[:, 2])


def shares(draw, size):
    """Draw None, or numbers of nodes that do not add up to 0."""
    if draw(st.booleans()):
        return None
    values = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    return np.array(values, np.float64) if any(values) else None


@PAGERANK
@settings(max_examples=60, deadline=None)
@given(data=st.data(), weighted=st.booleans(), threads=st.integers(1, 3))
def test_pagerank_is_networkxs_with_each_of_its_arguments(kernels, data, weighted, threads):
    graph, rows = data.draw(row_ranges())
    given = {name: shares(data.draw, len(graph)) for name in ("personal", "dangling", "start")}
    names = {"personal": "personalization", "dangling": "dangling", "start": "nstart"}
    theirs = {names[k]: dict(enumerate(v)) for k, v in given.items() if v is not None}
    tolerance = data.draw(st.sampled_from([1e-3, 1e-9]))
    wanted = nx.pagerank(
        graph, weight="weight" if weighted else None, tol=tolerance, max_iter=500, **theirs
    )
    ranks, steps = kernels.pagerank(
        rows,
        directed=graph.is_directed(),
        weighted=weighted,
        tolerance=tolerance,
        most=500,
        threads=threads,
        **{name: v if v is None else v / v.sum() for name, v in given.items()},
    )
    assert steps > 0
    np.testing.assert_allclose(ranks, [wanted[node] for node in graph], rtol=1e-9, atol=1e-12)


@PAGERANK
@settings(max_examples=40, deadline=None)
@given(drawn=row_ranges(), weighted=st.booleans())
def test_a_pagerank_whose_nodes_give_float32(kernels, drawn, weighted):
    given = {"directed": drawn[0].is_directed(), "weighted": weighted, "tolerance": 1e-7}
    wanted, _ = kernels.pagerank(drawn[1], **given)
    found, steps = kernels.pagerank(drawn[1], dtype="float32", **given)
    assert steps > 0
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@PAGERANK
def test_a_pagerank_that_does_not_converge_and_one_of_nothing(kernels):
    star = rows_of(5, [(0, n, 1.0) for n in range(1, 5)], directed=False)
    _, steps = kernels.pagerank([star], directed=False, tolerance=1e-12, most=3)
    assert steps == -1
    ranks, steps = kernels.pagerank([], directed=True)
    assert (ranks.shape, steps) == ((0,), 1)


@backends("components", naive_components, cpu_components)
@settings(max_examples=80, deadline=None)
@given(drawn=row_ranges(most=30), threads=st.integers(1, 3))
def test_components_are_scipys(kernels, drawn, threads):
    graph, rows = drawn
    labels = kernels.components(rows, symmetric=not graph.is_directed(), threads=threads)
    np.testing.assert_array_equal(labels, by_scipy(CSR.concatenate(rows)))


@backends("strong_components", naive_strong, cpu_strong)
@settings(max_examples=80, deadline=None)
@given(drawn=row_ranges(most=30), threads=st.integers(1, 3))
def test_strong_components_are_scipys(kernels, drawn, threads):
    labels = kernels.strong_components(drawn[1], threads=threads)
    np.testing.assert_array_equal(labels, by_scipy(CSR.concatenate(drawn[1]), "strong"))
    assert kernels.strong_components([]).shape == (0,)


@backends("strong_components", cpu_strong)
@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize("kind", ["hubs", "pairs", "cycles", "long", "path", "pairs on a path"])
def test_strong_components_of_a_graph_that_threads_share(kernels, kind, ids):
    nodes, random = 300_000 if ids is np.int32 else 120_000, np.random.default_rng(5)
    order = random.permutation(nodes)
    size = {"pairs": 2, "cycles": 5, "long": 20_000, "pairs on a path": 2}.get(kind, 1)
    after = np.arange(nodes) + 1
    after[size - 1 :: size] -= size
    if kind == "hubs":
        rows = with_hubs(directed=True, nodes=nodes)
    elif kind == "path":  # longer than any number of passes, as it lies there
        rows = CSR.from_edges(np.arange(nodes - 1), np.arange(1, nodes), nodes)
    else:  # cycles of this size, with edges to later ones
        more = np.sort(random.integers(0, nodes, (2, nodes // 2)), axis=0) // size * size
        if kind == "pairs on a path":  # some; the others lead to it
            on = np.arange(0, nodes, 6)
            more = np.concatenate([[on[:-1], on[1:]], [on + 2, on], [on + 4, on]], axis=1)
        ends = np.concatenate([[np.arange(nodes), after], more], axis=1)
        rows = CSR.from_edges(order[ends[0]], order[ends[1]], nodes)
    rows = replace(rows, indices=rows.indices.astype(ids))
    cut = [rows.row_range(0, 70_001), rows.row_range(70_001, rows.rows)]
    labels = kernels.strong_components(cut, threads=4)
    np.testing.assert_array_equal(labels, by_scipy(rows, "strong"))


@DIRECTED
@backends("components", cpu_components)
def test_components_of_a_graph_that_threads_and_ranks_share(kernels, directed):
    # Paths, in a random order of nodes: trees grow deep, and meet at both ends.
    nodes = 300_000
    order = np.random.default_rng(5).permutation(nodes)
    kept = np.random.default_rng(6).random(nodes - 1) < 0.999
    a, b = order[:-1][kept], order[1:][kept]
    ends = (a, b) if directed else (np.concatenate([a, b]), np.concatenate([b, a]))
    rows = CSR.from_edges(*ends, nodes)
    wanted, given = by_scipy(rows), {"symmetric": not directed}
    np.testing.assert_array_equal(kernels.components([rows], threads=4, **given), wanted)
    for size in (2, 3, 7):
        for each in on_threads(size, lambda r: kernels.components([rows], ranks=r, **given)):
            np.testing.assert_array_equal(each, wanted)


@DIRECTED
@pytest.mark.parametrize("weighted", [False, True])
@backends("pagerank", cpu_pagerank)
def test_pagerank_is_the_same_bytes_on_any_number_of_threads_and_ranks(kernels, weighted, directed):
    rows = with_hubs(directed=directed, nodes=300_000)
    cut = [rows.row_range(0, 70_001), rows.row_range(70_001, rows.rows)]
    options = {"directed": directed, "weighted": weighted, "tolerance": 1e-7}
    (wanted, steps), *others = (kernels.pagerank(cut, threads=n, **options) for n in (1, 2, 5))
    assert wanted.sum() == pytest.approx(1)
    assert all(found.tobytes() == wanted.tobytes() for found, _ in others)
    for size in (2, 7):
        for found, its in on_threads(size, lambda r: kernels.pagerank(cut, ranks=r, **options)):
            assert its == steps > 1
            assert found.tobytes() == wanted.tobytes()


@PAGERANK
@settings(max_examples=20, deadline=None)
@given(drawn=row_ranges(), weighted=st.booleans(), size=st.integers(2, 3))
def test_more_ranks_than_work(kernels, drawn, weighted, size):
    options = {"directed": drawn[0].is_directed(), "weighted": weighted, "most": 500}
    wanted, _ = kernels.pagerank(drawn[1], **options)
    for found, _ in on_threads(
        size, lambda rank: kernels.pagerank(drawn[1], ranks=rank, **options)
    ):
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.gpu
@DIRECTED
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_ranks_on_a_gpu_of_rows_that_blocks_share(directed, weighted, dtype):
    rows = with_hubs(directed=directed)
    options = {"directed": directed, "weighted": weighted, "dtype": dtype}
    options["tolerance"] = 1e-14 if dtype == "float64" else 1e-6 / rows.rows
    wanted, steps = cpu_pagerank.pagerank([rows], **options)
    first, again = (Cuda("pagerank").pagerank([rows], **options) for _ in range(2))
    np.testing.assert_allclose(first[0], wanted, rtol=1e-9 if dtype == "float64" else 1e-6)
    assert first[1] == steps
    assert first[0].tobytes() == again[0].tobytes()


@pytest.mark.gpu
@DIRECTED
@pytest.mark.parametrize("few", [1, 16, 1 << 40], ids=["marking", "both", "gathering"])
def test_betweenness_on_a_gpu_of_one_graph(directed, few, monkeypatch):
    import cupy

    from penstock.kernels.cuda import centrality

    monkeypatch.setattr(centrality, "LEAST_ITEMS", 0)
    monkeypatch.setattr("penstock.kernels.cuda.centrality.searches._FEW", few)
    path = [(n, n + 1, 1) for n in range(499)]
    for rows in (with_hubs(directed=directed), rows_of(500, path, directed=directed)):
        batch = GraphBatch(np.array([0, rows.rows]), rows.indptr, rows.indices, directed=directed)
        there = {name: cupy.asarray(getattr(batch, name)) for name in ("ptr", "indptr", "indices")}
        sources = np.random.default_rng(1).choice(rows.rows, 6, replace=False)
        for endpoints in (False, True):
            wanted, _ = cpu_centrality.betweenness(batch, np.sort(sources), endpoints=endpoints)
            first, again = (
                centrality.betweenness(replace(batch, **there), sources, endpoints=endpoints)[0]
                for _ in range(2)
            )
            np.testing.assert_allclose(first.get(), wanted, rtol=1e-9, atol=1e-12)
            assert first.get().tobytes() == again.get().tobytes()


@pytest.mark.gpu
@DIRECTED
@pytest.mark.parametrize("few", [1, 16, 1 << 40], ids=["marking", "both", "gathering"])
def test_distances_on_a_gpu_of_one_graph(directed, few, monkeypatch):
    from penstock.kernels.cuda import centrality
    from penstock.pipelines.centrality.one_graph import on_device

    monkeypatch.setattr("penstock.kernels.cuda.centrality.words.LEAST_ITEMS", 0)
    monkeypatch.setattr("penstock.kernels.cuda.centrality.words._FEW", few)
    path = [(n, n + 1, 1) for n in range(499)]
    for rows in (with_hubs(directed=directed), rows_of(500, path, directed=directed)):
        batch = GraphBatch(np.array([0, rows.rows]), rows.indptr, rows.indices, directed=directed)
        drawn = np.random.default_rng(1).permutation(rows.rows)
        for sources in (drawn[:3], drawn[:300], None if rows.rows < 1000 else drawn[:600]):
            wanted = cpu_centrality.shortest_paths(batch, sources)
            found = centrality.shortest_paths(on_device(batch), sources)
            for mine, truth in zip(found, wanted, strict=True):
                np.testing.assert_allclose(mine.get(), truth, rtol=1e-12, atol=0)


@pytest.mark.gpu
def test_triangles_on_a_gpu_of_one_graph():
    import cupy

    from penstock.kernels.cuda import centrality
    from penstock.pipelines.centrality.one_graph import on_device

    # Of a complete graph, nodes have more edges than a block holds.
    complete = nx.complete_graph(2_100)
    dense = rows_of(2_110, [(a, b, 1) for a, b in complete.edges], directed=False)
    for rows in (with_hubs(directed=False), dense):
        batch = GraphBatch(np.array([0, rows.rows]), rows.indptr, rows.indices)
        times = (1 + (rows.sources() + rows.indices) % 2).astype(np.int8)
        for counts in (None, times):
            wanted = cpu_centrality.triangles(batch, counts)
            there = None if counts is None else cupy.asarray(counts)
            found = centrality.triangles(on_device(batch), there)
            for mine, truth in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(mine.get(), truth)


@cache
def with_hubs(*, directed, nodes=30_000):
    """Return a graph with rows of many and of no edges."""
    random = np.random.default_rng(3)
    a, b = np.minimum(random.zipf(1.3, (2, 200_000)) - 1, 10**9) * 7919 % nodes
    edges = np.concatenate([a * nodes + b, 5 * nodes + np.arange(0, nodes, 2)])
    if not directed:
        edges = np.concatenate([edges, edges % nodes * nodes + edges // nodes])
    a, b = np.divmod(np.unique(edges), nodes)
    return CSR.from_edges(a, b, nodes + 100, weights=1.0 + (a + b) % 3)


@backends("degrees", naive_degrees, cpu_degrees)
@settings(max_examples=40, deadline=None)
@given(drawn=row_ranges())
def test_distinct_edges_and_loops(kernels, drawn):
    graph, rows = drawn
    simple = nx.DiGraph(graph)
    loops = nx.number_of_selfloops(simple)
    assert kernels.count_edges(rows) == (simple.number_of_edges(), loops)


def by_scipy(csr, connection="weak"):
    """Return components in the order of their smallest nodes."""
    ends = np.ones(csr.edges), csr.indices.copy(), csr.indptr.copy()
    matrix = sp.csr_array(ends, shape=(csr.rows,) * 2)
    matrix.sum_duplicates()  # among which SciPy searches for ever
    directed = connection == "strong"
    _, labels = connected_components(matrix, directed=directed, connection=connection)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


@backends("transpose", naive_transpose, cpu_transpose)
@settings(max_examples=40, deadline=None)
@given(drawn=row_ranges(), mapped=st.booleans(), threads=st.integers(1, 3))
def test_in_edges_are_scipys_also_if_they_are_mapped(kernels, drawn, mapped, threads):
    whole = CSR.concatenate(drawn[1])
    with TemporaryFolder("penstock-test") as folder:
        (found,) = kernels.transpose(
            drawn[1], weighted=True, folder=folder if mapped else None, threads=threads
        )
        order = np.lexsort([whole.sources(), whole.indices])
        np.testing.assert_array_equal(found.indices, whole.sources()[order])
        np.testing.assert_array_equal(found.sources(), whole.indices[order])
        np.testing.assert_array_equal(found.weights, whole.weights[order])


def test_triangles_of_a_graph_with_hubs(monkeypatch):
    of_threads = import_module("penstock.kernels.cpu.centrality.triangles")
    monkeypatch.setattr(of_threads, "_WORK", 1 << 14)
    graph = nx.barabasi_albert_graph(3_000, 12, seed=2)
    graph.add_edges_from((0, node) for node in range(1, 3_000))
    csr = rows_of(3_000, [(a, b, 1) for a, b in graph.edges], directed=False)
    batch = GraphBatch(np.array([0, csr.rows]), csr.indptr, csr.indices)
    found = cpu_centrality.triangles(batch, threads=3).closed // 2
    wanted = nx.triangles(graph)
    assert found.tolist() == [wanted[node] for node in range(3_000)]
