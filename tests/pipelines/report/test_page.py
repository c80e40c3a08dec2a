"""The page of a run: its content, also for hostile, odd and damaged records."""

import base64
import hashlib
import json
import os
import re
import shutil
from datetime import UTC, datetime

import numpy as np
import pytest
from made import make_outputs, make_record

from penstock.graph import Graph
from penstock.pipelines.cli import run as penstock
from penstock.pipelines.flow.places import Place

EVIL = "</script><script>hit=1</script><img src=x onerror=hit=1>$$x$$\"'&\u2028"


def record(base, number=1, **body):
    at = {"date": f"2026-01-0{number}", "began": f"2026-01-0{number}T04:30:00+00:00"}
    return make_record(base / f"runs/f-20260101-00000{number}", **at | body)


def publish(base, number, to):
    """Publish of a run, as its record says."""
    folder, place = base / "runs" / f"f-20260101-00000{number}", Place(to)
    body = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(body | {"targets": [["a", to]]}))
    (base / "made").mkdir(exist_ok=True)
    (base / "made" / "file").touch()
    version = f"2026-01-0{number}-{folder.name}"
    place.put(base / "made", version)
    place.move(version)


def stage(value, *, met=True, metric="score", **more):
    gate = {"metric": metric, "expected": ">= 0.9", "value": value, "met": met, "note": ""}
    body = {"job": "gnn train", "state": "done", "began": 10.0, "seconds": 2.25}
    return body | {"metrics": {metric: value}, "gates": [gate]} | more


@pytest.fixture
def html(read_page, tmp_path):
    def html(folder):
        assert penstock(["report", str(folder), "--out", str(tmp_path / "page.html"), "-q"]) == 0
        return read_page((tmp_path / "page.html").read_text())

    return html


# What the records say


def test_gates_and_changes_since_the_run_of_the_date_before(html, tmp_path):
    record(tmp_path, 1, stages={"train": stage(0.95)})
    record(tmp_path, 2, state="failed", stages={"train": stage(0.8, met=False), "b": stage(3)})
    record(tmp_path, 4, stages={"train": stage(0.5)})  # of a later date: it is not before
    page = html(record(tmp_path, 3, stages={"train": stage(0.97), "b": stage(4)}))
    assert "f-20260101-000001" in page.text
    assert "f-20260101-000004" not in page.text
    assert ["train", "score", "0.95", "0.97"] in page.rows
    assert ["train", "met", "score", ">= 0.9", "0.97", "0.95 → 0.8 → 0.97"] in page.rows
    trend = [["01-01", "0.95"], ["01-02", "0.8"], ["01-03", "0.97"]]
    assert page.tables["train: score"][1:] == trend
    lines = page.columns("train: score")
    assert [0.95, 0.8, 0.97] in [one["y"] for one in lines]
    assert [0.9, 0.9] in [one["y"] for one in lines]  # the threshold


def test_a_gate_that_was_accepted_says_why(html, tmp_path):
    accepted = stage(0.1, met=False, accepted="a new catalogue")
    page = html(record(tmp_path, stages={"a": accepted}))
    (gate,) = [row for row in page.rows if "accepted" in row]
    assert gate[0] == "a"
    assert "a new catalogue" in gate[-1]


def test_a_failed_run_says_why_and_what_readers_have(html, tmp_path):
    record(tmp_path, 1, stages={"a": stage(1)})
    publish(tmp_path, 1, str(tmp_path / "public"))
    link = tmp_path / "public/latest"
    at = datetime(2026, 1, 1, 4, 32, tzinfo=UTC).timestamp()
    os.utime(link, (at, at), follow_symlinks=False)
    error = {"what": "no space", "expected": "1 GB", "got": "0 B", "remedy": "make some"}
    stages = {
        "a": {"state": "failed", "error": error, "job": "walk"},
        "b": {"state": "not run", "why": "a failed", "job": "walk"},
    }
    folder = record(tmp_path, 2, state="failed", stages=stages, targets=[["a", "public"]])
    (folder / "logs/a.log").write_text("oh")
    page = html(folder)
    assert [row[1] for row in page.tables["a"]] == [*error.values(), "a.log"]
    assert stages["b"]["why"] in page.text
    assert ["a", "2026-01-01", "2026-01-01 04:32", "f-20260101-000001", "public"] in page.rows
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert set(links) == {f"runs/{folder.name}/logs/a.log"}
    assert not page.charts
    assert "script" not in [tag for tag, _ in page.tags]  # a light page has no library


