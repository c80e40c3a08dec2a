"""Many small flows in a row: the growth of the process that runs them.

    python -P tests/pipelines/flow/soak_flows.py [--flows 50] [--warm 6] [--kinds serve]

functions   two Python functions as stages, in one process, by penstock.run_flow
cluster     a job on a cluster of one worker, which every flow starts and closes, in one process
serve       a job, a function and a publication, by penstock schedule serve, for missed days: the
                growth of the scheduler, and remains of the runs that it has started

Each process first warms up: imports, pools, the allocator's own memory. Then every flow may leave
at most MOST of memory and objects, and nothing else: no descriptor, no thread, no process (also no
zombie), no file in the temporary folder or next to the flow, except its record in runs/. Otherwise
the exit code is 1.
"""

import argparse
import datetime as dt
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

# Dask used to keep 256 kB and 1,030 objects per flow, of every scheduler and worker.
MOST = {"kilobytes": 80.0, "objects": 40.0}
# The scheduler's pool gets a second thread if a run begins while the last one's still reports.
THREADS = {"serve": 1}
LONGEST = 120.0  # seconds that a flow may take to begin and end
SECONDS = 3.0  # seconds between looks at a scheduler
MARK = "PENSTOCK_SOAK"  # in the environment of its processes
MODULE = """
def make(*given, value=1):
    *_, out = given
    out.mkdir(parents=True, exist_ok=True)
    (out / "v").write_text(str(value))
    return {"total": float(value)}
"""
FUNCTIONS = """
variables: {number: 0}
stages:
  first: {python: "mine:make", value: "{{number}}"}
  second: {python: "mine:make", input: first, publish: published}
"""
SERVED = """
variables: {number: "{{time}}"}
stages:
  graph: {job: generate sbm, nodes: 200, seed: "{{number}}", expect: {nodes: "== 200"}}
  second: {python: "mine:make", input: graph, publish: published}
"""
CLUSTER = """
cluster: {cluster: local, workers: 1}
variables: {number: 0}
stages:
  graph: {job: generate sbm, nodes: 200, seed: "{{number}}"}
"""


@dataclass
class Held:
    """The resources of a process."""

    kilobytes: float
    descriptors: int
    threads: int
    processes: int
    files: int
    objects: int = 0


def held(process: psutil.Process, home: Path, *, ours: bool) -> Held:
    """Examine a process; objects are only counted in this process."""
    gc.collect()
    return Held(
        process.memory_info().rss / 1e3,
        process.num_fds(),
        process.num_threads(),
        len(process.children(recursive=True)),
        files_in(home),
        len(gc.get_objects()) if ours else 0,
    )


def files_in(home: Path) -> int:
    """Count the files next to a flow and in the temporary folder."""
    found = 0
    for folder, folders, files in os.walk(home):
        if Path(folder) == home:  # a record of every run is kept
            folders[:] = [one for one in folders if one != "runs"]
        found += len(folders) + len(files)
    return found


def descendants() -> set[int]:
    """Return all processes that descend from this one, also if their parents have exited."""
    found = set()
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            marked = one.environ().get(MARK) == str(os.getpid())
            if marked and one.status() != psutil.STATUS_ZOMBIE:
                found.add(one.pid)
    return found


def in_one_process(text: str, flows: int, warm: int, home: Path) -> tuple[Held, Held]:
    """Run flows one after another in this process; return its resources then and at the end."""
    from penstock.pipelines.flow import run_flow

    (home / "flow.yaml").write_text(text)
    process, before = psutil.Process(), None
    for number in range(warm + flows):
        if number == warm:
            before = held(process, home, ours=True)
        report = run_flow(home / "flow.yaml", variables={"number": str(number)})
        assert report.state == "passed", report
        assert all(stage["state"] == "done" for stage in report.stages.values()), report
        # Objects that Python has not collected yet, of up to about twenty flows, are not a leak.
        gc.collect()
    assert before is not None
    return before, held(process, home, ours=True)


