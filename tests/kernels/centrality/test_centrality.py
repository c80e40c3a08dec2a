"""Centralities of many small graphs: the twins against each other, and all against NetworkX."""

import itertools
import warnings

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import centrality_rules as rules
from penstock.kernels.centrality_rules import GraphBatch
from penstock.kernels.cpu import centrality as cpu
from penstock.kernels.naive import centrality as naive


class Cuda:
    """The kernels on a GPU, given and giving arrays of the host."""

    def __getattr__(self, name):
        import cupy

        from penstock.kernels.cuda import centrality

        def call(batch, *given, **options):
            arrays = (batch.ptr, batch.indptr, batch.indices, batch.weights)
            arrays = (None if each is None else cupy.asarray(each) for each in arrays)
            given = [None if each is None else cupy.asarray(each) for each in given]
            found = getattr(centrality, name)(
                GraphBatch(*arrays, batch.directed), *given, **options
            )
            if not isinstance(found, tuple):
                return cupy.asnumpy(found)
            values = [None if each is None else cupy.asnumpy(each) for each in found]
            return type(found)(*values) if hasattr(found, "_fields") else tuple(values)

        return call


class Large:
    """The kernels of CPUs, of which each graph is taken for one whose edges no thread copies."""

    def __getattr__(self, name):
        def call(*given, **options):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(cpu, "SMALL_ITEMS", -1)
                return getattr(cpu, name)(*given, **options)

        return call


GPU = pytest.param(Cuda(), marks=pytest.mark.gpu, id="cuda")
BACKENDS = pytest.mark.parametrize(
    "backend", [pytest.param(naive, id="naive"), pytest.param(cpu, id="cpu"), GPU]
)
FAST = pytest.mark.parametrize(
    "backend", [pytest.param(cpu, id="cpu"), pytest.param(Large(), id="large"), GPU]
)
DIRECTED = pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def graph_of(size, edges, *, directed):
    """Return a NetworkX graph whose neighbours come in ascending order."""
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(range(size))
    ends = {(a, b) if directed else (min(a, b), max(a, b)): weight for a, b, weight in edges}
    graph.add_weighted_edges_from((a, b, ends[a, b]) for a, b in sorted(ends))
    return graph


def batch_of(graphs, *, weighted, ids=np.int32):
    """Return graphs of NetworkX side by side."""
    ptr = np.cumsum([0, *(len(graph) for graph in graphs)], dtype=np.int64)
    indptr, indices, weights = [0], [], []
    for first, graph in zip(ptr, graphs, strict=False):
        for node in range(len(graph)):
            for other in sorted(graph[node]):
                indices.append(first + other)
                weights.append(graph[node][other]["weight"])
            indptr.append(len(indices))
    return GraphBatch(
        ptr,
        np.array(indptr, np.int64),
        np.array(indices, ids),
        np.array(weights, np.float64) if weighted else None,
        directed=any(graph.is_directed() for graph in graphs),
    )


@st.composite
def zoos(draw, weights, most=9):
    """Draw graphs: empty, of one node, with self loops, unconnected, directed or not."""
    directed = draw(st.booleans())
    graphs = []
    for _ in range(draw(st.integers(0, 4))):
        size = draw(st.integers(0, most))
        node = st.integers(0, max(size - 1, 0))
        edge = st.tuples(node, node, weights)
        edges = draw(st.lists(edge, max_size=2 * most)) if size else []
        graphs.append(graph_of(size, edges, directed=directed))
    return directed, graphs


def every(graphs, function):
    """Return what NetworkX computes of each graph, in the order of nodes."""
    found = [function(graph) for graph in graphs]
    return [each[node] for graph, each in zip(graphs, found, strict=True) for node in graph]


