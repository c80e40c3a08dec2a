import errno
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from penstock import Graph, partition_graph
from penstock.csr import CSR
from penstock.errors import CapacityError, OutputExists, UsageError
from penstock.partition.build import disk_needed
from penstock.partition.metis import memory_needed as metis_memory
from penstock.partition.part import Partition
from penstock.pipelines.cli import run
from penstock.writer import create_graph


@pytest.fixture
def path(tmp_path):
    rng = np.random.default_rng(0)
    block = rng.integers(0, 2, 400)
    pairs = rng.integers(0, 400, (6000, 2))
    pairs = pairs[(block[pairs[:, 0]] == block[pairs[:, 1]]) | (rng.random(6000) < 0.05)]
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    with create_graph(tmp_path / "g") as writer:
        writer.edges(CSR.from_edges(pairs[:, 0], pairs[:, 1], 400), shard_edges=2000)
        writer.nodes([f"user-{i}" for i in range(400)], label=block)
        writer.features(rng.random((400, 16)).astype(np.float32))
        writer.manifest = replace(writer.manifest, directed=False, labels="class")
    return tmp_path / "g"


def test_the_report_tells_what_lies_on_disk(path):
    report = partition_graph(path, k=2, quiet=True)
    graph, partition = Graph.open(path), Partition.open(report.path)
    partition.validate()
    csr, parts = graph.csr(), partition.assignment
    crossing = parts[csr.sources()] != parts[csr.indices]
    ghosts = {(int(parts[s]), int(t)) for s, t in zip(csr.sources(), csr.indices, strict=True)}
    ghosts = {(part, node) for part, node in ghosts if parts[node] != part}
    loads = np.bincount(parts, csr.degrees())
    assert report.made_by == "metis-kway"
    assert report.cut_edges == crossing.sum()
    assert report.cut_share == pytest.approx(crossing.mean())
    assert report.ghosts == len(ghosts)
    assert report.replication == pytest.approx(1 + len(ghosts) / 400)
    assert report.load_imbalance == pytest.approx(loads.max() / loads.mean())
    assert report.load_imbalance <= 1.05
    assert report.node_imbalance == pytest.approx(np.bincount(parts).max() / 200)
    assert report.halo_bytes == {"1": 4 * len(ghosts), "16": 64 * len(ghosts)}
    # "compiling kernels", too, where this is the first use after an installation.
    assert set(report.seconds) - {"compiling kernels"} == {"assign", "METIS", "build"}


def test_the_command_prints_text_and_json(path, capsys):
    assert run(["partition", str(path), "-k", "2", "--method", "greedy"]) == 0
    text = capsys.readouterr().out
    for word in (
        "edge cut",
        "ghosts",
        "replication",
        "imbalance",
        "halo a layer",
        "greedy",
        "time",
    ):
        assert word in text
    again = ["partition", str(path), "-k", "2", "--json", "--width", "64", "--overwrite"]
    assert run(again) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["made_by"] == "metis-kway"
    assert report["steps"][-1]["outcome"] == "taken"
    assert set(report["halo_bytes"]) == {"1", "64"}
    assert run(["partition", str(path), "-k", "2", "-q", "--overwrite"]) == 0
    assert capsys.readouterr().out == ""


def test_the_same_seed_writes_the_same_files(path):
    partition_graph(path, k=4, seed=3, quiet=True)
    one = Partition.of(Graph.open(path), 4).manifest.files
    partition_graph(path, k=4, seed=3, overwrite=True, quiet=True)
    assert Partition.of(Graph.open(path), 4).manifest.files == one


def test_an_existing_partition_is_kept_unless_told(path):
    partition_graph(path, k=2, method="greedy", quiet=True)
    with pytest.raises(OutputExists, match="give --overwrite"):
        partition_graph(path, k=2, method="random", quiet=True)
    assert Partition.of(Graph.open(path), 2).manifest.made_by == "greedy"
    partition_graph(path, k=2, method="random", overwrite=True, quiet=True)
    assert Partition.of(Graph.open(path), 2).manifest.made_by == "random"


def test_a_folder_that_is_not_ours_is_never_replaced(path):
    theirs = path / "partition" / "k2"
    theirs.mkdir(parents=True)
    (theirs / "thesis.tex").write_text("years")
    with pytest.raises(OutputExists, match="is not a partition"):
        partition_graph(path, k=2, overwrite=True, quiet=True)
    assert (theirs / "thesis.tex").read_text() == "years"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-k", "0"], 2, "greater than or equal to 1"),
        (["-k", "two"], 2, "two"),
        ([], 2, "k"),
        (["-k", "401"], 1, "at most as many parts as nodes, 400"),
        (["-k", "401", "--plan"], 1, "at most as many parts as nodes, 400, got -k 401"),
        (["-k", "2", "--passes", "1000000000000"], 2, "less than or equal to 1,000"),
        (["-k", "2", "--seed", "1000000000000000000000000000000"], 2, "less than 9,223,372,036,8"),
        (["-k", "2", "--method", "voodoo"], 2, "voodoo"),
        (["-k", "2", "--memory-limit", "lots"], 2, "option --memory-limit has a bad"),
        (["-k", "2", "--method", "metis", "--memory-limit", "1kB"], 1, "--method streaming"),
    ],
)
def test_bad_requests_end_in_one_paragraph(path, capsys, arguments, code, words):
    assert run(["partition", str(path), *arguments]) == code
    message = capsys.readouterr().err
    assert words in message
    assert "Traceback" not in message
    assert not (path / "partition").exists()


