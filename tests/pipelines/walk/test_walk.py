"""``penstock walk`` from options to files."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from graphs import write_graph

from penstock import CSR, ClusterSpec, walk, walk_array
from penstock.errors import InputError
from penstock.pipelines.walk import output


def paths_of(folder):
    """Return all paths of a dataset of walks, in order."""
    table = pq.read_table(folder)  # as anyone would: what is not Parquet must not be in the way
    np.testing.assert_array_equal(table["walk"].to_numpy(), np.arange(len(table)))
    return table["path"].to_pylist()


def checksums(folder):
    return json.loads((folder / "_walks.json").read_text())["files"]


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(output, "FILE_IDS", (256, 256))


# -- what comes out --------------------------------------------------------------------------------


def test_internal_ids_and_blocks(make_graph, tmp_path, small_parts):
    graph = make_graph(weights=True)
    walk(graph, tmp_path / "w", ids="internal", npy=True, length=16, app="ppr", stop=0.2)
    paths = paths_of(tmp_path / "w")
    blocks = [np.load(file) for file in sorted((tmp_path / "w").glob("_block-*.npy"))]
    assert len(blocks) == 7
    assert [[node for node in row if node >= 0] for row in np.concatenate(blocks)] == paths
    expected = walk_array(graph, length=16, app="ppr", stop=0.2)
    np.testing.assert_array_equal(np.concatenate(blocks), expected)


# -- where walks start -----------------------------------------------------------------------------


def test_starts_of_a_file_an_option_and_a_share(make_graph, tmp_path):
    graph = make_graph()
    ids = graph.user_ids().to_pylist()
    wanted = [ids[7], ids[3], ids[7]]
    file = tmp_path / "starts.txt"
    file.write_text("\n".join(map(str, wanted)) + "\n\n")
    walk(graph, tmp_path / "w", starts=file, walks=2)
    assert [path[0] for path in paths_of(tmp_path / "w")] == wanted * 2
    table = pq.read_table(graph.path / "nodes.parquet").slice(5, 3)
    pq.write_table(table, tmp_path / "starts.parquet")
    paths = walk_array(graph, starts=tmp_path / "starts.parquet")
    assert paths[:, 0].tolist() == [5, 6, 7]
    assert walk_array(graph, start=(str(ids[9]),), walks=4)[:, 0].tolist() == [9] * 4
    half = walk_array(graph, fraction=0.5)[:, 0]
    assert 30 < len(half) < 70
    assert set(half) < set(walk_array(graph, fraction=0.8)[:, 0])


# -- bad input -------------------------------------------------------------------------------------


def weighted(path, weights):
    """Write 0 -> 1 -> ... -> 4 -> 0 with these weights; the user calls the nodes a, b, ..."""
    csr = CSR.from_edges(np.arange(5), (np.arange(5) + 1) % 5, 5, weights=np.array(weights))
    return write_graph(path, csr, list("abcde"))


def test_rows_of_zeros(tmp_path):
    graph = weighted(tmp_path / "g", [1, 2, 0, 1, 0])
    with pytest.raises(InputError):
        walk(graph, tmp_path / "w")
    report = walk(graph, tmp_path / "w", zero_rows="end", ids="internal")
    assert paths_of(tmp_path / "w") == [[0, 1, 2], [1, 2], [2], [3, 4], [4]]
    assert report.zero_rows == 2


OWN = {"app": "custom", "weight": "weight - 3", "length": 4}


def on(device):
    return pytest.param(device, marks=pytest.mark.gpu) if device == "gpu" else device


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", on("gpu")])
def test_an_expression_reads_weights_that_are_all_equal(tmp_path, device):
    graph, around = weighted(tmp_path / "g", [5] * 5), [0, 1, 2, 3]
    assert walk_array(graph, device=device, **OWN)[0].tolist() == around
    walk(graph, tmp_path / "w", ids="internal", cluster=ClusterSpec(device=device), **OWN)
    assert paths_of(tmp_path / "w")[0] == around
    assert walk_array(graph, device=device, **{**OWN, "weight": "weight - 5"})[0, 1] == -1


# -- on a GPU --------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"app": "node2vec", "p": 0.5, "q": 3},
        {"app": "ppr", "stop": 0.3},
        {"app": "metapath", "schema": "0,1,2"},
        {"temporal": True},
    ],
    ids=str,
)
def test_a_gpu_takes_the_same_walks(make_graph, options):
    graph = make_graph(weights=True, relations=3, times=True)
    here = walk_array(graph, device="cpu", walks=5, **options)
    np.testing.assert_array_equal(walk_array(graph, device="gpu", walks=5, **options), here)


@pytest.mark.gpu
def test_gpu_workers_write_the_same_files(make_graph, tmp_path, small_parts):
    graph = make_graph(weights=True)
    for device in ("cpu", "gpu"):
        walk(graph, tmp_path / device, cluster=ClusterSpec(device=device), walks=20)
    assert checksums(tmp_path / "gpu") == checksums(tmp_path / "cpu")
