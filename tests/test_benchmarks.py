"""The tools around benchmarks: the table of all, and what is said to be slower."""

import importlib.util
import json
import subprocess
import sys

import pytest


def load(path):
    spec = importlib.util.spec_from_file_location(f"benchmarks_{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(**figures):
    one = {"state": "passed", "seconds": 1.0, "figures": figures}
    return {"quick": True, "machine": {"cores": 2}, "results": {"walk": one}}


@pytest.mark.slow
def test_all_runs_what_it_can_and_keeps_it(root, tmp_path):
    out = tmp_path / "results.json"
    words = [sys.executable, "-P", str(root / "benchmarks/all.py"), "--quick"]
    subprocess.run([*words, "--only", "order,NCCL", "--out", str(out)], check=True)
    body = json.loads(out.read_text())
    assert {name: one["state"] for name, one in body["results"].items()} == {"order": "passed"}
    assert "16320" in json.dumps(body["results"]["order"])  # loads of 256 partitions, three held
    assert body["machine"]["cores"] >= 1
    assert body["versions"]["penstock"]


@pytest.fixture
def bandwidth(root):
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
