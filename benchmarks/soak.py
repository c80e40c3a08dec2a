"""Jobs of every kind, with random signals at random times to any of their processes.

    python -P benchmarks/soak.py [--jobs 200] [--minutes 30] [--seed 0] [--json]

First every kind runs undisturbed, which gives its result and its time. Then, until the minutes are
over and the jobs are done: a random kind, random signals to one or several of its processes at
random times, and the same command again (with --resume if the job has it) until it exits with 0.
Counted are

    wrong        results that differ from the undisturbed ones
    hangs        jobs that have not ended within LIMIT seconds
    processes    that outlive their job by GRACE seconds
    files        left by a job that ended with 0 (temporary folder, shared memory, next to its
                 output), or by the stopped cluster
    descriptors  growth in the processes of the kept cluster
    bugs         messages that report a bug of penstock

The exit code is 1 unless all of them are 0.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

LIMIT = 150.0  # seconds: a worker that is silent is lost after 30, a start gives up after 60
GRACE = 10.0
TRIES = 12
KEPT = "soak"
MARK = "PENSTOCK_SOAK"  # in the environment of every process that a job starts
SIGNALS = ("KILL", "TERM", "INT", "HUP", "STOP")


@dataclass(frozen=True)
class Kind:
    """A job: its command, its output, whether it can resume, and the files that count."""

    command: str
    resumes: bool = True
    suffixes: tuple[str, ...] = (".npy", ".parquet")


KINDS = {
    "etl": Kind("etl {edges} {out} -n 2 --relabel degree"),
    "generate": Kind("generate rmat {out} --scale 17 --edge-factor 16", resumes=False),
    # ``auto`` would take another method, and report it, if METIS is killed.
    "partition": Kind("partition {out} -k 3 --method metis --overwrite", resumes=False),
    "walk": Kind("walk {graph} {out} --length 40 --walks 4 --cluster local -n 2"),
    "walk in parts": Kind(
        "walk {graph} {out} --length 40 --walks 4 --cluster mpi -n 2 --parts 2 "
        "--placement partitioned"
    ),
    "walk, kept cluster": Kind("walk {graph} {out} --length 40 --walks 4 --cluster " + KEPT),
    "gnn": Kind(
        "gnn train {graph} {out} --hidden 32 --epochs 120 -k 2 --checkpoint-epochs 10 "
        "--cluster mpi",
        suffixes=("best.safetensors",),
    ),
    "predict": Kind("gnn predict {run} {out} --embeddings --overwrite", resumes=False),
}


@dataclass
class Tally:
    """The results of all jobs."""

    jobs: int = 0
    runs: int = 0
    signals: Counter = field(default_factory=Counter)
    kinds: Counter = field(default_factory=Counter)
    faults: dict[str, list[str]] = field(
        default_factory=lambda: {
            name: [] for name in ("wrong", "hangs", "processes", "files", "descriptors", "bugs")
        }
    )

    def fault(self, name: str, text: str) -> None:
        self.faults[name].append(text)
        print(f"  {name}: {text}", flush=True)


class Soak:
    """The folder of a soak: inputs, undisturbed results, and a separate temporary folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random, self.tally = folder, random.Random(seed), Tally()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        home = folder / "home"
        home.mkdir()
        self.environment = {
            **os.environ,
            MARK: str(os.getpid()),
            "TMPDIR": str(self.temporary),
            "HOME": str(home),
            # Compiled kernels keep their folder.
            "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", ""),
        }
        if not self.environment["NUMBA_CACHE_DIR"]:
            del self.environment["NUMBA_CACHE_DIR"]
        self.truth: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    # -- one job --------------------------------------------------------------------------------

    def start(self, words: list[str]) -> subprocess.Popen[bytes]:
        # A process started in the background of a shell ignores SIGINT; this one must not.
        code = (
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from penstock.__main__ import main; main()"
        )
        log = (self.folder / "log").open("wb")
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code, *words, "-q"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def words(self, name: str, out: Path) -> list[str]:
        names = {"out": out, "edges": "edges", "graph": "graph", "run": "run"}
        return KINDS[name].command.format(**names).split()

    def run(self, name: str, out: Path, disturb: bool) -> int | None:
        """Run a job's command until it is done; return the last exit code, or None if it hung."""
        words, resume = self.words(name, out), []
        for attempt in range(TRIES):
            process = self.start(words + resume)
            self.tally.runs += 1
            plan = []
            if disturb and attempt < TRIES - 3:  # the last run is not disturbed
                count = self.random.choice((1, 1, 1, 2, 3))
                until = 1.2 * self.seconds[name]
                plan = sorted(self.random.uniform(0.0, until) for _ in range(count))
            code = self.wait(process, plan)
            if code is None:
                return None
            said = (self.folder / "log").read_text(errors="replace")
            if bug := a_bug(said):
                self.tally.fault("bugs", f"{name}: {bug}")
            # A signal may come when the output has just been published: the next run finds it.
            if code == 0 or (attempt and f"{out} exists. Name another output" in said):
                return 0
            if attempt >= TRIES - 3 and not disturb:
                print(said, file=sys.stderr)
            if KINDS[name].resumes:
                resume = ["--resume"]
        return code

    def wait(self, process: subprocess.Popen[bytes], plan: list[float]) -> int | None:
        begun, stopped = time.monotonic(), []
        while process.poll() is None:
            now = time.monotonic() - begun
            if plan and now > plan[0]:
                plan.pop(0)
                self.disturb(process, stopped)
            for pid, at in list(stopped):  # the client itself continues, as by `fg`
                if time.monotonic() - at > 3:
                    stopped.remove((pid, at))
                    send(pid, signal.SIGCONT)
            if now > LIMIT:
                printed = (self.folder / "log").read_text(errors="replace")[-1000:]
                self.tally.fault("hangs", f"{process.args[4:]}: {self.states()}; said: {printed}")
                self.kill_all()
                process.wait()
                return None
            time.sleep(0.02)
        return process.returncode

    def disturb(self, process: subprocess.Popen[bytes], stopped: list) -> None:
        """Send a signal to one process of the job."""
        try:
            root = psutil.Process(process.pid)
            found = [root, *root.children(recursive=True)]
            # Python's own helper: if stopped it would stay, because no process would continue it.
            found = [one for one in found if "resource_tracker" not in " ".join(one.cmdline())]
            pid = self.random.choice(found).pid
        except (psutil.NoSuchProcess, IndexError):
            return
        name = self.random.choice(SIGNALS)
        send(pid, getattr(signal, f"SIG{name}"))
        self.tally.signals[name] += 1
        if name == "STOP" and (pid == process.pid or self.random.random() < 0.7):
            stopped.append((pid, time.monotonic()))

    # -- what is left ---------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """Return the processes that jobs have started, except those of the kept cluster."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == str(os.getpid()) and process.pid not in self.kept:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return [p for p in found if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    kept: frozenset[int] = frozenset()

    def states(self) -> list[str]:
        """Return the state and the CPU time of each process of the job."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                times = process.cpu_times()
                command = " ".join(process.cmdline()[4:])[:120]
                found.append(f"{process.status()} {times.user + times.system:.1f} s {command}")
        return found

    def kill_all(self) -> None:
        for process in self.processes():
            send(process.pid, signal.SIGKILL)

    def left(self, name: str) -> None:
        """Count processes that outlive their job, and end them."""
        deadline = time.monotonic() + GRACE
        while (there := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in there:
            try:
                self.tally.fault("processes", f"{name}: {' '.join(process.cmdline())[:200]}")
            except psutil.NoSuchProcess:
                continue
        self.kill_all()

    def files(self) -> set[str]:
        """Return the files in temporary folders and shared memory."""
        shared = {str(path) for path in Path("/dev/shm").iterdir()}
        return shared | {str(path) for path in self.temporary.rglob("*")}

    # -- the whole ------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the inputs, and run every kind undisturbed."""
        (self.folder / "edges").mkdir()
        draw = np.random.default_rng(0)
        import pyarrow as pa
        import pyarrow.parquet as pq

        for part in range(4):
            ends = draw.integers(0, 100_000, (2, 400_000))
            table = pa.table({"source": ends[0], "target": ends[1]})
            pq.write_table(table, self.folder / "edges" / f"{part}.parquet")
        self.must("generate sbm graph --nodes 20000 --seed 1")
        self.must("partition graph -k 2")
        self.must("gnn train graph run --epochs 5 --hidden 16 --cluster threads")
        self.must(f"cluster start --name {KEPT} --cluster local -n 2")
        self.kept = frozenset(p.pid for p in self.processes())
        for name in KINDS:
            out = self.out(name)
            begun = time.monotonic()
            if self.run(name, out, disturb=False) != 0:
                raise SystemExit(f"{name} does not run: {(self.folder / 'log').read_text()}")
            self.seconds[name] = time.monotonic() - begun
            self.truth[name] = self.digest(name, out)
            out.rename(self.folder / f"truth-{len(self.truth)}")
            print(f"{name}: {self.seconds[name]:.1f} s undisturbed", flush=True)
        self.tally = Tally()

    def must(self, words: str) -> None:
        process = self.start(words.split())
        if process.wait(timeout=300):
            raise SystemExit(f"{words}: {(self.folder / 'log').read_text()}")

    def out(self, name: str) -> Path:
        """Return the path of a job's output; a partition is inside its graph."""
        out = self.folder / "out"
        if name == "partition":
            shutil.copytree(self.folder / "graph", out)
        return out

    def digest(self, name: str, out: Path) -> str:
        """Return the digest of a job's output."""
        found = hashlib.sha256()
        where = out / "partition/k3" if name == "partition" else out
        files = [p for p in sorted(where.rglob("*")) if p.name.endswith(KINDS[name].suffixes)]
        assert files, name
        for path in files:
            found.update(str(path.relative_to(where)).encode() + content(path))
        return found.hexdigest()

    def differences(self, name: str, truth: Path, out: Path) -> str:
        """Return which files differ; of trained weights, by how much."""
        found = []
        for path in sorted(truth.rglob("*")):
            other = out / path.relative_to(truth)
            if not path.name.endswith(KINDS[name].suffixes):
                continue
            if not other.exists() or content(path) != content(other):
                found.append(str(path.relative_to(truth)))
                if path.suffix == ".safetensors" and other.exists():
                    from safetensors.numpy import load_file

                    ours, theirs = load_file(path), load_file(other)
                    far = max(float(np.abs(ours[key] - theirs[key]).max()) for key in ours)
                    found[-1] += f" (weights differ by up to {far:.2g})"
        return ", ".join(found[:5]) or "other files"

    def job(self, number: int) -> None:
        name = self.random.choice(list(KINDS))
        out, before = self.out(name), self.files()
        existing = {path.name for path in self.folder.iterdir()}
        code = self.run(name, out, disturb=True)
        self.tally.jobs += 1
        self.tally.kinds[name] += 1
        self.left(name)
        if code == 0:
            truth = self.folder / f"truth-{1 + list(self.truth).index(name)}"
            if made_otherwise(truth, out):
                print(f"  {name}: METIS was killed, and recursive bisection made it", flush=True)
            elif self.digest(name, out) != self.truth[name]:
                self.tally.fault("wrong", f"{name}: {self.differences(name, truth, out)}")
        elif code is not None:
            said = " ".join((self.folder / "log").read_text(errors="replace").split())
            self.tally.fault("wrong", f"{name} never succeeded, exit code {code}: {said[-300:]}")
        for path in self.folder.glob("out"):
            shutil.rmtree(path)
        if code == 0:
            new = {path for path in self.files() - before if Path(path).exists()}
            new |= {path.name for path in self.folder.iterdir()} - existing
            for path in sorted(new)[:3]:
                self.tally.fault("files", f"{name}: {path} ({len(new)} in all)")
        for path in [*self.folder.glob(".out*"), *self.temporary.iterdir()]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if number % 10 == 0:
            print(f"{number} jobs, {self.tally.runs} runs", flush=True)

    def descriptors(self) -> int:
        """Return how many descriptors the kept cluster has open."""
        total = 0
        for pid in self.kept:
            try:
                total += psutil.Process(pid).num_fds()
            except psutil.Error:
                continue  # one that was replaced
        return total


