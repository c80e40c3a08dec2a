"""SIGTERM and SIGHUP, which batch systems, timeout and terminals send, end a command in order."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two million edges: seconds of work."""
    folder = tmp_path_factory.mktemp("edges")
    for part in range(4):
        ends = np.random.default_rng(part).integers(0, 400_000, (2, 500_000))
        pq.write_table(pa.table({"src": ends[0], "dst": ends[1]}), folder / f"{part}.parquet")
    return folder


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def hear_signals() -> None:
    """Undo what nohup and a shell's background do to the processes that these tests start."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def start(temporary: Path, *command: object, before: tuple[str, ...] = ()) -> Any:
    words = [*before, sys.executable, "-P", "-m", "penstock", *map(str, command)]
    return subprocess.Popen(
        words,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_signals,
    )


def until(true: Callable[[], Any], process: Any) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def family(process: Any) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return list(psutil.Process(process.pid).children(recursive=True))
    return []


def ends_in_order(process: Any, code: int, name: str, temporary: Path) -> str:
    """Check what a process leaves and says that has just been told to end; return the rest."""
    below = family(process)
    began = time.monotonic()
    try:
        _, said = process.communicate(timeout=60)
    finally:
        _, alive = psutil.wait_procs(below, timeout=5)
        for one in alive:
            one.kill()
    assert process.returncode == code, said
    assert not alive
    lines = [line for line in said.splitlines() if not line.startswith("dashboard")]
    assert lines[-1] == f"penstock: ended by {name}. Nothing half-written was left in place."
    assert "Traceback" not in said
    assert not [line for line in lines if "distributed" in line or "tracker" in line], said
    assert not list(temporary.iterdir())
    assert time.monotonic() - began < 30
    return "\n".join(lines[:-1])


QUICK = [("threads", signal.SIGTERM, True)]  # all the others are slow


def case(cluster: str, number: signal.Signals, whole_group: bool) -> Any:
    marks = [pytest.mark.mpi] * (cluster == "mpi")
    marks += [pytest.mark.slow] * ((cluster, number, whole_group) not in QUICK)
    return pytest.param(cluster, number, whole_group, marks=marks)


@pytest.mark.parametrize(
    ("cluster", "number", "whole_group"),
    [
        case(cluster, number, whole_group)
        for cluster in ("threads", "local", "mpi")
        for number in CODES
        for whole_group in (False, True)
    ],
)
def test_a_command_ends_in_order(
    edges: Path,
    tmp_path: Path,
    temporary: Path,
    cluster: str,
    number: signal.Signals,
    whole_group: bool,
) -> None:
    out = tmp_path / "g"
    more = [] if cluster == "threads" else ["-n", 2]
    process = start(temporary, "etl", edges, out, "--cluster", cluster, *more)
    until(lambda: list(tmp_path.glob(".g.partial/scratch/pieces/*/done.json")), process)
    if whole_group:  # as a terminal that closes does, and a batch system
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    said = ends_in_order(process, CODES[number], number.name, temporary)
    assert "--resume" in said
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("timeout") is None, reason="needs coreutils' timeout")
def test_under_timeout(edges: Path, tmp_path: Path, temporary: Path) -> None:
    process = start(
        temporary, "etl", edges, tmp_path / "g", "--cluster", "local", "-n", 2,
        before=("timeout", "--preserve-status", "100"),
    )  # fmt: skip
    until(lambda: list(tmp_path.glob(".g.partial/scratch/pieces/*/done.json")), process)
    process.send_signal(signal.SIGALRM)  # as its clock does when the time is over
    ends_in_order(process, 143, "SIGTERM", temporary)


def test_while_workers_start(edges: Path, tmp_path: Path, temporary: Path) -> None:
    process = start(temporary, "etl", edges, tmp_path / "g", "--cluster", "local", "-n", 2)
    until(lambda: len(family(process)) >= 2, process)
    process.send_signal(signal.SIGTERM)
    ends_in_order(process, 143, "SIGTERM", temporary)


@pytest.mark.slow
def test_an_interrupt_for_workers_that_start(tmp_path: Path) -> None:
    """A terminal sends it to every process; it is for the client, and the workers say nothing."""
    listen = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # may be ignored here
        "from penstock.pipelines.cli import main\n"
        "main()\n"
    )
    (tmp_path / "edges.txt").write_text("1 2\n2 3\n")
    words = ["etl", tmp_path / "edges.txt", tmp_path / "g", "--cluster", "local", "-n", 2, "-q"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", listen, *map(str, words)], stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip

    def workers() -> list[psutil.Process]:
        found = []
        for one in family(process):
            with suppress(psutil.Error):
                if "spawn_main" in " ".join(one.cmdline()):
                    found.append(one)
        return found

    until(lambda: len(workers()) == 2, process)
    for _ in range(4):  # while they import, whatever the machine's speed
        for one in workers():
            with suppress(psutil.Error):
                one.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, said = process.communicate(timeout=60)
    assert said == ""
    assert process.returncode == 0


@pytest.mark.slow
def test_while_the_scheduler_starts(edges: Path, tmp_path: Path, temporary: Path) -> None:
    process = start(temporary, "etl", edges, tmp_path / "g", "--cluster", "local", "-n", 2)
    until(lambda: list(temporary.glob("penstock-local-*/*/scheduler-*")), process)
    process.send_signal(signal.SIGTERM)
    ends_in_order(process, 143, "SIGTERM", temporary)


def test_a_signal_that_is_ignored_stays_ignored(
    edges: Path, tmp_path: Path, temporary: Path
) -> None:
    process = start(
        temporary, "etl", edges / "0.parquet", tmp_path / "g", "--cluster", "threads",
        before=("nohup",),
    )  # fmt: skip
    until(lambda: list(tmp_path.glob(".g.partial/*")), process)
    process.send_signal(signal.SIGHUP)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


def test_before_the_command_is_loaded(tmp_path: Path, temporary: Path) -> None:
    """Even while modules are imported it is a sentence, once the program has begun."""
    code = (
        "import os, signal\n"
        "from penstock.pipelines import cli\n"
        "from cyclopts import App\n"
        "def tell(*a, **k): os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), 15)\n"
        "cli.app = tell\n"
        "cli.main(['info', 'g'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 143
    assert done.stderr == "penstock: ended by SIGTERM. Nothing half-written was left in place.\n"


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_signals_until_python_has_ended(number: signal.Signals) -> None:
    """Python gives up its handlers while it ends: a process that got one then died of it."""
    code = (
        "import signal, sys, time\n"
        "import numpy, distributed\n"  # Python takes a while to end
        "from penstock.pipelines import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(*_, **__):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "cli.app = wait\n"
        "cli.main([])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while process.poll() is None:
        process.send_signal(number)
        time.sleep(0.0005)
    _, said = process.communicate()
    assert process.returncode == CODES.get(number, 1), said
    assert "Traceback" not in said


def test_a_second_ctrl_c_does_not_make_the_end_slower(edges: Path, tmp_path: Path) -> None:
    """It broke off the closing of the cluster; the interpreter then waited ten seconds at exit."""
    listen = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # may be ignored here
        "from penstock.pipelines.cli import main\n"
        "main()\n"
    )
    words = ["etl", str(edges), str(tmp_path / "g"), "--cluster", "threads"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", listen, *words], stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    until(lambda: list(tmp_path.glob(".g.partial/scratch/pieces/*/done.json")), process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert time.monotonic() - began < 8, said
    assert said.rstrip().endswith("penstock: interrupted. Nothing half-written was left in place.")
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize("others", [(), (signal.SIGINT,)], ids=["one", "two"])
def test_with_a_worker_that_is_stopped(
    edges: Path, tmp_path: Path, temporary: Path, others: tuple[signal.Signals, ...]
) -> None:
    """The second signal broke off the closing; Python then waited for the worker without end."""
    process = start(temporary, "etl", edges, tmp_path / "g", "--cluster", "local", "-n", 2)
    until(lambda: list(tmp_path.glob(".g.partial/scratch/pieces/*/done.json")), process)
    worker = next(one for one in family(process) if "spawn_main" in " ".join(one.cmdline()))
    worker.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGHUP)
    for number in others:
        time.sleep(0.3)
        process.send_signal(number)
    ends_in_order(process, CODES[signal.SIGHUP], "SIGHUP", temporary)


def test_a_signal_of_another_kind_does_not_disturb_the_end() -> None:
    code = (
        "import signal, os\n"
        "from penstock.pipelines.signals import raise_terminations\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "raise_terminations()\n"
        "for first in (signal.SIGINT,):\n"
        "    try:\n"
        "        os.kill(os.getpid(), first)\n"
        "    except KeyboardInterrupt:\n"
        "        for other in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):\n"
        "            os.kill(os.getpid(), other)\n"
        "        print('undisturbed')\n"
    )
    for words in (code, code.replace("(signal.SIGINT,)", "(signal.SIGTERM,)")):
        done = subprocess.run(
            [sys.executable, "-P", "-c", words], capture_output=True, text=True, timeout=60,
            preexec_fn=hear_signals,
        )  # fmt: skip
        assert done.stdout == "undisturbed\n", done.stderr
