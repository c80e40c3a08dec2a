"""An output that is, or holds, an input is refused: to replace it would remove the input."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock import centrality, etl, walk, word2vec
from penstock.errors import UsageError


@pytest.fixture
def here(make_graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with outputs of each job, and inputs in them."""
    monkeypatch.chdir(tmp_path)
    make_graph()  # as ./graph
    for made in ("graph", "walks", "centralities", "data"):
        Path(made).mkdir(exist_ok=True)
        Path(made, "edges.csv").write_text("src,dst\n1,2\n")
        Path(made, "starts.txt").write_text("1\n")
    Path("vectors").mkdir()
    Path("vectors/text.txt").write_text("a text of few words\n" * 100)
    Path("vectors/vectors.json").write_text("{}")
    for made, manifest in (("walks", "_walks.json"), ("centralities", "centrality.json")):
        Path(made, manifest).write_text("{}")
        shutil.copytree("graph", Path(made, "graph"))
    return tmp_path


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: etl("graph/e*.csv", "graph", overwrite=True), "graph/edges.csv"),
        (lambda: etl("data", "data/a/graph", format="csv"), "data/a/graph"),
        (lambda: walk("walks/graph", "walks", overwrite=True), "walks/graph"),
        (lambda: walk("graph", "walks", starts="walks/starts.txt", overwrite=True), "starts.txt"),
        (lambda: word2vec("vectors/text.txt", "vectors", overwrite=True), "text.txt"),
        (
            lambda: centrality("centralities/graph", "centralities", overwrite=True),
            "centralities/graph",
        ),
    ],
)
def test_an_input_is_not_replaced(here: Path, call: Any, named: str) -> None:
    before = sorted(here.rglob("*"))
    with pytest.raises(UsageError) as error:
        call()
    assert named in str(error.value)
    assert sorted(here.rglob("*")) == before
