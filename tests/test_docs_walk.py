"""What docs/walk.md shows runs, and its tables are what the code says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.cli import run


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
