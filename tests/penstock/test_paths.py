"""A path means what it means to the client, and nothing that is no path is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.paths import client_input, client_path, worker_path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_path_is_relative_to_the_current_folder(here: Path) -> None:
    assert client_path("a/b") == here / "a/b"
    assert client_path(Path("a")) == here / "a"
    assert client_path("/a/b") == Path("/a/b")
    assert client_path("~/a") == Path("/home/me/a")
    assert client_path("~nobody-of-this-name/a") == here / "~nobody-of-this-name/a"


def test_what_goes_up_and_down_again_has_one_form(here: Path) -> None:
    (here / "real/inner").mkdir(parents=True)
    (here / "link").symlink_to("real/inner")
    (here / "loop").symlink_to("loop")
    assert client_path("a/../b/./c") == here / "b/c"
    assert client_path(f"../{here.name}/b") == here / "b"
    assert client_path("/../../a") == Path("/a")
    assert client_path("link/../g") == here / "real/g"  # not g: the link leads elsewhere
    assert client_path("link/g/..") == here / "link"
    assert client_path("loop/../g") == here / "g"
    assert client_input("a/../b.csv") == f"{here}/b.csv"
    assert client_input("a/../b-*.csv") == f"{here}/b-*.csv"
    assert client_input("*/../b.csv") == f"{here}/*/../b.csv"
    assert client_input("file://a/../b.csv") == f"file://{here}/b.csv"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a.csv", "{here}/a.csv"),
        ("part-*.parquet", "{here}/part-*.parquet"),
        ("folder/", "{here}/folder"),
        ("~/a*.csv", "/home/me/a*.csv"),
        ("/data/a.csv", "/data/a.csv"),
        ("s3://bucket/a*.csv", "s3://bucket/a*.csv"),
        ("memory://a.csv", "memory://a.csv"),
        ("https://host/a.csv", "https://host/a.csv"),
        ("file://a.csv", "file://{here}/a.csv"),
        ("file:///data/a.csv", "file:///data/a.csv"),
        ("local://a.csv", "local://{here}/a.csv"),
        ("simplecache::s3://bucket/a.csv", "simplecache::s3://bucket/a.csv"),
        ("zip://a.csv::archive.zip", "zip://a.csv::{here}/archive.zip"),
        ("zip://a.csv::file://archive.zip", "zip://a.csv::file://{here}/archive.zip"),
        ("zip://a.csv::s3://bucket/archive.zip", "zip://a.csv::s3://bucket/archive.zip"),
    ],
)
def test_of_inputs_only_local_files_change(here: Path, given: str, expected: str) -> None:
    assert client_input(given) == expected.format(here=here)


def test_the_current_folder_is_no_pattern(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import glob

    odd = here / "[new] data"
    odd.mkdir()
    (odd / "a-1.csv").touch()
    (odd / "b[1].csv").touch()
    monkeypatch.chdir(odd)
    assert glob.glob(client_input("a-*.csv")) == [str(odd / "a-1.csv")]  # noqa: PTH207
    assert client_input("b[1].csv") == str(odd / "b[1].csv")


def test_a_workers_folder_may_be_its_own_affair(here: Path) -> None:
    assert worker_path("scratch") == here / "scratch"
    assert worker_path("~/scratch") == Path("~/scratch")
    assert worker_path("$TMPDIR/x") == Path("$TMPDIR/x")
