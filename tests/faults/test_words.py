"""What nobody would write: one paragraph that says what is wrong, never 'This is a bug'."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import generate
from penstock.pipelines.cli import run

MANY_DIGITS = "9" * 5000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    generate("sbm", folder / "g", nodes=60, seed=1, quiet=True)
    (folder / "deep.yaml").write_text("layers: " + "[" * 5000 + "]" * 5000)
    (folder / "digits.yaml").write_text(f"layers: {MANY_DIGITS}")
    pair = [pa.array([1, 2]), pa.array([2, 3])]
    for names in (["source", "target", "target"], ["source", "target", "w", "w"]):
        table = pa.Table.from_arrays((pair * 2)[: len(names)], names=names)
        pq.write_table(table, folder / f"{names[-1]}.parquet")
    for name, text in {
        "deep": "[" * 100_000 + "]" * 100_000,
        "digits": '{"format": "penstock-graph", "version": ' + MANY_DIGITS + "}",
    }.items():
        (folder / name).mkdir()
        (folder / name / "graph.json").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gnn train {}/g {}/r --spec {}/deep.yaml", "nested too deeply"),
        ("gnn train {}/g {}/r --spec {}/digits.yaml", "4300 digits"),
        ("etl {}/target.parquet {}/o", "2 columns named 'target'"),
        ("etl {}/w.parquet {}/o", "2 columns named 'w'"),
        ("info {}/deep", "nested too deeply"),
        ("info {}/digits", "4300 digits"),
        (f"walk {{}}/g {{}}/w --seed {MANY_DIGITS}", "a whole number of fewer digits"),
        (f"partition {{}}/g -k {MANY_DIGITS}", "a whole number of fewer digits"),
        ("walk {}/g {}/w --cluster local --start-timeout inf", "finite number"),
        ("walk {}/g {}/w --cluster local --start-timeout 1e400", "finite number"),
        ("gnn train {}/g {}/r --dropout nan", "finite number"),
    ],
)
def test_a_paragraph(folder, capsys, words, message):
    code = run([word.replace("{}", str(folder)) for word in words.split()])
    said = capsys.readouterr().err
    assert code in (1, 2)
    assert message in said
    assert "bug" not in said
    assert len(said) < 1000