def readers(page):
    """Return the date, time and run of what stage a has published."""
    ((_, *found, _),) = [row for row in page.rows if row[0] == "a" and len(row) == 5]
    return found


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_what_readers_have_is_what_the_place_shows(html, tmp_path, kind):
    to = str(tmp_path / "public") if kind == "folder" else f"memory:/{tmp_path}"
    for number in (1, 2):
        folder = record(tmp_path, number, stages={"a": stage(1)})
        publish(tmp_path, number, to)
    shutil.rmtree(tmp_path / "runs/f-20260101-000001")  # as runs clean does
    assert readers(html(folder))[0] == "2026-01-02"
    assert penstock(["publish", "--rollback", to]) == 0
    date, _, run = readers(html(folder))
    assert (date, run) == ("2026-01-01", "f-20260101-000001")
    if kind == "folder":
        shutil.rmtree(tmp_path / "public")
        assert readers(html(folder))[1:] == ["", ""]


def test_what_readers_have_after_a_run_whose_flow_cannot_be_read(html, tmp_path):
    record(tmp_path, 1, stages={"a": stage(1)}, series="f")
    publish(tmp_path, 1, str(tmp_path / "public"))
    folder = record(tmp_path, 2, state="failed")
    assert readers(html(folder))[2] == "f-20260101-000001"


