"""A worker, a rank or mpiexec that is killed, or goes silent, midway in a job: it costs time only.

generate, partition and exports run in the client alone, so have no row. etl, centrality and similar
have no gangs: on a cluster of kind mpi their tasks run on its ranks.
"""

import shutil
from pathlib import Path

import psutil
import pytest
from every_job import CLIENT, JOBS, results, words_of
from processes import ended

from penstock import connect
from penstock.pipelines.cli import run

# At which of the files below its output that a worker makes, moves and removes.
AT = {"predict": 1, "similar": 1, "answers": 1, "walk": 2, "etl": 4, "centrality": 4, "shares": 4}
RANKS = ("-k", "2")
IN_GANGS = ("walk", "embed", "gnn", "predict")
# With short waits between exchanges, so that one rank can be killed amid them.
MORE = {"word2vec": (*RANKS, "--shards", "2", "--sync-words", "2000")}


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module")
def given(given, tmp_path_factory):
    """A copy, since ranks make a partition of the graph."""
    return Path(shutil.copytree(given, tmp_path_factory.mktemp("copy") / "given"))


def running(kind):
    """Start a cluster of two workers that stays; give a client of it, and stop it."""
    words = f"cluster start --name of-{kind} --cluster {kind} -n 2 --threads 1 --dashboard none -q"
    assert run([*words.split(), "--worker-timeout", "5"]) == 0
    try:
        with connect(f"of-{kind}") as client:
            yield client
    finally:
        assert run(["cluster", "stop", "--name", f"of-{kind}", "-q"]) == 0


@pytest.fixture(scope="module")
def workers():
    yield from running("local")


@pytest.fixture(scope="module")
def world():
    yield from running("mpi")


def strike(client, folder, at, how):
    """Have one worker send a signal, to itself or its mpiexec, when it has written so often.

    Return the file that then holds the number of its process.
    """
    mark = folder.with_name(f"{folder.name}.struck")

    def listen():  # in here it travels by value, to workers that cannot import tests
        import os
        import signal
        import sys
        import threading

        prefix, lock, seen = str(folder), threading.Lock(), 0

        def look(event, given):
            nonlocal seen
            if event == "open":
                writes = isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
                name = given[0] if writes else ""
            elif event in ("os.mkdir", "os.remove", "os.rename"):
                name = given[event == "os.rename"]
            else:
                return
            if not str(name).startswith(f"{prefix}/"):
                return
            with lock:
                seen += 1
                if seen < at or mark.exists():
                    return
                mark.write_text(str(os.getpid()))
            if how == "mpiexec":
                above = psutil.Process().parents()
                next(one for one in above if "mpiexec" in one.cmdline()[0]).kill()
            else:
                os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)

        sys.addaudithook(look)

    client.run(listen)
    return mark


def survives(client, kind, job, how, given, home):
    more = MORE.get(job, RANKS if job in IN_GANGS else ())
    more = more if kind == "mpi" else ()
    client.wait_for_workers(2, timeout=60)  # the one that the test before killed is started again
    assert run([*words_of(job, given, home / "whole", f"of-{kind}"), *more]) == 0
    struck = home / "struck"
    struck.mkdir()
    mark = strike(client, struck, AT.get(job, 30), how)
    assert run([*words_of(job, given, struck / "out", f"of-{kind}"), *more]) == 0
    assert ended(int(mark.read_text())), "a process stays"
    assert results(struck / "out") == results(home / "whole")
    assert [one.name for one in struck.iterdir()] == ["out"]
    assert not list(struck.rglob(".*"))


def case(job, how, *quick):
    return pytest.param(job, how, marks=[] if (job, how) in quick else pytest.mark.slow)


ON_WORKERS = [(job, how) for how in ("killed", "silent") for job in JOBS if job not in CLIENT]
# Other jobs run as tasks on ranks, too: one of them is enough.
ON_RANKS = [(job, how) for job, how in ON_WORKERS if job in (*IN_GANGS, *MORE, "etl")]
ON_RANKS += [("gnn", "mpiexec"), ("walk", "mpiexec")]


@pytest.mark.parametrize(
    ("job", "how"),
    [
        case(*one, ("walk", "killed"), ("word2vec", "killed"), ("similar", "silent"))
        for one in ON_WORKERS
    ],
)
def test_a_worker(job, how, given, workers, tmp_path):
    survives(workers, "local", job, how, given, tmp_path)


@pytest.mark.mpi
@pytest.mark.parametrize(("job", "how"), [case(*one, ("gnn", "killed")) for one in ON_RANKS])
def test_a_rank(job, how, given, world, tmp_path):
    survives(world, "mpi", job, how, given, tmp_path)
