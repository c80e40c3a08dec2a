"""Bad input of every job: an error that names the file, and the row or value; nothing is left."""

import os
import shutil

import numpy as np
import pytest
from every_job import JOBS, READS, cells, refused, words_of
from graphs import write_graph

from penstock import CSR
from penstock.pipelines.flow.document.commands import job_names, job_of

GRAPH = "graph/shards/00000/indices.npy"
# The file of an input that is cut off.
CUT = [
    ("etl", "edges.parquet"),
    ("partition", GRAPH),
    ("walk", GRAPH),
    ("word2vec", "walks/part-00000.parquet"),
    ("vectors", "vectors/vectors.npy"),
    ("embed", GRAPH),
    ("nodes", "embedded/checkpoints/nodes-0000-000001.table"),
    ("answers", "embedded/checkpoints/nodes-0000-000001.table"),
    ("gnn", GRAPH),
    ("predict", GRAPH),
    ("predict", "run/checkpoints/best.safetensors"),
    ("centrality", "edges.parquet"),
    ("shares", GRAPH),
    ("similar", "vectors/vectors.npy"),
]


def test_every_job_that_writes_is_a_row():
    """Every kind of generate writes as sbm does."""
    writing = {name for name in job_names() if job_of(name).writes}
    writing = {name for name in writing if not name.startswith("generate")} | {"generate sbm"}
    assert {" ".join(row.split("{")[0].split()) for row in JOBS.values()} == writing
    assert {job for job, _ in CUT} == {*READS} == {*JOBS} - {"generate"}  # which reads nothing


@pytest.mark.parametrize(("job", "name"), CUT)
def test_a_file_that_is_cut_off(job, name, given, tmp_path):
    copy = tmp_path / "given"
    shutil.copytree(given, copy)
    cut = copy / name
    os.truncate(cut, cut.stat().st_size // 2)
    words = words_of(job, copy, tmp_path / "out")
    if job == "partition":
        cut = tmp_path / "out" / GRAPH.removeprefix("graph/")
    refused(words, tmp_path, cut)


@pytest.mark.parametrize("job", cells(READS, quick=READS))
def test_an_input_that_does_not_exist(job, given, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    words = words_of(job, given, home / "out" if job != "partition" else tmp_path / "graph")
    name = str(tmp_path / "graph" if job == "partition" else given / READS[job])
    missing = [word.replace(name, str(tmp_path / "missing")) for word in words]
    assert missing != words
    refused(missing, home, tmp_path / "missing")


@pytest.fixture(scope="session")
def bad(tmp_path_factory):
    """Inputs that are wrong in one row or value."""
    folder = tmp_path_factory.mktemp("bad")
    files = {
        "edges.csv": "src,dst,weight\n1,2,1\n2,3,1\n",
        "short.csv": "src,dst,weight\n1,2,1\n2\n",
        "word.csv": "src,dst,weight\n1,2,1\n2,3,heavy\n",
        "nan.csv": "src,dst,weight\n1,2,1\n2,3,nan\n",
        "nodes.csv": "id,label,x\n1,a,1\n",
        "labels.csv": "id,label,x\n1,a,1\n2,,2\n3,b,nan\n",
        "starts.txt": "0\n\nnobody\n",
        "latin.txt": b"caf\xe9 au lait\n",
        "empty.txt": "\n",
        "graphs.jsonl": '{"edges": [[1, 2]]}\n{"edges": [[1]]}\n',
        "graphs.csv": "graph_id,src,dst\n1,1,2\n,2,3\n",
        "lists/g.txt": "1 2\n2 3\n3 4 5 6\n",
    }
    (folder / "lists").mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    around = np.arange(5)
    for name, weight in (("negative", -1.0), ("nan", np.nan), ("infinite", np.inf)):
        weights = np.array([1, 1, weight, 1, 1])
        csr = CSR.from_edges(around, (around + 1) % 5, 5, weights=weights)
        write_graph(folder / name, csr, list("abcde"))
    features = np.array([[1, 1], [1, 1], [1, np.nan], [1, 1], [1, 1]], np.float32)
    csr = CSR.from_edges(around, (around + 1) % 5, 5)
    write_graph(folder / "features", csr, list("abcde"), features=features)
    write_graph(folder / "bare", CSR.from_edges(around[:0], around[:0], 5), list("abcde"))
    np.save(folder / "vectors.npy", np.array([[1, 2], [np.nan, 1], [2, 3]], np.float32))
    return folder


WEIGHTS = [
    "walk {bad}/%s {out}",
    "embed train {bad}/%s {out} --weighted",
    "centrality {bad}/%s {out} --metrics betweenness --weighted",
]
BAD = [
    ("etl {bad}/edges.csv {out} --source nope", "edges.csv", "nope"),
    ("etl {bad}/edges.csv {out} --weight nope", "edges.csv", "nope"),
    ("etl {bad}/short.csv {out}", "short.csv", "3"),
    ("etl {bad}/word.csv {out} --weight weight", "word.csv", "3"),
    ("etl {bad}/nan.csv {out} --weight weight", "nan.csv", "3"),
    ("etl {bad}/edges.csv {out} --nodes {bad}/edges.csv --node-id nope", "edges.csv", "nope"),
    ("etl {bad}/edges.csv {out} --nodes {bad}/nodes.csv", "nodes.csv", "2"),
    ("etl {bad}/edges.csv {out} --nodes {bad}/labels.csv --feature-columns x", "labels.csv", "3"),
    *(
        (f"{job} {{bad}}/{name} {{out}}", *named)
        for job in ("etl", "centrality")
        for name, *named in (
            ("graphs.jsonl", "graphs.jsonl", "row 2"),
            ("graphs.csv --format zoo", "graphs.csv", "row 3"),
            ("lists --format edgelists", "g.txt", "row 3"),
        )
    ),
    *((row % one, one, "c", "d") for row in WEIGHTS for one in ("negative", "nan", "infinite")),
    ("walk {given}/graph {out} --start nobody", "nobody"),
    ("walk {given}/graph {out} --starts {bad}/starts.txt", "starts.txt", "3", "nobody"),
    ("walk {given}/graph {out} --starts {bad}/empty.txt", "empty.txt"),
    ("partition {bad}/nan -k 9", "9"),
    ("word2vec train {given}/edges.parquet {out} --column nope", "nope"),
    ("word2vec train {bad}/latin.txt {out}", "latin.txt"),
    ("word2vec train {bad}/empty.txt {out}", "empty.txt"),
    ("embed train {bad}/bare {out}", "bare"),
    ("gnn train {bad}/nan {out}", "bad", "nan"),
    ("gnn train {bad}/features {out}", "features"),
    ("gnn predict {given}/run {out} --graph {bad}/features", "features"),
    ("centrality {given}/edges.parquet {out} --metrics closeness --source nope", "nope"),
    ("similar {bad}/vectors.npy --all {out}", "vectors.npy", "1"),
]


@pytest.mark.parametrize("row", BAD, ids=lambda row: row[0])
def test_a_wrong_row_or_value(row, given, bad, tmp_path):
    line, *named = row
    words = line.format(given=given, bad=bad, out=tmp_path / "out").split()
    more = [] if "partition" in words or "export" in words else ["--cluster", "threads"]
    before = sorted(bad.rglob("*"))
    refused([*words, *more], tmp_path, *named)
    assert sorted(bad.rglob("*")) == before
