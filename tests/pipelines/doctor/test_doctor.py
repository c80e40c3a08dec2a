"""``penstock doctor``: checks that fail, hang or crash, the disk, workers that differ."""

import json
import os
import signal
import time

import pytest

from penstock.pipelines.cli import run
from penstock.pipelines.doctor.checks import DoctorOptions, Finding
from penstock.pipelines.doctor.command import examine, judge_workers, run_check


def findings(capsys, *words):
    code = run(["doctor", *words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["healthy"] else 1)
    return code, {one["subject"]: one for one in found["findings"]}


def test_a_check_that_hangs_ends(tmp_path):
    began = time.monotonic()
    (one,) = run_check("machine", str(tmp_path), 0.0, 0.05)
    assert time.monotonic() - began < 10
    assert one.state == "broken"


def test_what_needs_a_gpu_is_tried_only_if_one_works(tmp_path):
    found = examine(tmp_path, DoctorOptions(timeout=0.05, bandwidth=False))
    assert {one.subject for one in found} >= {"GPU", "Numba", "disk"}
    assert not {one.subject for one in found} & {"NCCL", "cuDF", "KvikIO"}


def test_a_check_that_crashes_is_a_finding(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (one,) = run_check("machine", str(tmp_path), 0.0)
    assert one.state == "broken"
    assert "SIGSEGV" in one.text


def test_the_disk_is_measured_and_nothing_is_left(tmp_path):
    began = time.monotonic()
    found = run_check("disk", str(tmp_path), 0.4)
    assert time.monotonic() - began < 10
    assert "/s" in found[0].text
    assert found[1].state == "ok"
    assert os.listdir(tmp_path) == []


@pytest.mark.mpi
def test_two_ranks_are_started(tmp_path):
    assert {one.subject: one.state for one in run_check("mpi", str(tmp_path), 0)}["gangs"] == "ok"


def test_workers_that_differ():
    def worker(numpy, devices):
        versions = {"python": "3.12.1", "numpy": numpy}
        gpu = Finding("GPU", "ok", devices, None, {"devices": devices})
        return [Finding("versions", "ok", "", None, versions), gpu]

    alike = {"a": worker("2.3.0", "H200"), "b": worker("2.3.0", "H200")}
    assert judge_workers(alike) == []
    found = judge_workers({**alike, "c": worker("2.2.0", "CPU"), "d": OSError("it went away")})
    assert {(one.subject, one.state) for one in found} == {
        ("workers: answer", "broken"),
        *((f"workers: {name}", "warning") for name in ("numpy", "devices", "python")),
    }


@pytest.mark.slow
def test_every_worker_is_asked(capsys, tmp_path):
    words = "--cluster local -n 2 --memory-limit 1GB --no-bandwidth"
    _, found = findings(capsys, str(tmp_path), *words.split())
    assert found["Numba"]["state"] == "ok"
    assert not [one for one in found if one.startswith("workers: answer")]
    assert os.listdir(tmp_path) == []
