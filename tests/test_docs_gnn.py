"""What docs/gnn.md shows runs, and its tables are what the code says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.pipelines.cli import run
from penstock.workers.gnn.plan.spec import Model, make_model


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs/gnn.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def commands(page: str) -> Iterator[list[str]]:
    for line in "".join(blocks(page, "bash")).splitlines():
        yield shlex.split(line)[1:]


def rows(page: str, title: str) -> dict[str, list[str]]:
    """Return the rows of the table whose head begins so, by the first code of each."""
    table = page.split(f"\n| {title} |")[1].split("\n\n")[0]
    lines = [line.split(" | ") for line in table.splitlines()[2:]]
    return {name: line for line in lines for name in re.findall(r"`([^`]+)`", line[0])}


def short(words: list[str]) -> list[str]:
    """Return a command on a small graph, for a few epochs."""
    if words[0] == "generate":
        return [*words, "--nodes", "600", "-q"]
    if words[:2] == ["gnn", "train"]:
        words = [word for pair in _without(words, "--epochs") for word in pair]
        words += ["--epochs", "6" if "--resume" in words else "4"]
    return [*words, "-q"]


def _without(words: list[str], option: str) -> Iterator[list[str]]:
    skip = False
    for word in words:
        if not skip and word != option:
            yield [word]
        skip = word == option


@pytest.fixture(scope="module")
def place(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the first commands and the file of the page make."""
    folder = tmp_path_factory.mktemp("gnn")
    (folder / "model.yaml").write_text(blocks(page, "yaml")[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in commands(page):
            if "mpi" not in words:
                assert run(short(words)) == 0, words
    return folder


def test_the_commands_run(place: Path) -> None:
    lines = (place / "run/metrics.jsonl").read_text().splitlines()
    assert len(lines) == 6, "four, and two more"
    assert (place / "predictions/_predictions.json").exists()
    assert (place / "run3/checkpoints/best.safetensors").exists()


@pytest.mark.mpi
@pytest.mark.slow
def test_the_command_with_ranks_runs(
    page: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with_ranks = [words for words in commands(page) if "mpi" in words]
    assert [words[-1] for words in with_ranks] == ["--profile", "15"]
    for words in with_ranks:
        assert run(short(words)) == 0
    found = json.loads((place / "run5/run.json").read_text())["report"]["trained"]["overlap"]
    assert found["rounds"] == 15
    assert found["transport"] == {"rows": "shared memory of one host", "sums": "MPI messages"}


@pytest.mark.mpi
@pytest.mark.slow
def test_the_commands_of_the_readme_run(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (root / "README.md").read_text()
    block = next(block for block in blocks(text, "sh") if "gnn train" in block)
    for line in block.splitlines():
        assert run(short(shlex.split(line)[1:])) == 0, line
    assert (tmp_path / "predictions/_predictions.json").exists()


def test_the_python_runs(page: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    found: dict[str, Any] = {}
    exec(blocks(page, "python")[0].replace("hidden=32", "hidden=32, epochs=3"), found)
    assert found["report"].trained.epochs == 3


def test_the_file_is_a_model(page: str) -> None:
    model = make_model(yaml.safe_load(blocks(page, "yaml")[0]))
    assert [layer.kind for layer in model.layers] == ["gat", "sage", "gcn"]
    assert isinstance(model.complete(7), Model)