def served(flows: int, warm: int, home: Path) -> tuple[Held, Held]:
    """Run flows by penstock schedule serve: missed days, one after the other."""
    from penstock.pipelines.flow.records import FOLDER, State, all_runs
    from penstock.pipelines.schedule.entry import Schedules, entry_of
    from penstock.pipelines.schedule.options import ScheduleOptions, ScheduleTimes

    flow, schedules = home / "flow.yaml", Schedules(home / "state")
    flow.write_text(SERVED)

    def run_missed(days: int) -> None:
        shutil.rmtree(home / FOLDER, ignore_errors=True)
        options = ScheduleOptions(cron="0 0 * * *", timezone="UTC", catch_up=days)
        since = dt.datetime.now(dt.UTC) - dt.timedelta(days=days)
        schedules.save(entry_of(flow, ScheduleTimes(), options, "soak", ("flow", None), since))
        deadline = time.monotonic() + LONGEST * days
        while (
            sum(run.state == State.PASSED for run in all_runs(home / FOLDER)) < days
            or process.children()
        ):
            assert server.poll() is None, "the scheduler ended"
            assert time.monotonic() < deadline, "a flow hangs"
            time.sleep(0.1)

    (home / "state").mkdir(mode=0o700)
    command = [sys.executable, "-P", "-m", "penstock", "schedule", "serve"]
    command += ["--state", str(home / "state")]
    environment = os.environ | {MARK: str(os.getpid())}
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as server,
    ):
        process = psutil.Process(server.pid)
        try:
            run_missed(1)  # the next two also publish, and two publications stay
            run_missed(warm)
            before = idle(process, home)
            run_missed(flows)
            after = idle(process, home)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(LONGEST)
    after.processes += len(descendants())
    return before, after


def idle(process: psutil.Process, home: Path) -> Held:
    """Return the least resources of a scheduler while it runs a flow and waits for the next.

    Leaks exist at every moment; pipes to a run and connections to its state are not.
    """
    looks, end = list[Held](), time.monotonic() + SECONDS
    while time.monotonic() < end or min(one.processes for one in looks):
        assert time.monotonic() < end + LONGEST, "it always runs something"
        looks.append(held(process, home, ours=False))
        time.sleep(0.03)
    return Held(**{name: min(asdict(one)[name] for one in looks) for name in asdict(looks[0])})


def grown(before: Held, after: Held, flows: int) -> dict[str, float]:
    """Return the growth: per flow for memory and objects, in all for other resources."""
    found = {}
    for name, value in asdict(after).items():
        more = value - getattr(before, name)
        found[name] = round(more / flows, 2) if name in MOST else more
    return found


def soak(kind: str, flows: int, warm: int) -> dict[str, float]:
    """Run flows of a kind and return the growth."""
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as name:
        home = Path(name).resolve()
        (home / "mine.py").write_text(MODULE)
        (home / "tmp").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(home / "tmp")
        try:
            if kind == "serve":
                found = served(flows, warm, home)
            else:
                text = FUNCTIONS if kind == "functions" else CLUSTER
                found = in_one_process(text, flows, warm, home)
        finally:
            tempfile.tempdir = None
            del os.environ["TMPDIR"]
        return grown(*found, flows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--flows", type=int, default=50, help="of each kind, when warm")
    parser.add_argument("--warm", type=int, default=6, help="flows that come before those")
    parser.add_argument("--kinds", nargs="+", default=["functions", "cluster", "serve"])
    given = parser.parse_args()
    results = {}
    for kind in given.kinds:
        began = time.monotonic()
        left = results[kind] = soak(kind, given.flows, given.warm)
        most = MOST | {"threads": THREADS.get(kind, 0)}
        over = {name for name, value in left.items() if value > most.get(name, 0)}
        left["seconds"] = round((time.monotonic() - began) / (given.warm + given.flows), 2)
        left["ok"] = not over
    print(json.dumps(results, indent=1))
    return 0 if all(one["ok"] for one in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
