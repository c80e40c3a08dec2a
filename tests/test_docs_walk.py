"""What docs/walk.md shows runs, and its tables are what the code says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest

from penstock.kernels import expression
from penstock.kernels.walk_rules import TRIALS
from penstock.pipelines.cli import run
from penstock.pipelines.walk import choice
from penstock.pipelines.walk.options import App, Sampling, WalkOptions


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs/walk.md").read_text()


@pytest.mark.slow
@pytest.mark.mpi
def test_the_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(line.replace("--scale 16", "--scale 9").replace("-n 4", "-n 2"))
        assert run([*words[1:], "-q"]) == 0, line


def test_the_python_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["generate", "rmat", "--scale", "9", "g", "-q"]) == 0
    found: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], found)
    assert found["paths"].shape[1] == 80


def test_the_tables_are_complete(page: str) -> None:
    rows = set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    assert set(get_args(App)) <= rows
    assert set(get_args(Sampling)) - {"auto"} <= rows


def test_options_and_their_defaults_are_the_codes(page: str) -> None:
    flags = set(re.findall(r"--([a-z]+(?:-[a-z]+)*)", page))
    elsewhere = {"plan", "scale", "weights", "cluster", "time", "merge-times"}
    known = {name.replace("_", "-") for name in WalkOptions.__dataclass_fields__}  # type: ignore[attr-defined]
    assert flags - elsewhere - {"no-weighted"} <= known
    assert known - {"overwrite", "p", "q", "parts"} <= flags | {"weighted"}
    default = WalkOptions()
    assert f"`--length` (nodes, {default.length})" in page
    assert f"`--walks` (from every start, {default.walks})" in page


def test_the_figures_of_auto_are_the_codes(page: str) -> None:
    assert f"at most {choice._MOST_TRIALS:g} proposals" in page
    assert f"more than {choice._MOST_FACTOR:g} times" in page
    assert f"fails {TRIALS} times" in page
    for name in (*expression.NAMES, *expression.FUNCTIONS):
        assert name in page
