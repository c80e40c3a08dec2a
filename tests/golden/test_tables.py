"""What becomes of tables of every kind: the edges of the graphs that ``penstock.etl`` makes."""

import datetime as dt
import gzip
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import penstock

Rows = list[tuple[Any, ...]]


def made(path, **options):
    """Return the edges of the graph that a table becomes: both ids, then what else they have."""
    given = {"directed": True, "self_loops": "keep"} | options
    penstock.etl(path, "g", overwrite=True, **given)
    graph = penstock.Graph.open("g")
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    columns = [[ids[n] for n in csr.sources()], [ids[n] for n in csr.indices]]
    if csr.relations is not None:
        columns.append([graph.manifest.relations[n] for n in csr.relations])
    columns += [one.tolist() for one in (csr.times, csr.weights) if one is not None]
    assert ids == sorted(ids)
    assert {*ids} >= {*columns[0], *columns[1]}
    return sorted(zip(*columns, strict=True))


NUMBERS = [(1, 2), (2, 3)]
TEXTS = [("a", "b"), ("b", "c")]
BIG, TOP = 2**63 - 1, 2**64 - 1
DAY, NOON = 86_400 * 10**9, pd.Timestamp("2026-11-20T12").value
UUIDS = [uuid.UUID(int=n).bytes for n in (1, 2, 3)]
TIMED = [(1, 2, NOON), (2, 3, NOON + DAY)]
DATED = [(1, 2, NOON - DAY // 2), (2, 3, NOON + DAY // 2)]
LONG = "x" * 1_200_000


def case(*given, **options):
    return *given, options


# The name of a file, its content, the edges, and the options.
TEXT = {
    "names": case("e.csv", "src,dst\n1,2\n2,3\n", NUMBERS),
    "no names": case("e.csv", "1,2\n2,3\n", NUMBERS),
    "names elsewhere": case("e.csv", "note,to,from\nx,2,1\ny,3,2\n", NUMBERS),
    "names by numbers below": case(
        "e.csv", "user,item\n1,2\n2,3\n", NUMBERS, source="0", target="1"
    ),
    "names behind a hash": case("e.csv", "# src , dst\n1,2\n2,3\n", NUMBERS),
    "two columns of one name": case(
        "e.csv", "a,id,id\n0,1,2\n0,2,3\n", NUMBERS, source="1", target="2", header="yes"
    ),
    "crlf": case("e.csv", "src,dst\r\n1,2\r\n2,3\r\n", NUMBERS),
    "carriage returns alone": case("e.csv", "src,dst\r1,2\r2,3", NUMBERS),
    "a carriage return among newlines": case("e.txt", "1 2\r2 3\n", NUMBERS),
    "byte order mark": case("e.csv", b"\xef\xbb\xbfsrc,dst\n1,2\n2,3\n", NUMBERS),
    "empty lines": case("e.csv", "\n\nsrc,dst\n1,2\n\n2,3\n\n\n", NUMBERS),
    "blanks around numbers": case("e.csv", "src,dst\n 1, 2\n2 ,\t3 \n", NUMBERS),
    "blanks around texts": case("e.csv", "src,dst\na , b\nb,c\n", [("a ", " b"), ("b", "c")]),
    "leading zeros": case("e.csv", "src,dst\n01,02\n02,3\n", [("01", "02"), ("02", "3")]),
    "leading zeros as numbers": case("e.csv", "src,dst\n01,02\n02,3\n", NUMBERS, id_type="int64"),
    "negative": case("e.csv", "src,dst\n-1,2\n2,-0\n", [(-1, 2), (2, 0)]),
    "the largest int64": case("e.csv", f"src,dst\n{BIG},{-BIG - 1}\n", [(BIG, -BIG - 1)]),
    "the largest uint64": case(
        "e.csv", f"src,dst\n{TOP},0\n1,{BIG + 1}\n", [(1, BIG + 1), (TOP, 0)]
    ),
    "beyond 64 bits": case(
        "e.csv", f"src,dst\n{TOP + 1},1\n", [(str(TOP + 1), "1")], id_type="string"
    ),
    "numbers as texts": case("e.csv", "src,dst\n1,2\n", [("1", "2")], id_type="string"),
    "numbers and texts": case("e.csv", "src,dst\n1,a\nb,0x1F\n", [("1", "a"), ("b", "0x1F")]),
    "decimals are texts": case(
        "e.csv", "src,dst\n1.5,2.0\n2.0,3e1\n", [("1.5", "2.0"), ("2.0", "3e1")]
    ),
    "null and NA are texts": case(
        "e.csv", "src,dst\nnull,NA\nNaN,b\n", [("NaN", "b"), ("null", "NA")]
    ),
    "numbers quoted": case("e.csv", '"src","dst"\n"1","2"\n"2",3\n', NUMBERS),
    "commas, quotes, lines in quotes": case(
        "e.csv",
        'src,dst\n"a,b","say ""hi"""\n"two\nlines","c\r\nd"\n',
        [("a,b", 'say "hi"'), ("two\nlines", "c\r\nd")],
    ),
    "a quote inside": case("e.csv", "src,dst\n5'11\",b\nb,c\n", [("5'11\"", "b"), ("b", "c")]),
    "quotes in tabs": case("e.tsv", 'src\tdst\n"a\tx"\tb\n', [("a\tx", "b")]),
    "no quotes in edge lists": case("e.txt", '"a b\nb c"\n', [('"a', "b"), ("b", 'c"')]),
    "tabs": case("e.tsv", "src\tdst\n1\t2\n2\t3\n", NUMBERS),
    "semicolons": case("e.csv", "src;dst\n1;2\n2;3\n", NUMBERS, delimiter=";"),
    "blanks of all kinds": case("e.txt", " 1  2\n\t2 \t3\t \n   \n", NUMBERS),
    "blanks between texts": case("e.txt", "a\tb\r\n b   c  \r\n", TEXTS),
    "comments": case("e.txt", "# a\tb\n% 7 8\n1 2\n  # 5 6\n2 3\n# 9", NUMBERS),
    "a hash later": case("e.txt", "a #b\nc% d\n", [("a", "#b"), ("c%", "d")]),
    "comments of a csv are rows": case("e.csv", "src,dst\n#a,b\nb,c\n", [("#a", "b"), ("b", "c")]),
    "weights in the third column": case(
        "e.txt", "1 2 0.5\n2 3 1e1\n", [(1, 2, 0.5), (2, 3, 10.0)], weight="2"
    ),
    "weights of all kinds": case(
        "e.csv",
        "src,dst,w\n1,2,.5\n2,3,+1.\n3,4, 2.5E-1\n4,5,007\n5,6,0.1\n",
        [(1, 2, 0.5), (2, 3, 1.0), (3, 4, 0.25), (4, 5, 7.0), (5, 6, float(np.float32(0.1)))],
    ),
    "duplicates": case("e.csv", "src,dst,w\n1,2,1\n1,2,.5\n2,3,2\n", [(1, 2, 1.5), (2, 3, 2.0)]),
    "triples": case("e.txt", "a\tr\tb\nb\tq\tc\n", [("a", "b", "r"), ("b", "c", "q")]),
    "triples with spaces inside": case("e.txt", "a b\tis in\tc d\n", [("a b", "c d", "is in")]),
    "relations that are numbers": case(
        "e.csv", "src,dst,rel\n1,2,7\n2,3,10\n", [(1, 2, "7"), (2, 3, "10")]
    ),
    "times that are whole": case(
        "e.csv", "src,dst,t\n1,2,5\n2,3,-1\n", [(1, 2, 5), (2, 3, -1)], time="t"
    ),
    "times that are not": case(
        "e.csv", "src,dst,t\n1,2,5\n2,3,1.5\n", [(1, 2, 5.0), (2, 3, 1.5)], time="t"
    ),
    "times of many digits": case(
        "e.csv",
        f"src,dst,t\n1,2,{NOON + 1}\n2,3,{NOON + 3}\n",
        [(2, 3, NOON + 3)],
        time="t",
        since=NOON + 2,
    ),
    "dates": case("e.csv", "src,dst,t\n1,2,2026-11-20\n2,3,2026-11-21\n", DATED, time="t"),
    "time zones": case(
        "e.csv",
        "src,dst,t\n1,2,2026-11-20T13:00:00+01:00\n2,3,2026-11-21 12:00:00Z\n",
        TIMED,
        time="t",
    ),
    "times without a zone": case(
        "e.csv",
        "src,dst,t\n1,2,2026-11-20 12:00\n2,3,2026-11-21T12:00:00.000000000\n",
        TIMED,
        time="t",
    ),
    "one column twice": case(
        "e.csv", "src,dst\n1,2\n2,3\n", [(1, 2, 2.0), (2, 3, 3.0)], weight="dst"
    ),
    "types": case(
        "e.csv",
        "src,dst,k\n1,2,a\n2,3,b\n",
        [("u:1", "a:2"), ("u:2", "b:3")],
        source_type="u",
        target_type="column:k",
    ),
    "gzip": case("e.csv.gz", gzip.compress(b"src,dst\n1,2\n2,3\n"), NUMBERS),
    "gzip twice": case(
        "e.csv.gz", gzip.compress(b"src,dst\n1,2\n") + gzip.compress(b"2,3\n"), NUMBERS
    ),
    "zstd": case("e.tsv.zst", pa.compress(b"1\t2\n2\t3\n", "zstd", asbytes=True), NUMBERS),
    "a long name": case("e.csv", f"src,dst,{LONG}\n1,2,0\n2,3,0\n", NUMBERS),
    "a long value": case("e.csv", f"{LONG},a\nb,c\n", [("b", "c"), (LONG, "a")]),
    "bad rows skipped": case(
        "e.csv",
        "src,dst,w\n1,2,1\n,2,1\n1,x,1\n1,2\n1,2,3,4\n1,2,nan\n1,2,-1\n2,3,2\n",
        [(1, 2, 1.0), (2, 3, 2.0)],
        on_bad_rows="skip",
    ),
    "bad quotes skipped": case(
        "e.csv", 'src,dst\na,b\n"a"x,b\na,"c\n\nb,c\n', TEXTS, on_bad_rows="skip"
    ),
    "bad letters skipped": case("e.csv", b"src,dst\na,b\n\xff,b\nb,c\n", TEXTS, on_bad_rows="skip"),
}

# Columns of Parquet in place of src, dst or more; the edges, and the options.
ARROW = {
    "int64": case({}, NUMBERS),
    "small": case(
        {"src": pa.array([1, 2], pa.uint8()), "dst": pa.array([2, 3], pa.int32())}, NUMBERS
    ),
    "uint64": case({"src": pa.array([1, TOP], pa.uint64())}, [(1, 2), (TOP, 3)]),
    "floats that are whole": case({"src": [1.0, 2.0]}, NUMBERS),
    "decimals that are whole": case({"src": [Decimal("1.00"), Decimal("2.00")]}, NUMBERS),
    "nulls skipped": case({"src": [1, None]}, [(1, 2)], on_bad_rows="skip"),
    "texts": case({"src": ["a", "b"], "dst": ["b", "c"]}, TEXTS),
    "large texts": case(
        {
            "src": pa.array(["a", "b"], pa.large_string()),
            "dst": pa.array(["b", "c"], pa.string_view()),
        },
        TEXTS,
    ),
    "categories": case(
        {
            "src": pa.array(["a", "b"]).dictionary_encode(),
            "dst": pa.array(["b", "c"]).dictionary_encode(),
        },
        TEXTS,
    ),
    "categories of numbers": case({"src": pa.array([1, 2]).dictionary_encode()}, NUMBERS),
    "texts and numbers": case({"src": ["a", "b"]}, [("a", "2"), ("b", "3")]),
    "digits as numbers": case({"src": ["1", " 2"]}, NUMBERS, id_type="int64"),
    "bytes": case(
        {"src": pa.array(UUIDS[:2], pa.binary(16)), "dst": pa.array(UUIDS[1:], pa.binary())},
        [(UUIDS[0], UUIDS[1]), (UUIDS[1], UUIDS[2])],
    ),
    "uuids": case(
        {
            end: pa.ExtensionArray.from_storage(pa.uuid(), pa.array(ids, pa.binary(16)))
            for end, ids in {"src": UUIDS[:2], "dst": UUIDS[1:]}.items()
        },
        [(UUIDS[0], UUIDS[1]), (UUIDS[1], UUIDS[2])],
    ),
    "weights": case({"weight": [0.5, 2.0]}, [(1, 2, 0.5), (2, 3, 2.0)]),
    "decimal weights": case({"w": [Decimal("0.5"), Decimal("2")]}, [(1, 2, 0.5), (2, 3, 2.0)]),
    "weights as texts": case({"w": ["0.5", "2"]}, [(1, 2, 0.5), (2, 3, 2.0)]),
    "relations": case(
        {"rel": pa.array(["r", "q"]).dictionary_encode()}, [(1, 2, "r"), (2, 3, "q")]
    ),
    "dates": case({"t": [dt.date(2026, 11, 20), dt.date(2026, 11, 21)]}, DATED, time="t"),
    "microseconds": case(
        {"t": pa.array([NOON, NOON + DAY], pa.timestamp("ns")).cast(pa.timestamp("us"))},
        TIMED,
        time="t",
    ),
    "zones": case(
        {"t": pa.array([NOON, NOON + DAY], pa.timestamp("ns", "Europe/Oslo"))}, TIMED, time="t"
    ),
    "times as texts": case({"t": ["2026-11-20T12:00", "2026-11-21T12:00Z"]}, TIMED, time="t"),
    "decimal times": case(
        {"t": [Decimal("1.5"), Decimal("2")]}, [(1, 2, 1.5), (2, 3, 2.0)], time="t"
    ),
    "types": case(
        {"k": pa.array(["a", "b"]).dictionary_encode()},
        [("u:1", "a:2"), ("u:2", "b:3")],
        source_type="u",
        target_type="column:k",
    ),
}


@pytest.mark.parametrize("case", TEXT)
def test_text(case):
    name, content, edges, options = TEXT[case]
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    assert made(name, **options) == edges


@pytest.mark.parametrize("case", ARROW)
def test_parquet(case):
    columns, edges, options = ARROW[case]
    rows = pa.table({"src": [1, 2], "dst": [2, 3]} | columns)
    pq.write_table(rows, "e.parquet", row_group_size=1)
    assert made("e.parquet", **options) == edges


def test_several_files_and_matrices():
    Path("a").mkdir()
    for name, text in {"a/y.csv": "dst,src\n3,2\n", "a/x.csv": "dst,src\n2,1\n"}.items():
        Path(name).write_text(text)
    Path("a/_SUCCESS").touch()
    for path in ("a", "a/*.csv", ["a/y.csv", "a/x.csv"], f"file://{Path('a').absolute()}"):
        assert made(path) == NUMBERS
    entries = ([0.5, 2.0], ([1, 2], [2, 3]))
    for kind in ("csr", "csc", "coo"):
        sp.save_npz("m.npz", sp.coo_array(entries, (4, 4)).asformat(kind))
        assert made("m.npz") == [(1, 2, 0.5), (2, 3, 2.0)]


@pytest.mark.parametrize(
    ("labels", "kind", "found", "classes"),
    [
        (["7", "", "5"], "auto", [1, None, 0], ("5", "7")),
        (["x", "y", "x"], "auto", [0, 1, 0], ("x", "y")),
        (["0.5", "", "-1"], "auto", [0.5, None, -1.0], None),
        (["1.0", "2.0", ""], "auto", [0, 1, None], ("1", "2")),
        (["1", "2", "3"], "value", [1.0, 2.0, 3.0], None),
        (["a|b", "", "b c"], "multi", [[0, 1], None, [1, 2]], ("a", "b", "c")),
        (["2;1", "10", ""], "multi", [[1, 0], [2], None], ("1", "2", "10")),
    ],
)
def test_labels(labels, kind, found, classes):
    Path("e.csv").write_text("src,dst\n1,2\n2,3\n")
    lines = [f"{number},{label}\n" for number, label in enumerate(labels, 1)]
    Path("n.csv").write_text("".join(["id,label\n", *lines]))
    made("e.csv", nodes="n.csv", label="label", label_kind=kind)
    assert pq.read_table("g/nodes.parquet")["label"].to_pylist() == found
    assert penstock.Graph.open("g").manifest.classes == classes


@pytest.mark.parametrize(
    ("rows", "bad"),
    [
        ("1,2\n2,3\n3,x\n", "row 4"),
        ("1,2\n\n\n,3\n", "row 5"),
        ("1,2\n1,2,3\n", "row 3"),
        ("1,2\n" * 1500 + f"1,{TOP}\n", "row 1502"),
        ('"a","b\nc"\n"d"e,f\n', "row 4"),
    ],
)
def test_bad_rows_are_named(rows, bad):
    Path("e.csv").write_text("src,dst\n" + rows)
    with pytest.raises(penstock.errors.InputError, match=f"e.csv, {bad}"):
        made("e.csv")


def views(rows):
    """Return a table with texts as Polars has them."""
    texts = [one for one in rows.schema if not pa.types.is_integer(one.type)]
    for one in texts:
        column = rows[one.name].cast(pa.string()).cast(pa.string_view())
        rows = rows.set_column(rows.schema.get_field_index(one.name), one.name, column)
    return rows


STREAMS = {
    "pyarrow": lambda rows: rows,
    "views": views,
    "pandas": lambda rows: rows.to_pandas(),
    "batches": lambda rows: pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(1)),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_tables_of_other_libraries(kind):
    edges = pa.table({"src": ["a", "b"], "dst": pa.array(["b", "c"]).dictionary_encode()})
    people = pd.DataFrame({"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0], "y": ["u", "v", "u"]})
    if kind == "views":
        people = pa.Table.from_pandas(people)
        people = people.set_column(2, "y", people["y"].cast(pa.string()).cast(pa.string_view()))
    options = {"nodes": people, "feature_columns": ("x",), "label": "y"}
    assert made(STREAMS[kind](edges), **options) == TEXTS
    assert penstock.Graph.open("g").features().tolist() == [[1], [2], [3]]
    assert [path.name for path in Path().iterdir()] == ["g"]
    with pytest.raises(penstock.errors.InputError, match="row 2"):
        made(STREAMS[kind](pa.table({"src": [1, None], "dst": [2, 3]})))


@pytest.mark.parametrize("case", ["categories", "uuids", "zones", "nulls skipped"])
def test_arrow_files(case):
    columns, edges, options = ARROW[case]
    rows = pa.table({"src": [1, 2], "dst": [2, 3]} | columns)
    with pa.ipc.new_file("e.arrow", rows.schema) as file:
        for start in (0, 1):
            file.write_table(rows.slice(start, 1))
    assert made("e.arrow", **options) == edges


def test_equal_tables_are_two_and_a_finished_graph_is_known_again():
    table = pa.table({"src": [1, 2], "dst": [2, 3], "weight": [1.0, 2.0]})
    penstock.etl([table, table], "g")
    assert penstock.Graph.open("g").csr().weights.tolist() == [2, 2, 4, 4]
    assert penstock.etl([table, table], "g", resume=True).edges == 4


def test_lists_of_texts_as_polars_has_them():
    lists = pa.array([["a", "b"], None, ["b"]], pa.large_list(pa.string_view()))
    people = pa.table({"id": [1, 2, 3], "y": lists})
    edges = pa.table({"src": [1, 2], "dst": [2, 3]})
    penstock.etl(edges, "g", nodes=people, label="y")
    assert penstock.Graph.open("g").manifest.labels == "multi"


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
@pytest.mark.parametrize("wrapped", ["column", "dictionary", "list"])
def test_ids_in_views_as_polars_gives_them(kind, wrapped):
    """Tables of this process, and Arrow IPC files."""
    plain = pa.binary() if kind == pa.binary_view() else pa.string()
    columns = [pa.array([f"{'id' * 9}{n}" for n in some]).cast(plain) for some in ([1, 2], [2, 3])]
    rows = [*zip(*(column.to_pylist() for column in columns), strict=True)]
    views = [column.cast(kind) for column in columns]
    if wrapped == "dictionary":
        indices = pa.array([0, 1], pa.int8())
        views = [pa.DictionaryArray.from_arrays(indices, column) for column in views]
    table = pa.table(dict(zip(("src", "dst"), views, strict=True)))
    if wrapped == "list":
        table = pa.table({"path": pa.ListArray.from_arrays([0, 2, 4], pa.concat_arrays(views))})
    with pa.ipc.new_file("views.arrow", table.schema) as file:
        file.write_table(table)
    for source in (table, "views.arrow"):
        if wrapped == "list":
            penstock.word2vec(source, "v", dim=2, sample=0, overwrite=True)
            found = {*penstock.Vectors.open("v").ids.to_pylist()}
            assert found == {one for row in rows for one in row}
        else:
            assert made(source) == rows
