"""``penstock walk`` from options to files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from penstock import CSR, ClusterSpec, Graph, walk, walk_array
from penstock.errors import (
    CapacityError,
    InputError,
    MissingExtra,
    OutputExists,
    PenstockWarning,
    UsageError,
)
from penstock.files import FileRanges
from penstock.pipelines.cli import run
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.walk import output
from penstock.pipelines.walk.output import WalkWriter, files_of
from penstock.workers.resources.device import look_again


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
    # Where no edge leads to the start, only a restart does.
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


def test_dates_are_nanoseconds(make_graph: Any) -> None:
    graph = make_graph(times=True)
    everything = walk_array(graph, temporal=True)
    dated = walk_array(graph, since="1600-01-01", until="2200-01-01")
    np.testing.assert_array_equal(everything, dated)
    with pytest.raises(UsageError, match="a number, or a date"):
        walk_array(graph, since="yesterday")
    with pytest.raises(UsageError, match="both --since and --until"):
        walk_array(graph, since="5", until="5")


def test_an_array_from_a_gpu_that_is_not_there(
    make_graph: Any, pretend_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_graph()
    with pytest.raises(UsageError, match="auto, cpu or gpu"):
        walk_array(graph, device="abacus")
    pretend_gpu("raise ImportError('libnvrtc.so.12: not found')")
    for given in (graph, graph.csr()):
        with pytest.raises(MissingExtra, match="device='gpu' asks for a GPU.*libnvrtc.so.12"):
            walk_array(given, device="gpu")
        with pytest.warns(PenstockWarning, match="on the CPU, though .* has a GPU") as said:
            walked = walk_array(given)
        assert said[0].filename == __file__
        np.testing.assert_array_equal(walk_array(given, device="cpu"), walked)
    monkeypatch.setitem(sys.modules, "cupy", None)
    look_again()
    with pytest.raises(MissingExtra, match="CuPy is not installed"):
        walk_array(graph, device="gpu")


def test_internal_ids_and_blocks(make_graph: Any, tmp_path: Path, small_parts: None) -> None:
    graph = make_graph(weights=True)
    walk(graph, tmp_path / "w", ids="internal", npy=True, length=16, app="ppr", stop=0.2)
    paths = paths_of(tmp_path / "w")
    blocks = [np.load(file) for file in sorted((tmp_path / "w").glob("_block-*.npy"))]
    assert len(blocks) == 7
    assert [[node for node in row if node >= 0] for row in np.concatenate(blocks)] == paths
    expected = walk_array(graph, length=16, app="ppr", stop=0.2)
    np.testing.assert_array_equal(np.concatenate(blocks), expected)


def test_the_manifest_tells_how_it_was_made(make_graph: Any, tmp_path: Path) -> None:
    graph = make_graph(weights=True)
    walk(graph, tmp_path / "w", app="node2vec", p=2, q=0.5, length=5)
    about = json.loads((tmp_path / "w/_walks.json").read_text())
    assert about["format"] == "penstock-walks"
    assert about["options"] == {"app": "node2vec", "p": 2.0, "q": 0.5, "length": 5}
    assert about["sampler"] == "rejection"
    assert about["walks"] == 100
    for name, entry in about["files"].items():
        assert (tmp_path / "w" / name).stat().st_size == entry["bytes"]


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


def test_more_walks_leave_the_first_ones_alone(make_graph: Any) -> None:
    graph = make_graph()
    np.testing.assert_array_equal(walk_array(graph), walk_array(graph, walks=3)[:100])


def test_a_csr_will_do_in_a_notebook() -> None:
    ring = CSR.from_edges(np.arange(5), (np.arange(5) + 1) % 5, 5)
    expected = (np.arange(5)[:, None] + np.arange(8)) % 5
    np.testing.assert_array_equal(walk_array(ring, length=8), expected)


class _Break(WalkWriter):
    def __call__(self, number: int, first: int, paths: Any) -> None:
        if number == 3:
            raise OSError("the cable was pulled")
        super().__call__(number, first, paths)


def test_an_interrupted_run_goes_on(
    make_graph: Any,
    tmp_path: Path,
    small_parts: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = make_graph()
    walk(graph, tmp_path / "whole")
    monkeypatch.setattr("penstock.pipelines.walk.job.WalkWriter", _Break)
    with pytest.raises(OSError, match="cable"):
        walk(graph, tmp_path / "w")
    assert "--resume" in capsys.readouterr().err
    assert not (tmp_path / "w").exists()
    monkeypatch.undo()
    monkeypatch.setattr(output, "_FILE_IDS", (256, 256))
    with pytest.raises(UsageError, match="another one"):
        walk(graph, tmp_path / "w", resume=True, seed=9)
    half = next((tmp_path / ".w.partial/walks").glob("part-*.parquet"))
    half.write_bytes(half.read_bytes()[:-10])  # a file that is not whole is made again
    report = walk(graph, tmp_path / "w", resume=True)
    assert 0 <= report.resumed_files < report.files
    assert f" {report.files} files, " in report.text()
    assert checksums(tmp_path / "w") == checksums(tmp_path / "whole")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_starts_are_lines_however_they_end(make_graph: Any, tmp_path: Path, end: str) -> None:
    graph = make_graph()
    ids = [str(name) for name in graph.user_ids().to_pylist()[:3]]
    (tmp_path / "starts").write_bytes(b"\xef\xbb\xbf" + end.join(ids).encode())
    paths = walk_array(graph, starts=tmp_path / "starts", length=2)
    assert graph.user_ids().take(paths[:, 0]).to_pylist() == [
        type(graph.user_ids()[0].as_py())(i) for i in ids
    ]


def test_resume_knows_the_file_of_starts(
    make_graph: Any, tmp_path: Path, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, starts = make_graph(), tmp_path / "starts"
    ids = [str(name) for name in graph.user_ids().to_pylist()[:64]]
    starts.write_text("\n".join(ids))
    with monkeypatch.context() as patched:
        patched.setattr("penstock.pipelines.walk.job.WalkWriter", _Break)
        with pytest.raises(OSError, match="cable"):
            walk(graph, tmp_path / "w", starts=starts, walks=40)
    other = tmp_path / "other"
    other.write_text("\n".join(ids[::-1]))
    other.replace(starts)
    with pytest.raises(UsageError, match="starts changed since the run in"):
        walk(graph, tmp_path / "w", starts=starts, walks=40, resume=True)


KILLED = """
import sys
import threading
import time
from itertools import pairwise
import penstock.pipelines.walk.output as output
from penstock import walk
output._FILE_IDS = (256, 256)
write = output.WalkWriter.__call__
def tell(self, number, first, paths):
    write(self, number, first, paths)
    print(number, flush=True)
    if number > 5:
        sys.stdin.read()
