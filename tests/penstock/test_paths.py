"""A path has the client's meaning, and values that are not paths stay unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.paths import client_input, client_path


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


def test_what_goes_up_and_down_again_has_one_form(here: Path) -> None:
    (here / "real/inner").mkdir(parents=True)
    (here / "link").symlink_to("real/inner")
    assert client_path("a/../b/./c") == here / "b/c"
    assert client_path(f"../{here.name}/b") == here / "b"
    assert client_path("/../../a") == Path("/a")
    assert client_path("link/../g") == here / "real/g"  # not g: the link leads elsewhere
    assert client_path("link/g/..") == here / "link"
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
        ("s3://bucket/a*.csv", "s3://bucket/a*.csv"),
        ("file://a.csv", "file://{here}/a.csv"),
        ("zip://a.csv::archive.zip", "zip://a.csv::{here}/archive.zip"),
    ],
)
def test_of_inputs_only_local_files_change(here: Path, given: str, expected: str) -> None:
    assert client_input(given) == expected.format(here=here)
