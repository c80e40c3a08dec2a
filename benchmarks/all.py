"""Every benchmark, one after the other, and one table of the results.

    python -P benchmarks/all.py --quick [--only walk,etl] [--out results.json]
    python -P benchmarks/all.py                          in full: about 35 minutes on two idle cores
    python -P benchmarks/all.py --gpu                    the cases that need a GPU, on one H200

Each bench_NAME.py of this folder runs in a separate process, as from a shell; its output goes to a
log. It passes, fails, or is skipped with its reason (no GPU, no real data, no peer); without the
peers that its gates need, a case is checked only. One that is stopped after --timeout fails, and
keeps the cases before. With --jobs several run at once, which fills the caches of compiled kernels;
their times mean nothing. The exit code is 1 if one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SKIPPED = 77
STARTED: list[subprocess.Popen[bytes]] = []


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a benchmark, with its peers and workers."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def run(path: Path, given: argparse.Namespace, logs: Path) -> dict[str, Any]:
    """Run a benchmark; return its results, or its state and the reason."""
    name = path.stem.removeprefix("bench_")
    results, log = logs / f"{name}.json", logs / f"{name}.log"
    words = [f"--{flag}" for flag in ("quick", "cpu", "gpu") if getattr(given, flag)]
    if given.folder is not None:
        words += ["--folder", given.folder]
    begun = time.monotonic()
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", str(path), "--json", str(results), *words],
            stdout=file,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    STARTED.append(process)
    try:
        code = process.wait(given.timeout or (900 if given.quick else 7200))
        states = {0: "passed", SKIPPED: "skipped"}
        found = {"state": states.get(code, "failed"), "why": log.read_text().strip()[-200:]}
    except subprocess.TimeoutExpired as late:
        stop(process)
        found = {"state": "failed", "why": f"stopped after {late.timeout:g} s"}
    if results.exists():
        whole = json.loads(results.read_text())
        found = whole | (found if whole["state"] == "unfinished" else {})
    return found | {"seconds": round(time.monotonic() - begun, 1)}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return a line for each benchmark, and each case in it that did not pass."""
    lines = ["| benchmark | | s | |", "|---|---|---|---|"]
    for name, one in results.items():
        cases = one.get("cases", [])
        passed = sum(case["state"] == "passed" for case in cases)
        why = one.get("why") or f"{passed} of {len(cases)} cases passed"
        lines.append(f"| {name} | {one['state']} | {one['seconds']:g} | {_cell(why)} |")
        for case in cases:
            if case["state"] != "passed":
                lines.append(
                    f"| | {case['state']} | | {_cell(case['name'] + ': ' + case['why'])} |"
                )
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Run them all; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small inputs: minutes")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds, if other work runs")
    parser.add_argument("--gpu", action="store_true", help="only cases that need a GPU")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="benchmarks at once")
    parser.add_argument("--folder", help="of temporary files")
    parser.add_argument("--only", default="", help="names, or parts of names, by commas")
    parser.add_argument("--out", type=Path, help="the JSON file of results")
    parser.add_argument("--timeout", type=float, help="seconds for each [7200; quick: 900]")
    given = parser.parse_args()
    every = {p.stem.removeprefix("bench_"): p for p in sorted(HERE.glob("bench_*.py"))}
    chosen = list[str]()
    for word in given.only.split(","):
        chosen += [word] if word in every else [name for name in every if word in name]
    paths = [every[name] for name in dict.fromkeys(chosen)]
    if not paths:
        parser.error("no such benchmark")
    logs = Path(tempfile.mkdtemp(prefix="penstock-benchmarks-"))
    body: dict[str, Any] = {"quick": given.quick, "results": {}}
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ThreadPoolExecutor(given.jobs) as pool:
        found = pool.map(lambda path: run(path, given, logs), paths)
        try:
            for number, (path, one) in enumerate(zip(paths, found, strict=True), 1):
                name = path.stem.removeprefix("bench_")
                body["results"][name] = one
                done = f"{number} of {len(paths)}, {name} {one['state']}, {one['seconds']:.0f} s"
                print(done, file=sys.stderr, flush=True)
                if given.out is not None:
                    given.out.write_text(json.dumps(body, indent=1) + "\n")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in STARTED:
                stop(process)
            raise
    print(table(body["results"]))
    print(f"\n{(time.monotonic() - begun) / 60:.0f} minutes, logs: {logs}")
    return int(any(one["state"] == "failed" for one in body["results"].values()))


if __name__ == "__main__":
    sys.exit(main())
