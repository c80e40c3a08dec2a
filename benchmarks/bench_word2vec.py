"""Speed and quality of word vectors, and of gensim's in the same run; on a GPU if available.

    PENSTOCK_DATA=... python benchmarks/bench_word2vec.py text [--words 1000000] [--ranks 1 2]
    PENSTOCK_DATA=... python benchmarks/bench_word2vec.py blogcatalog [--shared-windows 1 8]
    python benchmarks/bench_word2vec.py graph [--shared-windows 1 8] --pecanpy VENV/bin/python
    python benchmarks/bench_word2vec.py zipf [--epochs 20]
    python benchmarks/bench_word2vec.py whole [--scale 22] [--rounds 2]
    PENSTOCK_DATA=... python benchmarks/bench_word2vec.py ranks [--ranks 1 2] [--seeds 3] [--long 0]
    python benchmarks/bench_word2vec.py ranks --graph 22 --epochs 6 --ranks 1 2

Quality is checked before any time is printed: on text the rank correlations of both with ws353 and
SimLex999 and Google's analogies, on BlogCatalog micro and macro F1 at half of the labels. All have
the same parameters and number of threads; gensim draws windows up to ``--window``, Penstock's are
fixed at half of it. BlogCatalog is trained on streamed walks, then on the same walks from the disk.
Times are those of training for text, and of whole commands for a graph, whose peer is PecanPy's
SparseOTF followed by gensim, in a separate environment.

``ranks`` trains the whole text on one and on several GPUs for three epochs, and compares the mean
quality over seeds with gensim's (in results/word2vec.md); then, with ``--long``, it trains until
one GPU takes half a minute, and compares speed and loss. With ``--graph`` it trains walks of an
R-MAT graph of that scale instead, and compares speed, loss, and the share of edges that are nearer
than random pairs of the same degrees.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.limits import cores
from penstock.pipelines.word2vec.evaluation import evaluate_vectors

# Allowed difference to gensim: of rank correlations, then of the share of answers (3CosAdd).
LEAST = {"ws353.txt": 0.02, "SimLex999.txt": 0.02, "google.txt": 0.01}
ZIPF_WORDS = 71_291
GENSIM = {"ws353.txt": 0.5956, "SimLex999.txt": 0.2823, "google.txt": 0.1768}
SPEEDUPS = {2: 1.7}  # of GPUs
LONG_ENOUGH = 30.0  # seconds of one GPU for a comparison of speeds
WORSE = 0.01  # allowed relative excess of the loss of several ranks
FARTHER = 0.01  # allowed decrease of the share of nearer edges with several ranks
MICRO, MACRO = 0.40, 0.26  # of BlogCatalog at half of the labels

PEER = """
import sys, time
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=list(WHAT))
    parser.add_argument("--words", type=int, default=1_000_000, help="of the text; 0: all")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--walks", type=int, default=80)
    parser.add_argument("--scale", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2, help="of whole: warm runs")
    parser.add_argument("--pecanpy", help="a Python that has PecanPy and gensim")
    parser.add_argument("--shared-windows", type=int, nargs="+", default=[1])
    parser.add_argument("--seeds", type=int, default=1, help="qualities are their means")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1], help="of text: that train")
    parser.add_argument("--long", type=int, default=650, help="epochs of text for its speed")
    parser.add_argument("--graph", type=int, default=0, help="scale of ranks' graph; 0: text")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="gpu", help="of ranks")
    parser.add_argument("--sync-words", type=int, help="of ranks; without it the default")
    parser.add_argument("--no-gensim", action="store_true", help="of text: ours alone")
    given = parser.parse_args()
    print(f"{cores()} cores, {given}")
    with tempfile.TemporaryDirectory() as folder:
        WHAT[given.what](given, Path(folder))


def data() -> Path:
    folder = os.environ.get("PENSTOCK_DATA")
    if not folder:
        sys.exit("set PENSTOCK_DATA to the folder of real data")
    return Path(folder)


def write_text(corpus: Path, most: int) -> Path:
    """Write a number of words of the text, 0 for all, in sentences of 1,000."""
    left = most or sys.maxsize
    with (
        gzip.open(data() / "words/wikipedia-text8-style.txt.gz", "rt") as whole,
        corpus.open("w") as some,
    ):
        for line in whole:
            words = line.split()[:left]
            for start in range(0, len(words), 1000):
                some.write(" ".join(words[start : start + 1000]) + "\n")
            left -= len(words)
            if not left:
                break
    return corpus