def check_all(backend, directed, graphs, *, weighted):
    batch = batch_of(graphs, weighted=weighted)
    weight = "weight" if weighted else None
    paths = backend.shortest_paths(batch)
    for improved in (True, False):
        np.testing.assert_allclose(
            rules.closeness(paths, batch.ptr, improved=improved),
            every(graphs, lambda g, wf=improved: nx.closeness_centrality(g, None, weight, wf)),
            **CLOSE,
        )
    np.testing.assert_allclose(
        paths.inverse, every(graphs, lambda g: nx.harmonic_centrality(g, distance=weight)), **CLOSE
    )
    assert paths.reached.dtype == np.int64
    ecc, matrices = [], []
    for graph in graphs:
        far = dict(nx.shortest_path_length(graph, weight=weight))
        matrix = np.array([[far[a].get(b, np.inf) for b in graph] for a in graph])
        matrices.append(matrix.ravel())
        ecc.append(matrix.max(1, initial=0) if len(graph) else np.empty(0))
    np.testing.assert_allclose(paths.eccentricity, np.concatenate([*ecc, []]), **CLOSE)
    flat = np.concatenate([*matrices, []])
    found = backend.distances(batch)
    if weighted:
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, flat, **CLOSE)
    else:
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, np.where(np.isfinite(flat), flat, -1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_betweenness(backend, directed, graphs, batch, weight)


def check_betweenness(backend, directed, graphs, batch, weight):
    sizes = batch.sizes
    for endpoints in (False, True):
        for normalized in (False, True):
            options = {"normalized": normalized, "endpoints": endpoints}
            nodes, arcs = backend.betweenness(batch, endpoints=endpoints, edges=endpoints)
            scale = rules.betweenness_scale(batch.ptr, directed=directed, **options)
            np.testing.assert_allclose(
                nodes * np.repeat(scale, sizes),
                every(
                    graphs, lambda g, o=options: nx.betweenness_centrality(g, weight=weight, **o)
                ),
                **CLOSE,
            )
            if not endpoints:
                assert arcs is None
                continue
            # An undirected edge lies there both ways.
            matrix = sp.csr_array(
                (arcs, batch.indices, batch.indptr), shape=(batch.nodes, batch.nodes)
            ).toarray()
            for first, factor, graph in zip(batch.ptr, scale, graphs, strict=False):
                wanted = nx.edge_betweenness_centrality(graph, normalized=normalized, weight=weight)
                for (a, b), value in wanted.items():
                    both = matrix[first + a, first + b]
                    if not directed and a != b:
                        both += matrix[first + b, first + a]
                    np.testing.assert_allclose(both * factor, value, **CLOSE)


@BACKENDS
@settings(max_examples=50, deadline=None)
@given(zoo=zoos(st.integers(1, 4).map(float)), weighted=st.booleans())
def test_graphs_are_networkxs(backend, zoo, weighted):
    check_all(backend, *zoo, weighted=weighted)


@FAST
@settings(max_examples=25, deadline=None)
@given(zoo=zoos(st.sampled_from([0.0, 0.0, 0.1, 0.2, 0.30000000000000004, 1.0])))
def test_weights_of_zero_and_sums_that_round_are_networkxs(backend, zoo):
    check_all(backend, *zoo, weighted=True)


@BACKENDS
@settings(max_examples=25, deadline=None)
@given(zoo=zoos(st.integers(1, 4).map(float)), weighted=st.booleans())
def test_paths_counted_in_float32_are_networkxs_to_five_digits(backend, zoo, weighted):
    directed, graphs = zoo
    batch = batch_of(graphs, weighted=weighted)
    nodes, _ = backend.betweenness(batch, dtype=np.float32)
    scale = rules.betweenness_scale(batch.ptr, directed=directed, normalized=True, endpoints=False)
    weight = "weight" if weighted else None
    wanted = every(graphs, lambda g: nx.betweenness_centrality(g, weight=weight))
    np.testing.assert_allclose(nodes * np.repeat(scale, batch.sizes), wanted, rtol=1e-5, atol=1e-7)


@BACKENDS
@settings(max_examples=25, deadline=None)
@given(zoo=zoos(st.integers(0, 3).map(float)), weighted=st.booleans())
def test_pagerank_is_networkxs(backend, zoo, weighted):
    _, graphs = zoo
    batch = batch_of(graphs, weighted=weighted)
    ranks, steps = backend.pagerank(batch, tolerance=1e-10, most=1000)
    weight = "weight" if weighted else None
    wanted = every(graphs, lambda g: nx.pagerank(g, tol=1e-10, max_iter=1000, weight=weight))
    np.testing.assert_allclose(ranks, wanted, **CLOSE)
    assert (steps > 0).all()
    assert steps.dtype == np.int32


@BACKENDS
def test_pagerank_that_does_not_converge_is_reported(backend):
    graphs = [nx.star_graph(5), nx.complete_graph(3)]
    for graph in graphs:
        nx.set_edge_attributes(graph, 1.0, "weight")
    _, steps = backend.pagerank(batch_of(graphs, weighted=False), tolerance=1e-9, most=5)
    assert steps[0] == -1
    assert steps[1] > 0


@BACKENDS
@settings(max_examples=25, deadline=None)
@given(zoo=zoos(st.just(1.0)))
def test_clustering_is_networkxs(backend, zoo):
    directed, graphs = zoo
    batch = batch_of(graphs, weighted=False)
    counts = None
    if directed:
        matrix = sp.csr_array(
            (np.ones(len(batch.indices), np.int8), batch.indices, batch.indptr),
            shape=(batch.nodes, batch.nodes),
        )
        both = (matrix + matrix.T).tocsr()
        both.sort_indices()
        counts = both.data
        batch = GraphBatch(batch.ptr, both.indptr.astype(np.int64), both.indices)
    found = backend.triangles(batch, counts)
    wanted = every(graphs, nx.clustering)
    np.testing.assert_allclose(rules.clustering(found, directed=directed), wanted, **CLOSE)
    if not directed:
        np.testing.assert_array_equal(found.closed // 2, every(graphs, nx.triangles))


@FAST
@pytest.mark.parametrize(
    ("directed", "weighted"),
    [
        pytest.param(False, True, id="undirected-weighted"),
        pytest.param(True, False, id="directed-unweighted"),
        pytest.param(True, True, id="directed-weighted", marks=pytest.mark.slow),
        pytest.param(False, False, id="undirected-unweighted", marks=pytest.mark.slow),
    ],
)
def test_graphs_of_several_words_of_sources(backend, directed, weighted):
    """More sources than a word has bits, in one piece and some of two."""
    graphs = []
    for seed, size in enumerate([65, 100]):
        graph = nx.gnp_random_graph(size, 3 / size, seed=seed, directed=directed)
        edges = [(a, b, 1.0 + (a + b) % 3) for a, b in graph.edges]
        graphs.append(graph_of(size, edges, directed=directed))
    check_all(backend, directed, graphs, weighted=weighted)


@BACKENDS
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_shares_of_the_sources_add_up(backend, weighted):
    graphs = [nx.path_graph(5), nx.gnp_random_graph(12, 0.3, seed=2), nx.star_graph(3)]
    for graph in graphs:
        nx.set_edge_attributes(graph, {edge: 1.0 + sum(edge) % 2 for edge in graph.edges}, "weight")
    batch = batch_of(graphs, weighted=weighted)
    order = np.random.default_rng(0).permutation(batch.nodes)
    shares = [order[:7], order[7:7], order[7:]]
    whole = backend.shortest_paths(batch)
    for i, values in enumerate(whole):
        added = sum(backend.shortest_paths(batch, share)[i] for share in shares)
        np.testing.assert_allclose(added, values, **CLOSE)
    nodes, arcs = backend.betweenness(batch, edges=True)
    found = [backend.betweenness(batch, share, edges=True) for share in shares]
    np.testing.assert_allclose(sum(each[0] for each in found), nodes, **CLOSE)
    np.testing.assert_allclose(sum(each[1] for each in found), arcs, **CLOSE)


@st.composite
def flows(draw, most=12):
    """Draw directed graphs whose nodes mostly have one way out, as trees and cycles have."""
    graphs = []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, most))
        node = st.integers(0, size - 1)
        ways = st.sampled_from([0, 1, 1, 1, 1, 2, 3]).flatmap(
            lambda few, node=node: st.lists(node, min_size=few, max_size=few)
        )
        rows = draw(st.lists(ways, min_size=size, max_size=size))
        edges = [(tail, head, 1.0) for tail, row in enumerate(rows) for head in row]
        graphs.append(graph_of(size, edges, directed=True))
    return graphs