output.WalkWriter.__call__ = tell
walk(sys.argv[1], sys.argv[2])
"""


def test_a_killed_run_goes_on(make_graph: Any, tmp_path: Path, small_parts: None) -> None:
    graph = make_graph()
    walk(graph, tmp_path / "whole")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", KILLED, str(graph.path), str(tmp_path / "w")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(4)]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "w").exists()
    report = walk(graph, tmp_path / "w", resume=True)
    assert report.resumed_files >= 4
    assert checksums(tmp_path / "w") == checksums(tmp_path / "whole")


@pytest.mark.slow
def test_the_death_of_a_worker_costs_nothing(make_graph: Any, tmp_path: Path) -> None:
    graph, options = make_graph(weights=True), {"walks": 2000}
    walk(graph, tmp_path / "whole", **options)
    place, killed = tmp_path / ".w.partial/walks", threading.Event()

    def kill() -> None:
        while not list(place.glob("part-*.parquet")):
            time.sleep(0.01)
        workers = [
            child
            for child in psutil.Process().children(recursive=True)
            if "multiprocessing.spawn" in " ".join(child.cmdline())
        ]
        workers[0].kill()
        killed.set()

    killer = threading.Thread(target=kill)
    killer.start()
    walk(graph, tmp_path / "w", cluster=ClusterSpec(cluster="local", workers=2), **options)
    killer.join()
    assert killed.is_set()
    assert checksums(tmp_path / "w") == checksums(tmp_path / "whole")


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


def test_unknown_starts_are_named_with_their_line(make_graph: Any, tmp_path: Path) -> None:
    graph = make_graph()
    good = str(graph.user_ids().to_pylist()[0])
    file = tmp_path / "starts.txt"
    for bad in ("no such node", "123456789"):
        file.write_text(f"{good}\n\n{bad}\n{bad}\n")
        with pytest.raises(InputError, match="line 3 of .*and 1 more") as caught:
            walk(graph, tmp_path / "w", starts=file)
        assert repr(bad) in caught.value.what
    file.write_text("\n")
    with pytest.raises(InputError, match="names no start"):
        walk(graph, tmp_path / "w", starts=file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        walk(graph, tmp_path / "w", starts=file)
    with pytest.raises(InputError, match="nowhere"):
        walk(graph, tmp_path / "w", starts=tmp_path / "nowhere")
    with pytest.raises(InputError, match="--start nobody"):
        walk(graph, tmp_path / "w", start=("nobody",))
    with pytest.raises(UsageError, match="no walk has a start"):
        walk(graph, tmp_path / "w", fraction=1e-9)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph", "starts.txt"]


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 0, "app": "node2vec"}, "--p"),
        ({"q": -1, "app": "node2vec"}, "--q"),
        ({"p": float("nan"), "app": "node2vec"}, "--p"),
        ({"p": 2}, "--p needs --app node2vec"),
        ({"stop": 0, "app": "ppr"}, "--stop"),
        ({"stop": 1.5, "app": "ppr"}, "--stop"),
        ({"stop": 0.5}, "--stop needs --app ppr"),
        ({"length": 0}, "--length"),
        ({"walks": 0}, "--walks"),
        ({"restart": 1}, "--restart"),
        ({"app": "metapath"}, "needs option --schema"),
        ({"app": "metapath", "schema": "0"}, "has no relations, which --app metapath follows"),
        ({"app": "custom"}, "needs option --weight"),
        ({"app": "custom", "weight": "wait"}, "weight, relation, degree"),
        ({"app": "custom", "weight": "relation"}, "etl --relation COLUMN, or leave relation"),
        ({"app": "custom", "weight": "label"}, "--label COLUMN --label-kind class, or leave label"),
        ({"app": "custom", "weight": "weight - 3"}, "has no weights, which --weight names"),
        ({"app": "custom", "weight": "2 * weight", "weighted": False}, "--no-weighted"),
        ({"app": "custom", "weight": "1", "sampler": "alias"}, "known only when"),
        ({"temporal": True}, "has no times of edges"),
        ({"since": "1"}, "has no times of edges"),
        ({"sampler": "alias", "temporal": True}, "alias tables know no times"),
        ({"start": ("1",), "fraction": 0.5}, "cannot go together"),
        ({"app": "metapath", "schema": "0", "restart": 0.5}, "cannot go together"),
        ({"walks": 1 << 40}, "these are"),
        ({"parts": 3, "placement": "replicated"}, "--parts and --placement replicated cannot"),
    ],
    ids=str,
)
def test_bad_options(
    make_graph: Any, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    graph = make_graph()
    with pytest.raises(UsageError) as caught:
        walk(graph, tmp_path / "w", **options)
    assert message in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["graph"]


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


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), 1e300])
def test_bad_weights_name_their_edge(tmp_path: Path, bad: float) -> None:
    graph = weighted(tmp_path / "g", [1, 1, bad, 1, 1])
    with pytest.raises(InputError, match="from c to d"):
        walk(graph, tmp_path / "w")
    with pytest.raises(InputError, match="from c to d"):
        walk_array(graph)
    assert [p.name for p in tmp_path.iterdir()] == ["g"]
    assert walk_array(graph, weighted=False, length=3)[2].tolist() == [2, 3, 4]


def test_rows_of_zeros(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = weighted(tmp_path / "g", [1, 2, 0, 1, 0])
    with pytest.raises(InputError, match="node c and 1 other nodes have weight 0"):
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


@pytest.mark.mpi
@pytest.mark.slow
def test_an_expression_reads_weights_that_are_all_equal_in_parts(tmp_path: Path) -> None:
    graph, out = weighted(tmp_path / "g", [5] * 5), tmp_path / "w"
    cluster = ClusterSpec(workers=2)
    walk(graph, out, ids="internal", placement="partitioned", cluster=cluster, **OWN)
    assert paths_of(out)[0] == [0, 1, 2, 3]


@pytest.mark.slow
def test_an_expression_judges_weights_of_zero_itself(tmp_path: Path) -> None:
    graph = weighted(tmp_path / "g", [0] * 5)
    assert walk_array(graph, app="custom", weight="weight + 1", length=3)[0].tolist() == [0, 1, 2]
    report = walk(graph, tmp_path / "w", app="custom", weight="weight + 1", length=3)
    assert report.zero_rows == 0
    # Nothing reads the weights of this graph.
    graph = weighted(tmp_path / "bad", [float("nan")] * 5)
    assert walk_array(graph, app="custom", weight="1", length=3)[0].tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="a weight that walks cannot use") as caught:
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


def test_no_room_on_disk(make_graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(CapacityError):
        walk(make_graph(), tmp_path / "w", walks=100)
    with pytest.raises(CapacityError):  # at once
        walk(make_graph(name="other"), tmp_path / "w", walks=10**9)


def test_no_room_in_workers(
    make_graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.workers.plugin._CACHE_SHARE_OF_MEMORY", 1e-9)
    with pytest.raises(CapacityError, match="--placement partitioned"):
        walk(make_graph(), tmp_path / "w")


def test_what_is_there_stays(make_graph: Any, tmp_path: Path) -> None:
    graph = make_graph()
    walk(graph, tmp_path / "w")
    with pytest.raises(OutputExists, match="--overwrite"):
        walk(graph, tmp_path / "w")
    shutil.copytree(graph.path, tmp_path / "other")
    with pytest.raises(OutputExists, match="is not a walks|not a"):
        walk(graph, tmp_path / "other", overwrite=True)
    walk(graph, tmp_path / "w", overwrite=True, length=3)
    assert max(map(len, paths_of(tmp_path / "w"))) == 3


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


def test_parts_follow_from_the_job_alone() -> None:
    parts = files_of(2_400_000, 80)
    assert parts.count == 64
    assert parts.range(63)[1] == 2_400_000
    assert files_of(10, 80) == FileRanges(10, 3276)
    assert files_of(10, 1 << 20).count == 10


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


@pytest.mark.mpi
@pytest.mark.slow
def test_a_graph_in_parts_as_asked_gives_the_same_walks(
    make_graph: Any, tmp_path: Path, small_parts: None
) -> None:
    graph = make_graph(weights=True)
    options = {"app": "node2vec", "p": 0.5, "q": 4, "length": 20, "walks": 2}
    walk(graph, tmp_path / "whole", **options)
    three = walk(graph, tmp_path / "three", cluster=ClusterSpec(), parts=3, **options)
    assert three.placement == "partitioned", "as --parts says, though the graph would fit"
    assert (graph.path / "partition/k3").is_dir()
    assert checksums(tmp_path / "three") == checksums(tmp_path / "whole")


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


def test_the_plan_says_what_would_not_fit(
    make_graph: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = make_graph()
    small = Capacity(rows=1, memory=1, on_gpu=False, workers=1)
    monkeypatch.setattr("penstock.pipelines.job.capacity.capacity_of", lambda *_: small)
    assert run(["walk", str(graph.path), str(tmp_path / "w"), "--plan"]) == 0
    said = capsys.readouterr()
    assert "of 1 B on every worker" in said.out
    assert "would not fit on a worker" in said.err
    assert "--memory-limit" in said.err
