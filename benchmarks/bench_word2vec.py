"""Word vectors: speed and quality, beside gensim's with the same parameters and threads.

    PENSTOCK_DATA=... python -P benchmarks/bench_word2vec.py [--quick] [--peers PYTHON]

On text, correlations with ws353 and SimLex999 may be 0.02, and Google's analogies one point, below
gensim's; gensim draws windows up to 5, Penstock's are fixed at 3, the mean. On BlogCatalog both
train on the same walks, and labels predicted from Penstock's vectors may be 0.02 of F1 worse. On
R-MAT whole commands are compared: walks and training, with PecanPy's SparseOTF followed by gensim
(a Python that has both, by --peers), whose edges may be nearer by 0.05. A GPU trains on a text by
Zipf's law of Text8's sizes, compared with FULL-W2V's own code on an H200; two are compared with
one, at a loss at most 1 % above its loss.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from graphs import blogcatalog
from harness import (
    Case,
    Option,
    Side,
    Timed,
    absent,
    command,
    data,
    gpus,
    in_peers,
    installed,
    main,
    real,
    slow,
    timed,
)
from harness import penstock as words_of

import penstock
from penstock import ClusterSpec
from penstock.limits import cores
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.word2vec.evaluation import evaluate_vectors

# Allowed difference to gensim: of rank correlations, then of the share of answers (3CosAdd).
LEAST = {"ws353.txt": 0.02, "SimLex999.txt": 0.02, "google.txt": 0.01}
WALKS = {"app": "node2vec", "p": 0.5, "q": 2.0, "walks": 10, "length": 80}
DIM = 128
TEXT8 = 71_291, 16_718_845  # vocabulary and words of an epoch
FULL_W2V = 112e6  # words per second of its own code on an H200, with such parameters
ZIPF_LOSS = 0.415  # of the text below with all words and 5 negatives (results/word2vec.md)

PEER = """
import sys
from gensim.models import Word2Vec
from pecanpy.pecanpy import SparseOTF
edges, out, threads, dim = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
graph = SparseOTF(0.5, 2, threads)
graph.read_edg(edges, False, False)
walks = graph.simulate_walks(num_walks=10, walk_length=80)
model = Word2Vec(walks, vector_size=dim, window=5, min_count=1, sg=1, negative=5, sample=0.001,
                 workers=threads, epochs=1)
