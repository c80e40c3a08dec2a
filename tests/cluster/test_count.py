"""What this machine cannot run is refused before anything is started."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.cluster import count
from penstock.cluster.count import check_count, check_ranks
from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.pipelines.cli import run


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "cores", lambda: 2)
    monkeypatch.setattr(count, "total_memory", lambda: 16 << 30)


@pytest.mark.parametrize(
    ("kind", "spec", "ranks", "match"),
    [
        ("local", {"workers": 10**6}, None, "1000000 workers.*at most 32.*got -n 1000000"),
        ("mpi", {"workers": 33}, None, "at most 32"),
        ("mpi", {}, 100, "at most 32.*got 100 ranks"),
        ("threads", {"threads": 10**6}, None, "--threads 1000000"),
    ],
)
def test_more_than_the_cores_bear(kind: str, spec: dict, ranks: int | None, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        check_count(ClusterSpec(**spec), kind, ranks)


def test_more_than_the_memory_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "total_memory", lambda: 4 << 30)
    check_count(ClusterSpec(workers=8), "local")
    with pytest.raises(UsageError, match="9 workers do not fit.*at most 8.*got -n 9"):
        check_count(ClusterSpec(workers=9), "local")
    check_count(ClusterSpec(workers=9, memory_limit="400MB"), "local")  # as was asked for


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("mpi", {"workers": 32}),
        ("mpi", {"workers": 1000, "hosts": "h1:1000"}),
        ("mpi", {"workers": 1000, "mpiexec": "srun"}),
        ("slurm", {"workers": 1000}),
        ("tcp://h:1", {}),
    ],
)
def test_what_is_elsewhere_is_not_ours_to_judge(kind: str, spec: dict) -> None:
    check_count(ClusterSpec(**spec), kind, 1000 if kind.startswith("tcp") else None)


def test_threads_are_no_ranks() -> None:
    for kind in ("mpi", "local", "cuda", "slurm", "tcp://h:1"):
        check_ranks(kind)
    with pytest.raises(
        UsageError, match=r"are processes.*mpi or local.*got --cluster threads.*such as -k"
    ) as raised:
        check_ranks("threads")
    for command in ("gnn", "walk", "--placement"):  # it may be another one that was given
        assert command not in str(raised.value)


def test_a_part_needs_a_rank() -> None:
    for kind, workers, parts in (("mpi", 2, 2), ("mpi", 3, 2), ("mpi", None, 2), ("mpi", 1, None)):
        check_ranks(kind, workers, parts)
    check_ranks("local", 1, 2)  # which starts ranks next to its workers
    with pytest.raises(UsageError, match=r"-k 2 needs as many ranks.*-n 2 or more.*got -n 1"):
        check_ranks("mpi", 1, 2)


@pytest.mark.parametrize("job", ["gnn train", "walk"])
@pytest.mark.parametrize("option", ["-k", "--parts"])
@pytest.mark.parametrize("kind", ["auto", "mpi"])
def test_fewer_ranks_than_parts_are_refused_before_they_start(
    job: str,
    option: str,
    kind: str,
    make_graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = make_graph(features="dense", labels=2, name="g")
    monkeypatch.chdir(graph.path.parent)
    assert run([*job.split(), "g", "out", option, "2", "--cluster", kind, "-n", "1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("penstock: -k 2 needs as many ranks. Expected -n 2 or more"), said
    assert "dashboard" not in said
    assert not (graph.path / "partition").exists()


@pytest.mark.parametrize(
    "words",
    [
        "gnn train g out -k 2 --epochs 1",
        "gnn train g out -k 1 --epochs 1 && gnn predict out p -k 2",
        "walk g out --placement partitioned --parts 2 --length 2",
        "walk g out --parts 2 --length 2",
        "walk g out --parts 1 --length 2",
        "walk g out --placement partitioned --length 2",
    ],
)
def test_a_gang_on_threads_is_refused_before_a_partition_is_made(
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["generate", "sbm", "g", "--nodes", "300", "-q"]) == 0
    *before, last = ([*line.split(), "--cluster", "threads"] for line in words.split("&&"))
    for line in before:
        assert run([*line, "-q"]) == 0
    capsys.readouterr()
    assert run(last) == 2
    said = capsys.readouterr().err
    assert "a gang needs workers that are processes" in said
    assert "has no partition" not in said
    assert not (tmp_path / "g/partition").exists()


def test_inside_an_mpi_job_ranks_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "1000")
    check_count(ClusterSpec(workers=999), "mpi")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--memory-limit abc", "Expected something like 1.5GB or 512MiB, got 'abc'"),
        ("--memory-limit 1B", "Expected at least 375 MB: a worker itself takes about 300 MB"),
        ("-n 1000000", "Expected at most 32"),
    ],
)
@pytest.mark.parametrize("job", ["etl e.csv g", "walk g w", "gnn train g r"])
def test_every_job_refuses_at_once(
    job: str, options: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], make_graph,
) -> None:  # fmt: skip
    make_graph(features="dense", labels=2, name="g" if "etl" not in job else "other")
    (tmp_path / "e.csv").write_text("src,dst\n1,2\n")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    begun = time.monotonic()
    assert run([*job.split(), *options.split()]) == 2
    assert time.monotonic() - begun < 5
    assert message in capsys.readouterr().err
    assert [path for path in sorted(tmp_path.iterdir()) if ".partial" not in path.name] == before


def test_parts_are_refused_before_the_graph_is_cut(make_graph) -> None:
    from penstock import gnn

    graph = make_graph(features="dense", labels=2)
    with pytest.raises(UsageError, match="100 workers are more"):
        gnn.train(graph, graph.path.parent / "r", parts=100)
    assert not (graph.path / "partition").exists()
