"""Whole commands, from the start of the process to its end: a user's wait, and its parts.

    python benchmarks/bench_whole.py [--rounds 5] [--only walk] [--gpu-scale 22]

Every command runs in a fresh process: once cold (an empty folder of compiled kernels), then warm.
The table has the best wall time and the least CPU time (user + sys of all processes), which is
steadier on a shared machine. One more run under whole_phases.py shows the parts of the time. The
output of a command is checked before its times count. To add a row, add a Row to ROWS.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# python -P leaves out the script's folder, which has the modules of this benchmark.
sys.path.insert(0, str(Path(__file__).resolve().parent))

PHASES = ("imports", "start", "load", "compile", "read", "rows", "counts", "tables", "vectors")
PHASES += ("train", "save", "tasks", "write", "publish", "close", "client")


def penstock(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "penstock", *arguments]


@dataclass(frozen=True)
class Row:
    """A command, written as in a shell; MAKERS makes {g} and other inputs."""

    name: str
    command: str  # after ``penstock``; -c CODE runs in Python
    at_most: float | None = None  # seconds, warm
    check: Callable[[Path], None] | None = None  # of its output at {out}
    gpu: bool = False


def walks(length: int, every: int | None = None) -> Callable[[Path], None]:
    def check(out: Path) -> None:
        import pyarrow.parquet as pq

        about = json.loads((out / "_walks.json").read_text())
        assert every is None or about["walks"] == every, about["walks"]
        first = pq.ParquetFile(out / "part-00000.parquet").read_row_group(0).slice(0, 1000)
        numbers, paths = first["walk"].to_pylist(), first["path"].to_pylist()
        assert numbers == list(range(len(numbers)))
        assert 1 <= min(map(len, paths)) <= max(map(len, paths)) <= length

    return check


def central(out: Path) -> None:
    import networkx as nx
    import pyarrow.parquet as pq

    zoo = out.with_name("zoo")
    first = pq.read_table(zoo / "graphs.parquet").slice(0, 20).to_pylist()
    indptr, indices = (
        np.load(zoo / f"shards/00000/{name}.npy", mmap_mode="r") for name in ("indptr", "indices")
    )
    table = pq.read_table(out / "nodes")
    assert len(pq.read_table(out / "graphs")) == 200
    for row in first:
        nodes = range(row["first"], row["first"] + row["nodes"])
        graph = nx.Graph()
        graph.add_nodes_from(nodes)
        for node in nodes:
            graph.add_edges_from(
                (node, int(end)) for end in indices[indptr[node] : indptr[node + 1]]
            )
        for metric, values in (
            ("closeness", nx.closeness_centrality(graph)),
            ("betweenness", nx.betweenness_centrality(graph)),
        ):
            mine = table[metric][nodes.start : nodes.stop].to_numpy()
            np.testing.assert_allclose(mine, list(values.values()), rtol=1e-9, atol=1e-13)


def learnt(out: Path) -> None:
    # A GCN on 60 % of Cora's nodes reaches about 0.87; chance is 0.3.
    scores = json.loads((out / "run.json").read_text())["report"]["trained"]["metrics"]
    assert scores["test"]["score"] > 0.8, scores


def rows_of(path: Path, ids: object) -> np.ndarray:
    """Return the normalized vectors of ids."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    values = np.load(path / "vectors.npy").astype(np.float64)
    rows = pc.index_in(ids, pq.read_table(path / "part-00000.parquet")["id"].combine_chunks())
    return (values / np.linalg.norm(values, axis=1, keepdims=True))[rows.to_numpy()]


def vectors(out: Path) -> None:
    # Before training the loss of a pair is ln 2.
    about = json.loads((out / "vectors.json").read_text())
    values = np.load(out / "vectors.npy")
    assert values.shape == (about["rows"], 32)
    assert np.isfinite(values).all()
    assert about["loss"] < 0.65, about["loss"]


def embedded(out: Path) -> None:
    results = json.loads((out / "run.json").read_text())["report"]["trained"]
    assert results["epochs"] == 3
    assert results["loss"] < results["loss_before"], results