model.wv.save_word2vec_format(out, binary=True)
"""


def write_text(corpus: Path, most: int) -> Path:
    """Write a number of words of the text, 0 for all, in sentences of 1,000."""
    left = most or sys.maxsize
    source = real("words/wikipedia-text8-style.txt.gz")
    with gzip.open(source, "rt") as whole, corpus.open("w") as some:
        for line in whole:
            words = line.split()[:left]
            for start in range(0, len(words), 1000):
                some.write(" ".join(words[start : start + 1000]) + "\n")
            left -= len(words)
            if not left:
                break
    return corpus


def shares(count: int, vocabulary: int = TEXT8[0]) -> np.ndarray:
    """Return the shares of words by Zipf's law, of at most a tenth as many as the text has."""
    chances = 1 / np.arange(1, min(vocabulary, count // 10) + 1)
    return chances / chances.sum()


def zipf(corpus: Path, count: int, vocabulary: int = TEXT8[0]) -> Path:
    """Write a corpus of words by Zipf's law, in sentences of 1,000."""
    chances = shares(count, vocabulary)
    vocabulary = len(chances)
    drawn = np.random.default_rng(0).choice(vocabulary, count, p=chances)
    names = np.array([f"w{number}" for number in range(vocabulary)], object)
    with corpus.open("w") as file:
        for start in range(0, count, 1000):
            file.write(" ".join(names[drawn[start : start + 1000]]) + "\n")
    return corpus


def check_vectors(values: dict[str, Any]) -> dict[str, Any]:
    out, loss = values["ours"]
    assert np.isfinite(np.load(out / "vectors.npy")).all()
    assert 0 < loss < np.log(2)  # that of a pair before training
    return {"loss": loss}


def ours(source: Path, out: Path, **how: Any) -> Timed:
    """Train; return the seconds of training, and the vectors with their loss."""
    report = penstock.word2vec(source, out, dim=DIM, quiet=True, overwrite=True, **how)
    return Timed(report.train_seconds, (out, report.loss))


def by_gensim(corpus: Path, out: Path, epochs: int, *, seed: int = 1, **how: Any) -> Timed:
    from gensim.models import Word2Vec
    from gensim.models.word2vec import LineSentence

    how = {"window": 5, "min_count": 5, "sample": 1e-3} | how
    model = Word2Vec(vector_size=DIM, sg=1, negative=5, workers=cores(), seed=seed, **how)
    text = LineSentence(str(corpus))
    model.build_vocab(text)
    run = timed(
        lambda: model.train(text, total_words=model.corpus_total_words, epochs=epochs) and None
    )
    model.wv.save_word2vec_format(str(out), binary=True)
    return Timed(run.seconds, out)


def judged(path: Path) -> list[float]:
    """Return the correlations and the share of answers."""
    *pairs, analogies = [real(f"words/{name}") for name in LEAST]
    result = evaluate_vectors(path, pairs=pairs, analogies=[analogies])
    total = result.analogies[0].total
    return [
        *(each.spearman or 0.0 for each in result.pairs),
        total.right_add / len(total.questions),
    ]


def check_text(corpus: Path, given: argparse.Namespace, values: dict[str, Any]) -> dict[str, Any]:
    """Compare the quality, the mean over seeds."""
    found = {"ours": [judged(values["ours"][0])], "gensim": [judged(values["gensim"])]}
    for seed in range(2, given.seeds + 1):
        mine = ours(corpus, given.scratch / "seed", epochs=given.epochs, seed=seed).value
        theirs = by_gensim(corpus, given.scratch / "theirs", given.epochs, seed=seed).value
        found["ours"].append(judged(mine[0]))
        found["gensim"].append(judged(theirs))
    means = {name: np.mean(scores, axis=0) for name, scores in found.items()}
    for test, mine, theirs in zip(LEAST, *means.values(), strict=True):
        assert mine >= theirs - LEAST[test], f"{test}: {mine:.4f}, gensim {theirs:.4f}"
    return {name: np.round(scores, 4).tolist() for name, scores in means.items()}


def labelled(folder: Path) -> tuple[Path, Path]:
    """Write BlogCatalog, and the labels of its nodes."""
    edges, groups = blogcatalog()
    with penstock.Graph.create(folder / "blogcatalog") as writer:
        writer.edges(penstock.CSR.from_edges(edges.row, edges.col, edges.shape[0]))
        writer.nodes()
    lists = pa.ListArray.from_arrays(groups.indptr.astype(np.int32), groups.indices)
    nodes = pa.table({"id": np.arange(edges.shape[0]), "label": lists})
    pq.write_table(nodes, folder / "nodes.parquet")
    return folder / "blogcatalog", folder / "nodes.parquet"


def check_labels(
    labels: Path, least: tuple[float, float], values: dict[str, Any]
) -> dict[str, Any]:
    """Compare micro and macro F1 at half of the labels."""
    found = {}
    for side, path in (("ours", values["ours"][0]), ("gensim", values["gensim"])):
        result = evaluate_vectors(path, labels=labels, shares=(0.5,)).labels
        assert result is not None
        found[side] = result.shares[0].micro_f1, result.shares[0].macro_f1
    for mine, theirs, asked in zip(found["ours"], found["gensim"], least, strict=True):
        assert mine >= max(theirs - 0.02, asked), found
    return {name: np.round(scores, 4).tolist() for name, scores in found.items()}


def whole(graph: Path, out: Path) -> Timed:
    how = [word for name, value in WALKS.items() for word in (f"--{name}", value)]
    words = ["word2vec", "train", graph, out, *how, "--dim", DIM, "-q", "--overwrite"]
    return Timed(command(words_of(*words)).seconds, out)


def whole_by_peers(python: str, graph: Path, out: Path) -> Timed:
    """Run PecanPy and gensim on the same edges, by the user's ids."""
    edges = graph.with_suffix(".tsv")
    if not edges.exists():
        opened = penstock.Graph.open(graph)
        csr = opened.csr()
        rows, columns = np.asarray(csr.sources()), np.asarray(csr.indices)
        ends = [opened.user_ids(each[rows < columns]) for each in (rows, columns)]
        np.savetxt(edges, np.column_stack(ends), "%d", "\t")
    return Timed(command([python, "-c", PEER, edges, out, cores(), DIM]).seconds, out)


def near_edges(path: Path, graph: Path) -> float:
    """Return the share of edges whose ends are nearer than two nodes of the same degrees."""
    vectors, opened, random = (
        Vectors.open(path),
        penstock.Graph.open(graph),
        np.random.default_rng(0),
    )
    csr = opened.csr()
    some = random.integers(0, csr.edges, (2, 20_000))
    rows = np.searchsorted(csr.indptr, some, side="right") - 1
    ends = np.asarray(csr.indices)[some]
    units = vectors.values / np.linalg.norm(vectors.values, axis=1, keepdims=True)

    def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        a, b = (vectors.rows(opened.user_ids(each).tolist()) for each in (one, other))
        return np.einsum("ij,ij->i", units[a], units[b])

    return float(np.mean(cosines(rows[0], ends[0]) > cosines(rows[0], ends[1])))


def check_near(graph: Path, values: dict[str, Any]) -> dict[str, Any]:
    near = {side: near_edges(path, graph) for side, path in values.items()}
    assert near["ours"] >= max(near.values()) - 0.05, near
    return {f"edges nearer, {side}": share for side, share in near.items()}


def check_zipf(quick: bool, values: dict[str, Any]) -> dict[str, Any]:
    """Compare the loss with that of all words, pairs and negatives."""
    figures = check_vectors(values)
    assert quick or abs(figures["loss"] / ZIPF_LOSS - 1) < 0.01, figures
    return figures


def check_loss(values: dict[str, Any]) -> dict[str, Any]:
    check_vectors(values)
    loss, one = values["ours"][1], values["one GPU"][1]
    assert loss <= 1.01 * one, f"a loss of {loss:.4f}, of one GPU {one:.4f}"
    return {"loss": loss, "loss of one": one}


def cases(given: argparse.Namespace) -> Iterator[Case]:
    if (why := data()) is not None:
        yield absent("text", why)
        return
    folder = given.scratch
    corpus = write_text(folder / "text.txt", given.words)
    on_gpu = gpus(1)() is None
    # Measured against gensim on as many cores: with one H200, and without a GPU.
    full, quick = (160.0, 20.0) if on_gpu else (12.0, 5.0)
    gensim = [installed("gensim")]
    theirs = partial(by_gensim, corpus, folder / "gensim", given.epochs)
    yield Case(
        "text",
        partial(ours, corpus, folder / "text", epochs=given.epochs),
        partial(check_text, corpus, given),
        {"gensim": Side(theirs, full, quick, once=True)},
        needs=gensim,
    )
    graph, labels = labelled(folder)
    walks = folder / "walks"
    penstock.walk(graph, walks, walks=given.walks, length=40, quiet=True)
    lines = folder / "walks.txt"
    with lines.open("w") as file:
        for part in sorted(walks.glob("*.parquet")):
            for path in pq.read_table(part, columns=["path"])["path"].to_pylist():
                file.write(" ".join(map(str, path)) + "\n")
    theirs = partial(by_gensim, lines, folder / "theirs", 1, window=10, min_count=1, sample=0)
    yield Case(
        f"BlogCatalog, {given.walks} walks",
        partial(ours, walks, folder / "labelled", graph=graph, window=10, sample=0, epochs=1),
        partial(check_labels, labels, (0.40, 0.26) if given.walks >= 80 else (0.0, 0.0)),
        {"gensim": Side(theirs, 9.4, 1.5, once=True)},
        needs=gensim,
    )
    made = folder / "rmat"
    penstock.generate("rmat", made, scale=given.scale, quiet=True)
    theirs = partial(whole_by_peers, given.peers, made, folder / "peers.bin")
    yield Case(
        f"whole commands, R-MAT {given.scale}",
        partial(whole, made, folder / "whole"),
        partial(check_near, made),
        {"PecanPy and gensim": Side(theirs, 14.0, 8.0, once=True)},
        needs=[in_peers(given, "pecanpy", "gensim")],
    )


def gpu_cases(given: argparse.Namespace) -> Iterator[Case]:
    folder, count, epochs = given.scratch, TEXT8[1] // (10 if given.quick else 1), 20
    corpus = zipf(folder / "zipf.txt", count)
    theirs = Side(lambda: Timed(count * epochs / FULL_W2V), 3.1)
    yield Case(
        f"a Zipf text, {epochs} epochs",
        partial(ours, corpus, folder / "vectors", epochs=epochs, cluster=ClusterSpec(device="gpu")),
        partial(check_zipf, given.quick),
        {"FULL-W2V's own code": theirs},
        (count * epochs, "words"),
        rounds=3,
    )
    one = partial(ours, corpus, folder / "one", epochs=150, cluster=ClusterSpec(device="gpu"))
    two = ClusterSpec(cluster="mpi", workers=2, device="gpu")
    yield Case(
        "a Zipf text, two GPUs, 150 epochs",
        partial(ours, corpus, folder / "two", epochs=150, parts=2, cluster=two),
        check_loss,
        {"one GPU": Side(one, 1.9)},
        rounds=1,
        needs=[gpus(2), *slow(given)],
    )


if __name__ == "__main__":
    sizes = [
        Option("--words", 4_000_000, 1_000_000, "of the text, 0: all"),
        Option("--epochs", 3, 1),
    ]
    sizes += [Option("--seeds", 1, 1), Option("--walks", 10, 2), Option("--scale", 13, 10)]
    sys.exit(main(__doc__, cases, *sizes, gpu=gpu_cases))
