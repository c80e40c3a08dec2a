"""``penstock walk`` from options to files."""

from __future__ import annotations

import json
import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock import CSR, ClusterSpec, Graph, walk, walk_array
from penstock.errors import (
    InputError,
    PenstockWarning,
    UsageError,
)
from penstock.pipelines.cli import run
from penstock.pipelines.walk import output


def paths_of(folder: Path) -> list[list[Any]]:
    """Return all paths of a dataset of walks, in order."""
    table = pq.read_table(folder)  # as anyone would: what is not Parquet must not be in the way
    np.testing.assert_array_equal(table["walk"].to_numpy(), np.arange(len(table)))
    return table["path"].to_pylist()


def checksums(folder: Path) -> dict[str, Any]:
    files: dict[str, Any] = json.loads((folder / "_walks.json").read_text())["files"]
    return files


def edges_of(graph: Graph) -> set[tuple[Any, Any]]:
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    return {(ids[s], ids[t]) for s, t in zip(csr.sources(), csr.indices, strict=True)}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_FILE_IDS", (256, 256))


# -- what comes out --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"app": "ppr", "stop": 0.3, "walks": 3},
        {"app": "node2vec", "p": 0.25, "q": 4},
        {"app": "metapath", "schema": "0,2,1"},
        {"app": "metapath", "schema": "relation 0, relation 1", "cyclic": True},
        {"app": "custom", "weight": "weight * (1 + relation) if not is_return else 0.1"},
        {"sampler": "reservoir"},
        {"sampler": "its"},
        {"sampler": "alias"},
        {"temporal": True},
    ],
    ids=str,
)
def test_every_step_is_an_edge(make_graph: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    graph = make_graph(weights=True, relations=3, times=True)
    report = walk(graph, tmp_path / "w", length=12, **options)
    paths, edges = paths_of(tmp_path / "w"), edges_of(graph)
    starts = graph.user_ids().to_pylist() * options.get("walks", 1)
    assert [path[0] for path in paths] == starts
    assert all(len(path) <= 12 for path in paths)
    assert all(step in edges for path in paths for step in pairwise(path))
    assert report.walks == len(paths)
    assert report.nodes == sum(map(len, paths))
    assert report.steps > 0


def test_restarts_go_back_to_the_start(make_graph: Any) -> None:
    graph = make_graph()
    paths = walk_array(graph, length=50, restart=0.5)
    csr = graph.csr()
    edges = set(zip(csr.sources().tolist(), csr.indices.tolist(), strict=True))
    # If no edge leads to the start, only a restart does.
    back = [
        path[i] == path[0]
        for path in paths.tolist()
        for i in range(1, 50)
        if (path[i - 1], path[0]) not in edges
    ]
    assert 0.47 < np.mean(back) < 0.53


def test_metapath_follows_its_relations(make_graph: Any, tmp_path: Path) -> None:
    graph = make_graph(relations=3)
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    typed = {
        (ids[s], ids[t], int(r))
        for s, t, r in zip(csr.sources(), csr.indices, csr.relations, strict=True)
    }
    walk(graph, tmp_path / "w", app="metapath", schema="2,0")
    for path in paths_of(tmp_path / "w"):
        assert len(path) <= 3
        for step, relation in zip(range(len(path) - 1), (2, 0), strict=False):
            assert (path[step], path[step + 1], relation) in typed


def test_times_go_forward_inside_the_window(make_graph: Any) -> None:
    graph = make_graph(edges=2000, weights=True, times=True, directed=True)
    csr = graph.csr()
    low, high = np.quantile(csr.times, [0.2, 0.9])
    times: dict[tuple[int, int], float] = {}
    for s, t, when in zip(csr.sources(), csr.indices, csr.times, strict=True):
        times[int(s), int(t)] = when
    longest = 0
    for sampler in ("auto", "reservoir", "its"):
        options = {"since": str(int(low)), "until": str(int(high)), "sampler": sampler}
        for path in walk_array(graph, length=6, walks=5, **options).tolist():
            steps = [times[a, b] for a, b in pairwise(path) if b >= 0]
            assert steps == sorted(steps)
            assert all(int(low) <= when < int(high) for when in steps)
            longest = max(longest, len(steps))
    assert longest > 1


def test_internal_ids_and_blocks(make_graph: Any, tmp_path: Path, small_parts: None) -> None:
    graph = make_graph(weights=True)
    walk(graph, tmp_path / "w", ids="internal", npy=True, length=16, app="ppr", stop=0.2)
    paths = paths_of(tmp_path / "w")
    blocks = [np.load(file) for file in sorted((tmp_path / "w").glob("_block-*.npy"))]
    assert len(blocks) == 7
    assert [[node for node in row if node >= 0] for row in np.concatenate(blocks)] == paths
    expected = walk_array(graph, length=16, app="ppr", stop=0.2)
    np.testing.assert_array_equal(np.concatenate(blocks), expected)


# -- the same, however it is run -------------------------------------------------------------------


def test_clusters_and_shards_do_not_matter(
    make_graph: Any, tmp_path: Path, small_parts: None
) -> None:
    options = {"app": "node2vec", "p": 2, "q": 0.5, "walks": 2, "length": 20, "seed": 3}
    graph = make_graph(weights=True)
    walk(graph, tmp_path / "a", **options)
    walk(graph, tmp_path / "b", cluster=ClusterSpec(cluster="local", workers=2), **options)
    sharded = make_graph(weights=True, name="sharded", shard_edges=64)
    assert sharded.num_shards > 1
    walk(sharded, tmp_path / "c", cluster="threads", **options)
    assert len(checksums(tmp_path / "a")) == 17
    assert checksums(tmp_path / "a") == checksums(tmp_path / "b") == checksums(tmp_path / "c")
    other = walk_array(graph, **{**options, "seed": 4})
    assert np.any(other != walk_array(graph, **options))


# -- where walks start -----------------------------------------------------------------------------


def test_starts_of_a_file_an_option_and_a_share(make_graph: Any, tmp_path: Path) -> None:
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


def test_an_unknown_relation_lists_the_known(make_graph: Any, tmp_path: Path) -> None:
    graph = make_graph(relations=3)
    names = ", ".join(graph.manifest.relations)
    for schema in ("0,nowhere", "3"):
        with pytest.raises(UsageError, match=names):
            walk(graph, tmp_path / "w", app="metapath", schema=schema)
    with pytest.raises(UsageError, match="commas"):
        walk(graph, tmp_path / "w", app="metapath", schema="0,,1")


def weighted(path: Path, weights: list[float] | None) -> Graph:
    """Write 0 -> 1 -> ... -> 4 -> 0 with these weights; the user calls the nodes a, b, ..."""
    column = None if weights is None else np.array(weights)
    csr = CSR.from_edges(np.arange(5), (np.arange(5) + 1) % 5, 5, weights=column)
    with Graph.create(path) as writer:
        writer.edges(csr)
        writer.nodes(["a", "b", "c", "d", "e"])
    return Graph.open(path)


def test_rows_of_zeros(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = weighted(tmp_path / "g", [1, 2, 0, 1, 0])
    with pytest.raises(InputError):
        walk(graph, tmp_path / "w")
    report = walk(graph, tmp_path / "w", zero_rows="end", ids="internal")
    assert paths_of(tmp_path / "w") == [[0, 1, 2], [1, 2], [2], [3, 4], [4]]
    assert "walks end at 2 nodes" in report.text()


OWN = {"app": "custom", "weight": "weight - 3", "length": 4}


def on(device: str) -> Any:
    return pytest.param(device, marks=pytest.mark.gpu) if device == "gpu" else device


@pytest.mark.parametrize("device", ["cpu", on("gpu")])
def test_an_expression_reads_weights_that_are_all_equal(tmp_path: Path, device: str) -> None:
    graph, around = weighted(tmp_path / "g", [5] * 5), [0, 1, 2, 3]
    assert walk_array(graph, device=device, **OWN)[0].tolist() == around
    walk(graph, tmp_path / "w", ids="internal", cluster=ClusterSpec(device=device), **OWN)  # type: ignore[arg-type]
    assert paths_of(tmp_path / "w")[0] == around
    assert walk_array(graph, device=device, **{**OWN, "weight": "weight - 5"})[0, 1] == -1


@pytest.mark.slow
def test_an_expression_judges_weights_of_zero_itself(tmp_path: Path) -> None:
    graph = weighted(tmp_path / "g", [0] * 5)
    assert walk_array(graph, app="custom", weight="weight + 1", length=3)[0].tolist() == [0, 1, 2]
    report = walk(graph, tmp_path / "w", app="custom", weight="weight + 1", length=3)
    assert report.zero_rows == 0
    # Nothing reads the weights of this graph.
    graph = weighted(tmp_path / "bad", [float("nan")] * 5)
    assert walk_array(graph, app="custom", weight="1", length=3)[0].tolist() == [0, 1, 2]
    with pytest.raises(InputError) as caught:
        walk_array(graph, app="custom", weight="weight")
    assert "--no-weighted" not in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "options", "why"),
    [
        ([5.0] * 5, {}, "all weights are equal"),
        ([1.0, 2, 3, 4, 5], {"weighted": False}, "--no-weighted"),
        (None, {}, "has no weights"),
    ],
)
def test_a_sampler_that_is_not_taken_is_said(
    tmp_path: Path, weights: list[float] | None, options: dict[str, Any], why: str
) -> None:
    graph = weighted(tmp_path / "g", weights)
    said = f"--sampler its became direct: .*{why}"
    with pytest.warns(PenstockWarning, match=said):
        report = walk(graph, tmp_path / "w", sampler="its", **options)
    assert report.sampler == "direct"
    assert re.match(said, report.to_dict()["instead"])
    with pytest.warns(PenstockWarning, match="--sampler its became direct"):
        walk_array(graph, sampler="its", **options)
    for sampler in ("auto", "reservoir"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", PenstockWarning)
            walk(graph, tmp_path / sampler, sampler=sampler, **options)


# -- the command line ------------------------------------------------------------------------------


def test_the_command(make_graph: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, out = make_graph(weights=True), str(tmp_path / "w")
    assert run(["walk", str(graph.path), out, "--length", "10", "-v"]) == 0
    said = capsys.readouterr()
    assert "100 walks of" in said.out
    assert "sampler rejection: " in said.err
    again = ["walk", str(graph.path), out, "--app", "ppr", "--json", "--overwrite"]
    assert run(again) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["next"] == [f"penstock word2vec train {out} {out}-vectors"]
    assert told["walks"] == 100
    assert told["steps"] == told["nodes"] - 100
    assert run([*again[:-2], "-q", "--overwrite"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["walk", str(graph.path), out, "--app", "pagerank"]) == 2


# -- a graph in parts ------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.slow
def test_a_graph_in_parts_gives_the_same_walks(
    make_graph: Any, tmp_path: Path, small_parts: None
) -> None:
    graph = make_graph(weights=True)
    options = {"app": "node2vec", "p": 0.5, "q": 4, "length": 20, "walks": 2}
    whole = walk(graph, tmp_path / "whole", **options)
    cluster = ClusterSpec(workers=2)
    parted = walk(graph, tmp_path / "w", cluster=cluster, placement="partitioned", **options)
    assert (whole.placement, parted.placement) == ("replicated", "partitioned")
    assert (graph.path / "partition/k2").is_dir()
    assert checksums(tmp_path / "w") == checksums(tmp_path / "whole")
    assert (parted.walks, parted.nodes) == (whole.walks, whole.nodes)


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
def test_a_gpu_takes_the_same_walks(make_graph: Any, options: dict[str, Any]) -> None:
    graph = make_graph(weights=True, relations=3, times=True)
    here = walk_array(graph, device="cpu", walks=5, **options)
    np.testing.assert_array_equal(walk_array(graph, device="gpu", walks=5, **options), here)


@pytest.mark.gpu
def test_gpu_workers_write_the_same_files(
    make_graph: Any, tmp_path: Path, small_parts: None
) -> None:
    graph = make_graph(weights=True)
    for device in ("cpu", "gpu"):
        walk(graph, tmp_path / device, cluster=ClusterSpec(device=device), walks=20)
    assert checksums(tmp_path / "gpu") == checksums(tmp_path / "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("sampler", ["reservoir", "alias", "its"])
def test_gpu_samplers_of_their_own(make_graph: Any, sampler: str) -> None:
    graph = make_graph(weights=True, relations=3, labels=4)
    csr = graph.csr()
    edges = set(zip(csr.sources().tolist(), csr.indices.tolist(), strict=True))
    own = {"app": "custom", "weight": "weight * (2 if label == 1 else 0.5) / degree"}
    for options in ({}, own) if sampler == "reservoir" else ({},):
        paths = walk_array(graph, device="gpu", sampler=sampler, length=10, **options)
        for path in paths.tolist():
            assert all(step in edges for step in pairwise(path) if step[1] >= 0)
        again = walk_array(graph, device="gpu", sampler=sampler, length=10, **options)
        np.testing.assert_array_equal(again, paths)


def test_the_plan_says_what_would_be_walked_and_writes_nothing(
    make_graph: Any,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path_factory.mktemp("cache")))
    graph = make_graph()
    before = sorted(tmp_path.rglob("*"))
    words = ["walk", str(graph.path), str(tmp_path / "w"), "--walks", "3", "--plan"]
    assert run([*words, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert sorted(tmp_path.rglob("*")) == before
    assert plan["what"].startswith(f"{3 * graph.num_nodes:,} walks of at most 80 nodes")
    assert {step["name"] for step in plan["steps"]} == {"walk", "sampler"}
    assert 0 < plan["memory_bytes"] < plan["memory_there"]
    assert 0 < plan["disk_bytes"] < plan["disk_free"]
    assert plan["problem"] is None
