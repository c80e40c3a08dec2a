"""Inputs that lie on an HTTP server and in an object store, through the command."""

import gzip
import io
import json
from importlib.util import find_spec

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from golden import columns, command, run
from object_store import object_store

from penstock import Graph

ROWS = [(1, 2, 0.5), (2, 3, 1.5), (3, 9, 2.5), (9, 1, 3.5)]


def parquet(rows, **more):
    file = io.BytesIO()
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("src", "dst", "weight"), map(np.array, columns), strict=True)))
    for name, value in more.items():
        table = table.append_column(name, pa.array([value] * len(rows)))
    pq.write_table(table, file, row_group_size=1)
    return file.getvalue()


def arrow(rows):
    file = io.BytesIO()
    table = pq.read_table(io.BytesIO(parquet(rows)))
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def text(rows):
    return b"src,dst,weight\n" + b"".join(b"%d,%d,%.1f\n" % row for row in rows)


def sentences():
    file = io.BytesIO()
    pq.write_table(pa.table({"path": [["a", "b", "c"], ["b", "c"]] * 9}), file)
    return file.getvalue()


TEXT = b"a b c\nb c\n" * 9
FILES = {
    "lake/night/part-0.parquet": parquet(ROWS[:3]),
    "lake/night/deep/part-1.parquet": parquet(ROWS[3:]),
    "lake/night/_SUCCESS": b"",
    "lake/night/.part-2.parquet.crc": b"no table",
    "lake/texts/a.csv": text(ROWS[:1]),
    "lake/texts/b.csv.gz": gzip.compress(text(ROWS[1:])),
    "lake/whole/edges.arrow": arrow(ROWS),
    "lake/whole/edges.parquet": parquet(ROWS),
    "lake/whole/edges.csv.gz": gzip.compress(text(ROWS)),
    "lake/vectors.txt": b"3 2\na 1.0 0.0\nb 0.9 0.1\nc 0.0 1.0\n",
    "lake/bad.csv": b"src,dst\n1,2\n3,\n",
    "lake/books/a.txt": TEXT,
    "lake/books/more/b.txt.gz": gzip.compress(TEXT),
    "lake/lists/a.parquet": sentences(),
    "lake/lists/b.parquet": sentences(),
    "lake/graphs.csv": b"graph_id,src,dst,weight\n" + b"".join(b"7,%d,%d,%.1f\n" % r for r in ROWS),
    "lake/graphs.parquet": parquet(ROWS, graph_id=7),
    "lake/graphs.jsonl.gz": gzip.compress(
        json.dumps({"id": 7, "edges": [*map(list, ROWS)]}).encode()
    ),
    "lake/zoo/7.txt": text(ROWS[:2]).split(b"\n", 1)[1].replace(b",", b" "),
    "lake/zoo/8.txt": text(ROWS[2:]).split(b"\n", 1)[1].replace(b",", b" "),
    "lake/bad.jsonl": b'{"edges": [[1, 2]]}\n{"edges": [[1, 2, 3, 4]]}\n',
}


def weighted(path):
    """Return the edges of a graph by the user's ids."""
    graph = Graph.open(path)
    ids, csr = np.asarray(graph.user_ids()), graph.csr()
    ends = ids[csr.sources()], ids[csr.indices], csr.weights
    return list(zip(*(column.tolist() for column in ends), strict=True))


@pytest.fixture
def store(monkeypatch):
    """Return the address of an object store that s3fs asks, also in commands."""
    with object_store(FILES) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        if find_spec("s3fs"):  # which still knows the server of another test
            fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield address


@pytest.mark.parametrize("path", ["s3://lake/texts", "s3://lake/n*/**/*.parquet"])
def test_etl_reads_an_object_store(store, path):
    pytest.importorskip("s3fs")
    run(f"etl {path} g --directed --weight weight")
    assert weighted("g") == sorted(ROWS)


@pytest.mark.parametrize("name", ["night/part-0.parquet", "texts/a.csv"])
def test_etl_reads_a_web_server(store, name):
    pytest.importorskip("aiohttp")
    run(f"etl {store}/lake/{name} g --directed --weight weight")
    assert weighted("g") == sorted(ROWS[:3] if name.endswith("parquet") else ROWS[:1])


@pytest.mark.parametrize("name", ["edges.arrow", "edges.csv.gz"])
def test_a_web_server_may_know_no_ranges(store, name):
    pytest.importorskip("aiohttp")
    run(f"etl {store}/lake/whole/{name} g --directed --weight weight")
    assert weighted("g") == sorted(ROWS)


def test_vectors_in_text_are_read_from_a_web_server(store):
    pytest.importorskip("aiohttp")
    answer = run(f"similar {store}/lake/vectors.txt a -k 1")
    (found,) = answer["neighbours"]
    assert [one["id"] for one in found["neighbours"]] == ["b"]


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("etl s3://lake/none.csv", "none.csv"),
        ("etl s3://lake/bad.csv", "row 3"),
        ("etl s3://lake/bad.jsonl", "bad.jsonl, row 2"),
        ("centrality s3://lake/bad.jsonl", "bad.jsonl, row 2"),
    ],
)
def test_what_is_wrong_in_an_object_store_is_named(store, path, named):
    pytest.importorskip("s3fs")
    answer = command(f"{path} out")
    assert answer.returncode == 1
    assert named in answer.stderr


@pytest.mark.parametrize("path", ["s3://lake/lists", "s3://lake/books/*.txt"])
def test_word2vec_reads_an_object_store(store, path):
    pytest.importorskip("s3fs")
    report = run(f"word2vec train {path} v --dim 4 --sample 0 --min-count 1")
    assert report["words"] == 5 * 45 * (1 if path.endswith("txt") else 2)
    assert report["rows"] == 3


@pytest.mark.parametrize(
    ("words", "graphs"),
    [
        ("s3://lake/graphs.csv", [7]),
        ("s3://lake/zoo --format edgelists", ["7", "8"]),
        ("{store}/lake/graphs.jsonl.gz", [7]),
    ],
)
def test_graphs_behind_a_url_are_a_zoo_and_have_centralities(store, words, graphs):
    for module in ("s3fs", "aiohttp"):
        pytest.importorskip(module)
    path, *more = words.format(store=store).split(maxsplit=1)
    options = " ".join(more or ["--format zoo" if "json" not in path else ""])
    run(f"etl {path} zoo {options}")
    assert columns("zoo/graphs.parquet")["id"] == graphs
    found = []
    for given in (f"{path} table {options}", "zoo made"):
        run(f"centrality {given} --metrics closeness --weighted")
        found.append(columns(f"{given.split()[1]}/nodes"))
    assert sorted({*found[0]["graph_id"]}) == graphs
    for name, values in found[0].items():
        assert list(values) == list(found[1][name])
