"""``penstock doctor``: faked machines, probes that hang or crash, limits, folders, workers."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from penstock import limits
from penstock.errors import PenstockError
from penstock.pipelines.cli import run
from penstock.pipelines.doctor import command, disk, examine, probes, workers
from penstock.pipelines.doctor.finding import Answer, Finding
from penstock.pipelines.doctor.judge import allows, judge
from penstock.pipelines.doctor.process import run_probe
from penstock.pipelines.doctor.report import DoctorReport
from penstock.pipelines.doctor.workers import WorkerAnswers, differences, judge_workers

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
    ("changes", "subject", "state", "remedy"),
    [
        ({"cupy": {"installed": False, "devices": []}}, "CuPy", "warning", "[cuda13]"),
        ({"driver": {"driver": "550.54"}, "cudf": {"version": None}}, "cuDF", "absent", "[cuda12]"),
        ({"nccl": {"version": None}}, "NCCL", "absent", "pip install nvidia-nccl-cu13"),
        ({"kvikio": {"gds": False}}, "KvikIO", "absent", "modprobe nvidia-fs"),
        ({"cupy": "RuntimeError: CuPy cannot use a GPU"}, "CuPy", "broken", "--force-reinstall"),
        ({"driver": "no answer within 20 s"}, "GPU", "broken", "nvidia-smi"),
        ({"driver": {"shown": False, "visible": "-1"}}, "GPU", "warning", "unset CUDA_VISIBLE"),
        ({"mpi": {"thread_level": "funneled"}}, "MPI", "broken", "[mpich]"),
        ({"mpi": "ClusterError: two MPI libraries are installed"}, "MPI", "broken", "uninstall -y"),
        ({"ranks": "no answer within 30 s"}, "gangs", "broken", "mpiexec -n 2"),
        ({"disk": {"locks": False}}, "file locks", "broken", "nolock"),
        ({"disk": {"read": 1e8}}, "disk", "warning", "PENSTOCK_SCRATCH"),
        ({"disk": {"free": 1 << 30}}, "disk", "warning", "Free space"),
        ({"machine": {"available": 10**8}}, "memory", "warning", "raise the limit"),
        ({"cpu": "it was ended by SIGILL"}, "Numba", "broken", "numba"),
    ],
)
def test_each_lack_has_its_remedy(changes, subject, state, remedy):
    found = {one.subject: one for one in judge(machine(**changes))}
    assert found[subject].state == state
    assert remedy in found[subject].remedy
    others = {one.state for one in found.values() if one.subject not in (subject, "mpiexec")}
    assert "broken" not in others


def test_no_job_runs_where_numba_does_not():
    assert set(allows(machine(cpu="it was ended by SIGILL"))["jobs"].values()) == {None}
    assert "jobs that cannot run" in report(machine(cpu="x")).text()


def report(answers):
    return DoctorReport(judge(answers), allows(answers), answers, {})


def test_limits_of_a_control_group_are_seen(tmp_path, monkeypatch):
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    (group / "memory.max").write_text("500000000\n")
    (group / "memory.current").write_text("400000000\n")
    (group / "cpu.max").write_text("100000 100000\n")
    monkeypatch.setattr(limits, "_TOP", tmp_path)
    facts = probes.look_at_machine()
    assert facts["memory"] == 500_000_000
    assert facts["available"] == 100_000_000
    assert facts["cores"] == 1
    found = {one.subject: one for one in judge({"machine": Answer(facts | {"machine_cores": 4})})}
    assert "500 MB, 100 MB of it available; a control group" in found["memory"].text
    assert found["memory"].state == "warning"
    assert found["cores"].text.startswith("1 of the machine's 4")


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
    assert answer.failure == "no answer within 2 s"
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
    assert probe("pass").failure.startswith("it left no answer")


def test_a_probe_says_why_it_failed(monkeypatch, capsys):
    def fail():
        raise RuntimeError("the driver\nis broken")

    monkeypatch.setitem(probes.PROBES, "cupy", fail)
    with pytest.raises(SystemExit, match="^RuntimeError: the driver is broken$"):
        probes.main("cupy", "nowhere")


def test_a_gpu_that_is_shown_and_cannot_be_used_fails_the_probe(monkeypatch):
    from penstock.workers.resources import device

    monkeypatch.setattr(probes, "find_spec", lambda name: object())
    reason = "CuPy cannot use a GPU: CUDARuntimeError"
    monkeypatch.setattr(device, "look", lambda: device.Gpu("h", used=False, reason=reason))
    monkeypatch.setattr(device, "shows_gpu", lambda: False)
    assert probes.look_at_cupy() == {"installed": True, "devices": [], "reason": reason}
    monkeypatch.setattr(device, "shows_gpu", lambda: True)
    with pytest.raises(RuntimeError, match="CuPy cannot use a GPU"):
        probes.look_at_cupy()


def nvidia_smi(tmp_path, monkeypatch, script):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_what_nvidia_smi_tells(tmp_path, monkeypatch):
    from penstock.workers.resources import device

    monkeypatch.setattr(device, "shows_gpu", lambda: True)
    nvidia_smi(
        tmp_path, monkeypatch, "echo 'NVIDIA H200, 143771, 580.65.06'; echo 'GB, [N/A], 580'"
    )
    facts = probes.look_at_driver()
    assert facts["gpus"][0] == {"name": "NVIDIA H200", "memory": 143771 << 20}
    assert facts["gpus"][1] == {"name": "GB", "memory": None}
    nvidia_smi(tmp_path, monkeypatch, "echo Failed to initialize NVML; exit 18")
    with pytest.raises(RuntimeError, match="exits with 18: Failed to initialize NVML"):
        probes.look_at_driver()
    monkeypatch.setattr(device, "shows_gpu", lambda: False)
    assert probes.look_at_driver()["gpus"] == []


def test_mpi_that_is_not_installed_is_absent_and_a_broken_one_is_broken(monkeypatch):
    from penstock.cluster.mpi import launcher
    from penstock.workers.comm.mpi import no_mpi

    def none():
        raise no_mpi("RuntimeError: cannot load MPI library")

    monkeypatch.setattr(launcher, "loaded_library", none)
    monkeypatch.setattr(probes, "_installed", lambda: {"mpi4py": "4"})
    assert probes.look_at_mpi()["library"] is None
    monkeypatch.setattr(probes, "_installed", lambda: {"mpi4py": "4", "mpich": "4.3"})
    with pytest.raises(PenstockError, match="needs MPI"):
        probes.look_at_mpi()


@pytest.mark.mpi
def test_ranks_are_started_and_their_failure_is_seen(monkeypatch):
    assert probes.look_at_ranks()["seconds"] > 0
    monkeypatch.setattr(probes, "_RANK", "raise SystemExit('no fabric')")
    with pytest.raises(RuntimeError, match="mpiexec exits with 1"):
        probes.look_at_ranks()


# -- the disk -------------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [True, False])
def test_the_disk_is_measured_and_nothing_is_left(tmp_path, monkeypatch, direct):
    if not direct:
        monkeypatch.setattr(disk, "_set_direct", lambda descriptor, on: False)
        monkeypatch.delattr(os, "O_TMPFILE")
    began = time.monotonic()
    facts = disk.look_at_disk(str(tmp_path), 0.4)
    assert time.monotonic() - began < 10
    assert facts["write"] > 0
    assert facts["read"] > 0
    assert facts["locks"] is True
    assert direct or facts["direct"] is False
    assert os.listdir(tmp_path) == []


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*arguments):
        assert os.listdir(tmp_path) == []
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        disk.measure(tmp_path, 8 << 20, 0.1)
    assert os.listdir(tmp_path) == []


def test_locks_that_keep_nobody_out_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(disk.fcntl, "flock", lambda *arguments: None)
    assert disk.can_lock(tmp_path) is False

    def unsupported(*arguments):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(disk.fcntl, "flock", unsupported)
    assert disk.can_lock(tmp_path) is False
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_broken(tmp_path):
    # /proc takes no files from anybody, root included.
    answer = run_probe("disk", ["/proc"], timeout=30)
    assert "Error" in answer.failure
    one = next(one for one in judge({"disk": answer}) if one.subject == "disk")
    assert one.state == "broken"
    assert "PENSTOCK_SCRATCH" in one.remedy


# -- the whole ------------------------------------------------------------------------------------


def faked(answers, calls=None):
    def probe(name, arguments, *, timeout):
        if calls is not None:
            calls.append((name, timeout))
        return answers.get(name, Answer(failure=f"nobody asked for {name}"))

    return probe


def test_probes_that_make_no_sense_are_left_out(tmp_path):
    calls = []
    answers = machine(**NO_GPU, mpi={"library": None}, ranks=None)
    found = examine.examine(tmp_path, timeout=3, probe=faked(answers, calls))
    assert {name for name, _ in calls}.isdisjoint({"kvikio", "ranks"})
    assert {seconds for _, seconds in calls} == {3}
    assert calls[-1][0] == "disk"
    assert set(found) == set(answers)
    whole = examine.examine(tmp_path, probe=faked(machine()))
    assert set(whole) == set(probes.PROBES)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there_is_broken(tmp_path):
    found = examine.examine(tmp_path / "none", disk=False, probe=faked(machine()))
    assert "FileNotFoundError" in found["kvikio"].failure


@pytest.fixture
def healthy(monkeypatch):
    answers = machine()
    monkeypatch.setattr(command, "examine", lambda *a, **k: answers)
    return answers


def test_the_command_exits_0_or_1(healthy, capsys):
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "jobs on gpu: etl, walk, gnn, word2vec, embed, centrality" in out
    assert "gangs of MPI ranks: yes" in out
    healthy["mpi"] = Answer(failure="ImportError: libmpi.so.12: cannot open")
    assert run(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert "BROKEN  MPI" in out
    assert err.startswith("penstock: 1 of ")


def test_json_is_one_document(healthy, capsys):
    assert run(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["healthy"] is True
    healthy["disk"] = Answer(failure="PermissionError: no")
    assert run(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] is False
    assert found["probes"]["disk"]["failure"] == "PermissionError: no"
    assert found["allows"]["gpu_storage"] == "gds"


def test_a_cluster_that_does_not_start_is_a_finding(healthy, capsys, tmp_path):
    assert run(["doctor", "--cluster", "no-such-cluster"]) == 1
    assert "BROKEN  cluster" in capsys.readouterr().out


@pytest.mark.mpi
def test_ranks_that_work_are_not_broken(healthy, capsys):
    assert run(["doctor", "--cluster", "mpi", "-n", "2"]) == 0, capsys.readouterr().out


# -- workers --------------------------------------------------------------------------------------


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


def test_what_is_broken_on_a_worker_names_it():
    workers = [
        WorkerAnswers("a", "a", machine()),
        WorkerAnswers("b", "b", machine(cupy="it was ended by SIGSEGV")),
        WorkerAnswers("c", "c", {}, "OSError: gone"),
    ]
    found = {one.subject: one for one in judge_workers(workers) if one.state == "broken"}
    assert found["workers: CuPy"].text == "1 of 3 workers (b): it was ended by SIGSEGV"
    assert found["workers: answer"].text == "1 of 3 workers (c): OSError: gone"


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


def test_remedies_are_shown_but_not_of_what_is_fine():
    findings = [Finding("a", "ok", "fine", "never shown"), Finding("b", "absent", "none", "get b")]
    text = DoctorReport(findings, allows(machine()), {}, {}).text()
    assert "never shown" not in text
    assert "-> get b" in text


def test_a_folder_is_looked_at_also_where_its_disk_is_not_measured(tmp_path):
    answers = machine()
    for folder, state in ((tmp_path, "ok"), (tmp_path / "none", "broken")):
        answers["disk"] = run_probe("disk", [str(folder), "0"], timeout=30)
        (one,) = (one for one in judge(answers) if one.subject == "disk")
        assert one.state == state
        assert "writes" not in one.text
        assert "too full" not in one.text
    calls = []
    examine.examine(tmp_path, disk=False, probe=faked(machine(), calls))
    assert "disk" in str(calls)
