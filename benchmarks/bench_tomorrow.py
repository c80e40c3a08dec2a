"""What a night costs if a share of the edges has changed, over a rebuild: CPU seconds of each job.

    python benchmarks/bench_tomorrow.py [--graph communities] [--jobs walk,partition] [--json FILE]

Random changes replace edges anywhere; concentrated ones replace edges among nodes that are next to
each other. Every result is compared with that of a rebuild. A job runs alternately from the
base and anew, on threads of this process, whose CPU seconds are counted; the least of each counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import penstock
from penstock import Graph
from penstock.pipelines.vectors import Vectors

SHARES = (0.0, 0.001, 0.01, 0.1)
KINDS = ("random", "concentrated")
PARTS = 8
EPOCHS = 10  # until vectors made anew are as good as further training makes them
ACROSS = 1 / 2000  # of the edges of communities lead to another one
BALL = 4  # a concentrated change is among nodes with this many times the edges that change


@dataclass(frozen=True)
class Case:
    """A job from a base and anew.

    run    (graph, output, the base's output or None) -> report
    good   whether the results of both ways, output and report, are the same, or as good
    kept   of a report from a base, the share that was taken over
    most   the most CPU seconds over those of a rebuild, by share of random changes to R-MAT
    """

    run: Callable[[Path, Path, Path | None], Any]
    good: Callable[[Path, Any, Path, Any], bool]
    kept: Callable[[Any], float]
    most: dict[float, float]


def same_files(one: Path, _: Any, other: Path, __: Any) -> bool:
    """Return whether two directories of walks list the same files."""
    listed = [json.loads((path / "_walks.json").read_text())["files"] for path in (one, other)]
    return bool(listed[0] == listed[1])


def walks(**options: Any) -> Case:
    """Return the case of walks with these options."""
    return Case(
        lambda graph, out, base: penstock.walk(graph, out, base=base, **options),
        same_files,
        lambda report: float(report.from_base.kept / report.walks),
        {0.0: 0.4, 0.1: 1.5},
    )


def partition(graph: Path, _: Path, base: Path | None) -> Any:
    """Cut a graph, as yesterday's next to it or anew."""
    yesterday = None if base is None else graph.parent / f"yesterday/partition/k{PARTS}"
    return penstock.partition_graph(graph, k=PARTS, base=yesterday, overwrite=True)


def vectors(graph: Path, out: Path, base: Path | None) -> Any:
    """Train vectors: further on what changed, or anew for as long as they need."""
    given = {"dim": 32, "length": 40, "window": 10}
    if base is None:
        return penstock.word2vec(graph, out, epochs=EPOCHS, **given)
    return penstock.word2vec(graph, out, init=base, share=0.1, lr=0.005, **given)


def auc(out: Path) -> float:
    """Return how often an edge of the graph of vectors has a larger product than a random pair."""
    opened, random = Vectors.open(out), np.random.default_rng(0)
    graph = Graph.open(json.loads((out / "vectors.json").read_text())["graph"])
    rows = np.asarray(opened.values)[opened.find(graph.user_ids().combine_chunks())]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    csr = graph.csr()
    edges = random.integers(0, csr.edges, 100_000)
    ends = np.searchsorted(csr.indptr, edges, side="right") - 1
    near = (rows[ends] * rows[csr.indices[edges]]).sum(axis=1)
    far = (rows[ends] * rows[random.integers(0, csr.rows, len(ends))]).sum(axis=1)
    return float(np.mean(near > far))


CASES = {
    "walk": walks(length=80),
    "walk short": walks(length=8, walks=10),
    "walk node2vec": walks(length=20, app="node2vec", p=0.5, q=2),
    "partition": Case(
        partition,
        lambda _, based, __, anew: based.cut_share <= 1.1 * anew.cut_share + 0.02,
        lambda report: float(report.made_by == "base"),
        {0.001: 0.12, 0.1: 0.12},
    ),
    "word2vec": Case(  # --scale 13: a rebuild takes EPOCHS epochs
        vectors,
        lambda one, _, other, __: auc(one) >= auc(other) - 0.01,
        lambda report: 1 - report.words / (report.rows * 10 * 40),
        {0.001: 0.05, 0.01: 0.05},
    ),
}


def communities(scale: int, path: Path) -> None:
    """Write edges: 64 nodes of a community know each other; few edges lead to another one."""
    random, nodes = np.random.default_rng(0), 1 << scale
    sources = np.repeat(np.arange(nodes), 5)
    targets = sources // 64 * 64 + random.integers(0, 64, len(sources))
    far = random.random(len(sources)) < ACROSS
    targets[far] = random.integers(0, nodes, int(far.sum()))
    pd.DataFrame({"source": sources, "target": targets}).to_parquet(path)


def change(graph: Graph, share: float, kind: str, folder: Path) -> tuple[Path, Path]:
    """Write the edges to add and to remove, as many of each."""
    random, csr = np.random.default_rng(1), graph.csr()
    ids = graph.user_ids().to_numpy()
    sources = np.repeat(np.arange(csr.rows), csr.degrees())
    inside = np.flatnonzero(sources < csr.indices)
    count = int(len(inside) * share / 2)
    if kind == "concentrated" and count:
        near = np.zeros(csr.rows, bool)
        near[csr.indices[csr.indptr[csr.rows // 2]]] = True
        while True:
            within = inside[near[sources[inside]] & near[csr.indices[inside]]]
            if len(within) >= BALL * count:
                break
            before = near.sum()
            near[csr.indices[near[sources]]] = True
            if near.sum() == before:
                near[np.flatnonzero(~near)[0]] = True
        within = within[: BALL * count]
        inside = within
    gone = random.choice(inside, count, replace=False)
    # Ends of new edges are those of others: nodes get them in proportion to their degree.
    ends = sources[random.choice(inside, count)], csr.indices[random.choice(inside, count)]
    files = []
    for name, (one, other) in {"add": ends, "remove": (sources[gone], csr.indices[gone])}.items():
        table = pd.DataFrame({"source": ids[one], "target": ids[other]})
        table[table.source != table.target].to_parquet(folder / f"{name}.parquet")
        files.append(folder / f"{name}.parquet")
    return files[0], files[1]


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call, and its result."""

    def used() -> float:
        spent = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(one.ru_utime + one.ru_stime for one in spent)  # METIS is a child

    begun = used()
    result = work()
    return used() - begun, result


def measure(name: str, case: Case, today: Path, base: Path, folder: Path, repeats: int) -> Any:
    """Return the least CPU seconds from a base and anew, and the share that was kept."""
    found: dict[str, list[float]] = {"based": [], "anew": []}
    reports = {}
    for _ in range(repeats):
        for way in found:
            out = folder / way
            shutil.rmtree(out, ignore_errors=True)
            from_base = base if way == "based" else None
            took, reports[way] = seconds(lambda out=out, b=from_base: case.run(today, out, b))
            found[way].append(took)
    if not case.good(folder / "based", reports["based"], folder / "anew", reports["anew"]):
        raise SystemExit(f"{name}: the result from a base is not that of a rebuild, or worse")
    return min(found["based"]), min(found["anew"]), case.kept(reports["based"])


def main() -> None:
    """Print one row per job and change, and fail if a gate does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=16)
    parser.add_argument("--graph", choices=("rmat", "communities"), default="rmat")
    parser.add_argument("--jobs", default="", help="of " + ", ".join(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    chosen = [one for one in CASES if not given.jobs or one in given.jobs.split(",")]
    rows, failed = [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        yesterday = folder / "yesterday"
        if given.graph == "rmat":
            penstock.generate("rmat", yesterday, scale=given.scale)
        else:
            communities(given.scale, folder / "edges.parquet")
            penstock.etl(folder / "edges.parquet", yesterday)
        graph = Graph.open(yesterday)
        print(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} directed edges")
        for name in chosen:
            CASES[name].run(yesterday, folder / name, None)
        for share in SHARES:
            for kind in KINDS if share else KINDS[:1]:
                add, remove = change(graph, share, kind, folder)
                today = folder / "today"
                shutil.rmtree(today, ignore_errors=True)
                penstock.etl([], today, base=yesterday, add=[add], remove=[remove])
                for name in chosen:
                    case = CASES[name]
                    based, anew, kept = measure(
                        name, case, today, folder / name, folder, given.repeats
                    )
                    gated = kind == "random" and given.graph == "rmat"
                    most = case.most.get(share) if gated else None
                    rows.append([name, share, kind, based, anew, based / anew, kept])
                    print(
                        f"{name:14} {share:6.1%} {kind:12} {based:7.2f} s of {anew:7.2f} s, "
                        f"{based / anew:5.2f}, kept {kept:6.1%}",
                        flush=True,
                    )
                    if most is not None and based > most * anew:
                        failed.append(f"{name} at {share:.1%}: {based / anew:.2f} > {most}")
    if given.json:
        given.json.write_text(json.dumps(rows))
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
