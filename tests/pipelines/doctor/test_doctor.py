"""``penstock doctor``: faked machines, probes that hang or crash, limits, folders, workers."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from penstock import limits
from penstock.pipelines.cli import run
from penstock.pipelines.doctor import disk, probes, workers
from penstock.pipelines.doctor.finding import Answer
from penstock.pipelines.doctor.judge import allows, judge
from penstock.pipelines.doctor.process import run_probe
from penstock.pipelines.doctor.workers import WorkerAnswers, differences

GPU = {
    "name": "NVIDIA H200",
    "capability": "9.0",
    "memory": 150_000_000_000,
    "free": 1,
    "seconds": 1,
}


def machine(**changes):
    """What the probes of a healthy machine with two GPUs find; a string is a failure."""
    facts = {
        "machine": {
            "host": "n1",
            "cores": 8,
            "machine_cores": 8,
            "memory": 64_000_000_000,
            "machine_memory": 64_000_000_000,
            "available": 60_000_000_000,
            "versions": {"python": "3.12.1", "penstock": "0.1.0", "numpy": "2.3.0"},
        },
        "cpu": {"compiled_in": 1.0},
        "driver": {
            "devices": 2,
            "shown": True,
            "visible": None,
            "driver": "580.1",
            "gpus": [{"name": "NVIDIA H200", "memory": 1 << 37}] * 2,
        },
        "cupy": {"installed": True, "version": "14", "runtime": "13.0", "devices": [GPU, GPU]},
        "nccl": {"version": "2.27.3"},
        "cudf": {"installed": True, "version": "26.10"},
        "kvikio": {"installed": True, "version": "26.10", "gds": True},
        "mpi": {
            "library": "MPICH 4.3",
            "mpiexec": "/bin/mpiexec of MPICH 4.3",
            "thread_level": "multiple",
            "cuda_aware": False,
        },
        "ranks": {"seconds": 0.4},
        "disk": {
            "folder": "/scratch",
            "kind": "nvme",
            "free": 10**12,
            "locks": True,
            "direct": True,
            "write": 2e9,
            "read": 3e9,
        },
    }
    found = {name: Answer(one) for name, one in facts.items()}
    for name, change in changes.items():
        if change is None:
            del found[name]
        elif isinstance(change, str):
            found[name] = Answer(failure=change)
        else:
            found[name] = Answer(facts[name] | change)
    return found


NO_GPU = {
    "driver": {"devices": 0, "shown": False, "gpus": [], "driver": None},
    "cupy": {"installed": False, "devices": []},
    "nccl": {"version": None},
    "cudf": {"installed": False, "version": None},
    "kvikio": None,
}


def states(findings):
    return {one.subject: one.state for one in findings}


# -- judgement ------------------------------------------------------------------------------------


def test_a_whole_machine_is_healthy():
    found = judge(machine())
    assert set(states(found).values()) == {"ok"}
    allowed = allows(machine())
    assert allowed["jobs"]["etl"] == allowed["jobs"]["gnn"] == "gpu"
    assert allowed["jobs"]["partition"] == "cpu"
    assert allowed["gangs"]
    assert allowed["gpu_storage"] == "gds"


def test_what_is_merely_absent_is_no_fault():
    answers = machine(**NO_GPU, mpi={"library": None}, ranks=None)
    found = states(judge(answers))
    assert found["GPU"] == found["CuPy"] == found["MPI"] == "absent"
    assert "broken" not in found.values()
    assert not {"NCCL", "cuDF", "KvikIO"} & set(found), "nothing to mend without a GPU"
    allowed = allows(answers)
    assert set(allowed["jobs"].values()) == {"cpu"}
    assert not allowed["gangs"]
    assert allowed["gpu_storage"] is None
    asked = judge(answers, device="gpu")
    assert states(asked)["GPU"] == states(asked)["CuPy"] == "broken"


@pytest.mark.parametrize(
    ("changes", "subject", "state"),
    [
        ({"cupy": {"installed": False, "devices": []}}, "CuPy", "warning"),
        ({"nccl": {"version": None}}, "NCCL", "absent"),
        ({"driver": "no answer within 20 s"}, "GPU", "broken"),
        ({"mpi": {"thread_level": "funneled"}}, "MPI", "broken"),
        ({"ranks": "no answer within 30 s"}, "gangs", "broken"),
        ({"disk": {"locks": False}}, "file locks", "broken"),
        ({"machine": {"available": 10**8}}, "memory", "warning"),
        ({"cpu": "it was ended by SIGILL"}, "Numba", "broken"),
    ],
)
def test_each_lack_has_its_remedy(changes, subject, state):
    found = {one.subject: one for one in judge(machine(**changes))}
    assert found[subject].state == state
    assert found[subject].remedy
    others = {one.state for one in found.values() if one.subject not in (subject, "mpiexec")}
    assert "broken" not in others


# -- probes in processes --------------------------------------------------------------------------


def probe(code, timeout=20.0):
    return run_probe("x", timeout=timeout, program=[sys.executable, "-c", code])


def test_a_probe_that_hangs_ends_with_all_that_it_started(tmp_path):
    mark = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)"
    )
    began = time.monotonic()
    answer = probe(code, timeout=2)
    assert time.monotonic() - began < 10
    assert answer.failure is not None
    stat = Path(f"/proc/{mark.read_text()}/stat")
    deadline = time.monotonic() + 5
    while stat.exists() and " Z " not in stat.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not stat.exists() or " Z " in stat.read_text()


def test_a_probe_that_crashes_is_a_finding():
    answer = probe(f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})")
    assert answer.failure == "it was ended by SIGSEGV"
    assert states(judge(machine(cupy=answer.failure)))["CuPy"] == "broken"
    assert probe("raise SystemExit('ValueError: why')").failure == "ValueError: why"


@pytest.mark.mpi
def test_ranks_are_started():
    assert probes.look_at_ranks()["seconds"] > 0


# -- the disk -------------------------------------------------------------------------------------


def test_the_disk_is_measured_and_nothing_is_left(tmp_path):
    began = time.monotonic()
    facts = disk.look_at_disk(str(tmp_path), 0.4)
    assert time.monotonic() - began < 10
    assert facts["write"] > 0
    assert facts["read"] > 0
    assert facts["locks"] is True
    assert os.listdir(tmp_path) == []


# -- the whole ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_exits_by_what_it_finds(capsys):
    code = run(["doctor", "--json", "--no-bandwidth"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["healthy"] else 1)
    assert found.keys() >= {"healthy", "findings", "allows", "probes"}


# -- workers --------------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.slow
def test_ranks_that_work_are_not_broken(capsys):
    run(["doctor", "--cluster", "mpi", "-n", "2", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert not [one for one in found["findings"] if one["state"] == "broken"]


def test_workers_that_differ():
    def at(address, **changes):
        return WorkerAnswers(address, address, machine(**changes))

    versions = {"versions": {"python": "3.12.1", "penstock": "0.1.0", "numpy": "2.2.0"}}
    assert differences([at("a"), at("b")]) == []
    found = differences(
        [
            at("a"),
            at("b", machine=versions | {"memory": 32_000_000_000, "cores": 4}),
            at("c", cupy={"devices": [GPU]}, disk={"read": 1e9}),
        ]
    )
    texts = {one.subject: one.text for one in found}
    assert texts["workers: numpy"] == "2.2.0 on b; 2.3.0 on a, c"
    assert texts["workers: devices"] == "1 x NVIDIA H200 on c; 2 x NVIDIA H200 on a, b"
    assert texts["workers: memory"] == "32 GB on b; 64 GB on a, c"
    assert texts["workers: disk reads"] == "1 GB/s on c; 3 GB/s on a, b"
    assert set(texts) == {
        f"workers: {n}" for n in ("numpy", "devices", "cores", "memory", "disk reads")
    }
    assert {one.state for one in found} == {"warning"}


@pytest.mark.slow
def test_every_worker_is_asked(tmp_path):
    import penstock

    with penstock.connect("local", workers=2, memory_limit="1GB") as client:
        found = workers.ask_all(client, tmp_path, timeout=60, bandwidth=True)
    assert len(found) == 2
    assert all(one.failure is None for one in found)
    assert sorted("disk" in one.answers for one in found) == [False, True], "once a host"
    assert all("ranks" not in one.answers for one in found)
    assert {one.answers["machine"].facts["cores"] for one in found} == {limits.cores()}
    assert os.listdir(tmp_path) == []
