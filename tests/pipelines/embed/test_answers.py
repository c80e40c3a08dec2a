"""``penstock embed answer``: many questions, with the answers that ``predict`` gives to each."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from penstock import Graph, embed, etl
from penstock.errors import InputError, UsageError
from penstock.kernels.embed_rules import Side
from penstock.pipelines.embed.run import Run
from penstock.workers.comm.single import SingleRank
from penstock.workers.embed.evaluation.predict import PredictTask, predict

ROWS = {
    "head": ["e7", None, "e7", "e399", None],
    "relation": ["r2", "r0", "r5", "r2", "r1"],
    "tail": [None, "e3", None, None, "e3"],
}


def rows_of(answers):
    return pq.read_table(answers, filters=None).to_pylist()


@pytest.mark.parametrize(
    ("ending", "known"), [("parquet", False), ("csv.gz", True), ("tsv", False)]
)
def test_each_question_has_the_answers_that_predict_gives(trained, tmp_path, ending, known):
    run, file = trained[0], tmp_path / f"questions.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table(ROWS), file)
    else:
        options = pyarrow.csv.WriteOptions(delimiter="\t" if ending == "tsv" else ",")
        with pa.output_stream(str(file)) as stream:
            pyarrow.csv.write_csv(pa.table(ROWS), stream, options)
    out = tmp_path / "answers"
    report = embed.answer(run, out, queries=file, top=4, known=known)
    rows = rows_of(out)
    assert report.count == len(rows) == 20
    for number in range(5):
        head, relation, tail = (ROWS[name][number] for name in ("head", "relation", "tail"))
        asked = {"head": head} if tail is None else {"tail": tail}
        single = embed.predict(run, relation=relation, top=4, known=known, **asked)
        mine = [row for row in rows if row["question"] == number]
        assert [row["rank"] for row in mine] == [1, 2, 3, 4]
        assert [row["tail" if tail is None else "head"] for row in mine] == [
            answer["id"] for answer in single.answers
        ]
        np.testing.assert_allclose(
            [row["score"] for row in mine], [answer["score"] for answer in single.answers]
        )
        assert {row["relation"] for row in mine} == {relation}
        assert {row["head" if tail is None else "tail"] for row in mine} == {head or tail}


def test_every_node_is_asked_for(trained, tmp_path):
    run = trained[0]
    embed.answer(run, tmp_path / "a", relation="r3", side="head", top=3)
    rows = rows_of(tmp_path / "a")
    assert [row["question"] for row in rows] == np.repeat(np.arange(400), 3).tolist()
    held = rows_of_graph(run)
    assert not held.intersection((row["head"], "r3", row["tail"]) for row in rows)


def rows_of_graph(run):
    return rows_of_graph_at(Graph.open(embed.evaluate(run, sample=1).graph))


def rows_of_graph_at(graph):
    ids, names = graph.user_ids().to_pylist(), graph.manifest.relations or ()
    csr = graph.csr()
    heads = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    return {
        (ids[h], names[r], ids[t])
        for h, r, t in zip(heads, csr.relations, csr.indices, strict=True)
    }


@pytest.mark.parametrize(
    "rows",
    [
        {"head": ["e1", "e2"], "tail": ["e3", None]},
        {"head": ["e1", "nobody"], "tail": [None, None]},
        {"head": ["e1"], "relation": ["likes"], "tail": [None]},
        {"node": ["e1"]},
        {"head": [["e1"]]},
    ],
    ids=["both", "node", "relation", "columns", "lists"],
)
def test_bad_questions_are_refused(trained, tmp_path, rows):
    pq.write_table(pa.table(rows), tmp_path / "q.parquet")
    options = {} if "relation" in rows else {"relation": "r1"}
    with pytest.raises(InputError):
        embed.answer(trained[0], tmp_path / "a", queries=tmp_path / "q.parquet", **options)
    assert not (tmp_path / "a").exists()


def test_unknown_questions_are_skipped_if_asked(trained, tmp_path):
    pq.write_table(pa.table({"head": ["strange", "e1"]}), tmp_path / "q.parquet")
    given = {"queries": tmp_path / "q.parquet", "relation": "r1"}
    report = embed.answer(trained[0], tmp_path / "a", unknown="skip", **given)
    assert (report.questions, report.skipped, report.count) == (1, 1, 10)
    assert {row["question"] for row in rows_of(tmp_path / "a")} == {1}  # the row of the file
    with pytest.raises(UsageError):
        embed.answer(trained[0], tmp_path / "b", side="head", **given)


def test_relations_between_two_nodes(trained, tmp_path):
    run = trained[0]
    held = sorted(rows_of_graph(run))
    pairs = [(held[0][0], held[0][2]), ("e1", "e2"), (held[9][0], held[9][2])]
    rows = {"head": [one for one, _ in pairs], "tail": [other for _, other in pairs]}
    pq.write_table(pa.table(rows), tmp_path / "q.parquet")
    given = {"queries": tmp_path / "q.parquet"}
    embed.answer(run, tmp_path / "all", known=True, **given)
    found = rows_of(tmp_path / "all")
    names = {row["relation"] for row in found}
    assert len(found) == len(pairs) * len(names) == len(pairs) * 6
    for number, (head, tail) in enumerate(pairs):
        mine = [row for row in found if row["question"] == number]
        assert {(row["head"], row["tail"]) for row in mine} == {(head, tail)}
        scores = embed.score(run, [(head, row["relation"], tail) for row in mine])
        assert [row["score"] for row in mine] == pytest.approx(scores.tolist(), rel=1e-5)
        assert scores.tolist() == sorted(scores, reverse=True)
    embed.answer(run, tmp_path / "new", top=2, **given)
    known = rows_of_graph(run)
    new = rows_of(tmp_path / "new")
    assert [row["question"] for row in new] == [0, 0, 1, 1, 2, 2]
    assert not known & {(row["head"], row["relation"], row["tail"]) for row in new}


def test_scores_of_triples_are_those_of_answers(trained):
    answers = embed.predict(trained[0], head="e7", relation="r2").answers
    triples = [("e7", "r2", one["id"]) for one in answers]
    wanted = pytest.approx([one["score"] for one in answers], rel=1e-5)
    assert embed.score(trained[0], triples).tolist() == wanted
    columns = [[row[i] for row in triples] for i in range(3)]
    table = pa.table(columns, ["head", "relation", "tail"])
    assert embed.score(trained[0], table).tolist() == wanted
    for wrong in ([("e7", "r2", "nobody")], [("e7", "r2")], table.drop(["relation"])):
        with pytest.raises(InputError):
            embed.score(trained[0], wrong)


@pytest.mark.parametrize("model", ["complex", "tucker"])
def test_nodes_that_came_after_the_training(graph, tmp_path, model):
    triples = sorted(rows_of_graph_at(graph))
    left_out = {f"e{n}" for n in range(0, 40, 2)}
    old = [t for t in triples if not left_out & {t[0], t[2]}]
    given, asked = {}, []
    for h, r, t in triples:
        if h in left_out and t not in left_out:
            given.setdefault(h, []).append((h, r, t))
    for rows in given.values():
        if len(rows) > 2:
            asked += rows[len(rows) * 2 // 3 :]
            del rows[len(rows) * 2 // 3 :]
    table = lambda rows: pa.table(  # noqa: E731
        {name: [row[i] for row in rows] for i, name in enumerate(("head", "relation", "tail"))}
    )
    pq.write_table(table(old), tmp_path / "old.parquet")
    new = [row for rows in given.values() for row in rows]
    pq.write_table(table(new), tmp_path / "new.parquet")
    pq.write_table(table(asked).drop(["tail"]), tmp_path / "q.parquet")
    columns = {"source": "head", "target": "tail", "relation": "relation"}
    etl(tmp_path / "old.parquet", tmp_path / "g", **columns)
    options = {"model": model, "dim": 16, "epochs": 15, "batch": 200}
    embed.train(tmp_path / "g", tmp_path / "run", **options)
    given_options = {"queries": tmp_path / "q.parquet"}
    with pytest.raises(InputError):
        embed.answer(tmp_path / "run", tmp_path / "a", **given_options)
    embed.answer(
        tmp_path / "run", tmp_path / "a", top=10, new=tmp_path / "new.parquet", **given_options
    )
    rows = rows_of(tmp_path / "a")
    hits = sum(row["tail"] == asked[row["question"]][2] for row in rows)
    assert hits / len(asked) > 0.2  # of a random order: 0.026
    known = {*new, *old}
    assert not known & {(row["head"], row["relation"], row["tail"]) for row in rows}
    assert {row["head"] for row in rows} == {one[0] for one in asked}
    pq.write_table(table([*new, (new[0][0], "r99", new[0][2])]), tmp_path / "more.parquet")
    given_options["new"] = tmp_path / "more.parquet"
    with pytest.raises(InputError):
        embed.answer(tmp_path / "run", tmp_path / "b", **given_options)
    embed.answer(tmp_path / "run", tmp_path / "b", unknown="skip", top=10, **given_options)
    assert rows_of(tmp_path / "b") == rows


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_new_node_of_a_run_without_relations(tmp_path, partitions):
    every = [(f"e{n}", f"e{(n * step + step) % 60}") for n in range(60) for step in (1, 7, 13)]
    pairs = [(a, b) for a, b in every if a != b]
    columns = {"head": [a for a, _ in pairs], "tail": [b for _, b in pairs]}
    pq.write_table(pa.table(columns), tmp_path / "old.parquet")
    etl(tmp_path / "old.parquet", tmp_path / "g", source="head", target="tail")
    options = {"model": "dot", "dim": 8, "epochs": 2, "batch": 16, "partitions": partitions}
    embed.train(tmp_path / "g", tmp_path / "run", **options)
    new = {"head": ["new", "new", "e3"], "tail": ["e1", "e2", "newer"]}
    pq.write_table(pa.table(new), tmp_path / "new.parquet")
    asked = {"head": ["new", None, "e5", None], "tail": [None, "newer", None, "new"]}
    pq.write_table(pa.table(asked), tmp_path / "q.parquet")
    files = {"queries": tmp_path / "q.parquet", "new": tmp_path / "new.parquet"}
    embed.answer(tmp_path / "run", tmp_path / "a", top=100, **files)
    rows = rows_of(tmp_path / "a")
    nodes, ends = {f"e{n}" for n in range(60)}, ("tail", "head", "tail", "head")
    found = [{row[end] for row in rows if row["question"] == n} for n, end in enumerate(ends)]
    near = {one for pair in pairs if "e5" in pair for one in pair}
    of_new = nodes - {"e1", "e2"}
    assert found == [of_new, nodes - {"e3"}, nodes - near, of_new]


def test_ids_of_new_nodes_have_the_type_of_the_run(tmp_path):
    old = [f"{n},{(n + step) % 40}\n" for n in range(40) for step in (1, 7)]
    (tmp_path / "old.csv").write_text("head,tail\n" + "".join(old))
    etl(tmp_path / "old.csv", tmp_path / "g", source="head", target="tail")
    embed.train(tmp_path / "g", tmp_path / "run", model="dot", dim=8, epochs=2)
    files = {"queries": tmp_path / "q.csv", "new": tmp_path / "new.csv"}
    files["queries"].write_text("head,tail\n090,\n90,\n007,\n")
    files["new"].write_text("head,tail\n90,7\n0090,1\n007,9\n")
    embed.answer(tmp_path / "run", tmp_path / "a", top=100, **files)
    rows = rows_of(tmp_path / "a")
    tails = [{row["tail"] for row in rows if row["question"] == n} for n in range(3)]
    assert {row["head"] for row in rows} == {90, 7}  # and no node 007
    assert tails == [{*range(40)} - {1, 7}] * 2 + [{*range(40)} - {6, 7, 8, 0, 14}]
    files["new"].write_text("head,tail\n90,7\nbob,1\n")
    with pytest.raises(InputError) as error:
        embed.answer(tmp_path / "run", tmp_path / "b", **files)
    assert str(files["new"]) in str(error.value)
    assert "bob" in str(error.value)
    assert not (tmp_path / "b").exists()


def test_answers_are_of_one_checkpoint(graph, tmp_path):
    run, options = tmp_path / "run", {"dim": 8, "batch": 200, "schedule": "constant"}
    embed.train(graph, run, epochs=1, **options)
    about = Run.load(run)
    task = PredictTask(run, about.training, about.relations, "last", 3, number=1)
    assert len(predict(SingleRank(), task, 0, 0, Side.TAIL)) == 3
    embed.train(graph, run, epochs=2, resume=True, **options)
    with pytest.raises(InputError, match=str(run)):
        predict(SingleRank(), task, 0, 0, Side.TAIL)
