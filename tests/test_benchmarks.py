"""The tools around benchmarks: the table of all, and what is said to be slower."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


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


@pytest.fixture
def bandwidth(root: Path) -> ModuleType:
    return load(root / "benchmarks/storage_bandwidth.py")


def test_a_disk_is_measured_and_left_as_it_was(bandwidth, tmp_path):
    found = bandwidth.measure(tmp_path, 8 << 20, threads=2)
    for rate in (found.read, found.write, found.exchange):
        assert 1e5 < rate < 1e12
    assert not list(tmp_path.iterdir())


@pytest.mark.gpu
def test_a_disk_is_measured_from_a_gpu(bandwidth, tmp_path):
    found = bandwidth.measure(tmp_path, 8 << 20, threads=2, device=True)
    for rate in (found.read, found.write, found.exchange):
        assert 1e5 < rate < 1e12
