"""A value from the environment reaches the stage, and is shown and kept nowhere else."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penstock.pipelines.cli import run

FLOW = """
variables: {header: "Bearer {{env.SURELY_SECRET}}"}
stages:
  a: {python: "mine:make", token: "{{env.SURELY_SECRET}}", all: ["{{header}}"], fail: %s}
  b: {job: walk, input: g, %s: %s}
"""
CODE = """
import os
def make(out, token, all, fail):
    assert (token, all) == (os.environ["SURELY_SECRET"], ["Bearer " + token])
    out.mkdir(exist_ok=True)
    if fail:
        raise ValueError(token)
"""


@pytest.mark.parametrize(
    ("fail", "option", "value", "code"),
    [
        ("no", "length", "5", 0),
        ("yes", "length", "5", 1),
        ("no", "length", '"{{env.SURELY_SECRET}}"', 2),
    ],
)
def test_it_is_masked_everywhere(
    fail: str,
    option: str,
    value: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["generate", "sbm", str(tmp_path / "g"), "--nodes", "200", "-q"]) == 0
    (tmp_path / "mine.py").write_text(CODE)
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW % (fail, option, value))
    before, now = "hunter'2\\and more", "x" * 200
    for secret, more in ((before, "--json"), (now, "--plan"), (now, "--report")):
        monkeypatch.setenv("SURELY_SECRET", secret)
        got = run(["run", str(file), more])
        assert got == code or more == "--plan"
    shown = "".join(capsys.readouterr())
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".npy"]
    texts = [shown, *(path.read_bytes().decode("utf-8", "replace") for path in kept)]
    assert not [text for text in texts if "hunter" in text or "xxxxxxxxxx" in text]
    if code < 2:
        assert any(path.name == "report.html" for path in kept)
        for folder in (tmp_path / "flow/.flow", tmp_path / "runs"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
