"""Tables are written by pandas, read in pieces of every size, and compared with what they were."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.layout import find_layout, guess_format
from penstock.pipelines.etl.reading.pieces import find_pieces
from penstock.pipelines.etl.reading.read import read_piece
from penstock.pipelines.tables import text


def batches(path, target_bytes=64 << 20, **options):
    checked, paths = EtlOptions(**options), [str(path)]
    kind = guess_format(paths, checked)
    layout = find_layout(paths, checked, kind)
    found = find_pieces(paths, kind, layout, checked, target_bytes)
    return [batch for piece in found for batch in read_piece(piece, layout, checked)]


def table(path, target_bytes=64 << 20, **options):
    read = batches(path, target_bytes, **options)
    assert all(batch.bad_count == 0 for batch in read)
    return pa.concat_tables([batch.table for batch in read])


def skipped(path, **options):
    """Read with bad rows left out; return (rows kept, numbers of the others)."""
    read = batches(path, on_bad_rows="skip", **options)
    kept = pa.concat_tables([batch.table for batch in read])
    bad = [row.row for batch in read for row in batch.bad]
    assert len(bad) == sum(batch.bad_count for batch in read)
    assert {row.path for batch in read for row in batch.bad} <= {str(path)}
    return kept, bad


def refused(path, *said, **options):
    """Assert that reading raises InputError that says all of ``said``."""
    with pytest.raises(InputError) as error:
        batches(path, **options)
    for words in (path.name, *said):
        assert words in str(error.value)


INTEGERS = st.integers(-(2**63), 2**63 - 1)
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=6)
WEIGHTS = st.floats(0, 1e30)


@st.composite
def edges(draw, ids):
    rows = draw(st.integers(1, 40))
    column = lambda values: draw(st.lists(values, min_size=rows, max_size=rows))  # noqa: E731
    made = {"src": column(ids), "dst": column(ids)}
    if draw(st.booleans()):
        made["weight"] = column(WEIGHTS)
    if draw(st.booleans()):
        made["when"] = column(INTEGERS)
    return pd.DataFrame(made)


def same(read, frame):
    names = {"source": "src", "target": "dst", "weight": "weight", "time": "when"}
    assert read.column_names == [c for c, name in names.items() if name in frame]
    for column in read.column_names:
        expected = frame[names[column]].to_numpy()
        if column == "weight":
            expected = expected.astype(np.float32)
        np.testing.assert_array_equal(read[column].to_pandas().to_numpy(), expected)


FRESH = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FRESH
@given(edges(INTEGERS), st.sampled_from([1, 50, 1 << 20]), st.integers(1, 50))
def test_integers_in_parquet(tmp_path, frame, target_bytes, group):
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=group)
    when = "when" if "when" in frame else None
    same(table(tmp_path / "a.parquet", target_bytes, time=when), frame)


@FRESH
@given(edges(WORDS), st.sampled_from([1, 1 << 20]), st.integers(1, 50))
def test_strings_in_parquet(tmp_path, frame, target_bytes, group):
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=group)
    when = "when" if "when" in frame else None
    same(table(tmp_path / "a.parquet", target_bytes, time=when), frame)


@FRESH
@given(
    edges(INTEGERS), st.integers(1, 400), st.sampled_from([",", "\t", ";"]),
    st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from(["", ".gz", ".zst"]),
)  # fmt: skip
def test_integers_in_text(tmp_path, frame, target_bytes, delimiter, end, header, packed):
    path = tmp_path / f"a.csv{packed}"
    frame.to_csv(path, index=False, sep=delimiter, lineterminator=end, header=header)
    options = {"delimiter": delimiter, "header": "yes" if header else "no"}
    for name in ("weight", "when"):
        if name in frame:
            number = str(list(frame).index(name))
            options["time" if name == "when" else name] = name if header else number
    same(table(path, target_bytes, **options), frame)


@FRESH
@given(edges(WORDS), st.integers(1, 400), st.sampled_from([".csv", ".tsv", ".csv.gz"]))
def test_strings_in_text(tmp_path, frame, target_bytes, suffix):
    frame.to_csv(tmp_path / f"a{suffix}", index=False, sep="\t" if suffix == ".tsv" else ",")
    when = "when" if "when" in frame else None
    read = table(tmp_path / f"a{suffix}", target_bytes, id_type="string", time=when, header="yes")
    same(read, frame)


@FRESH
@given(st.lists(st.tuples(INTEGERS, INTEGERS), min_size=1), st.data())
def test_edge_lists_with_any_blanks(tmp_path, pairs, data):
    blanks = st.text(" \t", min_size=1, max_size=3)
    lines = []
    for source, target in pairs:
        lines += data.draw(st.sampled_from([[], ["# comment"], ["", "  "], ["%"]]))
        lead = data.draw(st.sampled_from(["", " ", "\t"]))
        lines.append(f"{lead}{source}{data.draw(blanks)}{target}{lead}")
    (tmp_path / "a.txt").write_text("\n".join(lines) + data.draw(st.sampled_from(["", "\n"])))
    frame = pd.DataFrame(pairs, columns=["src", "dst"])
    same(table(tmp_path / "a.txt", data.draw(st.integers(1, 200))), frame)


def test_wiki_vote(data):
    path = data / "walks" / "wiki-Vote.edgelist"
    expected = pd.read_csv(path, sep=" ", names=["src", "dst"], comment="#")
    same(table(path), expected)
    same(table(path, 10_000), expected)


def test_cora(data):
    path = data / "nodes" / "cora.npz"
    parts = np.load(path)
    names = ("adj_data", "adj_indices", "adj_indptr")
    matrix = sp.csr_matrix(tuple(parts[n] for n in names), shape=parts["adj_shape"]).tocoo()
    read = table(path)
    assert read.column_names == ["source", "target"]
    np.testing.assert_array_equal(read["source"], matrix.row)
    np.testing.assert_array_equal(read["target"], matrix.col)


def test_matrices_that_are_none(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, a=np.ones(3))
    refused(path)
    np.savez(path, data=np.ones(2), indices=[0, 9], indptr=[0, 1, 2], shape=[2, 2])
    refused(path)
    np.savez(path, data=np.array([1, -1.0]), indices=[0, 1], indptr=[0, 1, 2], shape=[2, 2])
    refused(path, "row 2", "-1.0")
    path.write_text("1 2")
    refused(path)


UNSIGNED = np.array([0, 2**63, 2**64 - 1, 5], np.uint64)


DAYS = ["2026-11-19", "2026-11-20", "2026-11-21", "2026-11-22"]


@pytest.mark.parametrize("kind", ["int", "float", "iso", "zoned", "timestamp", "date", "text"])
def test_times_and_their_window(tmp_path, kind):
    stamps = pd.to_datetime(DAYS)
    values = {
        "int": [10, 20, 30, 40], "float": [1.0, 2.0, 3.0, 4.0], "iso": DAYS, "text": DAYS,
        "zoned": [f"{day}T01:00:00+01:00" for day in DAYS],
        "timestamp": stamps.astype("datetime64[us]"), "date": stamps.date,
    }[kind]  # fmt: skip
    since, until = {"int": ("20", "40"), "float": ("2", "3.5")}.get(kind, ("2026-11-20", DAYS[3]))
    frame = pd.DataFrame({"src": range(4), "dst": range(4), "t": values})
    path = tmp_path / ("a.csv" if kind in ("int", "float", "iso", "zoned") else "a.parquet")
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    expected = values if kind in ("int", "float") else stamps.astype("datetime64[ns]").astype(int)
    assert table(path, time="t")["time"].to_pylist() == list(expected)
    (batch,) = batches(path, time="t", since=since, until=until)
    assert batch.table["source"].to_pylist() == [1, 2]
    assert batch.filtered == 2


BASE, NOON = 17 * 10**17, "2026-11-20T12:00:00"


@pytest.mark.parametrize(
    ("values", "since", "until", "kept"),
    [
        # Milliseconds of today, whose nanoseconds no float holds.
        ([f"2026-11-20T12:00:00.00{n}" for n in (1, 3, 5)], f"{NOON}.003", None, [1, 2]),
        ([f"2026-11-20T12:00:00.00{n}" for n in (1, 3, 5)], None, f"{NOON}.003", [0]),
        # Nanoseconds, with and without a zone.
        (
            [f"2026-11-20T12:00:00.00000000{n}" for n in (1, 2, 3)],
            "2026-11-20T14:00:00.000000002+02:00",
            "2026-11-20 12:00:00.000000003",
            [1],
        ),
        ([BASE + n for n in (1, 51, 101)], str(BASE + 50), None, [1, 2]),
        ([BASE + n for n in (1, 51, 101)], None, str(BASE + 51), [0]),
        ([BASE + n for n in (1, 51, 101)], BASE + 51, BASE + 101, [1]),  # as a number, from Python
        # Between whole numbers, and beyond them.
        ([2, 3, 4], "2.5", "3.5", [1]),
        ([-(2**63), 0, 2**63 - 1], str(-(2**70)), "1e30", [0, 1, 2]),
        ([-(2**63), 0, 2**63 - 1], str(2**63), None, []),
        ([0.1, 0.2, 0.3], "0.2", 0.3, [1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_window_is_cut_exactly_at_its_bounds(tmp_path, suffix, values, since, until, kept):
    frame = pd.DataFrame({"src": range(3), "dst": range(3), "t": values})
    path = tmp_path / f"a.{suffix}"
    frame.to_parquet(path) if suffix == "parquet" else frame.to_csv(path, index=False)
    (batch,) = batches(path, time="t", since=since, until=until)
    assert batch.table["source"].to_pylist() == kept


MARK = "0,0,1,0\n1,1,1,1\n"  # two good rows before each bad one


@pytest.mark.parametrize(
    ("row", "options"),
    [
        (",1,1,1", {}),
        ("1,x7,1,1", {}),
        ("1.5,1,1,1", {}),
        (f"{2**63},1,1,1", {}),
        ("-1,1,1,1", {"id_type": "uint64"}),
        ("1,1,-0.5,1", {}),
        ("1,1,nan,1", {}),
        ("1,1,1e39,1", {}),
        ("1,1,heavy,1", {}),
        ("1,1,,1", {}),
        ("1,1,1,soon", {}),
        ("1,1,1", {}),
        ("1,1,1,1,", {}),
        ('1,"1"1,1,1', {}),
        (",1,1,1", {"id_type": "string"}),
    ],
)
def test_bad_rows_of_csv(tmp_path, row, options):
    path = tmp_path / "a.csv"
    path.write_text(f"{MARK}{row}\n{MARK}{row}\n{MARK}")
    options = {"id_type": "int64", "weight": "2", "time": "3", "header": "no"} | options
    kept, bad = skipped(path, **options)
    assert bad == [3, 6]
    assert kept.num_rows == 6
    refused(path, "row 3", row, **options)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("src", None),
        ("src", 1.5),
        ("src", 2.0**60),
        ("weight", None),
        ("weight", float("nan")),
        ("weight", -1.0),
        ("weight", np.inf),
        ("t", None),
    ],
)
def test_bad_rows_of_parquet(tmp_path, column, value):
    path = tmp_path / "a.parquet"
    columns = {"src": [0.0, 1, 2, 3], "dst": [1.0, 2, 3, 4], "weight": [1.0, 1, 1, 1]}
    columns |= {"t": [1.0, 2, 3, 4]}
    columns[column][2] = value
    pq.write_table(pa.table(columns), path, row_group_size=2)
    kept, bad = skipped(path, time="t")
    assert bad == [3]
    assert kept["source"].to_pylist() == [0, 1, 3]
    refused(path, "row 3", time="t")


def test_wide_integers_in_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"src": UNSIGNED, "dst": UNSIGNED}).to_parquet(path)
    assert skipped(path, id_type="int64")[1] == [2, 3]
    pd.DataFrame({"src": [1, -1], "dst": [1, 2]}).to_parquet(path)
    assert skipped(path, id_type="uint64")[1] == [2]


def test_times_beyond_nanoseconds(tmp_path):
    stamps = pa.array([0, 10**13], pa.timestamp("s"))
    pq.write_table(pa.table({"src": [0, 1], "dst": [0, 1], "t": stamps}), tmp_path / "a.parquet")
    assert skipped(tmp_path / "a.parquet", time="t")[1] == [2]


def test_a_header_where_none_was_promised(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("src,dst\n1,2\n3,4\n")
    refused(path, "row 1", header="no")
    kept, bad = skipped(path, header="no")
    assert (kept.num_rows, bad) == (2, [1])
    assert table(path).num_rows == 2


def test_invalid_utf8(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\nc\xff,d\ne,\xe9\nf,g\n")
    kept, bad = skipped(path)
    assert bad == [2, 3]
    assert kept["source"].to_pylist() == ["a", "f"]
    binary = pa.array([b"a", b"\xff"])
    pq.write_table(pa.table({"src": binary, "dst": binary}), tmp_path / "a.parquet")
    assert skipped(tmp_path / "a.parquet", id_type="string")[1] == [2]


def test_bad_rows_in_byte_ranges_have_the_editor_s_line(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 64)
    path = tmp_path / "a.txt"
    lines = ["# comment", ""] + [f"{i} {i}" for i in range(200)]
    wrong = (5, 77, 78, 150, 201)
    for line in wrong:
        lines[line] = "one two three"
    path.write_text("\n".join(lines))
    for target in (100, 333, 10_000):
        read = batches(path, target, on_bad_rows="skip")
        assert tuple(row.row - 1 for batch in read for row in batch.bad) == wrong
        kept = np.concatenate([batch.table["source"] for batch in read])
        assert kept.tolist() == [i for i in range(200) if i + 2 not in wrong]


def test_only_ten_bad_rows_are_kept(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("src,dst\n" + "1,2\n" * 30 + "1\n" * 25)
    (batch,) = batches(path, on_bad_rows="skip")
    assert (batch.bad_count, batch.table.num_rows) == (25, 30)
    assert [row.row for row in batch.bad] == list(range(32, 42))


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"src": np.arange(10_000), "dst": np.arange(10_000)})
    frame.to_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(b"PAR1" + bytes(2000) + whole[2004:])
    refused(path)
    path.write_bytes(whole[:-10])
    refused(path)
