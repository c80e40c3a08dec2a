"""Inputs that are replaced between a run and its resumption, or change under a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Graph, etl
from penstock.cluster.spec import ClusterSpec
from penstock.errors import InputError
from penstock.pipelines.cli import run
from penstock.pipelines.etl import steps
from penstock.pipelines.etl.reading import read
from penstock.pipelines.etl.zoos import tu
from penstock.pipelines.tables.sources import stamp_of


def rewrite(path: Path, text: str) -> None:
    """Write into the same file, which keeps its inode and its size."""
    assert len(text) == path.stat().st_size
    time.sleep(0.02)  # a file system's clock may be as coarse as a tick
    path.write_text(text)


def replace_file(path: Path, text: str) -> None:
    """Put another file of equal size and equal times in the place of this one."""
    before = path.stat()
    assert len(text) == before.st_size
    other = path.with_name("other")
    other.write_text(text)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


CHANGES: dict[str, Callable[[Path, str], None]] = {"rewritten": rewrite, "replaced": replace_file}


@pytest.mark.parametrize("which", ["edges.csv", "valid.csv", "nodes.csv"])
@pytest.mark.parametrize("change", CHANGES)
def test_resume_knows_its_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, change: str, which: str
) -> None:
    texts = {
        "edges.csv": "src,dst\n1,2\n2,3\n",
        "valid.csv": "src,dst\n1,3\n",
        "nodes.csv": "id,label\n1,a\n2,b\n3,a\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    command = ["etl", "edges.csv", "g", "--valid", "valid.csv", "--nodes", "nodes.csv",
               "--label", "label", "-q"]  # fmt: skip

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(steps, "build", interrupted)
        assert run(command) == 1
    assert (tmp_path / ".g.partial").exists()
    CHANGES[change](tmp_path / which, texts[which].replace("2", "4").replace("b", "c"))
    capsys.readouterr()
    assert run([*command, "--resume"]) == 2
    assert which in capsys.readouterr().err
    assert not (tmp_path / "g").exists()
    if which == "edges.csv":
        assert run([*command, "--unknown-nodes", "add"]) == 0
        assert 4 in Graph.open("g").user_ids().to_pylist()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["csv", "zoo"])
def test_an_input_that_changes_under_a_run_ends_it(
    tmp_path: Path, cluster: ClusterSpec, monkeypatch: pytest.MonkeyPatch, change: str, kind: str
) -> None:
    path = tmp_path / "e.csv"
    path.write_text("graph,src,dst\n1,1,2\n1,2,3\n")
    honest = read.read_piece

    def changed(piece: Any, layout: Any, options: Any) -> Any:
        yield from honest(piece, layout, options)
        CHANGES[change](path, "graph,src,dst\n1,1,2\n1,2,4\n")

    monkeypatch.setattr(read, "read_piece", changed)
    options: Any = {"format": kind, "cluster": cluster}
    with pytest.raises(InputError, match=r"e\.csv"):
        etl(path, tmp_path / "g", **options)
    assert [p.name for p in tmp_path.iterdir()] == ["e.csv"]


def test_features_and_tu_files_are_watched_too(
    tmp_path: Path, cluster: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "e.csv").write_text("src,dst\n0,1\n1,2\n")
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    honest = steps.build

    def changed(*args: Any) -> Any:
        time.sleep(0.02)
        np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))
        return honest(*args)

    monkeypatch.setattr(steps, "build", changed)
    with pytest.raises(InputError, match=r"x\.npy"):
        etl(tmp_path / "e.csv", tmp_path / "g", cluster=cluster, features=tmp_path / "x.npy")

    folder = tmp_path / "tu"
    folder.mkdir()
    (folder / "T_A.txt").write_text("1, 2\n2, 1\n")
    (folder / "T_graph_indicator.txt").write_text("1\n1\n")
    read_tu = tu.read_tu

    def later(path: Any, **options: Any) -> Any:
        data = read_tu(path, **options)
        rewrite(folder / "T_A.txt", "2, 1\n1, 2\n")
        return data

    monkeypatch.setattr(tu, "read_tu", later)
    with pytest.raises(InputError, match=r"T_A\.txt"):
        etl(folder, tmp_path / "z", cluster=cluster)


def test_edges_may_change_once_they_are_read(
    tmp_path: Path, cluster: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e.csv"
    path.write_text("src,dst\n1,2\n")
    honest = steps.build

    def later(*args: Any) -> Any:
        path.write_text("src,dst\n7,8\n9,10\n")
        return honest(*args)

    monkeypatch.setattr(steps, "build", later)
    etl(path, tmp_path / "g", cluster=cluster)
    assert Graph.open(tmp_path / "g").user_ids().to_pylist() == [1, 2]


def test_what_lies_behind_a_url_is_known_as_well() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/stamps/e.csv", b"1,2\n")
    before = stamp_of("memory://stamps/e.csv")
    assert before == stamp_of("memory://stamps/e.csv") is not None
    time.sleep(0.01)
    memory.pipe_file("/stamps/e.csv", b"1,3\n")
    assert stamp_of("memory://stamps/e.csv") != before
    memory.rm("/stamps/e.csv")
    assert stamp_of("memory://stamps/e.csv") is None
