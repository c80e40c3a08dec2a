"""All 40,932 questions of FB15k-237's test set, ten answers each, by one ``embed answer``.

    PENSTOCK_DATA=... python -P benchmarks/bench_embed_answer.py [--quick] [--model complex]

A run of two epochs answers; how good its vectors are does not change the work much. Known answers
are left out. The answers to 200 questions must be the best by all scores. The command, with its
start, is compared with the products of all questions and all nodes by NumPy, without a sort.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, command, data, gpus, main, penstock, real

from penstock import Graph, embed, etl

CHECKED, K, DIM = 200, 10, 100


def triples(path: Path) -> list[list[str]]:
    """Return the lines of a file, split."""
    return [line.split("\t") for line in path.read_text().splitlines()]


def check(run: Path, graph: Graph, questions: list[tuple], values: dict[str, Any]) -> None:
    """Compare the answers to some questions with the best by all scores."""
    rows = pq.read_table(values["ours"]).to_pydict()
    first = np.searchsorted(np.array(rows["question"]), np.arange(len(questions)))
    known: dict[tuple, set] = {}
    splits = [graph.csr()]
    ids, names = graph.user_ids().to_pylist(), list(graph.manifest.relations or ())
    edges = [(splits[0].sources(), splits[0].relations, splits[0].indices)]
    for name in graph.manifest.heldout:
        held = graph.heldout(name)
        edges.append((held["sources"], held["relations"], held["targets"]))
    chosen = np.random.default_rng(0).choice(len(questions), CHECKED, replace=False)
    asked = {questions[n] for n in chosen}
    for heads, relations, tails in edges:
        for h, r, t in zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True):
            for question, answer in (
                ((ids[h], names[r], None), t),
                ((None, names[r], ids[t]), h),
            ):
                if question in asked:
                    known.setdefault(question, set()).add(answer)
    for n in chosen:
        head, relation, tail = questions[n]
        every = [(head or one, relation, tail or one) for one in ids]
        if head is None:  # heads are the tails of the inverse: compared by predict
            best = embed.predict(run, tail=tail, relation=relation, top=K).answers
            wanted = [one["score"] for one in best]
        else:
            scores = embed.score(run, every)
            scores[sorted(known[questions[n]])] = -np.inf
            wanted = np.sort(scores)[::-1][:K]
        found = rows["score"][first[n] : first[n] + K]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, err_msg=str(questions[n]))


def answered(run: Path, questions: Path, out: Path, *how: object) -> Timed:
    words = ["embed", "answer", run, out, "--queries", questions, "-k", K, "--quiet", "--overwrite"]
    return Timed(command(penstock(*words, *how)).seconds, out)


def products(questions: int, nodes: int) -> None:
    """Multiply queries and vectors in pieces."""
    vectors = np.ones((nodes, DIM), np.float32)
    for first in range(0, questions, 1024):
        np.ones((min(1024, questions - first), DIM), np.float32) @ vectors.T


def cases(given: argparse.Namespace) -> Iterator[Case]:
    folder, on_gpu = given.scratch, gpus(1)() is None
    with tarfile.open(real("kg/FB15k-237.tar.gz")) as archive:
        archive.extractall(folder / "data", filter="data")
    source = next((folder / "data").rglob("train.txt")).parent
    held = {split: source / f"{split}.txt" for split in ("valid", "test")}
    etl(source / "train.txt", folder / "g", format="triples", quiet=True, **held)
    run, asked = folder / "run", folder / "questions.parquet"
    embed.train(folder / "g", run, dim=DIM, model=given.model, epochs=2, quiet=True)
    questions: list[tuple] = []
    for head, relation, tail in triples(held["test"])[: given.triples]:
        questions += [(head, relation, None), (None, relation, tail)]
    columns = zip(*questions, strict=True)
    table = pa.table(dict(zip(("head", "relation", "tail"), map(list, columns), strict=True)))
    pq.write_table(table, asked)
    graph = Graph.open(folder / "g")
    how = [] if on_gpu else ["--cluster", "threads"]
    least = partial(products, len(questions), graph.num_nodes)
    yield Case(
        f"{len(questions):,} questions, {given.model}",
        partial(answered, run, asked, folder / "out", *how),
        partial(check, run, graph, questions),
        {"products": Side(least, None, 0.036, floor=True)},
        (len(questions), "questions"),
        rounds=3,
    )


if __name__ == "__main__":
    sizes = Option("--triples", 20_466, 1000), Option("--model", "complex", "complex")
    sys.exit(main(__doc__, cases, *sizes, needs=(data,)))
