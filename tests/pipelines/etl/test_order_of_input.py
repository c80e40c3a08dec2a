"""What etl reads, in which order, and what of it a resumed run takes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock import Graph
from penstock.errors import UsageError
from penstock.output import Output


def _weighted(weight: float) -> pa.Table:
    return pa.table({"src": [1, 2], "dst": [2, 3], "weight": [weight, 1.0]})


def test_a_resumed_run_of_another_table_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "g"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Output, "describe", interrupt)
        with pytest.raises(KeyboardInterrupt):
            penstock.etl(_weighted(5.0), out, directed=True, cluster="threads")
    with pytest.raises(UsageError):
        penstock.etl(_weighted(9.0), out, directed=True, cluster="threads", resume=True)
    penstock.etl(_weighted(5.0), out, directed=True, cluster="threads", resume=True)
    weights = Graph.open(out).csr().weights
    assert weights is not None
    assert weights.tolist() == [5.0, 1.0]


@pytest.mark.parametrize("first", [1.0, 2.0, 3.0, 4.0])
def test_tables_of_a_list_are_read_in_their_order(tmp_path: Path, first: float) -> None:
    tables = [_weighted(first), _weighted(7.0), _weighted(8.0)]
    penstock.etl(tables, tmp_path / "g", directed=True, duplicates="first", cluster="threads")
    weights = Graph.open(tmp_path / "g").csr().weights
    assert weights is not None
    assert weights.tolist() == [first, 1.0]


def test_the_time_window_is_of_training_edges(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("src,dst,day\n1,2,2026-11-01\n2,3,2026-11-25\n")
    (tmp_path / "new.csv").write_text("src,dst,day\n1,3,2026-11-21\n")
    penstock.etl(
        tmp_path / "old.csv",
        tmp_path / "g",
        time="day",
        until="2026-11-20",
        directed=True,
        test=tmp_path / "new.csv",
        cluster="threads",
    )
    graph = Graph.open(tmp_path / "g")
    assert graph.num_edges == 1
    assert graph.manifest.heldout == {"test": 1}


@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n"], ids=["newline", "return", "both"])
def test_comments_end_with_their_line(tmp_path: Path, ending: str) -> None:
    lines = ["#c", "a b", "#old1 old2", "b c"]
    (tmp_path / "e.txt").write_bytes((ending.join(lines) + ending).encode())
    penstock.etl(tmp_path / "e.txt", tmp_path / "g", directed=True, cluster="threads")
    assert sorted(Graph.open(tmp_path / "g").user_ids().to_pylist()) == ["a", "b", "c"]
