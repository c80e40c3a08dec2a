"""The figures of a page, compared with NumPy's results, or with the written data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from penstock.pipelines.flow.records import load_run
from penstock.pipelines.report.charts import Chart, Table
from penstock.pipelines.report.command import find_record
from penstock.pipelines.report.data import gather
from penstock.pipelines.report.figures import sections, trend_charts
from penstock.pipelines.report.sections.communities import communities
from penstock.pipelines.report.sections.embeddings import principal_plane
from penstock.pipelines.report.sections.graphs import degrees_of


def parts_of(folder, title):
    found = [one for one in sections(gather(load_run(folder))) if one.title == title]
    return list(found[0].parts) if found else []


def charts_of(folder, title):
    return {one.title: one for one in parts_of(folder, title) if isinstance(one, Chart)}


# Arithmetic


def test_the_plane_is_that_of_the_singular_vectors():
    random = np.random.default_rng(3)
    values = random.standard_normal((500, 8)) * np.array([5, 3, 1, 1, 0.5, 0.5, 0.1, 0.1]) + 7
    plane = principal_plane(values, values)
    centred = values - values.mean(axis=0)
    _, sizes, rows = np.linalg.svd(centred, full_matrices=False)
    expected = centred @ rows[:2].T
    for i in range(2):
        sign = np.sign(plane.points[:, i] @ expected[:, i])
        np.testing.assert_allclose(plane.points[:, i], sign * expected[:, i], atol=1e-9)
        assert plane.shares[i] == pytest.approx(sizes[i] ** 2 / (sizes**2).sum())


def test_degrees_are_counted_exactly_up_to_fifteen_and_in_bins_above(make_graph):
    graph = make_graph(300, 4000, directed=True, shard_edges=500)
    assert graph.num_shards > 1
    found, whole = degrees_of(graph)
    degrees = np.asarray(graph.degrees)
    assert whole
    assert (found.nodes, found.total, found.largest) == (300, graph.num_edges, degrees.max())
    np.testing.assert_array_equal(found.counts[:16], np.bincount(degrees, minlength=16)[:16])
    for i in range(16, 30):
        inside = (degrees >= found.edges[i]) & (degrees < found.edges[i + 1])
        assert found.counts[i] == inside.sum()


def test_communities_are_those_that_were_planted():
    random = np.random.default_rng(0)
    truth = np.arange(120) // 40
    chance = np.where(truth[:, None] == truth, 0.4, 0.004)
    near = np.triu(random.random((120, 120)) < chance, 1)
    near |= near.T
    indptr = np.concatenate([[0], np.cumsum(near.sum(axis=1))])
    found = communities(indptr, np.nonzero(near)[1])
    for community in range(3):
        assert len(set(found[truth == community])) == 1
    assert len(set(found)) == 3


# From outputs to charts


def test_curves_are_what_the_training_wrote(make_run):
    charts = charts_of(make_run(), "Training")
    loss = charts["model: loss"]
    assert [one.name for one in loss.series] == ["train", "valid", "test"]
    assert loss.series[0].x == tuple(range(1, 41))
    np.testing.assert_allclose(loss.series[0].y, 1 / np.arange(1, 41))
    assert loss.table.rows[1] == ("2", "0.5", "0.6", "0.7")
    # Two layers gather over 900 edges, in 0.05 s an epoch.
    np.testing.assert_allclose(charts["model: throughput"].series[0].y, 2 * 900 / 0.05)
    assert charts["model: throughput"].y == "edges/s"
    assert charts["vectors: throughput"].series[0].y == (2000.0,) * 3
    assert charts["model: accuracy"].series[0].y[1] == 0.5


def test_times_add_up_to_those_of_the_stages(make_run):
    charts = charts_of(make_run(), "Where the time went")
    stages = charts["Stages"]
    for i in range(len(stages.categories)):
        assert sum(one.x[i] for one in stages.series) == pytest.approx(4.0)
    of_model = {one.name: one.x[stages.categories.index("model")] for one in stages.series}
    assert of_model["start and end"] == pytest.approx(0.5)
    assert of_model["computing"] == pytest.approx(40 * 0.03)
    assert of_model["exposed communication"] == pytest.approx(40 * 0.015)
    hidden = charts["Exposed and hidden"]
    assert hidden.categories == ("model: communication",)
    assert [one.x[0] for one in hidden.series] == pytest.approx([0.02, 0.03])
    assert charts["Steps within jobs"].categories == ("parts: assign",)


def test_partitions_degrees_and_evaluations(make_run):
    folder = make_run()
    quality = next(one for one in parts_of(folder, "Partitions") if isinstance(one, Table))
    assert ("cut edges", "100 (11.1 % of the edges)") in quality.rows
    nodes = charts_of(folder, "Partitions")["parts: nodes of each part"]
    assert [one.x for one in nodes.series] == [(100.0, 100.0), (20.0, 20.0)]
    assert "graph: degree distribution" in charts_of(folder, "Degrees")
    tables = {one.caption: one for one in parts_of(folder, "Evaluation")}
    assert ("accuracy", "0.75") in tables["score: scores of test"].rows
    assert tables["score: most frequent confusions of test"].rows[0] == ("c0", "c1", "1")
    assert tables["model: at the best epoch"].rows[0][0] == "test"


def test_vectors_are_coloured_by_the_labels_of_their_graph(make_run, tmp_path):
    from penstock.graph import Graph

    picture = charts_of(make_run(), "Embeddings")["vectors: vectors"]
    assert "coloured by label" in picture.about
    labels = np.asarray(Graph.open(tmp_path / "graph").labels())
    found = {one.name: len(one.x) for one in picture.series}
    assert found == {f"c{i}": int((labels == i).sum()) for i in range(3)}
    assert picture.table.rows[0][1] == str(found["c0"])


def test_vectors_of_a_graph_that_has_changed_have_no_colours(make_run, tmp_path):
    folder = make_run()
    file = tmp_path / "graph/graph.json"
    file.write_text(file.read_text().replace('"types": {}', '"types": {"a": 1}'))
    picture = charts_of(folder, "Embeddings")["vectors: vectors"]
    assert [one.name for one in picture.series] == ["all"]


def test_embeddings_of_predictions(make_graph, tmp_path):
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
    manifest = {"format": "penstock-predictions", "graph": str(graph.path),
                "graph_sha256": graph.digest, "columns": ["id", "embedding"]}  # fmt: skip
    (folder / "_predictions.json").write_text(json.dumps(manifest))
    (found,) = sections(gather(find_record(tmp_path, str(folder))))
    (picture,) = found.parts
    assert "coloured by label" in picture.about
    expected = principal_plane(values, values).points
    points = {label: (x, y) for one in picture.series
              for label, x, y in zip(one.labels, one.x, one.y, strict=True)}  # fmt: skip
    for row in (0, 37, 99):
        label = f"{graph.user_ids()[row].as_py()} (class {int(graph.labels()[row])})"
        np.testing.assert_allclose(points[label], expected[row], atol=1e-5)


def test_trends_of_gates(make_run):
    for number in (1, 2):
        make_run(number)
    (trend,) = trend_charts(gather(load_run(make_run(3))).gates)
    assert trend.series[0].x == (-2.0, -1.0, 0.0)
    assert trend.series[0].y == (0.51, 0.52, 0.53)
    assert trend.level is None  # so far away that it would flatten the line


# Whose outputs they are


def test_outputs_that_a_later_run_has_made_are_not_shown(make_run, tmp_path):
    folder = make_run()
    (tmp_path / "out/.flow/model.json").write_text('{"key": "another"}')
    charts = charts_of(folder, "Training")
    assert "model: loss" not in charts
    assert "vectors: loss" in charts


# Jobs without a flow


def test_the_page_of_a_job_without_a_flow(make_run, tmp_path, capsys):
    from penstock.pipelines.cli import run as penstock

    make_run()
    for name, shown in {
        "model": "model: loss", "vectors": "vectors: vectors", "graph": "degree distribution",
    }.items():  # fmt: skip
        at = tmp_path / name if name == "graph" else tmp_path / "out" / name
        assert penstock(["report", str(at), "--json"]) == 0
        made = at.with_name(f"{name}-report.html")
        assert json.loads(capsys.readouterr().out)["report"] == str(made)
        assert shown in made.read_text()
    assert penstock(["report", str(tmp_path)]) == 1


# Drawing
