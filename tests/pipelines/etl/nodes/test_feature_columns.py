"""Columns of a node table as a warehouse has them become features of the graph."""

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from penstock import Graph, etl
from penstock.errors import InputError, PenstockError

IDS = [3, 1, 2, 0]
BORN = ["2024-02-29", "1969-12-31", "2026-07-06", "9999-12-31"]
WAREHOUSE = {
    "age": [30.0, 50.0, 40.0, 40.0],
    "paid": [True, False, True, True],
    "plan": ["pro", "free", "pro", "team"],
    "born": [date.fromisoformat(day) for day in BORN],
}


@pytest.fixture
def edges(tmp_path):
    pd.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 3]}).to_csv(tmp_path / "e.csv", index=False)
    return tmp_path / "e.csv"


def table(path, columns, ids=IDS):
    rows = pa.table({"id": ids, **columns})
    if path.suffix == ".csv":
        csv.write_csv(rows, path)
    else:
        pq.write_table(rows, path, row_group_size=3)
    return path


def graph_of(edges, nodes, name="g", **options):
    etl(edges, edges.parent / name, nodes=nodes, overwrite=True, **options)
    return Graph.open(edges.parent / name)


def made(edges, columns, name="g.parquet", **options):
    """Return the features of a graph of this table as a frame, in the order of its rows."""
    nodes = table(edges.parent / name, columns)
    if "features_as" not in options:
        options = {"feature_columns": tuple(columns)} | options
    graph = graph_of(edges, nodes, nodes.stem, **options)
    graph.validate()
    names = graph.manifest.feature_names
    return pd.DataFrame(graph.features(), graph.user_ids().to_pylist(), names).loc[IDS]


def by_hand(frame, *, standardise):
    """Return what pandas makes of the columns."""
    days = pd.Series([(day - date(1970, 1, 1)).days for day in frame["born"]], dtype=float)
    age = frame["age"]
    found = {"age": (age - age.mean()) / age.std(ddof=0) if standardise else age}
    found["paid"] = frame["paid"].astype(float)
    found |= {f"plan={one}": 1.0 * (frame["plan"] == one) for one in ("free", "pro", "team")}
    found["born:days"] = (days - days.mean()) / days.std(ddof=0)
    for cycle, numbers in (
        ("month", [(day.month - 1) / 12 for day in frame["born"]]),
        ("weekday", [day.weekday() / 7 for day in frame["born"]]),
    ):
        found[f"born:{cycle}_sin"] = np.sin(2 * np.pi * np.array(numbers))
        found[f"born:{cycle}_cos"] = np.cos(2 * np.pi * np.array(numbers))
    return pd.DataFrame(found).set_axis(IDS)


def test_numbers_far_from_zero_are_standardised_before_they_are_rounded(edges):
    seconds = 1_764_400_000 + 30 * np.arange(4)
    got = made(edges, {"at": seconds}, standardise=True)
    wanted = (seconds - seconds.mean()) / seconds.std()
    np.testing.assert_allclose(got["at"], wanted, rtol=1e-6)
    # Also of a later table, by the statistics of the first.
    later = made(edges, {"at": seconds + 15}, "h.csv", features_as=edges.parent / "g")
    wanted = (seconds + 15 - seconds.mean()) / seconds.std()
    np.testing.assert_allclose(later["at"], wanted, rtol=1e-6)


