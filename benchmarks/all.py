"""Every benchmark with its gate, one after the other, and one table of the results.

    python -P benchmarks/all.py --quick [--only walk,etl] [--out results.json]
    python -P benchmarks/all.py                                           in full: an hour and more

Each runs in a separate process, as from a shell; its output goes to a log next to the results. A
gate is the benchmark's checks before any timing, and its promises: it fails if the process does not
end with 0. A benchmark whose requirements are missing (real data in PENSTOCK_DATA, one or several
GPUs, a peer) is skipped, with the reason. Results are JSON with machine, versions and date;
``compare.py`` lists slower rows of two files.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from penstock.limits import cores
from penstock.pipelines.flow.gates import flat_metrics
from penstock.versions import versions

HERE = Path(__file__).parent


def data() -> str | None:
    """Return an empty text, or the reason if real data is missing."""
    return None if os.environ.get("PENSTOCK_DATA") else "needs real data: set PENSTOCK_DATA"


def gpus(count: int) -> Callable[[], str | None]:
    """Return an empty text, or the reason if there are too few GPUs."""

    def missing() -> str | None:
        if find_spec("cupy") is None:
            return "needs a GPU: CuPy is not installed"
        from penstock.workers.resources.device import devices_here

        return None if devices_here() >= count else f"needs {count} GPU(s), has {devices_here()}"

    return missing


def peer(module: str) -> Callable[[], str | None]:
    """Return an empty text, or the reason if a peer is not installed."""
    return lambda: None if find_spec(module) else f"needs {module}: pip install '.[bench]'"


def cite(pattern: str, sentence: str) -> Callable[[str], str]:
    """Make a function that describes an output by the groups of a pattern."""

    def say(text: str) -> str:
        found = re.search(pattern, text, re.MULTILINE | re.DOTALL)
        return sentence.format(*found.groups()) if found else ""

    return say


def centralities(text: str) -> str:
    """Describe the speed of closeness and betweenness relative to peers."""
    found = json.loads(text[text.index("{") :])
    said = []
    for name in ("closeness", "betweenness"):
        ours, theirs = found[name]["seconds"], found[name]
        said.append(
            f"{name} {theirs['networkx'] / ours:.0f} times NetworkX, "
            f"{theirs['igraph'] / ours:.1f} igraph"
        )
    return f"{found['graphs']:,} graphs, one core: {'; '.join(said)}"


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: its file, its arguments for full and quick runs, and its requirements.

    says  makes the table's text from its output; None: the last line
    """

    name: str
    file: str
    quick: str | None  # None: not for a quick run
    full: str = ""
    needs: tuple[Callable[[], str | None], ...] = ()
    json: bool = False  # whether --json prints figures
    says: Callable[[str], str] | None = None

    def why_not(self, *, quickly: bool) -> str | None:
        """Return the reason if it cannot run, else None."""
        if quickly and self.quick is None:
            return "takes long: runs without --quick"
        return next((why for needed in self.needs if (why := needed())), None)


