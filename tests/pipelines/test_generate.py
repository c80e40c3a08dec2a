import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from penstock import Graph, generate
from penstock.errors import CapacityError
from penstock.kernels import generate_rules
from penstock.kernels.naive import rmat as naive
from penstock.kernels.naive.scramble import scramble
from penstock.kernels.streams import Stream
from penstock.pipelines.generate import budget, build
from penstock.pipelines.generate import zoo as zoo_job
from penstock.pipelines.generate.rmat import RmatSource

THRESHOLDS = generate_rules.thresholds(0.57, 0.19, 0.19)


def made(kind, path, **options):
    generate(kind, path, quiet=True, **options)
    graph = Graph.open(path)
    graph.validate()
    return graph


def checksums(graph):
    return {name: entry.sha256 for name, entry in graph.manifest.files.items()}


def drawn(scale, seed, *, shuffled=True):
    """The raw edge list of edge factor 16, from the naive kernels."""
    nodes = 1 << scale
    names = scramble(seed, Stream.RMAT_SCRAMBLE, 0, nodes, nodes) if shuffled else None
    return naive.edges(seed, scale, THRESHOLDS, 0, 16 * nodes, names)


# -- R-MAT ------------------------------------------------------------------------------------


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize(
    ("deduplicate", "keep_loops", "keep_isolated"),
    [(True, False, False), (False, True, False), (True, True, True)],
)
def test_rmat_is_what_scipy_makes_of_the_edges(
    tmp_path, undirected, deduplicate, keep_loops, keep_isolated
):
    graph = made(
        "rmat",
        tmp_path / "g",
        scale=9,
        seed=5,
        undirected=undirected,
        deduplicate=deduplicate,
        keep_loops=keep_loops,
        keep_isolated=keep_isolated,
    )
    u, v = drawn(9, 5)
    if not keep_loops:
        u, v = u[u != v], v[u != v]
    if undirected:
        once = u != v
        u, v = np.concatenate([u, v[once]]), np.concatenate([v, u[once]])
    matrix = sp.coo_matrix((np.ones(len(u), np.int64), (u, v)), shape=(512, 512)).tocsr()
    if deduplicate:
        matrix.data[:] = 1
    kept = np.arange(512)
    if not keep_isolated:
        kept = np.flatnonzero(np.asarray((matrix + matrix.T).sum(1)).ravel())
        assert len(kept) < 512
        matrix = matrix[kept][:, kept]
    csr = graph.csr()
    got = sp.csr_matrix(
        (np.ones(csr.edges, np.int64), csr.indices, csr.indptr), shape=(csr.rows, csr.rows)
    )
    assert got.shape == matrix.shape
    assert (got != matrix).nnz == 0
    assert graph.num_edges == matrix.sum()
    assert graph.manifest.directed is not undirected
    np.testing.assert_array_equal(graph.user_ids(), kept)
    for row in range(csr.rows):
        step = np.diff(csr.indices[csr.indptr[row] : csr.indptr[row + 1]])
        assert np.all(step > 0 if deduplicate else step >= 0)


def test_parquet_holds_the_edges_as_drawn(tmp_path):
    report = generate(
        "rmat",
        tmp_path / "e",
        quiet=True,
        scale=9,
        seed=5,
        format="parquet",
        weights=(1, 5),
        relations=3,
    )
    files = sorted((tmp_path / "e").glob("[!_]*"))
    assert [file.name for file in files] == ["part-00000.parquet"]
    table = pq.read_table(files)
    assert table.column_names == ["src", "dst", "weight", "relation"]
    ends = drawn(9, 5)
    for name, expected in zip(("src", "dst"), ends, strict=True):
        np.testing.assert_array_equal(table.column(name), expected)
    weights = naive.weights(5, *ends, 1, 5, ordered=False)
    np.testing.assert_array_equal(table.column("weight"), weights)
    relations = naive.relations(5, *ends, 3, ordered=False)
    np.testing.assert_array_equal(table.column("relation"), relations)
    assert report.edges == table.num_rows == 16 * 512


