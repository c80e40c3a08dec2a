"""What docs/centrality.md shows runs, and its options are what the code says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.pipelines.cli import run


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs/centrality.md").read_text()


def test_the_commands_and_the_python_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```bash\n(.*?)```", page, re.DOTALL)[1]
    for line in block.replace("--graphs 1000", "--graphs 20").splitlines():
        words = shlex.split(line.replace("--scale 12", "--scale 7"))
        assert run([*words[1:], "-q"]) == 0, line
    found = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], found)
    assert found["table"].column_names == ["graph", "node", "closeness"]


@pytest.mark.slow
def test_the_commands_of_the_readme_run_as_printed(root, tmp_path):
    line = re.search(r"^penstock generate zoo .*$", (root / "README.md").read_text(), re.MULTILINE)
    assert line[0] == "penstock generate zoo z && penstock centrality z out"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        line[0], shell=True, check=True, cwd=tmp_path, timeout=600, env={**os.environ, "PATH": path}
    )
    table = pq.read_table(tmp_path / "out/nodes")
    assert table.column_names == ["graph", "node", "closeness", "betweenness"]
    assert len(set(table["graph"].to_pylist())) == 1000


def test_the_json_is_read(page, tmp_path):
    block = re.search(r"```\n(\{.*?)```", page, re.DOTALL)[1]
    (tmp_path / "g.jsonl").write_text(block)
    assert run(["centrality", str(tmp_path / "g.jsonl"), str(tmp_path / "out"), "-q"]) == 0
    rows = pq.read_table(tmp_path / "out/nodes").to_pylist()
    nodes = {(row["graph"], row["node"]) for row in rows}
    assert nodes == {(7, "a"), (7, "b"), (7, "c"), (8, "a"), (8, "b"), (8, "c")} | {
        (9, node) for node in "abcd"
    }
