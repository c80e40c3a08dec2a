"""A value from the environment reaches the stage, and is shown and kept nowhere else."""

import stat

import pytest

from penstock.pipelines.cli import run

FLOW = """
parallel: 1
variables: {header: "Bearer {{env.SURELY_SECRET}}"}
stages:
  a: {python: "mine:make", token: "{{env.SURELY_SECRET}}", all: ["{{header}}"], fail: %s}
  b: {job: walk, input: g, length: %s}
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
    ("fail", "length", "code"),
    [("yes", "5", 1), ("no", '"{{env.SURELY_SECRET}}"', 2)],
)
def test_it_is_masked_everywhere(fail, length, code, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(CODE)
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW % (fail, length))  # there is no graph g
    before, now = "hunter'2\\and more", "x" * 200
    for secret, more in ((before, "--json"), (now, "--plan"), (now, "--report")):
        monkeypatch.setenv("SURELY_SECRET", secret)
        if (fail, more) != ("yes", "--report"):
            assert run(["run", str(file), more]) == (code if more != "--plan" or code == 2 else 0)
    shown = "".join(capsys.readouterr())
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".npy"]
    texts = [shown, *(path.read_bytes().decode("utf-8", "replace") for path in kept)]
    assert not [text for text in texts if "hunter" in text or "xxxxxxxxxx" in text]
    if code < 2:
        assert any(path.name == "report.html" for path in kept)
        for folder in (tmp_path / "flow/.flow", tmp_path / "runs"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
