"""What this machine cannot run is refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cluster.count import check_ranks
from penstock.errors import UsageError
from penstock.pipelines.cli import run


def test_threads_are_no_ranks() -> None:
    for kind in ("mpi", "local", "cuda", "tcp://h:1"):
        check_ranks(kind)
    with pytest.raises(UsageError) as raised:
        check_ranks("threads")
    for command in ("gnn", "walk", "--placement"):  # it may be another one that was given
        assert command not in str(raised.value)


def test_a_part_needs_a_rank() -> None:
    for kind, workers, parts in (("mpi", 2, 2), ("mpi", 3, 2), ("mpi", None, 2), ("mpi", 1, None)):
        check_ranks(kind, workers, parts)
    check_ranks("local", 1, 2)  # which starts ranks next to its workers
    with pytest.raises(UsageError):
        check_ranks("mpi", 1, 2)


@pytest.mark.parametrize("job", ["gnn train", "walk"])
def test_fewer_ranks_than_parts_are_refused_before_they_start(
    job: str,
    make_graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = make_graph(features="dense", labels=2, name="g")
    monkeypatch.chdir(graph.path.parent)
    assert run([*job.split(), "g", "out", "-k", "2", "--cluster", "mpi", "-n", "1"]) == 2
    assert "-k 2" in capsys.readouterr().err
    assert not (graph.path / "partition").exists()


@pytest.mark.parametrize(
    "words",
    [
        "gnn train g out -k 2 --epochs 1",
        "gnn train g out -k 1 --epochs 1 && gnn predict out p -k 2",
        "walk g out --parts 2 --length 2",
        "walk g out --placement partitioned --length 2",
    ],
)
def test_a_gang_on_threads_is_refused_before_a_partition_is_made(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["generate", "sbm", "g", "--nodes", "300", "-q"]) == 0
    *before, last = ([*line.split(), "--cluster", "threads"] for line in words.split("&&"))
    for line in before:
        assert run([*line, "-q"]) == 0
    assert run(last) == 2
    assert not (tmp_path / "g/partition").exists()
