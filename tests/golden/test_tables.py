"""What becomes of tables of every kind: the edges of the graphs that ``penstock.etl`` makes."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import uuid
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Workers in this process, for all cases."""
    from distributed import LocalCluster

    options: dict[str, Any] = {"dashboard_address": "localhost:0", "silence_logs": 40}
    with LocalCluster(processes=False, n_workers=1, threads_per_worker=2, **options) as running:
        yield running.scheduler_address


def made(path: Any, cluster: str, **options: Any) -> Rows:
    """Return the edges of the graph that a table becomes: both ids, then what else they have."""
    given = {"directed": True, "self_loops": "keep"} | options
    penstock.etl(path, "g", cluster=cluster, overwrite=True, **given)
    graph = penstock.Graph.open("g")
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    columns = [[ids[n] for n in csr.sources()], [ids[n] for n in csr.indices]]
    if csr.relations is not None:
        columns.append([graph.manifest.relations[n] for n in csr.relations])
    columns += [one.tolist() for one in (csr.times, csr.weights) if one is not None]
    assert ids == sorted(ids)
    assert {*ids} >= {*columns[0], *columns[1]}
    return sorted(zip(*columns, strict=True))


NUMBERS: Rows = [(1, 2), (2, 3)]
TEXTS: Rows = [("a", "b"), ("b", "c")]
BIG, TOP = 2**63 - 1, 2**64 - 1
DAY, NOON = 86_400 * 10**9, pd.Timestamp("2026-11-20T12").value
UUIDS = [uuid.UUID(int=n).bytes for n in (1, 2, 3)]
TIMED: Rows = [(1, 2, NOON), (2, 3, NOON + DAY)]
DATED: Rows = [(1, 2, NOON - DAY // 2), (2, 3, NOON + DAY // 2)]
LONG = "x" * 1_200_000

# The name of a file, its content, the options, and the edges.
TEXT: dict[str, tuple[str, str | bytes, dict[str, Any], Rows]] = {
    "names": ("e.csv", "src,dst\n1,2\n2,3\n", {}, NUMBERS),
    "no names": ("e.csv", "1,2\n2,3\n", {}, NUMBERS),
    "names elsewhere": ("e.csv", "note,to,from\nx,2,1\ny,3,2\n", {}, NUMBERS),
    "names by numbers below": (
        "e.csv", "user,item\n1,2\n2,3\n", {"source": "0", "target": "1"}, NUMBERS
    ),
    "names behind a hash": ("e.csv", "# src , dst\n1,2\n2,3\n", {}, NUMBERS),
    "two columns of one name": (
        "e.csv", "a,id,id\n0,1,2\n0,2,3\n",
        {"source": "1", "target": "2", "header": "yes"}, NUMBERS,
    ),
    "no last newline": ("e.csv", "src,dst\n1,2\n2,3", {}, NUMBERS),
    "crlf": ("e.csv", "src,dst\r\n1,2\r\n2,3\r\n", {}, NUMBERS),
    "crlf of texts": ("e.csv", "src,dst\r\na,b\r\nb,c", {}, TEXTS),
    "carriage returns alone": ("e.csv", "src,dst\r1,2\r2,3", {}, NUMBERS),
    "a carriage return among newlines": ("e.txt", "1 2\r2 3\n", {}, NUMBERS),
    "byte order mark": ("e.csv", b"\xef\xbb\xbfsrc,dst\n1,2\n2,3\n", {}, NUMBERS),
    "byte order mark, no names": ("e.csv", b"\xef\xbb\xbf1,2\n2,3\n", {}, NUMBERS),
    "empty lines": ("e.csv", "\n\nsrc,dst\n1,2\n\n2,3\n\n\n", {}, NUMBERS),
    "blanks around numbers": ("e.csv", "src,dst\n 1, 2\n2 ,\t3 \n", {}, NUMBERS),
    "blanks around texts": ("e.csv", "src,dst\na , b\nb,c\n", {}, [("a ", " b"), ("b", "c")]),
    "plus and zeros": ("e.csv", "src,dst\n+1,2\n2,+3\n", {}, NUMBERS),
    "leading zeros": ("e.csv", "src,dst\n01,02\n02,3\n", {}, [("01", "02"), ("02", "3")]),
    "leading zeros as numbers": ("e.csv", "src,dst\n01,02\n02,3\n", {"id_type": "int64"}, NUMBERS),
    "negative": ("e.csv", "src,dst\n-1,2\n2,-0\n", {}, [(-1, 2), (2, 0)]),
    "the largest int64": ("e.csv", f"src,dst\n{BIG},{-BIG - 1}\n", {}, [(BIG, -BIG - 1)]),
    "the largest uint64": (
        "e.csv", f"src,dst\n{TOP},0\n1,{BIG + 1}\n", {}, [(1, BIG + 1), (TOP, 0)]
    ),
    "beyond 64 bits": (
        "e.csv", f"src,dst\n{TOP + 1},1\n", {"id_type": "string"}, [(str(TOP + 1), "1")]
    ),
    "numbers as texts": ("e.csv", "src,dst\n1,2\n", {"id_type": "string"}, [("1", "2")]),
    "numbers and texts": ("e.csv", "src,dst\n1,a\nb,0x1F\n", {}, [("1", "a"), ("b", "0x1F")]),
    "decimals are texts": (
        "e.csv", "src,dst\n1.5,2.0\n2.0,3e1\n", {}, [("1.5", "2.0"), ("2.0", "3e1")]
    ),
    "booleans are texts": ("e.csv", "src,dst\ntrue,false\n", {}, [("true", "false")]),
    "null and NA are texts": (
        "e.csv", "src,dst\nnull,NA\nNaN,b\n", {}, [("NaN", "b"), ("null", "NA")]
    ),
    "dates are texts": ("e.csv", "src,dst\n2026-11-20,a\n", {}, [("2026-11-20", "a")]),
    "letters of all kinds": ("e.csv", "src,dst\nå,雪\n雪,😀\n", {}, [("å", "雪"), ("雪", "😀")]),
    "all quoted": ("e.csv", '"src","dst"\n"a","b"\n"b","c"\n', {}, TEXTS),
    "numbers quoted": ("e.csv", '"src","dst"\n"1","2"\n"2",3\n', {}, NUMBERS),
    "names quoted": ("e.csv", '"src","dst"\n1,2\n2,3\n', {}, NUMBERS),
    "commas, quotes, lines in quotes": (
        "e.csv", 'src,dst\n"a,b","say ""hi"""\n"two\nlines","c\r\nd"\n', {},
        [("a,b", 'say "hi"'), ("two\nlines", "c\r\nd")],
    ),
    "a quote inside": ("e.csv", "src,dst\n5'11\",b\nb,c\n", {}, [("5'11\"", "b"), ("b", "c")]),
    "quotes in tabs": ("e.tsv", 'src\tdst\n"a\tx"\tb\n', {}, [("a\tx", "b")]),
    "no quotes in edge lists": ("e.txt", '"a b\nb c"\n', {}, [('"a', "b"), ("b", 'c"')]),
    "tabs": ("e.tsv", "src\tdst\n1\t2\n2\t3\n", {}, NUMBERS),
    "semicolons": ("e.csv", "src;dst\n1;2\n2;3\n", {"delimiter": ";"}, NUMBERS),
    "spaces": ("e.txt", "1 2\n2 3\n", {}, NUMBERS),
    "blanks of all kinds": ("e.txt", " 1  2\n\t2 \t3\t \n   \n", {}, NUMBERS),
    "blanks between texts": ("e.txt", "a\tb\r\n b   c  \r\n", {}, TEXTS),
    "comments": ("e.txt", "# a\tb\n% 7 8\n1 2\n  # 5 6\n2 3\n# 9", {}, NUMBERS),
    "comments between commas": ("e.txt", "# a\n1,2\n # b\n2,3\n", {}, NUMBERS),
    "a hash later": ("e.txt", "a #b\nc% d\n", {}, [("a", "#b"), ("c%", "d")]),
    "comments of a csv are rows": ("e.csv", "src,dst\n#a,b\nb,c\n", {}, [("#a", "b"), ("b", "c")]),
    "weights in the third column": (
        "e.txt", "1 2 0.5\n2 3 1e1\n", {"weight": "2"}, [(1, 2, 0.5), (2, 3, 10.0)]
    ),
    "weights of all kinds": (
        "e.csv", "src,dst,w\n1,2,.5\n2,3,+1.\n3,4, 2.5E-1\n4,5,007\n5,6,0.1\n", {},
        [(1, 2, 0.5), (2, 3, 1.0), (3, 4, 0.25), (4, 5, 7.0), (5, 6, float(np.float32(0.1)))],
    ),
    "duplicates": ("e.csv", "src,dst,w\n1,2,1\n1,2,.5\n2,3,2\n", {}, [(1, 2, 1.5), (2, 3, 2.0)]),
    "triples": ("e.txt", "a\tr\tb\nb\tq\tc\n", {}, [("a", "b", "r"), ("b", "c", "q")]),
    "triples with spaces inside": (
        "e.txt", "a b\tis in\tc d\n", {}, [("a b", "c d", "is in")]
    ),
    "triples between spaces": (
        "e.txt", "a r b\n", {"format": "triples"}, [("a", "b", "r")]
    ),
    "relations that are numbers": (
        "e.csv", "src,dst,rel\n1,2,7\n2,3,10\n", {}, [(1, 2, "7"), (2, 3, "10")]
    ),
    "times that are whole": (
        "e.csv", "src,dst,t\n1,2,5\n2,3,-1\n", {"time": "t"}, [(1, 2, 5), (2, 3, -1)]
    ),
    "times that are not": (
        "e.csv", "src,dst,t\n1,2,5\n2,3,1.5\n", {"time": "t"}, [(1, 2, 5.0), (2, 3, 1.5)]
    ),
    "times of many digits": (
        "e.csv", f"src,dst,t\n1,2,{NOON + 1}\n2,3,{NOON + 3}\n", {"time": "t", "since": NOON + 2},
        [(2, 3, NOON + 3)],
    ),
    "dates": ("e.csv", "src,dst,t\n1,2,2026-11-20\n2,3,2026-11-21\n", {"time": "t"}, DATED),
    "time zones": (
        "e.csv", "src,dst,t\n1,2,2026-11-20T13:00:00+01:00\n2,3,2026-11-21 12:00:00Z\n",
        {"time": "t"}, TIMED,
    ),
    "times without a zone": (
        "e.csv", "src,dst,t\n1,2,2026-11-20 12:00\n2,3,2026-11-21T12:00:00.000000000\n",
        {"time": "t"}, TIMED,
    ),
    "one column twice": (
        "e.csv", "src,dst\n1,2\n2,3\n", {"weight": "dst"}, [(1, 2, 2.0), (2, 3, 3.0)]
    ),
    "types": (
        "e.csv", "src,dst,k\n1,2,a\n2,3,b\n",
        {"source_type": "u", "target_type": "column:k"}, [("u:1", "a:2"), ("u:2", "b:3")],
    ),
    "gzip": ("e.csv.gz", gzip.compress(b"src,dst\n1,2\n2,3\n"), {}, NUMBERS),
    "gzip twice": (
        "e.csv.gz", gzip.compress(b"src,dst\n1,2\n") + gzip.compress(b"2,3\n"), {}, NUMBERS
    ),
    "zstd": ("e.tsv.zst", pa.compress(b"1\t2\n2\t3\n", "zstd", asbytes=True), {}, NUMBERS),
    "bzip2": ("e.txt.bz2", bz2.compress(b"1 2\n2 3\n"), {}, NUMBERS),
    "a long name": ("e.csv", f"src,dst,{LONG}\n1,2,0\n2,3,0\n", {}, NUMBERS),
    "a long value": ("e.csv", f"{LONG},a\nb,c\n", {}, [("b", "c"), (LONG, "a")]),
    "a long comment": ("e.txt", f"# {LONG}\n1 2\n2 3\n", {}, NUMBERS),
    "bad rows skipped": (
        "e.csv", "src,dst,w\n1,2,1\n,2,1\n1,x,1\n1,2\n1,2,3,4\n1,2,nan\n1,2,-1\n2,3,2\n",
        {"on_bad_rows": "skip"}, [(1, 2, 1.0), (2, 3, 2.0)],
    ),
    "bad quotes skipped": (
        "e.csv", 'src,dst\na,b\n"a"x,b\na,"c\n\nb,c\n', {"on_bad_rows": "skip"}, TEXTS
    ),
    "bad letters skipped": (
        "e.csv", b"src,dst\na,b\n\xff,b\nb,c\n", {"on_bad_rows": "skip"}, TEXTS
    ),
}  # fmt: skip

# Columns of Parquet in place of src, dst or more; the options, and the edges.
ARROW: dict[str, tuple[dict[str, Any], dict[str, Any], Rows]] = {
    "int64": ({}, {}, NUMBERS),
    "small": (
        {"src": pa.array([1, 2], pa.uint8()), "dst": pa.array([2, 3], pa.int32())}, {}, NUMBERS
    ),
    "uint64": (
        {"src": pa.array([1, TOP], pa.uint64())}, {}, [(1, 2), (TOP, 3)]
    ),
    "floats that are whole": ({"src": [1.0, 2.0]}, {}, NUMBERS),
    "decimals that are whole": ({"src": [Decimal("1.00"), Decimal("2.00")]}, {}, NUMBERS),
    "nulls skipped": ({"src": [1, None]}, {"on_bad_rows": "skip"}, [(1, 2)]),
    "texts": ({"src": ["a", "b"], "dst": ["b", "c"]}, {}, TEXTS),
    "large texts": (
        {"src": pa.array(["a", "b"], pa.large_string()),
         "dst": pa.array(["b", "c"], pa.string_view())}, {}, TEXTS,
    ),
    "categories": (
        {"src": pa.array(["a", "b"]).dictionary_encode(),
         "dst": pa.array(["b", "c"]).dictionary_encode()}, {}, TEXTS,
    ),
    "categories of numbers": ({"src": pa.array([1, 2]).dictionary_encode()}, {}, NUMBERS),
    "texts and numbers": ({"src": ["a", "b"]}, {}, [("a", "2"), ("b", "3")]),
    "digits as numbers": ({"src": ["1", " 2"]}, {"id_type": "int64"}, NUMBERS),
    "bytes": (
        {"src": pa.array(UUIDS[:2], pa.binary(16)), "dst": pa.array(UUIDS[1:], pa.binary())}, {},
        [(UUIDS[0], UUIDS[1]), (UUIDS[1], UUIDS[2])],
    ),
    "uuids": (
        {end: pa.ExtensionArray.from_storage(pa.uuid(), pa.array(ids, pa.binary(16)))
         for end, ids in {"src": UUIDS[:2], "dst": UUIDS[1:]}.items()}, {},
        [(UUIDS[0], UUIDS[1]), (UUIDS[1], UUIDS[2])],
    ),
    "weights": ({"weight": [0.5, 2.0]}, {}, [(1, 2, 0.5), (2, 3, 2.0)]),
    "decimal weights": (
        {"w": [Decimal("0.5"), Decimal("2")]}, {}, [(1, 2, 0.5), (2, 3, 2.0)]
    ),
    "weights as texts": ({"w": ["0.5", "2"]}, {}, [(1, 2, 0.5), (2, 3, 2.0)]),
    "relations": (
        {"rel": pa.array(["r", "q"]).dictionary_encode()}, {}, [(1, 2, "r"), (2, 3, "q")]
    ),
    "dates": ({"t": [dt.date(2026, 11, 20), dt.date(2026, 11, 21)]}, {"time": "t"}, DATED),
    "microseconds": (
        {"t": pa.array([NOON, NOON + DAY], pa.timestamp("ns")).cast(pa.timestamp("us"))},
        {"time": "t"}, TIMED,
    ),
    "zones": (
        {"t": pa.array([NOON, NOON + DAY], pa.timestamp("ns", "Europe/Oslo"))}, {"time": "t"}, TIMED
    ),
    "times as texts": (
        {"t": ["2026-11-20T12:00", "2026-11-21T12:00Z"]}, {"time": "t"}, TIMED
    ),
    "decimal times": (
        {"t": [Decimal("1.5"), Decimal("2")]}, {"time": "t"}, [(1, 2, 1.5), (2, 3, 2.0)]
    ),
    "types": (
        {"k": pa.array(["a", "b"]).dictionary_encode()},
        {"source_type": "u", "target_type": "column:k"}, [("u:1", "a:2"), ("u:2", "b:3")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXT)
def test_text(cluster: str, case: str) -> None:
    name, content, options, edges = TEXT[case]
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    assert made(name, cluster, **options) == edges


@pytest.mark.parametrize("case", ARROW)
def test_parquet(cluster: str, case: str) -> None:
    columns, options, edges = ARROW[case]
    rows = pa.table({"src": [1, 2], "dst": [2, 3]} | columns)
    pq.write_table(rows, "e.parquet", row_group_size=1)
    assert made("e.parquet", cluster, **options) == edges


def test_several_files_and_matrices(cluster: str) -> None:
    Path("a").mkdir()
    for name, text in {"a/y.csv": "dst,src\n3,2\n", "a/x.csv": "dst,src\n2,1\n"}.items():
        Path(name).write_text(text)
    Path("a/_SUCCESS").touch()
    for path in ("a", "a/*.csv", ["a/y.csv", "a/x.csv"], f"file://{Path('a').absolute()}"):
        assert made(path, cluster) == NUMBERS
    entries = ([0.5, 2.0], ([1, 2], [2, 3]))
    for kind in ("csr", "csc", "coo"):
        sp.save_npz("m.npz", sp.coo_array(entries, (4, 4)).asformat(kind))
        assert made("m.npz", cluster) == [(1, 2, 0.5), (2, 3, 2.0)]


NODES = """id,team,part,x,y
1,a,train,0.5,1
2,,val,,2
3,b,TEST,1e1,nan
4,-,,2,
"""


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_node_tables(cluster: str, kind: str) -> None:
    Path("e.csv").write_text("src,dst\n1,2\n2,3\n")
    options: dict[str, Any] = {"label": "team", "label_missing": "-", "split": "part"}
    options |= {"feature_columns": ("x", "y"), "missing_features": "zero", "nodes": f"n.{kind}"}
    Path("n.csv").write_text(NODES)
    Path("n.tsv").write_text(NODES.replace(",", "\t"))
    pd.read_csv("n.csv").to_parquet("n.parquet")
    assert made("e.csv", cluster, **options) == NUMBERS
    graph, nodes = penstock.Graph.open("g"), pq.read_table("g/nodes.parquet").to_pydict()
    assert graph.manifest.classes == ("a", "b")
    assert nodes["id"] == [1, 2, 3, 4]
    assert nodes["label"] == [0, None, 1, None]
    assert nodes["split"] == [0, 1, 2, None]
    assert graph.features().tolist() == [[0.5, 1], [0, 2], [10, 0], [2, 0]]


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
def test_labels(
    cluster: str, labels: list[str], kind: str, found: list[Any], classes: tuple[str, ...] | None
) -> None:
    Path("e.csv").write_text("src,dst\n1,2\n2,3\n")
    lines = [f"{number},{label}\n" for number, label in enumerate(labels, 1)]
    Path("n.csv").write_text("".join(["id,label\n", *lines]))
    made("e.csv", cluster, nodes="n.csv", label="label", label_kind=kind)
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
def test_bad_rows_are_named(cluster: str, rows: str, bad: str) -> None:
    Path("e.csv").write_text("src,dst\n" + rows)
    with pytest.raises(penstock.errors.InputError) as error:
        made("e.csv", cluster)
    assert f"e.csv, {bad}" in str(error.value)


def views(rows: pa.Table) -> pa.Table:
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
def test_tables_of_other_libraries(cluster: str, kind: str) -> None:
    edges = pa.table({"src": ["a", "b"], "dst": pa.array(["b", "c"]).dictionary_encode()})
    people: Any = pd.DataFrame({"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0], "y": ["u", "v", "u"]})
    if kind == "views":
        people = pa.Table.from_pandas(people)
        people = people.set_column(2, "y", people["y"].cast(pa.string()).cast(pa.string_view()))
    options = {"nodes": people, "feature_columns": ("x",), "label": "y"}
    assert made(STREAMS[kind](edges), cluster, **options) == TEXTS
    assert penstock.Graph.open("g").features().tolist() == [[1], [2], [3]]
    assert [path.name for path in Path().iterdir()] == ["g"]
    with pytest.raises(penstock.errors.InputError) as error:
        made(STREAMS[kind](pa.table({"src": [1, None], "dst": [2, 3]})), cluster)
    assert "row 2" in str(error.value)


@pytest.mark.parametrize("case", ["categories", "uuids", "zones", "nulls skipped"])
def test_arrow_files(cluster: str, case: str) -> None:
    columns, options, edges = ARROW[case]
    rows = pa.table({"src": [1, 2], "dst": [2, 3]} | columns)
    with pa.ipc.new_file("e.arrow", rows.schema) as file:
        for start in (0, 1):
            file.write_table(rows.slice(start, 1))
    assert made("e.arrow", cluster, **options) == edges


def test_equal_tables_are_two_and_a_finished_graph_is_known_again() -> None:
    table = pa.table({"src": [1, 2], "dst": [2, 3], "weight": [1.0, 2.0]})
    penstock.etl([table, table], "g")
    assert penstock.Graph.open("g").csr().weights.tolist() == [2, 2, 4, 4]
    assert penstock.etl([table, table], "g", resume=True).edges == 4


def test_lists_of_texts_as_polars_has_them() -> None:
    lists = pa.array([["a", "b"], None, ["b"]], pa.large_list(pa.string_view()))
    people = pa.table({"id": [1, 2, 3], "y": lists})
    edges = pa.table({"src": [1, 2], "dst": [2, 3]})
    penstock.etl(edges, "g", nodes=people, label="y")
    assert penstock.Graph.open("g").manifest.labels == "multi"


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
@pytest.mark.parametrize("wrapped", ["column", "dictionary", "list"])
def test_ids_in_views_as_polars_gives_them(cluster: str, kind: Any, wrapped: str) -> None:
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
            penstock.word2vec(source, "v", cluster=cluster, dim=2, sample=0, overwrite=True)
            found = {*penstock.Vectors.open("v").ids.to_pylist()}
            assert found == {one for row in rows for one in row}
        else:
            assert made(source, cluster) == rows