def made_otherwise(truth: Path, out: Path) -> bool:
    """Return whether METIS's first method failed, and another made the partition."""
    said = [path / "partition/k3/partition.json" for path in (truth, out)]
    if not said[1].is_file():
        return False
    return len({json.loads(path.read_text())["made_by"] for path in said}) > 1


def content(path: Path) -> bytes:
    """Return what must be the same; safetensors writes its metadata in any order."""
    if path.suffix != ".safetensors":
        return path.read_bytes()
    from safetensors.numpy import load_file

    return b"".join(
        name.encode() + array.tobytes() for name, array in sorted(load_file(path).items())
    )


# Python's own helper complains if it was killed itself and is started again; and a signal may
# come before our first line has run.
NO_BUG = (
    r"Traceback [^\n]*\n  File [^\n]*/resource_tracker\.py.*?Error: \S+",
    r'Traceback [^\n]*\n  File "<string>", line \d, in <module>\nKeyboardInterrupt\n',
)


def a_bug(said: str) -> str:
    """Return what a command wrote from the first sign of a bug on, or nothing."""
    for text in NO_BUG:
        said = re.sub(text, "", said, flags=re.DOTALL)
    found = re.search(r"This is a bug|Traceback", said)
    return "" if found is None else said[max(0, found.start() - 300) : found.start() + 3000]


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=200, help="least number of jobs")
    parser.add_argument("--minutes", type=float, default=0.0, help="and at least so long")
    parser.add_argument("--most-minutes", type=float, help="but never longer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as name:
        soak = Soak(Path(name), given.seed)
        try:
            soak.prepare()
            begun, number = time.monotonic(), 0
            opened = soak.descriptors()

            def minutes() -> float:
                return (time.monotonic() - begun) / 60

            while number < given.jobs or minutes() < given.minutes:
                if given.most_minutes is not None and minutes() >= given.most_minutes:
                    break
                number += 1
                soak.job(number)
            if soak.descriptors() > opened + 8:  # connections that are just being closed
                soak.tally.fault("descriptors", f"{opened} before, {soak.descriptors()} after")
            soak.must(f"cluster stop --name {KEPT}")
        finally:
            soak.kept = frozenset()
            soak.kill_all()
        took = minutes()
    tally = soak.tally
    counts = {name: len(found) for name, found in tally.faults.items()}
    if given.json:
        body = {"jobs": tally.jobs, "runs": tally.runs, "minutes": round(took, 1)}
        body |= {"signals": dict(tally.signals), "kinds": dict(tally.kinds), "faults": tally.faults}
        print(json.dumps(body, indent=1))
    else:
        signals = ", ".join(f"{count} {name}" for name, count in sorted(tally.signals.items()))
        print(f"{tally.jobs} jobs, {tally.runs} runs, {took:.1f} minutes; signals: {signals}")
        print("; ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if any(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