@FAST
@settings(max_examples=40, deadline=None)
@given(graphs=flows(), endpoints=st.booleans(), drawn=st.randoms(use_true_random=False))
def test_searches_that_sources_of_one_way_out_share(backend, graphs, endpoints, drawn):
    batch = batch_of(graphs, weighted=False)
    some = np.array([node for node in range(batch.nodes) if drawn.random() < 0.6], np.int64)
    for sources in (None, some):
        options = {"endpoints": endpoints, "edges": True}
        nodes, arcs = backend.betweenness(batch, sources, **options)
        wanted = naive.betweenness(batch, sources, **options)
        np.testing.assert_allclose(nodes, wanted[0], **CLOSE)
        np.testing.assert_allclose(arcs, wanted[1], **CLOSE)


@FAST
@pytest.mark.parametrize(("diamonds", "dtype"), [(100, np.float64), (100, np.float32), (200, "f4")])
def test_numbers_of_paths_beyond_64_bits(backend, diamonds, dtype):
    """A chain of diamonds doubles the paths at each: 2 ** 200 are more than a float32 counts."""
    edges = []
    for i in range(diamonds):
        a = 3 * i
        edges += [(a, a + 1, 1.0), (a, a + 2, 1.0), (a + 1, a + 3, 1.0), (a + 2, a + 3, 1.0)]
    graph = graph_of(3 * diamonds + 1, edges, directed=True)
    # Of a diamond, a tip lies between those before and behind it, a side between as many by half.
    before = np.arange(diamonds + 1) * 3.0
    tips = before * before[::-1]
    sides = (before[:-1] + 1) * (before[:0:-1] - 2) / 2
    wanted = np.insert(np.repeat(sides, 2), np.arange(0, 2 * diamonds + 1, 2), tips)
    for weighted in (False, True):
        batch = batch_of([graph], weighted=weighted)
        nodes, arcs = backend.betweenness(batch, edges=True, dtype=dtype)
        np.testing.assert_allclose(nodes, wanted, rtol=1e-9 if dtype is np.float64 else 1e-5)
        assert np.isfinite(arcs).all()


