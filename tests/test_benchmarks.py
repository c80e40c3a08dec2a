"""Benchmarks: a gate that cannot fail says nothing, so each one is broken here, and fails."""

import json
import subprocess
import sys

import pytest

SKIPPED = 77
TOY = """
import argparse, sys, time
sys.path.insert(0, {folder!r})
from harness import Case, Option, Side, Timed, main

def cases(given):
    def check(values):
        assert values["ours"] == values["peer"] == [given.size, 2.5]
        return {{"size": given.size}}

    def ours():
        time.sleep(0.02)
        return [given.size, 2.5]

    def peer():
        time.sleep(0.04)
        return [given.size, 2.5]

    absent = Side(peer, 2.0, needs=[lambda: "not installed"])
    yield Case("sleep", ours, check, {{"peer": Side(peer, {ratio}), "absent": absent}}, (9, "naps"))
    floor = Side(lambda: Timed(0.01), 0.4, floor=True)
    yield Case("floor", ours, lambda values: None, {{"floor": floor}})
    yield Case("alone, 2", ours, lambda values: None, {{"absent": absent, "floor": floor}})
    small = Side(lambda: Timed(float("inf")), 2.0)
    yield Case("alone, 3", ours, lambda values: None, {{"small": small}})
    yield Case("elsewhere", ours, check, needs=[lambda: "needs another machine"])

sys.exit(main(__doc__, cases, Option("--size", 9, 4), needs={needs}))
"""
# A benchmark, and cases of it that take seconds: a slower ours, if it has a gate, or a wrong one,
# must fail.
BROKEN = {
    "centrality": "closeness",
    "encryption": "nothing",
    "etl": "texts",
    "embed": "COMPLEX",
    "embed_answer": "questions",
    "embed_storage": "to read a GB",
    "gang": "repeated",
    "generate": "R-MAT, scale",
    "large_graph": "communities",
    "gnn": "Cora, 2 layers",
    "order": "prefetch, 128",
    "partition": "rmat",
    "similar": "new",
    "tomorrow": "partition",
    "walk": "PPR",
    "whole": "import penstock",
    "word2vec": "whole",
}
# Only a million vectors have a gate; the disk decides.
UNGATED = ("similar", "slow"), ("embed_storage", "slow")


def run(path, *words, **how):
    return subprocess.run(
        [sys.executable, "-P", str(path), *words], capture_output=True, text=True, **how
    )


@pytest.fixture
def toy(root, tmp_path):
    def write(ratio=2.0, needs="()"):
        path = tmp_path / "bench_toy.py"
        folder = str(root / "benchmarks")
        path.write_text(TOY.format(folder=folder, ratio=ratio, needs=needs))
        return path

    return write


def test_a_benchmark_passes_and_keeps_what_it_measured(toy, tmp_path):
    results, drawing = tmp_path / "results.json", tmp_path / "results.svg"
    done = run(toy(), "--quick", "--json", str(results), "--svg", str(drawing))
    assert done.returncode == 0, done.stdout + done.stderr
    body = json.loads(results.read_text())
    sleep, floor, alone, small, _ = body["cases"]
    states = [one["state"] for one in (body, *body["cases"])]
    assert states == ["passed", "passed", "passed", "checked", "checked", "skipped"]
    assert "ratio" in alone["sides"]["floor"]
    assert "ratio" not in small["sides"]["small"]
    assert sleep["figures"] == {"size": 4}
    assert 1 < sleep["sides"]["peer"]["ratio"] < 4
    assert "ratio" not in sleep["sides"]["absent"]
    assert sleep["per_second"] < 9 / 0.02
    assert floor["sides"]["floor"]["floor"]
    assert body["machine"]["cores"] >= 1
    assert body["versions"]["penstock"]
    assert drawing.read_text().count("<rect") == 3


@pytest.mark.parametrize("how", ["slow", "wrong"])
def test_a_slower_and_a_wrong_result_fail(toy, how):
    assert run(toy(), "--break", how).returncode == 1


def test_a_peer_that_has_become_faster_fails(toy):
    assert run(toy(ratio=5.0), "--quick").returncode == 1


def test_a_benchmark_that_cannot_run_says_so(toy):
    done = run(toy(needs="[lambda: 'needs a GPU']"))
    assert done.returncode == SKIPPED
    assert "needs a GPU" in done.stdout
    assert run(toy(), "--only", "elsewhere").returncode == SKIPPED
    assert run(toy(), "--only", "alone").returncode == SKIPPED
    assert run(toy(), "--only", "alone, 3", "--break", "slow").returncode == SKIPPED


def test_names_of_cases_may_have_commas(toy):
    done = run(toy(), "--only", "alone, 2,elsewhere")
    assert "| alone, 2 |" in done.stdout
    assert "| elsewhere |" in done.stdout
    assert "| alone, 3 |" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how"),
    [(name, how) for name in BROKEN for how in ("slow", "wrong") if (name, how) not in UNGATED],
)
def test_every_gate_fails_if_ours_is_broken(root, name, how):
    path = root / f"benchmarks/bench_{name}.py"
    words = ["--quick", "--rounds", "1", "--only", BROKEN[name]]
    if name not in ("encryption", "gang"):  # ranks and workers are other processes
        words.append("--cpu")
    done = run(path, *words, "--break", how, timeout=900)
    if done.returncode == SKIPPED:
        pytest.skip(f"needs peers:\n{done.stdout}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout


@pytest.mark.slow
def test_all_runs_what_it_can(root, tmp_path):
    out, script = tmp_path / "results.json", root / "benchmarks/all.py"
    done = run(script, "--quick", "--cpu", "--only", "order,walk_gpu", "--out", str(out))
    assert done.returncode == 0, done.stdout
    assert "| order | passed |" in done.stdout
    body = json.loads(out.read_text())
    assert body["results"]["order"]["state"] == "passed"
    assert body["results"]["walk_gpu"]["state"] in ("passed", "skipped")
