"""Every flow of examples/ runs on small tables, publishes its targets; its script reads them."""

import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import python

from penstock.pipelines.cli import run


def social(folder):
    table = {"follower": [0, 1, 2, 3, 4, 0], "followed": [1, 2, 3, 4, 0, 2]}
    pq.write_table(pa.table(table), folder / "follows.parquet")


def knowledge(folder):
    lines = [f"u{u}\tbought\tp{(u + k) % 5}" for u in range(6) for k in range(2)]
    lines += [f"{p}\tbought_by\t{u}" for u, _, p in (line.split("\t") for line in lines)]
    (folder / "triples.tsv").write_text("\n".join(lines) + "\n")


def controlflow(folder):
    edges = [(graph, node, node + 1) for graph in range(20) for node in range(4)]
    names = ("graph_id", "source", "target")
    columns = zip(*edges, strict=True)
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), folder / "blocks.parquet")


INPUTS = {"social": social, "knowledge": knowledge, "controlflow": controlflow}
SAID = {
    "social": ["account 2 matters most", "near it: 3", "like it: "],
    "knowledge": ["buys like", "may buy p"],
    "controlflow": ["function 9: block 2, betweenness 0.667", "20 functions, 100 blocks"],
    "nightly": [
        "classes  unchanged",
        "of the test nodes got their class",
        "1,000 walks of 20.0 nodes",
    ],
}
PUBLISHED = {
    "social": ["near", "rank", "vectors"],
    "knowledge": ["paths", "vectors"],
    "controlflow": ["central"],
    "nightly": ["central", "walks"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*INPUTS, "nightly"])
def test_an_example_runs_and_then_skips_all(name, root, tmp_path, capsys):
    for suffix in ("yaml", "py"):
        shutil.copy(root / f"examples/{name}.{suffix}", tmp_path)
    INPUTS.get(name, lambda folder: None)(tmp_path)
    flow = str(tmp_path / f"{name}.yaml")
    small = ["--set", "nodes=1000", "--set", "epochs=5"] if name == "nightly" else []
    assert run(["run", flow, "--quiet", *small]) == 0
    # Not the hidden records of who published them.
    found = sorted((tmp_path / "published").glob("[!.]*"))
    assert [path.name for path in found] == PUBLISHED[name]
    for path in found:
        tables = list(path.rglob("*.parquet"))
        assert sum(pq.read_metadata(table).num_rows for table in tables) > 0
    capsys.readouterr()
    assert run(["run", flow, *small]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if line.split()[1:2] == ["done"]]
    said = python(tmp_path / f"{name}.py", *small[1::2])
    assert not [text for text in SAID[name] if text not in said], said


@pytest.mark.slow
def test_recipes_are_compared(root, tmp_path):
    words = ["generate", "kg", str(tmp_path / "g"), "--entities", "200", "--triples", "2000"]
    assert run([*words, "--relations", "4", "-q"]) == 0
    recipe = tmp_path / "small.yaml"
    distmult = root / "examples/fb15k-237/distmult.yaml"
    recipe.write_text(distmult.read_text().replace("dim: 512", "dim: 16").replace("60", "3"))
    said = python(root / "examples/fb15k-237/compare.py", tmp_path / "g", recipe)
    assert re.match(r"small\D+0\.\d", said), said