@pytest.mark.parametrize("backend", [pytest.param(Large(), id="large"), GPU])
@DIRECTED
@pytest.mark.parametrize("edges", [False, True], ids=["nodes", "edges"])
def test_numbers_of_paths_about_24_bits(backend, directed, edges):
    """Each layer multiplies the paths by its width: 8 ** 8 is not an exact float32 sum."""
    graphs = []
    for width, layers in ((8, 9), (8, 10), (8, 12), (7, 11), (20, 20), (4, 3)):
        ends = np.arange(width * layers).reshape(layers, width)
        pairs = [
            (int(a), int(b), 1.0)
            for near, far in itertools.pairwise(ends)
            for a in near
            for b in far
        ]
        graphs.append(graph_of(width * layers, pairs, directed=directed))
    batch = batch_of(graphs, weighted=False)
    nodes, arcs = backend.betweenness(batch, edges=edges)
    wanted, of_arcs = cpu.betweenness(batch, edges=edges)
    np.testing.assert_allclose(nodes, wanted, **CLOSE)
    if edges:
        np.testing.assert_allclose(arcs, of_arcs, **CLOSE)


@FAST
def test_more_paths_than_a_float_counts_are_not_finite(backend):
    """2 ** 1100 paths: what is not known must not look like a value."""
    edges = []
    for a in range(0, 3300, 3):
        edges += [(a, a + 1, 1.0), (a, a + 2, 1.0), (a + 1, a + 3, 1.0), (a + 2, a + 3, 1.0)]
    batch = batch_of([graph_of(3301, edges, directed=True)], weighted=False)
    nodes, arcs = backend.betweenness(batch, edges=True)
    assert not np.isfinite(nodes).all()
    assert not np.isfinite(arcs).all()