def neighbours(out: Path) -> None:
    import pyarrow.parquet as pq

    first = pq.read_table(out / "part-00000.parquet").slice(0, 200)
    path = out.with_name("vectors")
    everyone = pq.read_table(path / "part-00000.parquet")["id"].combine_chunks()
    ids = first["id"].combine_chunks()
    cosines = rows_of(path, ids[::10]) @ rows_of(path, everyone).T
    truth = -np.sort(-cosines, axis=1)[:, 1:11].reshape(-1)  # without the id itself
    np.testing.assert_allclose(first["score"], truth, atol=1e-4)
    pairs = rows_of(path, ids) * rows_of(path, first["neighbour"].combine_chunks())
    np.testing.assert_allclose(first["score"], pairs.sum(axis=1), atol=1e-4)


def flowed(out: Path) -> None:
    walks(20)(out / "walks")
    vectors(out / "vectors")


# One line per row; walk and gnn write {out}.
SMALL = "-q --cluster threads --dim 32"
WALK, GNN = "walk {small} {out} -q --length 20 --cluster", "gnn train {cora} {out} -q --hidden 16"
ROWS = [
    Row("import penstock", "-c 'import penstock'", 0.15),
    Row("penstock --help", "--help", 0.4),
    Row("info, 5,000 nodes", "info {small} -q"),
    Row("walk, 5,000 nodes, threads", f"{WALK} threads", 1.3, walks(20)),
    Row("walk, 5,000 nodes, local -n 2", f"{WALK} local -n 2", 4.0, walks(20)),
    Row("partition, 5,000 nodes", "partition {small} -q -k 4 --overwrite"),
    Row("gnn train, Cora, 200 epochs", f"{GNN} --epochs 200 --cluster threads", 2.5, learnt),
    Row(
        "centrality, 200 graphs of table 3",
        "centrality {zoo} {out} -q --cluster threads",
        None,
        central,
    ),
    Row("word2vec train, 5,000 nodes", f"word2vec train {{small}} {{out}} {SMALL}", None, vectors),
    Row(
        "embed train, 5,000 nodes, 3 epochs",
        f"embed train {{small}} {{out}} {SMALL} --epochs 3",
        None,
        embedded,
    ),
    Row(
        "similar, 5,000 vectors, all",
        "similar {vectors} --all {out} -q --cluster threads",
        None,
        neighbours,
    ),
    Row("run, walk and word2vec, 5,000 nodes", "run {flow} -q --no-report", None, flowed),
    Row("DeepWalk on a GPU", "walk {large} {out} -q --length 80", 3.0, walks(80), gpu=True),
    Row("PPR on a GPU", "walk {large} {out} -q --app ppr", 2.5, walks(80), gpu=True),
]


def rmat(path: Path, scale: int, factor: int) -> None:
    command = f"generate rmat {path} -q --scale {scale} --edge-factor {factor}"
    subprocess.run(penstock(*command.split()), check=True)


def small_vectors(path: Path) -> None:
    small = path.with_name("small")
    if not small.exists():
        rmat(small, 13, 8)
    subprocess.run(penstock(*f"word2vec train {small} {path} {SMALL}".split()), check=True)


def small_flow(path: Path) -> None:
    small = path.with_name("small")
    if not small.exists():
        rmat(small, 13, 8)
    path.write_text(FLOW)


def small_graphs(path: Path) -> None:
    subprocess.run(penstock("generate", "zoo", str(path), "-q", "--graphs", "200"), check=True)


def cora_graph(path: Path) -> None:
    from gnn_graphs import cora, write_graph

    data = cora()
    roles = np.random.default_rng(0).choice(3, data.csr.rows, p=(0.6, 0.2, 0.2)).astype(np.int8)
    write_graph(path, data, roles)


FLOW = """\
folder: out
cluster: threads
stages:
  walks: {job: walk, input: small, length: 20}
  vectors: {job: word2vec, input: walks, dim: 32, epochs: 1}
"""