def text(given: argparse.Namespace, folder: Path) -> None:
    """Compare correlations, analogies and words per second on text."""
    if not given.no_gensim:
        from gensim.models import Word2Vec
        from gensim.models.word2vec import LineSentence

    corpus = write_text(folder / "text.txt", given.words)
    *pairs, analogies = [data() / "words" / name for name in LEAST]
    found: dict[str, list[list[float]]] = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)

    def judge(name: str, seed: int, path: Path) -> None:
        result = evaluate_vectors(path, pairs=pairs, analogies=[analogies])
        total = result.analogies[0].total
        found[name].append([each.spearman or 0.0 for each in result.pairs])
        found[name][-1].append(total.right_add / len(total.questions))
        scores = np.round(found[name][-1], 4)
        print(f"seed {seed}, {name}: {scores}, {len(total.questions)}", flush=True)

    for seed in range(1, given.seeds + 1):
        for windows, ranks in itertools.product(given.shared_windows, given.ranks):
            name = f"ours, --shared-windows {windows}, {ranks} ranks"
            out = folder / f"ours{seed}-{windows}-{ranks}"
            report = penstock.word2vec(
                corpus,
                out,
                dim=given.dim,
                epochs=given.epochs,
                seed=seed,
                shared_windows=windows,
                parts=ranks,
            )
            rates[name].append(report.words / report.train_seconds)
            judge(name, seed, out)
        if given.no_gensim:
            continue
        model = Word2Vec(
            vector_size=given.dim,
            window=5,
            min_count=5,
            sg=1,
            negative=5,
            sample=1e-3,
            workers=cores(),
            seed=seed,
        )
        model.build_vocab(LineSentence(str(corpus)))
        began = time.perf_counter()
        model.train(
            LineSentence(str(corpus)), total_words=model.corpus_total_words, epochs=given.epochs
        )
        seconds = time.perf_counter() - began
        rates["gensim"].append(model.corpus_total_words * given.epochs / seconds)
        theirs = folder / f"gensim{seed}"
        model.wv.save_word2vec_format(str(theirs), binary=True)
        judge("gensim", seed, theirs)
    means = {name: np.mean(scores, axis=0) for name, scores in found.items()}
    if given.no_gensim:
        for name, scores in means.items():
            rate = float(np.median(rates[name])) / 1e6
            print(f"{name}: {np.round(scores, 4)}, {rate:.3f} M words/s")
        return
    theirs, bad = means.pop("gensim"), []
    for name, ours in means.items():
        for test, one, other in zip(LEAST, ours, theirs, strict=True):
            what = "3CosAdd" if test == analogies.name else "Spearman"
            print(f"{name}: {test}: {what} {one:.4f}, gensim {other:.4f}")
            if one < other - LEAST[test]:
                bad.append(f"{name}: {test} is more than {LEAST[test]} below gensim's")
    other = float(np.median(rates.pop("gensim")))
    for name, each in rates.items():
        one = float(np.median(each))
        print(
            f"{name}: {one / 1e6:.3f} M words/s, gensim {other / 1e6:.3f}: {one / other:.2f} times"
        )
    if bad:
        sys.exit("; ".join(bad))


def ranks(given: argparse.Namespace, folder: Path) -> None:
    """Compare several GPUs with one, on text or on the walks of a graph."""
    walks = {"app": "node2vec", "p": 0.5, "q": 2.0, "walks": 10, "length": 80}
    # Kernels are compiled before the timing, for any first count of ranks.
    small = folder / "small"
    if given.graph:
        penstock.generate("sbm", small, nodes=1000, quiet=True)
    else:
        write_text(small, 100_000)
    for count in given.ranks:
        on_ranks(given, count, small, folder / f"small-{count}", **(walks if given.graph else {}))
    bad = ranks_of_graph(given, folder, walks) if given.graph else ranks_of_text(given, folder)
    if bad:
        sys.exit("; ".join(bad))


def on_ranks(given: argparse.Namespace, count: int, source: Path, out: Path, **how: Any) -> Any:
    """Train on a number of GPUs."""
    kind = {} if count == 1 else {"cluster": "mpi", "workers": count}
    more = {} if count == 1 else {"sync_words": given.sync_words}
    return penstock.word2vec(
        source,
        out,
        dim=given.dim,
        parts=count,
        quiet=True,
        cluster=penstock.ClusterSpec(device=given.device, **kind),
        **more,
        **how,
    )