def test_two_runs_are_compared(tmp_path, capsys):
    timed = stage(2)
    timed["metrics"]["seconds"], timed["seconds"] = 1.5, 3.0
    record(tmp_path, 1, stages={"a": stage(1)}, variables={"n": 1, "date": "2026-01-01"})
    record(
        tmp_path, 2, stages={"a": timed, "b": stage(0)}, variables={"n": 3, "date": "2026-01-02"}
    )
    words = ["runs", "compare", "f-20260101-000001", "f-20260101-000002"]
    words += ["--folder", str(tmp_path / "runs")]
    assert penstock([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["differences"]
    count = len(found)
    found = {(one["stage"], one["what"]): (one["one"], one["other"]) for one in found}
    assert found == {
        ("", "date"): ("2026-01-01", "2026-01-02"),
        ("", "n"): (1, 3),
        ("a", "score"): (1, 2),
        ("b", "state"): (None, "done"),
        ("b", "seconds"): (None, 2.25),
        ("a", "seconds"): (2.25, 3.0),
        ("a", "metric seconds"): (None, 1.5),
    }
    assert len(found) == count
    assert penstock(words) == 0
    assert re.search(r"a +score +1 +2", capsys.readouterr().out)
    assert penstock([*words[:3], "none"]) == 1


# What the outputs of stages hold


def test_a_flow_of_trainings(html, make_run, tmp_path):
    page = html(make_run())
    assert page.tables["model: loss"][:3] == [
        ["Epoch", "train", "valid", "test"],
        ["1", "1", "1.1", "1.2"],
        ["2", "0.5", "0.6", "0.7"],
    ]
    y = next(one["y"] for one in page.columns("model: loss") if len(one["x"]) == 40)
    np.testing.assert_allclose(y, 1 / np.arange(1, 41))
    # Two layers gather over 900 edges, in 0.05 s an epoch.
    assert page.tables["model: throughput"][:2] == [["Epoch", "edges/s"], ["1", "36000"]]
    assert page.tables["vectors: throughput"][1] == ["1", "2000"]
    assert page.tables["model: accuracy"][2][1] == "0.5"

    found = times(page)
    assert list(found) == ["graph", "parts", "model", "vectors", "words", "score"]
    for *each, whole in found.values():  # which they add up to
        assert sum(float(value or 0) for value in each) == float(whole) == 4
    # Starting and ending, computing, communication that is not hidden, steps, and the rest.
    assert found["model"] == ["0.5", "1.2", "0.6", "", "1.7", "4"]
    assert [row[1:] for row in page.rows if row[0].startswith("model:")] == [["0.02", "0.03"]]
    assert [row[1:] for row in page.rows if row[0].startswith("parts:")] == [["0.5"]]

    assert page.stages(page.tables)["score"] == 3
    assert ["c0", "c1", "1"] in page.rows  # confused once
    assert ["c0", "0.7"] in page.rows
    assert "0.75" in [row[-1] for row in page.rows]
    assert ["test", "0.225", "0.975124"] in page.rows  # at the best epoch

    # Vectors lie on the plane of the singular vectors, coloured by label.
    graph = Graph.open(tmp_path / "graph")
    labels = np.asarray(graph.labels())
    counted = [[f"c{i}", str((labels == i).sum())] for i in range(3)]
    assert [row[:2] for row in page.tables["vectors: vectors"][1:]] == counted
    expected = plane(np.random.default_rng(0).standard_normal((200, 6)).astype(np.float32))
    points = points_of(page, "vectors: vectors")
    for row, name in enumerate(graph.user_ids().to_pylist()):
        np.testing.assert_allclose(points[f"{name} (c{labels[row]})"], expected[row], atol=1e-4)


def times(page):
    """Return the seconds of each stage, by what took them: all of it is last."""
    rows = [row for row in page.rows if len(row) == 7 and row[2] + row[-1] != ""]
    numbers = [row for row in rows if all(re.fullmatch(r"[\d.]*", one) for one in row[1:])]
    return {row[0]: [*row[2:], row[1]] for row in numbers}


def test_what_has_changed_since_the_run(html, make_run, tmp_path):
    """A training only resumed, a later run made the model, vectors are damaged, so is the graph."""
    folder = make_run()
    body = json.loads((folder / "run.json").read_text())
    body["stages"]["model"]["seconds"] = 0.75  # its report has the seconds of all epochs
    (folder / "run.json").write_text(json.dumps(body))
    (tmp_path / "out/.flow/model.json").write_text('{"key": "another"}')
    (tmp_path / "out/words/vectors.npy").write_bytes(b"")
    file = tmp_path / "graph/graph.json"
    file.write_text(file.read_text().replace('"types": {}', '"types": {"a": 1}'))
    page = html(folder)
    assert times(page)["model"] == ["", "", "", "", "0.75", "0.75"]
    assert "model: loss" not in page.tables
    assert "vectors: loss" in page.tables
    assert "vectors.npy" in page.text
    assert "words: vectors" not in page.charts
    assert page.tables["vectors: vectors"][1][:2] == ["all", "200"]  # without colours


# Pictures of vectors


def plane(values):
    """Return values on the directions of their largest singular values."""
    _, _, rows = np.linalg.svd(values - values.mean(axis=0), full_matrices=False)
    two = rows[:2].T
    two = two * np.sign(two[np.abs(two).argmax(axis=0), [0, 1]])
    return (values - values.mean(axis=0)) @ two


def points_of(page, chart):
    return {
        label: (x, y)
        for one in page.columns(chart)
        for label, x, y in zip(one["what"], one["x"], one["y"], strict=True)
    }


def test_embeddings_of_predictions(html, make_graph, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    graph = make_graph(100, 400, labels=3)
    values = np.random.default_rng(1).standard_normal((100, 5)).astype(np.float32)
    folder = tmp_path / "predictions"
    folder.mkdir()
    for part, rows in enumerate((slice(0, 60), slice(60, 100))):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(values[rows].ravel()), 5)
        ids = graph.user_ids().combine_chunks()[rows]
        table = pa.table({"id": ids, "embedding": lists})
        pq.write_table(table, folder / f"part-{part:05}.parquet", row_group_size=25)
    manifest = {"format": "penstock-predictions", "columns": ["id", "embedding"]}
    manifest |= {"graph": str(graph.path), "graph_sha256": graph.digest}
    (folder / "_predictions.json").write_text(json.dumps(manifest))
    points = points_of(html(folder), "predictions: vectors")
    expected = plane(values)
    for row, name in enumerate(graph.user_ids().to_pylist()):
        found = points[f"{name} (class {int(graph.labels()[row])})"]
        np.testing.assert_allclose(found, expected[row], atol=1e-4)


@pytest.mark.slow
def test_every_section_of_a_flow_of_many_jobs(html, tmp_path):
    flow = tmp_path / "flow.yaml"
    flow.write_text("""\
name: f
stages:
  graph: {job: generate sbm, nodes: 300, expect: {nodes: 300}}
  parts: {job: partition, input: graph, k: 2}
  model: {job: gnn train, input: graph, epochs: 3}
  score: {job: gnn evaluate, input: model}
  vectors: {job: word2vec train, input: graph, length: 10, walks: 2, dim: 8}
  groups: {job: word2vec evaluate, input: vectors, labels: "{{stage.graph}}", shares: [0.5]}
  triples: {job: generate kg, entities: 200, triples: 2000}
  knowledge: {job: embed train, input: triples, dim: 8, epochs: 3}
  ranks: {job: embed evaluate, input: knowledge, by_relation: true}
""")
    assert penstock(["run", str(flow), "-q", "--no-report"]) == 0
    (folder,) = (tmp_path / "runs").glob("f-*")
    page = html(folder)
    # Loss, accuracy and throughput; of edges ranks, too; vectors; the times of stages and steps.
    assert page.stages(page.charts) == {"model": 3, "knowledge": 4, "vectors": 1}
    assert len(page.charts) == 10
    tables = page.stages(page.tables)
    assert [tables[name] - drawn for name, drawn in (("model", 3), ("score", 0))] == [1, 2]
    assert (tables["groups"], tables["ranks"]) == (1, 4)


# Strangers


def test_hostile_names_stay_text_everywhere(html, make_run):
    make_run(1, evil=EVIL)
    error = dict.fromkeys(("what", "expected", "got", "remedy"), EVIL)
    page = html(make_run(2, evil=EVIL, host=EVIL, error=error, flow="f", variables={EVIL: EVIL}))
    tags = [tag for tag, _ in page.tags]
    assert not {"link", "img", "iframe"} & set(tags)
    assert not {"src", "onload", "onerror"} & {name for _, attrs in page.tags for name in attrs}
    assert "<img src=x" in page.text  # as text
    # The numbers of the charts, the library, and our own few lines: whose digests are the policy's.
    kinds = [attrs.get("type") for tag, attrs in page.tags if tag == "script"]
    assert kinds == ["application/json", None, None]
    (policy,) = [attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs]
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy
    digests = [
        base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in page.scripts[1:]
    ]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    assert not set("<>&") & set(page.scripts[0])
    assert "$$" not in page.scripts[0]  # which BokehJS would take for TeX, and fetch a library
    assert len(page.charts) >= 8


# Commands


def test_a_run_writes_its_page_and_names_it_last(tmp_path, capsys):
    flow = tmp_path / "flow.yaml"
    flow.write_text("name: f\nstages: {a: {python: 'm:f', value: 41, expect: {total: 41}}}\n")
    make_outputs(flow)
    assert penstock(["run", str(flow), "--no-report"]) == 0
    assert not list(tmp_path.glob("runs/*/report.html"))
    capsys.readouterr()
    assert penstock(["run", str(flow)]) == 0
    (made,) = tmp_path.glob("runs/*/report.html")
    assert capsys.readouterr().out.splitlines()[-1].strip().endswith(made.name)
    assert ">41</td>" in made.read_text()


def test_the_page_of_a_job_without_a_flow(make_run, read_page, tmp_path, capsys):
    make_run()
    for name in ("out/model", "out/vectors", "graph"):
        at = tmp_path / name
        assert penstock(["report", str(at), "--json"]) == 0
        made = at.with_name(f"{at.name}-report.html")
        assert json.loads(capsys.readouterr().out)["report"] == str(made)
        page = read_page(made.read_text())
        assert page.stages(page.tables)[at.name] > 0
    assert penstock(["report", str(tmp_path)]) == 1
