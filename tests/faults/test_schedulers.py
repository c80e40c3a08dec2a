"""A scheduler that hangs or is killed, and workers that never connect: the job ends in time."""

import os
import signal
import threading
import time
from contextlib import contextmanager, suppress

import psutil
import pytest
from processes import launch, running, until

from penstock import connect, gang
from penstock.cluster import query
from penstock.cluster.daemon.registry import find
from penstock.cluster.mpi.attach import start_world
from penstock.errors import ClusterError, SilentScheduler
from penstock.pipelines.cli import run
from penstock.pipelines.job.capacity import capacity_of
from penstock.pipelines.job.tasks import run_tasks

pytestmark = pytest.mark.slow


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A cluster of one worker that stays."""
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    assert run(["cluster", "start", "--cluster", "local", "-n", "1", "-q"]) == 0
    entry = find("default")
    yield entry
    with suppress(ProcessLookupError):
        os.kill(entry.pid, signal.SIGCONT)
    assert run(["cluster", "stop", "-q"]) == 0


@contextmanager
def frozen(entry, after=0):
    freeze = threading.Timer(after, os.kill, (entry.pid, signal.SIGSTOP))
    freeze.start()
    if not after:
        freeze.join()
    try:
        yield
    finally:
        freeze.join()
        os.kill(entry.pid, signal.SIGCONT)


def etl(folder, *more, **how):
    (folder / "edges.txt").write_text("".join(f"{i} {i * 7 % 5000}\n" for i in range(20_000)))
    return launch("etl", folder / "edges.txt", folder / "g", "--start-timeout", 6, *more, **how)


def ends(process, within=40):
    """Return the error of a command that fails in time."""
    said = process.communicate(timeout=within)[1]
    assert process.returncode == 1, said
    assert "Traceback" not in said
    return str(said)


# -- a scheduler that hangs -----------------------------------------------------------------------


def test_before_a_command_connects(kept, tmp_path):
    with frozen(kept):
        assert str(kept.address) in ends(etl(tmp_path, "--cluster", "default"))
    assert not (tmp_path / "g").exists()


def test_every_question_of_a_client(kept, monkeypatch):
    with connect("default", start_timeout=5) as client:
        questions = {
            "capacity": lambda: capacity_of(client),
            "a gang": lambda: gang.run(client, os.getpid, ranks=2, start_timeout=2),
            "a world": lambda: start_world(client, 2, 2),
        }
        monkeypatch.setattr(query, "SILENT_SECONDS", 1.0)
        with frozen(kept):
            for what, question in questions.items():
                began = time.monotonic()
                with pytest.raises(SilentScheduler):
                    question()
                assert time.monotonic() - began < 10, what


@pytest.mark.mpi
def test_in_the_middle_of_a_gang(kept, monkeypatch):
    def rank_that_waits(comm):
        time.sleep(600)

    monkeypatch.setattr(query, "SILENT_SECONDS", 3.0)
    with connect("default", start_timeout=20) as client:
        assert gang.run(client, lambda comm: comm.rank, ranks=2) == [0, 1]
        began = time.monotonic()
        with frozen(kept, after=2), pytest.raises(SilentScheduler):
            gang.run(client, rank_that_waits, ranks=2)
    assert time.monotonic() - began < 40


def test_in_the_middle_of_a_step(kept, monkeypatch):
    monkeypatch.setattr(query, "SILENT_SECONDS", 3.0)
    began = time.monotonic()
    with (
        pytest.raises(SilentScheduler),
        connect("default", start_timeout=5) as client,
        frozen(kept),
    ):
        run_tasks(client, "sleep", time.sleep, [(600,)], sizes=[1], unit="tasks", quiet=True)
    assert time.monotonic() - began < 40


# -- a scheduler that is killed -------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_one_that_is_killed_under_a_job(kept, tmp_path, seconds):
    assert run([*f"generate sbm {tmp_path}/graph --nodes 5000 -q".split()]) == 0
    port = int((kept.address or "").rpartition(":")[2])
    words = f"walk {tmp_path}/graph {tmp_path}/w --length 3000 --start-timeout 5 --cluster default"
    with launch(*words.split()) as process:
        until(lambda: is_connected(process, port), process)
        time.sleep(seconds)
        os.kill(kept.pid, signal.SIGKILL)
        ends(process, 90)
    assert not (tmp_path / "w").exists()


def is_connected(process, port):
    with suppress(psutil.Error):
        connections = psutil.Process(process.pid).net_connections("tcp")
        return any(one.raddr and one.raddr.port == port for one in connections)
    return False


# -- workers that do not start --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "seconds"), [(signal.SIGKILL, 0.0), (signal.SIGKILL, 0.8), (signal.SIGSTOP, 0.0)]
)
def test_a_worker_that_is_struck_while_it_starts(tmp_path, number, seconds):
    process = etl(
        tmp_path, "--cluster", "local", "-n", "2", env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    worker, *_ = until(lambda: running(process, "spawn_main"), process)
    time.sleep(seconds)
    worker.send_signal(number)
    said = process.communicate(timeout=40)[1]
    assert not worker.is_running()
    assert "Traceback" not in said
    if seconds and process.returncode == 0:
        return  # on a fast machine it had started, and another took its place
    assert process.returncode == 1
    assert number == signal.SIGKILL or str(worker.pid) in said
    assert not (tmp_path / "g").exists()


def test_a_worker_that_is_stopped_is_named(kept, monkeypatch):
    with connect("default", start_timeout=5) as client:
        (pid,) = client.run(os.getpid).values()
        monkeypatch.setattr(query, "SILENT_SECONDS", 4.0)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(ClusterError, match=str(pid)):
                capacity_of(client)
        finally:
            os.kill(pid, signal.SIGCONT)