def compared(count: int, report: Any, one: Any, rate: float, rate_of_one: float) -> list[str]:
    """Print a comparison of several ranks with one; return missed requirements."""
    if count == 1:
        return []
    worse, faster, asked = report.loss / one.loss - 1, rate / rate_of_one, SPEEDUPS.get(count, 0.0)
    print(
        f"{count} ranks: {faster:.2f} times as fast, {asked} asked; loss {worse:+.2%}", flush=True
    )
    bad = []
    if worse > WORSE:
        bad.append(f"the loss of {count} ranks is {worse:.1%} above that of one")
    if faster < asked:
        bad.append(f"{count} ranks are {faster:.2f} times as fast, {asked} asked")
    return bad


def ranks_of_text(given: argparse.Namespace, folder: Path) -> list[str]:
    """Compare quality of a short training, then speed and loss of a long one."""
    corpus = write_text(folder / "text.txt", given.words)
    *pairs, analogies = [data() / "words" / name for name in LEAST]
    bad: list[str] = []
    print("| ranks | epochs | M words/s | s | loss | ws353 | SimLex999 | Google |\n|" + "---|" * 8)

    def trained(count: int, epochs: int, seed: int) -> tuple[Any, float, list[float]]:
        out = folder / f"{epochs}-{count}-{seed}"
        report = on_ranks(given, count, corpus, out, epochs=epochs, seed=seed)
        result = evaluate_vectors(out, pairs=pairs, analogies=[analogies])
        total = result.analogies[0].total
        found = [each.spearman or 0.0 for each in result.pairs]
        found.append(total.right_add / len(total.questions))
        rate = report.words / report.train_seconds / 1e6
        scores = " | ".join(f"{score:.4f}" for score in found)
        print(
            f"| {count} | {epochs} | {rate:.1f} | {report.train_seconds:.2f} | {report.loss:.4f} | "
            f"{scores} |",
            flush=True,
        )
        return report, rate, found

    for count in given.ranks:
        seeds = [trained(count, 3, seed)[2] for seed in range(1, given.seeds + 1)]
        means = np.mean(seeds, axis=0)
        print(f"{count} ranks, means of {given.seeds} seeds: {np.round(means, 4)}", flush=True)
        for (test, least), score in zip(LEAST.items(), means, strict=True):
            if given.words == 0 and score < GENSIM[test] - least:
                bad.append(f"{count} ranks: {test} is {score:.4f}, gensim {GENSIM[test]:.4f}")
    one: tuple[Any, float, list[float]] | None = None
    for count in given.ranks if given.long else ():
        report, rate, _ = found = trained(count, given.long, 1)
        one = one or found
        bad += compared(count, report, one[0], rate, one[1])
    return bad


def ranks_of_graph(given: argparse.Namespace, folder: Path, walks: dict[str, Any]) -> list[str]:
    """Compare speed, loss and nearness of edges of walks by node2vec."""
    made, began = folder / "graph", time.perf_counter()
    penstock.generate("rmat", made, scale=given.graph, quiet=True)
    opened = penstock.Graph.open(made)
    seconds = time.perf_counter() - began
    print(f"{opened.num_nodes:,} nodes, {opened.num_edges:,} edges, made in {seconds:.1f} s")
    print("| ranks | M words/s | s | loss | edges nearer | whole job, s |\n|" + "---|" * 6)
    bad: list[str] = []
    one: tuple[Any, float, float] | None = None
    for count in given.ranks:
        out, began = folder / f"out-{count}", time.perf_counter()
        report = on_ranks(given, count, made, out, epochs=given.epochs, **walks)
        whole = time.perf_counter() - began
        near, rate = near_edges(out, opened), report.words / report.train_seconds / 1e6
        print(
            f"| {count} | {rate:.1f} | {report.train_seconds:.2f} | {report.loss:.4f} | "
            f"{near:.4f} | {whole:.1f} |",
            flush=True,
        )
        shutil.rmtree(out)
        one = one or (report, rate, near)
        bad += compared(count, report, one[0], rate, one[1])
        if count > 1 and near < one[2] - FARTHER:
            bad.append(f"edges of {count} ranks are nearer in {near:.4f}, of one in {one[2]:.4f}")
        if count == 1 and report.train_seconds < LONG_ENOUGH:
            bad.append(f"one GPU trains for {report.train_seconds:.1f} s, {LONG_ENOUGH} asked")
    return bad