@pytest.mark.parametrize("standardise", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbers_booleans_categories_and_dates(edges, suffix, standardise):
    got = made(edges, WAREHOUSE, f"g.{suffix}", standardise=standardise)
    expected = by_hand(pd.DataFrame(WAREHOUSE), standardise=standardise)
    pd.testing.assert_frame_equal(got.astype(float), expected, atol=1e-6)


TYPES = {
    "dictionary": (pa.array(WAREHOUSE["plan"]).dictionary_encode(), "plan"),
    "large": (pa.array(WAREHOUSE["plan"], pa.large_string()), "plan"),
    "seconds": (
        pa.array([datetime.fromisoformat(f"{day}T23:59:59") for day in BORN], pa.timestamp("s")),
        "born",
    ),
    "zone": (
        pa.array(
            [datetime.fromisoformat(f"{day}T23:59:59") for day in BORN],
            pa.timestamp("us", "Asia/Tokyo"),
        ),
        "born",
    ),  # days are those of UTC
    "text": (pa.array([f"{day} 12:00:00" for day in BORN]), "born"),
    "date64": (pa.array(WAREHOUSE["born"], pa.date64()), "born"),
    "yes or no": (pa.array(["TRUE", "False", "true", "true"]), "paid"),
}


@pytest.mark.parametrize("case", TYPES)
def test_one_value_in_other_types(edges, case):
    values, name = TYPES[case]
    got, expected = made(edges, {name: values}), made(edges, {name: WAREHOUSE[name]})
    pd.testing.assert_frame_equal(got, expected)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbers_that_are_categories(edges, suffix):
    columns = {"zip": [10, None, 10, 7], "x": [1.0, 2.0, 3.0, 4.0]}
    got = made(
        edges,
        columns,
        f"g.{suffix}",
        feature_columns=("x",),
        category_columns=("z*",),
        missing_features="zero",
    )
    assert [*got] == ["x", "zip=10", "zip=7"]
    assert got.to_numpy().tolist() == [[1, 1, 0], [2, 0, 0], [3, 1, 0], [4, 0, 1]]
    with pytest.raises(InputError, match=r"zip"):  # a value is missing
        made(edges, columns, f"h.{suffix}", feature_columns=(), category_columns=("zip",))


@pytest.mark.parametrize("how", ["zero", "mean"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_is_missing(edges, suffix, how):
    columns = {name: [*values[:2], None, values[3]] for name, values in WAREHOUSE.items()}
    got = made(edges, columns, f"g.{suffix}", missing_features=how, standardise=True)
    age = np.array([30, 50, 0 if how == "zero" else 40, 40])
    np.testing.assert_allclose(got["age"], (age - 40) / np.std([30, 50, 40]), rtol=1e-6)
    assert got["paid"].tolist() == pytest.approx([1, 0, 0 if how == "zero" else 2 / 3, 1])
    assert not got.filter(like="plan=").loc[2].any()
    assert not got.filter(like="born:").loc[2].any()
    for name in columns:
        with pytest.raises(InputError, match=f"row.*{name}"):
            made(edges, {name: columns[name]}, f"h.{suffix}")


def test_columns_without_anything_to_tell(edges):
    columns = {
        "constant": [0.1] * 4,
        "nothing": pa.nulls(4, pa.float64()),
        "void": pa.nulls(4),
        "plan": ["pro"] * 4,
        "born": [date(2026, 1, 1)] * 4,
    }
    got = made(edges, columns, standardise=True, missing_features="mean")
    assert [*got][:4] == ["constant", "nothing", "void", "plan=pro"]
    assert not got[["constant", "nothing", "void", "born:days"]].to_numpy().any()
    assert (got["plan=pro"] == 1).all()
    options = {"feature_columns": (), "category_columns": ("nothing",), "missing_features": "zero"}
    with pytest.raises(InputError, match="nothing"):  # of no category
        made(edges, columns, "h.parquet", **options)


def test_a_later_graph_has_the_columns_of_an_earlier_one(edges):
    made(edges, WAREHOUSE, standardise=True, missing_features="mean")
    tomorrow = {
        "other": ["x"] * 4,
        "born": [date(2030, 1, 1), None, None, None],
        "plan": ["gold", "team", "gold", None],
        "paid": [None, True, None, None],
        "age": [None, 1e3, 40.0, 50.0],
    }
    options = {"features_as": edges.parent / "g", "missing_features": "mean"}
    got = made(edges, tomorrow, "h.parquet", **options)
    before, after = (Graph.open(edges.parent / name).manifest for name in "gh")
    assert after.feature_names == before.feature_names
    assert after.feature_columns == before.feature_columns
    deviation = np.std(WAREHOUSE["age"])
    np.testing.assert_allclose(got["age"] * deviation + 40, [40, 1e3, 40, 50], rtol=1e-6)
    assert got["paid"].tolist() == [0.75, 1, 0.75, 0.75]
    assert got[["plan=free", "plan=pro", "plan=team"]].sum().tolist() == [0, 0, 1]
    report = etl(edges, edges.parent / "i", nodes=edges.parent / "h.parquet", **options)
    assert (report.categories_unknown, report.features_filled) == (2, 8)
    assert report.columns_of_unknown == {"plan": 2}
    del tomorrow["paid"]
    with pytest.raises(InputError, match="paid"):
        made(edges, tomorrow, "h.parquet", **options)


SPELLED = {
    "number": (["10", "7", "", "10"], [10.0, 7.0, None, 10.0]),
    "float": (["10.0", "2.0", "", "-3.0"], [10, 2, None, -3]),
    "decimal": (["10", "7.50", "", "2.0"], [Decimal("10.00"), Decimal("7.50"), None, Decimal(2)]),
    "flag": (["True", "FALSE", "", "true"], [True, False, None, True]),
    "day": (
        ["2026-11-01", "2026-10-02", "", "2026-11-01"],
        [date(2026, 11, 1), date(2026, 10, 2), None, date(2026, 11, 1)],
    ),
    "moment": (
        ["2026-11-01T00:00:00", "2026-10-02 01:00:00.5", "", "2026-11-01"],
        [
            datetime(2026, 11, 1),
            datetime(2026, 10, 2, 1, 0, 0, 500_000),
            None,
            datetime(2026, 11, 1),
        ],
    ),
    "code": (["007", "v1.10", "v1.1", "7"], ["007", "v1.10", "v1.1", "7"]),
}


@pytest.mark.parametrize("name", SPELLED)
def test_a_category_is_the_same_however_it_is_spelled(edges, name):
    """As text today and in a type of Parquet tomorrow, and the other way round."""
    text, typed = ({name: column} for column in SPELLED[name])
    options = {"missing_features": "zero"}
    first = options | {"feature_columns": (name,), "category_columns": (name,)}
    again = options | {"features_as": edges.parent / "g"}
    for today, tomorrow in (
        (("g.csv", text), ("h.parquet", typed)),
        (("g.parquet", typed), ("h.csv", text)),
    ):
        expected = made(edges, today[1], today[0], **first)
        pd.testing.assert_frame_equal(made(edges, tomorrow[1], tomorrow[0], **again), expected)


def test_a_graph_that_cannot_say_how_its_features_were_made(edges):
    nodes = table(edges.parent / "n.parquet", {"age": [1.0, None, 2.0, 3.0]})
    graph_of(edges, nodes, "bare")
    made(edges, {"age": [1.0, 2.0, 3.0, 4.0]}, "g.parquet")
    for name, missing in (("bare", "error"), ("none", "error"), ("g", "mean")):
        given = {"features_as": edges.parent / name, "missing_features": missing}
        with pytest.raises(PenstockError, match=name):
            graph_of(edges, nodes, "h", **given)
    graph = graph_of(edges, nodes, "h", features_as=edges.parent / "g", missing_features="zero")
    assert graph.features().ravel().tolist() == [3, 0, 2, 1]


def test_too_many_categories(edges):
    ids = [*range(300)]
    nodes = table(edges.parent / "n.csv", {"name": [f"user{i}" for i in ids]}, ids)
    with pytest.raises(InputError, match="name"):
        etl(edges, edges.parent / "g", nodes=nodes, feature_columns=("name",))


def test_files_agree_on_what_a_column_is(edges):
    folder, options = edges.parent / "n", {"missing_features": "zero"}
    options["feature_columns"] = ("plan", "x")
    folder.mkdir()
    table(folder / "0.parquet", {"plan": pa.nulls(2), "x": ["1", "2"]}, [0, 1])
    table(folder / "1.parquet", {"x": [3, 4], "plan": ["b", "a"]}, [2, 3])
    graph = graph_of(edges, folder, **options)
    assert graph.manifest.feature_names == ("plan=a", "plan=b", "x")
    assert graph.features().tolist() == [[0, 0, 1], [0, 0, 2], [0, 1, 3], [1, 0, 4]]
    table(folder / "1.parquet", {"x": [date(2026, 1, 1)] * 2, "plan": ["b", "a"]}, [2, 3])
    with pytest.raises(InputError, match="x of .*1.parquet"):
        graph_of(edges, folder, **options)


def test_categories_of_rows_that_are_left_out_are_not_columns(edges):
    columns = {"plan": ["a", "b", "c", "a"], "x": [1.0, 2.0, None, 4.0]}
    nodes = table(edges.parent / "n.parquet", columns)
    options = {"on_bad_rows": "skip", "unknown_nodes": "drop"}
    graph = graph_of(edges, nodes, feature_columns=("*",), **options)
    assert graph.manifest.feature_names == ("plan=a", "plan=b", "x")


def test_options_of_the_first_night_may_stay(edges):
    first = {"feature_columns": ("age", "plan"), "missing_features": "zero"}
    made(edges, WAREHOUSE, **first)
    again = first | {"features_as": edges.parent / "g"}
    assert [*made(edges, WAREHOUSE, "h.parquet", **again)][:2] == ["age", "plan=free"]
    for change, named in (
        ({"feature_columns": ("*",)}, "paid"),
        ({"standardise": True}, "age"),
        ({"category_columns": ("a*",)}, "age"),
    ):
        with pytest.raises(PenstockError, match=named):
            made(edges, WAREHOUSE, "h.parquet", **(again | change))


@pytest.mark.parametrize("how", ["mean", "zero", "error"])
def test_a_node_without_a_row_is_a_row_without_values(edges, how):
    nodes = table(edges.parent / "n.parquet", {"age": [30.0, 50.0, 40.0]}, [0, 1, 2])
    options = {"missing_features": how, "unknown_nodes": "add"}
    graph = graph_of(edges, nodes, feature_columns=("age",), **options)
    expected = 40.0 if how == "mean" else 0.0
    assert graph.features()[:, 0].tolist() == [30.0, 50.0, 40.0, expected]
