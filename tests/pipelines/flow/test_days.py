"""Days of an operator, by the commands that the tutorial shows: docs/tutorial.md."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipelines.cli import run

FLOW = """
name: shop
stages:
  graph:
    job: etl
    input: purchases/{{date}}
    source: user
    target: item
    base: "{{previous}}"
    expect: {nodes: within 10 % of previous, edges: within 20 % of previous}
  vectors: {job: word2vec, input: graph, dim: 8, init: "{{previous}}", publish: published}
"""


def write_day(home, day, first, last, files=range(4)):
    folder = home / "purchases" / day
    folder.mkdir(parents=True, exist_ok=True)
    user = np.arange(first, last).repeat(8)
    for file in files:
        part = user[file :: len(range(4))]
        table = {"user": [f"u{n}" for n in part], "item": [f"i{n * 7 % 50}" for n in part + file]}
        pq.write_table(pa.table(table), folder / f"{file}.parquet")


@pytest.mark.slow
def test_five_days_of_an_operator(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FLOW)

    def flow(*more, code=0):
        assert run(["run", "shop.yaml", "-q", "--no-report", *more]) == code

    def recorded(*more):
        capsys.readouterr()
        assert run(["runs", "list", "--json", *more]) == 0
        return [(one["date"], one["state"]) for one in json.loads(capsys.readouterr().out)]

    def shown():
        latest = Path("published/latest")
        ids = pq.read_table(sorted(latest.glob("*.parquet")))["id"].to_pylist()
        return str(latest.readlink())[:10], {one for one in ids if one.startswith("u")}

    # Two good days: users come and go, and vectors follow.
    write_day(tmp_path, "2026-11-23", 0, 200)
    flow("--date", "2026-11-23")
    write_day(tmp_path, "2026-11-24", 5, 210)
    flow("--date", "2026-11-24")
    assert shown() == ("2026-11-24", {f"u{n}" for n in range(5, 210)})

    # Half of the files are missing: readers keep the day before, until the rest has arrived.
    write_day(tmp_path, "2026-11-25", 5, 212, range(2))
    flow("--date", "2026-11-25", code=1)
    assert shown()[0] == "2026-11-24"
    write_day(tmp_path, "2026-11-25", 5, 212, range(2, 4))
    flow("--date", "2026-11-25")
    assert shown()[0] == "2026-11-25"

    # Three days at once: gates compare each with the one before.
    for number in range(3):
        write_day(tmp_path, f"2026-11-{26 + number}", 10, 220 + 15 * number)
    flow("--dates", "2026-11-26..2026-11-28")
    assert shown() == ("2026-11-28", {f"u{n}" for n in range(10, 250)})

    # A step is accepted once, and is what the next day is compared with.
    for day, last in (("2026-11-29", 400), ("2026-11-30", 405)):
        write_day(tmp_path, day, 10, last)
    flow("--date", "2026-11-29", code=1)
    flow("--date", "2026-11-29", "--accept", "graph", "--reason", "Norway joined")
    flow("--date", "2026-11-30")
    assert shown() == ("2026-11-30", {f"u{n}" for n in range(10, 405)})
    assert recorded() == [
        ("2026-11-23", "passed"),
        ("2026-11-24", "passed"),
        ("2026-11-25", "failed"),
        ("2026-11-25", "passed"),
        ("2026-11-26", "passed"),
        ("2026-11-27", "passed"),
        ("2026-11-28", "passed"),
        ("2026-11-29", "failed"),
        ("2026-11-29", "passed"),
        ("2026-11-30", "passed"),
    ]
    assert len(recorded("--date", "2026-11-29", "--state", "passed")) == 1

    # An older day that is computed again compares with the day before it, and moves no reader.
    flow("--date", "2026-11-24", "--force")
    assert shown()[0] == "2026-11-30"