# -- the same bytes, in bounded memory --------------------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch):
    """Many chunks, bins and shards out of small graphs."""
    monkeypatch.setattr(RmatSource, "step", 5000)
    monkeypatch.setattr(build, "CHUNK", 5000)
    monkeypatch.setattr(build, "BIN_ARCS", 1 << 9)
    monkeypatch.setattr(build, "SHARD_EDGES", 1 << 12)
    monkeypatch.setattr(zoo_job, "SHARD_EDGES", 1 << 14)


KINDS = [
    ("rmat", {"scale": 11, "weights": "1,5", "relations": 4, "labels": 3}),
    ("rmat", {"scale": 11, "scramble": False, "undirected": False, "deduplicate": False}),
    ("sbm", {"nodes": 2000, "features": "sparse", "width": 300}),
    ("kg", {"entities": 2000, "triples": 30_000}),
    ("zoo", {"graphs": 30}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS)
@pytest.mark.usefixtures("small_pieces")
def test_threads_do_not_matter(kind, options, tmp_path, monkeypatch):
    several = made(kind, tmp_path / "several", **options)
    assert several.num_shards > 3
    monkeypatch.setattr(budget, "MOST_THREADS", 1)
    alone = made(kind, tmp_path / "alone", **options)
    assert checksums(alone) == checksums(several)
    other = made(kind, tmp_path / "other", seed=1, **options)
    assert (
        checksums(other)["shards/00000/indices.npy"] != checksums(alone)["shards/00000/indices.npy"]
    )


@pytest.mark.parametrize(("kind", "options"), KINDS[:2])
def test_chunks_and_bins_do_not_matter(kind, options, tmp_path, request):
    large = made(kind, tmp_path / "large", **options)
    request.getfixturevalue("small_pieces")
    small = made(kind, tmp_path / "small", **options)
    assert small.num_shards > large.num_shards
    for name, array in large.csr().arrays():
        np.testing.assert_array_equal(array, getattr(small.csr(), name))


# -- knowledge graph --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory):
    path = tmp_path_factory.mktemp("kg") / "g"
    return made("kg", path, entities=3000, relations=12, triples=80_000, noise=0.2)


def test_knowledge_splits(knowledge):
    csr = knowledge.csr()
    sets = {"train": {"sources": csr.sources(), "targets": csr.indices, "relations": csr.relations}}
    sets |= {name: knowledge.heldout(name) for name in ("valid", "test")}
    keys = {
        name: (np.int64(3000) * t["sources"] + t["targets"]) * 12 + t["relations"]
        for name, t in sets.items()
    }
    total = sum(len(key) for key in keys.values())
    assert len(np.unique(np.concatenate(list(keys.values())))) == total
    for name in ("valid", "test"):
        assert len(keys[name]) == knowledge.manifest.heldout[name]
        assert 0.03 * total < len(keys[name]) < 0.055 * total
        # Whatever is asked about was met in training.
        for ends, others in (("sources", "targets"), ("targets", "sources")):
            met = np.concatenate([sets["train"][ends], sets["train"][others]])
            assert np.isin(sets[name][ends], met).all()
        assert np.isin(sets[name]["relations"], sets["train"]["relations"]).all()
    assert not np.any(sets["train"]["sources"] == sets["train"]["targets"])


# -- what cannot be made ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("rmat", {"scale": 26}),
        ("rmat", {"scale": 26, "format": "parquet"}),
        ("sbm", {"nodes": 100_000_000}),
        ("kg", {"entities": 100_000_000}),
        ("zoo", {"graphs": 10_000_000}),
    ],
)
def test_memory_is_estimated_first(kind, options, tmp_path):
    with pytest.raises(CapacityError):
        generate(kind, tmp_path / "g", memory="400MB", **options)
    assert list(tmp_path.iterdir()) == []
