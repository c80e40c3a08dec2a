"""The tools around benchmarks: the table of all, and what is said to be slower."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from penstock.errors import CapacityError, PenstockError


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compare(root: Path) -> ModuleType:
    return load(root / "benchmarks/compare.py")


def results(**figures: float) -> dict:
    one = {"state": "passed", "seconds": 1.0, "figures": figures}
    return {"quick": True, "machine": {"cores": 2}, "results": {"walk": one}}


def test_what_is_worse_is_listed_and_what_is_better_is_not(compare):
    before = results(epoch_seconds=1.0, steps_per_second=100.0, peak_bytes=10.0, accuracy=0.9)
    after = results(epoch_seconds=1.3, steps_per_second=80.0, peak_bytes=9.0, accuracy=0.1)
    lines = compare.compared(before, after, 0.1)
    assert len(lines) == 2
    assert "epoch_seconds" in lines[0]
    assert "steps_per_second: 100 before, 80 now, 1.25 times" in lines[1]
    assert compare.compared(after, before, 0.1) == [
        "walk, peak_bytes: 9 before, 10 now, 1.11 times"
    ]


def test_a_gate_that_fails_now_is_worse(compare):
    after = results()
    after["results"]["walk"] |= {"state": "failed", "says": "wrong"}
    assert "its gate passed, and failed now: wrong" in compare.compared(results(), after, 0.1)[0]


def test_what_a_benchmark_says_is_told_in_a_sentence(root):
    module = load(root / "benchmarks/all.py")
    says = {one.name: one.says for one in module.BENCHMARKS if one.says is not None}
    etl = "polars   1.6 s     1.28 M edges/s  1 GB\npenstock etl  4.4 s   0.45 M edges/s\nratio 0.4"
    assert says["etl"](etl).startswith("0.45 M edges/s of 2 M")
    assert says["etl"]("nothing of the kind") == ""
    times = {"seconds": 0.5, "networkx": 50.0, "igraph": 2.0}
    found = {"graphs": 1000, "closeness": times, "betweenness": times | {"igraph": 1.0}}
    assert says["centrality"](json.dumps(found)) == (
        "1,000 graphs, one core: closeness 100 times NetworkX, 4.0 igraph; "
        "betweenness 100 times NetworkX, 2.0 igraph"
    )


@pytest.mark.slow
def test_all_runs_what_it_can_and_keeps_it(root, tmp_path):
    out = tmp_path / "results.json"
    words = [sys.executable, "-P", str(root / "benchmarks/all.py"), "--quick"]
    run = subprocess.run(
        [*words, "--only", "order,NCCL", "--out", str(out)], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert "| order | passed |" in run.stdout
    assert "256 partitions, three held: 16320 loads, no order has fewer" in run.stdout
    assert "| NCCL | skipped |" in run.stdout
    body = json.loads(out.read_text())
    assert body["results"]["order"]["state"] == "passed"
    assert body["machine"]["cores"] >= 1
    assert body["versions"]["penstock"]


def test_every_benchmark_has_its_line(root):
    text = (root / "benchmarks/all.py").read_text()
    known = {"bench_gnn_link.py", "bench_partition_streamed.py"}  # need root, or hours
    for path in (root / "benchmarks").glob("bench_*.py"):
        assert path.name in text or path.name in known, path.name


def test_bytes_that_any_step_of_an_embedding_has_to_move(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    cuda = ModuleType("penstock.kernels.cuda.embed")
    monkeypatch.setitem(sys.modules, "penstock.kernels.cuda.embed", cuda)
    bench = load(root / "benchmarks/bench_embed_gpu.py")

    def megabytes(model, sides):
        return round(bench.bytes_of(bench.EmbedRules(model, 100, sides=sides)) / 1e6)

    # As benchmarks/results/embed.md has it.
    assert [megabytes(bench.Model.DOT, sides) for sides in (bench.ONE, bench.BOTH)] == [322, 323]
    assert [megabytes(bench.Model.COMPLEX, s) for s in (bench.ONE, bench.BOTH)] == [323, 325]


def test_work_that_hides_swaps_is_found_where_it_does_not_grow_with_negatives_alone(root):
    bench = load(root / "benchmarks/bench_embed_prefetch.py")
    runs, negatives = [], 1000
    for _ in range(3):  # a part of training does not depend on negatives
        runs.append({"busy": 0.5 + negatives / 1000, "exposed": 1.0, "negatives": negatives})
        negatives = bench.negatives_for(0.285, runs)
    assert 0.5 + negatives / 1000 == pytest.approx(1 / 0.285, rel=0.02)
    # Two that came out alike, although one had a fifth less to do.
    runs = [{"busy": 1.61, "negatives": 4000}, {"busy": 1.58, "negatives": 3192}]
    assert 1900 < bench.negatives_for(0.27, [{"exposed": 0.346, **one} for one in runs]) < 2700
    shares = bench.hidden_shares("prefetch", 8)
    times, utilization = bench.best_ratio(shares, bench.likely_best(shares))
    assert times > 1.25
    assert utilization > 0.93


@pytest.fixture
def bandwidth(root: Path) -> ModuleType:
    return load(root / "benchmarks/storage_bandwidth.py")


def test_a_disk_is_measured_and_left_as_it_was(bandwidth, tmp_path):
    found = bandwidth.measure(tmp_path, 8 << 20, threads=2)
    for rate in (found.read, found.write, found.exchange):
        assert 1e5 < rate < 1e12
    assert not list(tmp_path.iterdir())


def test_dd_is_read_right(bandwidth, tmp_path):
    try:
        found = bandwidth.measure_dd(tmp_path, 8 << 20)
    except PenstockError as error:
        pytest.skip(str(error))
    assert 1e5 < found.read < 1e12
    assert 1e5 < found.write < 1e12
    assert not list(tmp_path.iterdir())


def test_fio_is_read_right(bandwidth, tmp_path):
    try:
        found = bandwidth.measure_fio(tmp_path, 8 << 20)
    except PenstockError as error:
        pytest.skip(str(error))
    for rate in (found.read, found.write, found.exchange):
        assert 1e5 < rate < 1e12
    assert not list(tmp_path.iterdir())


FIO = """#!/bin/sh
echo 'fio: a note before the JSON'
echo '{"jobs": [{"job_runtime": 500, "read": {"io_bytes": 3000}, "write": {"io_bytes": 1000}}]}'
"""


@pytest.mark.parametrize(
    ("script", "rate"), [(FIO, 8000.0), ("#!/bin/sh\necho no libaio >&2", None)]
)
def test_what_fio_says_is_its_bytes_a_second(bandwidth, tmp_path, monkeypatch, script, rate):
    (tmp_path / "fio").write_text(script)
    (tmp_path / "fio").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if rate is None:
        with pytest.raises(PenstockError, match="fio could not measure the disk. Got no libaio"):
            bandwidth.measure_fio(tmp_path, 1 << 20, block=1 << 16)
    else:
        assert bandwidth.measure_fio(tmp_path, 1 << 20, block=1 << 16).exchange == rate


@pytest.mark.gpu
def test_a_disk_is_measured_from_a_gpu(bandwidth, tmp_path):
    found = bandwidth.measure(tmp_path, 8 << 20, threads=2, device=True)
    for rate in (found.read, found.write, found.exchange):
        assert 1e5 < rate < 1e12


def test_a_disk_without_room_is_said(bandwidth, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.sizes.free_disk", lambda folder: 10)
    with pytest.raises(CapacityError, match="a measurement of the disk"):
        bandwidth.measure(tmp_path)


def test_a_dd_that_fails_is_said(bandwidth, tmp_path):
    with pytest.raises(PenstockError, match="dd could not measure"):
        bandwidth._dd([f"if={tmp_path}/none", "of=/dev/null"])