def test_what_is_not_a_graph(tmp_path, capsys):
    assert run(["partition", str(tmp_path), "-k", "2"]) == 1
    assert "is not a graph" in capsys.readouterr().err


def test_a_bad_option_from_python_is_a_usage_error(path):
    with pytest.raises(UsageError, match="no option 'parts'"):
        partition_graph(path, k=2, parts=3)


def test_too_small_a_disk_is_told_before_the_run(path, monkeypatch):
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(CapacityError, match="would not fit on the disk"):
        partition_graph(path, k=2, quiet=True)


def test_a_disk_that_fills_up_leaves_the_old_partition(path, monkeypatch):
    partition_graph(path, k=2, method="greedy", quiet=True)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("penstock.partition.build.columns.GrowingArray.append", full)
    with pytest.raises(CapacityError, match="the disk is full"):
        partition_graph(path, k=2, method="random", overwrite=True, quiet=True)
    assert [found.name for found in (path / "partition").iterdir()] == ["k2"]
    assert Partition.of(Graph.open(path), 2).manifest.made_by == "greedy"


def test_ctrl_c_while_parts_are_built_leaves_nothing(path):
    script = (
        "import signal, sys, time\n"
        # Started in the background of a shell, it would ignore Ctrl-C.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from penstock.partition import build\n"
        "from penstock.pipelines.cli import main\n"
        "def slow(*_):\n"
        "    print('building', flush=True)\n"
        "    time.sleep(30)\n"
        "build.write_features = slow\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-P", "-c", script, "partition", str(path), "-k", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "building\n"
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        _, message = process.communicate(timeout=20)
    assert time.monotonic() - started < 10
    assert process.returncode == 1
    assert "interrupted" in message
    assert not (path / "partition").exists()


def test_what_metis_cannot_hold_is_streamed_and_the_report_says_why(path):
    report = partition_graph(path, k=2, memory_limit="1kB", quiet=True)
    assert report.made_by == "streaming"
    assert "METIS needs about" in report.text()


def test_the_time_says_how_much_of_it_was_compiling(path, monkeypatch):
    from numba import njit

    from penstock.partition import assign as module

    assign = module.assign

    def cold(*given, **options):
        njit("int64(int64)")(lambda x: x + 1)
        return assign(*given, **options)

    partition_graph(path, k=2, method="hash", quiet=True)
    report = partition_graph(path, k=2, method="hash", overwrite=True, quiet=True)
    assert "compiling kernels" not in report.seconds
    monkeypatch.setattr(module, "assign", cold)
    report = partition_graph(path, k=2, method="hash", overwrite=True, quiet=True)
    assert 0 < report.seconds["compiling kernels"] <= report.seconds["assign"]
    assert ", compiling kernels " in report.text()


def test_the_plan_tells_what_would_be_made_and_makes_nothing(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    before = sorted(path.rglob("*"))
    assert run(["partition", str(path), "-k", "2", "--plan", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert sorted(path.rglob("*")) == before
    assert plan["out"] == str(path / "partition/k2")
    assert plan["memory_bytes"] >= metis_memory(Graph.open(path))
    assert plan["disk_bytes"] == disk_needed(Graph.open(path))
    assert plan["problem"] is None
    assert run(["partition", str(path), "-k", "2", "--plan", "--memory-limit", "1kB"]) == 0
    text = capsys.readouterr().out
    assert "METIS would take" in text
    assert "time    not known" in text
    partition_graph(path, k=2, quiet=True)
    assert run(["partition", str(path), "-k", "2", "--plan"]) == 1
    assert "exists" in capsys.readouterr().err


def test_the_plan_says_what_would_not_fit(path, monkeypatch, capsys):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    assert run(["partition", str(path), "-k", "2", "--plan"]) == 0
    said = capsys.readouterr()
    assert "10 B free on the disk" in said.out
    assert "would not fit on the disk" in said.err


def test_a_plan_after_a_run_has_a_time(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    for method, more in (("hash", {}), ("auto", {"time_limit": 0})):
        options = [f"--{name.replace('_', '-')}={value}" for name, value in more.items()]
        words = ["partition", str(path), "-k", "2", "--method", method, *options, "--overwrite"]
        assert run([*words, "--plan"]) == 0
        assert "time    not known" in capsys.readouterr().out
        partition_graph(path, k=2, method=method, overwrite=True, **more)
        assert run([*words, "--plan"]) == 0
        assert "s for all, by 1 run here" in capsys.readouterr().out
