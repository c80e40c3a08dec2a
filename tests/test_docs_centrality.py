"""What docs/centrality.md shows runs, and its options are what the code says."""

import re
import shlex

import pytest

from penstock.pipelines.centrality.options import METRICS, CentralityOptions
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


def test_the_metrics_are_the_codes(page):
    rows = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    assert set(rows) == set(METRICS)


def test_the_options_are_the_codes(page):
    known = {name.replace("_", "-") for name in CentralityOptions.__dataclass_fields__}
    flags = {flag.removeprefix("no-") for flag in re.findall(r"--([a-z]+(?:-[a-z]+)*)", page)}
    assert flags - {"plan", "graphs", "scale"} <= known
    assert known <= flags