def missing(row: Row) -> str | None:
    """Return the reason if a row cannot run here."""
    if row.gpu:
        from penstock.workers.resources.device import devices_here

        if not devices_here():
            return "no GPU here"
    if "{cora}" in row.command and "PENSTOCK_DATA" not in os.environ:
        return "Cora is looked for in PENSTOCK_DATA, which is not set"
    return None


class Runs:
    """Runs a row's command in fresh processes, with its own folder of compiled kernels."""

    def __init__(self, folder: Path, gpu_scale: int) -> None:
        self._folder, self._out = folder, folder / "out"
        self._makers = {
            "small": lambda path: rmat(path, 13, 8),
            "large": lambda path: rmat(path, gpu_scale, 16),
            "vectors": small_vectors,
            "flow": small_flow,
            "cora": cora_graph,
            "zoo": small_graphs,
        }

    def words(self, row: Row) -> list[str]:
        """Return the command's words; its graphs are made on first use."""
        import shlex

        names = {"out": str(self._out)}
        for name, make in self._makers.items():
            names[name] = str(path := self._folder / name)
            if f"{{{name}}}" in row.command and not path.exists():
                make(path)
        return [word.format(**names) for word in shlex.split(row.command)]

    def once(self, row: Row, caches: Path, phases: Path | None = None) -> tuple[float, float]:
        """Return the seconds of a whole run, and its CPU time with that of its children."""
        words = self.words(row)
        shutil.rmtree(self._out, ignore_errors=True)
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env |= {"NUMBA_CACHE_DIR": str(caches / "numba"), "CUPY_CACHE_DIR": str(caches / "cupy")}
        env |= {"PENSTOCK_CACHE": str(caches / "penstock")}
        command = [sys.executable, *words] if words[0] == "-c" else penstock(*words)
        if phases is not None:
            env["PHASES"] = str(phases)
            script = Path(__file__).with_name("whole_phases.py")
            command = [sys.executable, "-P", str(script), *words]
        before, start = _cpu(), time.perf_counter()
        subprocess.run(command, env=env, cwd=self._folder, check=True, stdout=subprocess.DEVNULL)
        seconds, cpu = time.perf_counter() - start, _cpu() - before
        if row.check is not None:
            row.check(self._out)
        return seconds, cpu


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def where(path: Path) -> str:
    """Return the parts of a run's time, in words: the client's thread, then the tasks' threads."""
    body = json.loads(path.read_text())
    client, threads = body["client"], body["threads"]
    said = [f"{name} {client[name]:.2f}" for name in PHASES if client.get(name, 0) >= 0.005]
    inside = [f"{name} {threads[name]:.2f}" for name in PHASES if threads.get(name, 0) >= 0.005]
    return ", ".join(said) + (f" (in tasks: {', '.join(inside)})" if inside else "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--gpu-scale", type=int, default=22)
    options = parser.parse_args()
    print("| command | cold | warm, wall | warm, CPU | at most | where the time goes, warm |")
    print("|---|---|---|---|---|---|")
    broken = []
    with tempfile.TemporaryDirectory(prefix="penstock-whole-") as folder:
        runs = Runs(Path(folder), options.gpu_scale)
        for number, row in enumerate(each for each in ROWS if options.only in each.name):
            if (why := missing(row)) is not None:
                print(f"| {row.name} | skipped: {why} | | | | |", flush=True)
                continue
            runs.words(row)
            caches = Path(folder) / f"caches-{number}"
            cold, _ = runs.once(row, caches)
            warm = [runs.once(row, caches) for _ in range(options.rounds)]
            wall, cpu = min(w for w, _ in warm), min(c for _, c in warm)
            parts = ""
            if not row.command.startswith("-c"):
                runs.once(row, caches, phases := Path(folder) / "phases.json")
                parts = where(phases)
            limit = "" if row.at_most is None else f"{row.at_most:g} s"
            if row.at_most is not None and wall > row.at_most:
                broken.append(row.name)
                limit += ", missed"
            print(
                f"| {row.name} | {cold:.2f} s | {wall:.2f} s | {cpu:.2f} s | {limit} | {parts} |",
                flush=True,
            )
    sys.exit(f"slower than promised: {', '.join(broken)}" if broken else 0)


if __name__ == "__main__":
    main()