_COLUMN = r"[^|]+\|"
BENCHMARKS = (
    Benchmark(
        "order",
        "bench_order.py",
        "",
        says=cite(
            r"^\| 256 \| (\d+) \| (\d+)",
            "256 partitions, three held: {1} loads, no order has fewer than {0}",
        ),
    ),
    Benchmark(
        "etl",
        "bench_etl.py",
        "--edges 2e6 --repeat 1",
        needs=(peer("polars"),),
        says=cite(
            r"^polars.*? ([\d.]+ M edges/s).*^penstock etl.*? ([\d.]+ M edges/s)",
            "{1} of 2 M, start included; a Polars script with the same steps {0}",
        ),
    ),
    Benchmark("generate", "bench_generate.py", "--scale 16"),
    Benchmark(
        "partition",
        "bench_partition.py",
        "--scale 14 --k 4",
        says=cite(
            r"^\| grid500 \| 4 \| auto \| \S+ "
            rf"\| ([\d.]+%) \|{_COLUMN * 6} ([\d.]+%)",
            "a grid in 4 parts: {0} of the edges cut, by one call of pymetis {1}",
        ),
    ),
    Benchmark(
        "zoo",
        "bench_zoo.py",
        "--graphs 20000 --without-polars",
        says=cite(
            r"^\| shuffled \| ([\d,]+) .*? \| ([\d.]+) \| \d+ \|",
            "{0} graphs whose rows are shuffled: {1} M rows/s",
        ),
    ),
    Benchmark(
        "similar",
        "bench_similar.py",
        None,
        needs=(peer("usearch"),),
        says=cite(
            r"^\| new index \| \S+ \| ([\d.]+) \| ([\d.]+)",
            "all neighbours by an index: {0} of the CPU time of all pairs, recall@10 {1}",
        ),
    ),
    Benchmark("embed, answers", "bench_embed_answer.py", None, needs=(data,)),
    Benchmark("walk", "bench_walk.py", None, "--scale 16", needs=(peer("pecanpy"),)),
    Benchmark(
        "gnn, on ranks",
        "bench_gnn_distributed.py",
        "--ranks 1,2 --epochs 5 --nodes 20000 --outside 0.05 --ways plain --rounds 7",
    ),
    Benchmark(
        "centrality",
        "bench_centrality.py",
        "--files 1 --threads 1 --json",
        "--threads 1 --json",
        needs=(data, peer("igraph")),
        json=True,
        says=centralities,
    ),
    Benchmark(
        "word2vec",
        "bench_word2vec.py",
        "text --words 1000000",
        "text --words 0",
        needs=(data, peer("gensim")),
    ),
    Benchmark("embed", "bench_embed.py", "speed --steps 5", "speed"),
    Benchmark(
        "embed, storage",
        "bench_embed_storage.py",
        "--nodes 200000 --rounds 2",
        says=cite(
            r"^read .*?ratio ([\d.]+).*^write .*?ratio ([\d.]+)",
            "O_DIRECT reads {0} and writes {1} times as fast as dd",
        ),
    ),
    Benchmark(
        "gang",
        "bench_gang.py",
        "--workers 2 --json",
        "--json",
        json=True,
        says=cite(
            r'"ready": ([\d.]{4}).*?"64 MB both ways": ([\d.]{4})',
            "ready in {0} s; 64 MB both ways take {1} of the time of plain mpi4py",
        ),
    ),
    Benchmark(
        "encryption",
        "bench_encryption.py",
        "--starts 2 --json",
        "--json",
        json=True,
        says=cite(
            r'"start": \[([\d.]{4})[\d.]*, ([\d.]{4})',
            "a cluster starts in {0} s with TLS, {1} without",
        ),
    ),
    Benchmark(
        "whole commands",
        "bench_whole.py",
        "--rounds 1 --only 5,000",
        "",
        says=cite(rf"^\| (walk, 5,000 nodes, threads) \|{_COLUMN} ([\d.]+)", "{0}: {1} s"),
    ),
    Benchmark("walk on a GPU", "bench_walk_gpu.py", None, needs=(gpus(1),)),
    Benchmark("gnn on a GPU", "bench_gnn.py", None, "--gpu", needs=(gpus(1),)),
    Benchmark(
        "centrality on a GPU",
        "bench_centrality_gpu.py",
        "--graphs 20000 --json",
        "--json",
        needs=(gpus(1),),
        json=True,
    ),
    Benchmark("embed on a GPU", "bench_embed_gpu.py", "--quick", needs=(gpus(1),)),
    Benchmark("embed from a disk, on a GPU", "bench_embed_prefetch.py", None, needs=(gpus(1),)),
    Benchmark("embed on GPUs", "bench_embed_ranks.py", None, needs=(gpus(2),)),
    Benchmark("I/O by a GPU", "bench_gpu_io.py", "--seconds 30", "", needs=(gpus(1),)),
    Benchmark("NCCL", "bench_nccl.py", "--ranks 2", "--ranks 2", needs=(gpus(2),)),
)


