"""``penstock init`` writes a flow that runs, and whose comments are valid when uncommented."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.pipelines.cli import run
from penstock.pipelines.flow.document import read_flow


@pytest.mark.slow
def test_the_flow_runs_on_a_table_of_edges(tmp_path):
    assert run(["init", str(tmp_path), "-q"]) == 0
    ends = np.random.default_rng(0).integers(0, 200, (2, 2000))
    pq.write_table(pa.table({"src": ends[0], "dst": ends[1]}), tmp_path / "edges.parquet")
    penstock.run_flow(tmp_path / "flow.yaml", variables={"dim": "16"})
    for stage in ("graph", "vectors", "neighbours", "scores"):
        assert (tmp_path / "out" / stage).is_dir()


def test_what_is_commented_is_valid(tmp_path):
    assert run(["init", str(tmp_path), "-q"]) == 0
    flow = tmp_path / "flow.yaml"
    text = re.sub(r"^( *)# ((?:  )?\w+:)", r"\1\2", flow.read_text(), flags=re.MULTILINE)
    flow.write_text(text)
    found = read_flow(flow)
    assert {"classes", "predictions"} <= set(found.stages)
    assert found.keys.schedule.cron is not None


def test_a_flow_that_exists_stays(tmp_path, capsys):
    (tmp_path / "flow.yaml").write_text("mine")
    assert run(["init", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert (tmp_path / "flow.yaml").read_text() == "mine"