@FAST
@pytest.mark.parametrize("nodes", [254, 255, 256, 257, 700])
def test_more_levels_than_a_byte_tells_apart(backend, nodes):
    """Of a chain, as many pairs go through a node as there are before it times those behind."""
    chain = graph_of(nodes, [(a, a + 1, 1.0) for a in range(nodes - 1)], directed=True)
    short = graph_of(3, [(0, 1, 1.0), (1, 2, 1.0)], directed=True)
    found, arcs = backend.betweenness(batch_of([short, chain, short], weighted=False), edges=True)
    before = np.arange(nodes, dtype=float)
    wanted = np.concatenate([[0, 1, 0], before * before[::-1], [0, 1, 0]])
    np.testing.assert_allclose(found, wanted)
    np.testing.assert_allclose(arcs[2:-2], before[1:] * before[:0:-1])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_distances_by_weights_of_all_magnitudes(data):
    size = data.draw(st.integers(2, 20))
    node, weight = st.integers(0, size - 1), st.sampled_from([0, 5e-324, 1e-9, 1, 1.5, 1e9, 1e290])
    edges = data.draw(st.lists(st.tuples(node, node, weight), min_size=size, max_size=6 * size))
    batch = batch_of([graph_of(size, edges, directed=True)], weighted=True)
    np.testing.assert_array_equal(cpu.distances(batch), naive.distances(batch))


@pytest.mark.parametrize("ids", [np.int32, pytest.param(np.int64, marks=pytest.mark.slow)])
def test_mapped_and_wide_ids(tmp_path, ids):
    graph = nx.gnp_random_graph(40, 0.1, seed=1)
    nx.set_edge_attributes(graph, 1.0, "weight")
    batch = batch_of([graph], weighted=False, ids=ids)
    np.save(tmp_path / "indices.npy", batch.indices)
    mapped = np.load(tmp_path / "indices.npy", mmap_mode="r")
    same = GraphBatch(batch.ptr, batch.indptr, mapped)
    np.testing.assert_array_equal(cpu.betweenness(same)[0], cpu.betweenness(batch)[0])


@pytest.mark.gpu
def test_every_size_class_is_the_cpus():
    """Graphs at both ends of each class, larger than shared memory holds, many and few at once."""
    backend = Cuda()
    rng = np.random.default_rng(5)
    sizes = [1, 7, 8, 9, *(2**n + more for n in range(5, 11) for more in (0, 1))]
    sizes += [255, 1400, 2570, 2600, 3000, 9000, 13_000]
    for directed in (False, True):
        parts, ptr = [], np.cumsum([0, *sizes])
        for size in sizes:
            pairs = rng.integers(0, size, (2, 3 * size))
            matrix = sp.coo_array((np.ones(3 * size), pairs), shape=(size, size)).tocsr()
            parts.append(matrix if directed else (matrix + matrix.T).tocsr())
        whole = sp.block_diag(parts, format="csr")
        whole.sort_indices()
        batch = GraphBatch(
            ptr, whole.indptr.astype(np.int64), whole.indices.astype(np.int32), directed=directed
        )
        for mine, truth in zip(
            backend.shortest_paths(batch), cpu.shortest_paths(batch), strict=True
        ):
            np.testing.assert_allclose(mine, truth, **CLOSE)
        sources = np.sort(rng.permutation(ptr[-1])[:2000])
        for endpoints, edges in ((False, False), (True, True)):
            options = {"endpoints": endpoints, "edges": edges}
            nodes, arcs = cpu.betweenness(batch, sources, **options)
            for dtype, near in ((np.float64, 1e-9), (np.float32, 1e-5)):
                found = backend.betweenness(batch, sources, dtype=dtype, **options)
                np.testing.assert_allclose(found[0], nodes, rtol=near, atol=1e-7)
                if edges:
                    np.testing.assert_allclose(found[1], arcs, rtol=10 * near, atol=1e-7)
        again = backend.betweenness(batch, sources)[0]
        np.testing.assert_array_equal(again, backend.betweenness(batch, sources)[0])