def run(one: Benchmark, *, quickly: bool, log: Path, timeout: float) -> dict[str, Any]:
    """Run a benchmark, and return its record."""
    words = (one.quick if quickly else one.full) or ""
    command = [sys.executable, "-P", str(HERE / one.file), *words.split()]
    began = time.monotonic()
    body: dict[str, Any] = {"command": f"python -P benchmarks/{one.file} {words}".strip()}
    with log.open("w+") as file:
        try:
            code = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, timeout=timeout, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
            body["why"] = f"stopped after {timeout:g} s"
        file.seek(0)
        text = file.read()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1][:160] if lines else ""
    said = one.says(text) if one.says is not None and code == 0 else ""
    body |= {
        "state": "passed" if code == 0 else "failed",
        "seconds": round(time.monotonic() - began, 2),
        "says": said or last,
        "figures": figures(text) if one.json else {},
    }
    return body


def figures(text: str) -> dict[str, float]:
    """Return the numbers of the JSON with which an output ends."""
    for start in (at for at, letter in enumerate(text) if letter in "{["):
        try:
            return flat_metrics(json.loads(text[start:]))
        except ValueError:
            continue
    return {}


def machine() -> dict[str, Any]:
    """Return the properties that figures depend on: processor, cores, memory, GPUs, load."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    found: dict[str, Any] = {
        "processor": model,
        "cores": cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "load": round(os.getloadavg()[0], 2),
        "gpus": [],
    }
    if gpus(1)() is None:
        import cupy as cp

        for device in range(cp.cuda.runtime.getDeviceCount()):
            name = cp.cuda.runtime.getDeviceProperties(device)["name"]
            found["gpus"].append(name.decode() if isinstance(name, bytes) else str(name))
    return found


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return a line for each benchmark, as Markdown."""
    lines = ["| benchmark | gate | s | what it says |", "|---|---|---|---|"]
    for name, one in results.items():
        said = (one.get("why") or one.get("says") or "").replace("|", "\\|")
        seconds = "" if one["state"] == "skipped" else f"{one['seconds']:.1f}"
        lines.append(f"| {name} | {one['state']} | {seconds} | {said} |")
    return "\n".join(lines)


def main() -> int:
    """Run them all; return 1 if a gate failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small inputs, one round: minutes")
    parser.add_argument(
        "--only", default="", help="names that contain one of these, separated by commas"
    )
    parser.add_argument("--out", type=Path, help="the JSON file of results")
    parser.add_argument("--timeout", type=float, help="seconds for each [600, in full 7200]")
    given = parser.parse_args()
    wanted = [word for word in given.only.split(",") if word]
    chosen = [one for one in BENCHMARKS if not wanted or any(w in one.name for w in wanted)]
    if not chosen:
        parser.error(f"no such benchmark; names: {', '.join(one.name for one in BENCHMARKS)}")
    logs = Path(tempfile.mkdtemp(prefix="penstock-benchmarks-"))
    results: dict[str, dict[str, Any]] = {}
    about = {
        "date": dt.date.today().isoformat(),
        "quick": given.quick,
        "machine": machine(),
        "versions": versions(),
    }
    for one in chosen:
        why = one.why_not(quickly=given.quick)
        if why is not None:
            results[one.name] = {"state": "skipped", "why": why, "seconds": 0.0, "figures": {}}
            continue
        print(f"{one.name} ...", file=sys.stderr, flush=True)
        log = logs / f"{Path(one.file).stem}.log"
        timeout = given.timeout or (600 if given.quick else 7200)
        results[one.name] = run(one, quickly=given.quick, log=log, timeout=timeout)
        if given.out:
            given.out.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
    print(table(results))
    print(f"\nlogs: {logs}")
    return int(any(one["state"] == "failed" for one in results.values()))


if __name__ == "__main__":
    sys.exit(main())
