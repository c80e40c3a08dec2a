"""A worker, or a rank, killed midway in a job: it costs time only, and the bytes are the same.

Not here, since held elsewhere: workers of etl and centrality (their test_survival.py) and of walk
(test_walk.py); ranks of walk, word2vec (test_ranks_killed.py) and embed (embed/test_ranks.py).
etl, centrality and similar have no gangs: on a cluster of kind mpi their tasks run on its ranks.
generate, partition and exports run in the client alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from every_job import results, words_of

from penstock import connect
from penstock.pipelines.cli import run

pytestmark = pytest.mark.slow
# At how many files below its output, of those that a worker makes, moves and removes.
AT = {"word2vec": 30, "embed": 30, "gnn": 30, "predict": 1, "similar": 1, "etl": 4, "centrality": 4}


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_STATE", str(tmp_path_factory.mktemp("state")))
        yield


def running(kind: str) -> Iterator[Any]:
    """Start a cluster of two workers that stays; give a client of it, and stop it."""
    words = f"cluster start --name of-{kind} --kind {kind} -n 2 --threads 1 --dashboard none -q"
    assert run(words.split()) == 0
    try:
        with connect(f"of-{kind}") as client:
            yield client
    finally:
        assert run(["cluster", "stop", "--name", f"of-{kind}", "-q"]) == 0


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    yield from running("local")


@pytest.fixture(scope="module")
def world() -> Iterator[Any]:
    yield from running("mpi")


def kill_one(client: Any, folder: Path, at: int) -> Path:
    """Have one worker kill itself when it has written so often; return what is there then."""
    mark = folder.with_name(f"{folder.name}.killed")

    def listen() -> None:  # in here it travels by value, to workers that know no tests
        import os
        import signal
        import sys
        import threading

        prefix, lock, seen = str(folder), threading.Lock(), 0

        def look(event: str, given: Any) -> None:
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
                mark.mkdir()
            os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(look)

    client.wait_for_workers(2, timeout=60)  # the one that the test before killed is started again
    client.run(listen)
    return mark


def survives(client: Any, kind: str, job: str, given: Path, home: Path, *more: str) -> None:
    assert run([*words_of(job, given, home / "whole", f"of-{kind}"), *more]) == 0
    killed = home / "killed"
    killed.mkdir()
    mark = kill_one(client, killed, AT[job])
    assert run([*words_of(job, given, killed / "out", f"of-{kind}"), *more]) == 0
    assert mark.exists()
    assert results(killed / "out") == results(home / "whole")
    assert [one.name for one in killed.iterdir()] == ["out"]
    assert not list(killed.rglob(".*"))


@pytest.mark.parametrize("job", ["word2vec", "embed", "gnn", "predict", "similar"])
def test_a_worker_that_is_killed(job: str, given: Path, workers: Any, tmp_path: Path) -> None:
    survives(workers, "local", job, given, tmp_path)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("job", "more"),
    [("gnn", ("-k", "2")), ("predict", ("-k", "2")), ("etl", ()), ("centrality", ())],
)
def test_a_rank_that_is_killed(
    job: str, more: tuple[str, ...], given: Path, world: Any, tmp_path: Path
) -> None:
    survives(world, "mpi", job, given, tmp_path, *more)
