"""What docs/gnn.md shows runs, and its tables are what the code says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml

from penstock.pipelines.cli import app, run
from penstock.pipelines.gnn.options import EvaluateOptions, GnnOptions, PredictOptions
from penstock.pipelines.job import ranks
from penstock.workers.gnn.halo.overlap import KINDS
from penstock.workers.gnn.plan import rates
from penstock.workers.gnn.plan.spec import LEAST_ROUNDS, Layer, Model, Training, make_model

ELSEWHERE = {
    "cluster",
    "device",
    "directed",
    "undirected",
    "source",
    "target",
    "nodes",
    "label",
    "split-nodes",
}
ELSEWHERE |= {"help", "json", "plan", "relation", "time", "duplicates"}


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


def test_commands_parse(page: str) -> None:
    found = list(commands(page))
    assert len(found) == 9
    for words in found:
        app.parse_args(words, exit_on_error=False, print_error=False)


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
    found = json.loads((place / "run5/run.json").read_text())["results"]["overlap"]
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


def test_every_field_of_a_layer_is_listed(page: str) -> None:
    table = rows(page, "of a layer")
    plain = Layer()
    assert set(table) == set(Layer.__dataclass_fields__)
    for name in ("negative_slope", "heads", "concat", "aggregate", "eps", "bias"):
        assert str(getattr(plain, name)).lower().removesuffix(".0") in table[name][-1], name
    kinds = get_args(get_type_hints(Layer)["kind"])
    assert set(rows(page, "`--model`")) >= {*kinds}


def test_options_and_their_defaults_are_the_codes(page: str) -> None:
    flags = {flag.removeprefix("no-") for flag in re.findall(r"--([a-z]+(?:-[a-z]+)*)", page)}
    known = {
        name.replace("_", "-")
        for options in (GnnOptions, PredictOptions, EvaluateOptions)
        for name in options.__dataclass_fields__  # type: ignore[attr-defined]
    }
    assert flags - ELSEWHERE <= known
    plain = GnnOptions()
    for name in ("layers", "hidden", "epochs", "lr", "checkpoint_epochs"):
        assert f"`--{name.replace('_', '-')}` ({getattr(plain, name)}" in page, name
    for text in (f"`--weight-decay` ({plain.weight_decay})", f"(, {plain.dropout}"):
        assert text.replace("(, ", "`--dropout` (") in page
    assert f"`--checkpoint-minutes` ({plain.checkpoint_minutes:g})" in page
    assert Training().lr == plain.lr


def test_numbers_are_the_codes(page: str) -> None:
    words = {3: "three"}
    assert f"rounds (at least {LEAST_ROUNDS}) of {words[len(KINDS)]} epochs each" in page
    assert {3: "three times at most"}[ranks.retries()] in page


def test_the_plan_is_shown_as_it_is_printed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Another machine may choose otherwise.
    monkeypatch.setattr(rates, "machine_rates", lambda device: rates.GUESS[device])
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))  # no runs so far
    monkeypatch.chdir(tmp_path)
    generate, *_ = commands(page)
    assert run([*generate, "-q"]) == 0
    capsys.readouterr()
    (words,) = (words for words in commands(page) if words[:2] == ["gnn", "plan"])
    assert run(words) == 0
    shown = next(block for block in blocks(page, "text") if block.startswith("penstock gnn train"))
    machine = r" of [\d.]+ [kMGT]B"  # what it has of memory and disk
    told, shown = (re.sub(machine, "", each) for each in (capsys.readouterr().out, shown))
    assert shown.splitlines() == told.splitlines()
