"""All 40,932 questions of FB15k-237's test set, ten answers each, by one ``embed answer``.

    PENSTOCK_DATA=... python -P benchmarks/bench_embed_answer.py [--quick]

A run of two epochs answers; how good its vectors are does not change the work much. Known answers
are left out. The answers to 200 questions must be the best by NumPy's scores of ComplEx, in which
heads are the tails of inverse relations. The command, with its start, is compared with the products
of all questions and all nodes by NumPy, without a sort.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_embed import knowledge
from harness import Case, Option, Side, Timed, command, data, gpus, main, penstock

from penstock import Graph, embed

CHECKED, K, DIM = 200, 10, 100


def triples(path: Path) -> list[list[str]]:
    """Return the lines of a file, split."""
    return [line.split("\t") for line in path.read_text().splitlines()]


def complex_numbers(vectors: Any) -> dict[str, np.ndarray]:
    """Return ComplEx's vectors by id."""
    real, imaginary = np.split(np.asarray(vectors.values, np.float64), 2, axis=1)
    return dict(zip(vectors.ids.to_pylist(), real + 1j * imaginary, strict=True))


def check(
    run: Path, edges: list[list[str]], questions: list[tuple], values: dict[str, Any]
) -> None:
    """Compare the answers to some questions with the best of all nodes' scores by NumPy."""
    rows = pq.read_table(values["ours"]).to_pydict()
    order = np.array(rows["question"])
    nodes = complex_numbers(embed.vectors(run))
    relations = complex_numbers(embed.vectors(run, relations=True))
    numbers, matrix = {one: n for n, one in enumerate(nodes)}, np.stack([*nodes.values()]).conj().T
    known: dict[tuple, set] = {}
    for head, relation, tail in edges:
        known.setdefault((head, relation, None), set()).add(numbers[tail])
        known.setdefault((None, relation, tail), set()).add(numbers[head])
    for n in np.random.default_rng(0).choice(len(questions), CHECKED, replace=False):
        head, relation, tail = questions[n]
        some = slice(*np.searchsorted(order, [n, n + 1]))
        named = [*zip(*(rows[name][some] for name in ("head", "relation", "tail")), strict=True)]
        assert {(head or h, relation, tail or t) for h, _, t in named} == {*named}, questions[n]
        asked = nodes[head or tail] * relations[relation if head else f"{relation}_inverse"]
        scores = (asked @ matrix).real
        scores[[*known[questions[n]]]] = -np.inf
        every = [
            scores[[numbers[t if head else h] for h, _, t in named]],
            np.sort(scores)[::-1][:K],
        ]
        if head:
            every.append(embed.score(run, named))
        for wanted in every:
            np.testing.assert_allclose(rows["score"][some], wanted, 1e-4, 1e-6, str(questions[n]))


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
    graph, sources = knowledge(folder)
    run, asked = folder / "run", folder / "questions.parquet"
    embed.train(graph, run, dim=DIM, reciprocal=True, epochs=2, quiet=True)
    questions: list[tuple] = []
    edges = [one for path in sources.values() for one in triples(path)]
    for head, relation, tail in triples(sources["test"])[: given.triples]:
        questions += [(head, relation, None), (None, relation, tail)]
    columns = zip(*questions, strict=True)
    table = pa.table(dict(zip(("head", "relation", "tail"), map(list, columns), strict=True)))
    pq.write_table(table, asked)
    how = ["--cluster", "threads", "--device", "gpu" if on_gpu else "cpu"]
    least = partial(products, len(questions), Graph.open(graph).num_nodes)
    yield Case(
        f"{len(questions):,} questions",
        partial(answered, run, asked, folder / "out", *how),
        partial(check, run, edges, questions),
        {"products": Side(least, *((0.04, 0.01) if on_gpu else (0.24, 0.1)), floor=True)},
        (len(questions), "questions"),
    )


if __name__ == "__main__":
    sys.exit(main(__doc__, cases, Option("--triples", 20_466, 1000), needs=(data,), gpu=cases))