def blogcatalog(given: argparse.Namespace, folder: Path) -> None:
    """Check F1 on BlogCatalog, then print the time of the whole command."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from scipy.io import loadmat

    loaded = loadmat(data() / "nodes/blogcatalog.mat")
    edges, groups = loaded["network"].tocoo(), loaded["group"].tocsr()
    with penstock.Graph.create(folder / "graph") as writer:
        writer.edges(penstock.CSR.from_edges(edges.row, edges.col, edges.shape[0]))
        writer.nodes()
    lists = pa.ListArray.from_arrays(groups.indptr.astype(np.int32), groups.indices)
    nodes = pa.table({"id": np.arange(edges.shape[0]), "label": lists})
    pq.write_table(nodes, folder / "nodes.parquet")
    how = {"window": 10, "dim": given.dim, "sample": 0, "epochs": given.epochs}
    steps, seconds = {"walks": given.walks, "length": 40}, {}
    for windows in given.shared_windows:
        name = f"streamed, --shared-windows {windows}"
        began = time.perf_counter()
        penstock.word2vec(folder / "graph", folder / name, shared_windows=windows, **steps, **how)
        seconds[name] = time.perf_counter() - began
    penstock.walk(folder / "graph", folder / "walks", **steps)
    penstock.word2vec(folder / "walks", folder / "written", graph=folder / "graph", **how)
    least = []
    for name in (*seconds, "written"):
        by = folder / "nodes.parquet"
        found = evaluate_vectors(folder / name, labels=by, shares=(0.5,)).labels
        assert found is not None
        share = found.shares[0]
        least.append((share.micro_f1, share.macro_f1))
        print(
            f"walks {name}: micro-F1 {share.micro_f1:.4f}, macro-F1 {share.macro_f1:.4f} "
            "at half of the labels"
        )
    if any(micro < MICRO or macro < MACRO for micro, macro in least):
        sys.exit(f"no times: below {MICRO} and {MACRO}")
    for name, whole in seconds.items():
        print(f"whole command, walks {name}: {whole:.1f} s")


def graph(given: argparse.Namespace, folder: Path) -> None:
    """Compare whole commands on R-MAT: ours, and PecanPy followed by gensim."""
    if not given.pecanpy:
        sys.exit("give --pecanpy, a Python that has PecanPy and gensim")
    made = folder / "graph"
    penstock.generate("rmat", made, scale=given.scale)
    opened = penstock.Graph.open(made)
    csr = opened.csr()
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    once = rows < csr.indices
    ends = [opened.user_ids(each[once]) for each in (rows, np.asarray(csr.indices))]
    np.savetxt(folder / "edges.tsv", np.column_stack(ends), "%d", "\t")
    words = ["--app", "node2vec", "--p", 0.5, "--q", 2, "--walks", 10, "--length", 80]
    ours = {}
    for windows in given.shared_windows:
        out = folder / f"shared-{windows}"
        began = time.perf_counter()
        command = ["word2vec", "train", made, out, *words, "--dim", given.dim, "-q"]
        command += ["--shared-windows", windows]
        subprocess.run([sys.executable, "-P", "-m", "penstock", *map(str, command)], check=True)
        ours[windows] = time.perf_counter() - began
    began = time.perf_counter()
    theirs = [folder / "edges.tsv", folder / "theirs.bin", cores(), given.dim]
    subprocess.run([given.pecanpy, "-c", PEER, *map(str, theirs)], check=True)
    peer = time.perf_counter() - began
    near = near_edges(folder / "theirs.bin", opened)
    print(f"PecanPy and gensim: {peer:.1f} s, edges nearer than random pairs {near:.3f}")
    for windows, seconds in ours.items():
        share = near_edges(folder / f"shared-{windows}", opened)
        print(f"--shared-windows {windows}: edges nearer than random pairs {share:.3f}", end="")
        worse = share < near - 0.05
        print(", worse: no times" if worse else f", {seconds:.1f} s, {peer / seconds:.1f} times")


def near_edges(path: Path, opened: penstock.Graph) -> float:
    """Return the share of edges whose ends are nearer than two nodes of the same degrees."""
    from penstock.pipelines.vectors import Vectors

    vectors, csr, random = Vectors.open(path), opened.csr(), np.random.default_rng(0)
    some = random.integers(0, csr.edges, (2, 20_000))
    rows = np.searchsorted(csr.indptr, some, side="right") - 1
    ends = np.asarray(csr.indices)[some]
    units = vectors.values / np.linalg.norm(vectors.values, axis=1, keepdims=True)

    def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        a, b = (vectors.rows(opened.user_ids(each).tolist()) for each in (one, other))
        return np.einsum("ij,ij->i", units[a], units[b])

    return float(np.mean(cosines(rows[0], ends[0]) > cosines(rows[0], ends[1])))


def zipf(given: argparse.Namespace, folder: Path) -> None:
    """Time a corpus like FULL-W2V's: 17 M words of 71,291, in sentences of 1,000."""
    words, length = 17_000_000, 1000
    chances = 1 / np.arange(1, ZIPF_WORDS + 1)
    drawn = np.random.default_rng(0).choice(ZIPF_WORDS, words, p=chances / chances.sum())
    names = np.array([f"w{number}" for number in range(ZIPF_WORDS)], object)
    corpus = folder / "zipf.txt"
    with corpus.open("w") as file:
        for start in range(0, words, length):
            file.write(" ".join(names[drawn[start : start + length]]) + "\n")
    for windows in given.shared_windows:
        for run in ("cold", "warm"):
            began = time.perf_counter()
            report = penstock.word2vec(
                corpus,
                folder / f"{run}{windows}",
                dim=given.dim,
                epochs=given.epochs,
                min_count=1,
                shared_windows=windows,
            )
            seconds = time.perf_counter() - began
            rate = report.words / report.train_seconds / 1e6
            print(
                f"--shared-windows {windows}, {run}: {rate:.0f} M words/s, {report.words:,} words "
                f"in {report.train_seconds:.2f} s, loss {report.loss:.4f}; from the file to "
                f"vectors {seconds:.1f} s",
                flush=True,
            )


def whole(given: argparse.Namespace, folder: Path) -> None:
    """Time the whole command on a large graph, cold and warm, and print the parts of its time."""
    compiled = Path(penstock.__cached__).is_file()
    print(f"bytecode is {'there' if compiled else 'missing: imports take some times as long'}")
    made, out = folder / "graph", folder / "out"
    penstock.generate("rmat", made, scale=given.scale)
    words = ["word2vec", "train", made, out, "--app", "node2vec", "--p", "0.5", "--q", "2"]
    words += ["--walks", "10", "--length", "80", "--dim", given.dim]
    plain, phases = ["-m", "penstock"], [str(Path(__file__).with_name("whole_phases.py"))]
    for windows in given.shared_windows:
        more = [*words, "--shared-windows", windows]
        for run in ("cold", *["warm"] * given.rounds, "phases"):
            shutil.rmtree(out, ignore_errors=True)
            began = time.perf_counter()
            start = [sys.executable, "-P", *(phases if run == "phases" else plain)]
            env = os.environ | {"PHASES": str(folder / "phases.json")}
            # An installed package has its bytecode; some containers keep it from being written.
            env.pop("PYTHONDONTWRITEBYTECODE", None)
            subprocess.run([*start, *map(str, more)], check=True, env=env)
            seconds = time.perf_counter() - began
            near = near_edges(out, penstock.Graph.open(made))
            print(
                f"--shared-windows {windows}, {run}: {seconds:.2f} s; edges nearer than random "
                f"pairs: {near:.3f}",
                flush=True,
            )
        show_phases(folder / "phases.json")


def show_phases(path: Path) -> None:
    """Print the results of whole_phases.py: sums of the client and other threads, and spans."""
    body = json.loads(path.read_text())
    for who in ("client", "threads"):
        spent = sorted(body[who].items(), key=lambda each: -each[1])
        print(f"{who}: " + ", ".join(f"{name} {of:.2f}" for name, of in spent if of >= 0.005))
    print("from s to s, thread, what")
    for begun, ended, thread, what in body["spans"]:
        print(f"{begun:6.2f} {ended:6.2f} {thread:3d} {what}")


WHAT = {
    "text": text,
    "blogcatalog": blogcatalog,
    "graph": graph,
    "zipf": zipf,
    "whole": whole,
    "ranks": ranks,
}

if __name__ == "__main__":
    main()
