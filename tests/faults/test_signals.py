"""Signals to a command with processes of its own, while it starts, and until Python has ended."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import below, until

CODES = {signal.SIGINT: 1, signal.SIGTERM: 143, signal.SIGHUP: 129}
PIECES = ".g.partial/scratch/pieces/*/done.json"


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """Two million edges: seconds of work."""
    folder = tmp_path_factory.mktemp("edges")
    for part in range(4):
        ends = np.random.default_rng(part).integers(0, 400_000, (2, 500_000))
        pq.write_table(pa.table({"src": ends[0], "dst": ends[1]}), folder / f"{part}.parquet")
    return folder


# nohup, and a shell that starts tests in the background, have processes ignore signals.
HEARS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from penstock.pipelines.cli import main
main()
"""


def start(edges, out, temporary, *more, nohup=False):
    words = ["etl", str(edges), str(out), *more]
    number = signal.SIG_IGN if nohup else signal.SIG_DFL
    return subprocess.Popen(
        [sys.executable, "-P", "-c", HEARS, *words],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, number),
    )


def ends_in_order(process, code, temporary, within=30):
    """Check what a process leaves that has just heard a signal."""
    family, began = below(process), time.monotonic()
    try:
        _, said = process.communicate(timeout=60)
    finally:
        _, alive = psutil.wait_procs(family, timeout=5)
        for one in alive:
            one.kill()
    assert process.returncode == code, said
    assert time.monotonic() - began < within
    assert not alive
    assert not list(temporary.iterdir())
    assert "Traceback" not in said
    assert not [line for line in said.splitlines() if "distributed" in line or "tracker" in line]


def case(cluster, number, whole_group, quick=False):
    marks = [pytest.mark.mpi] * (cluster == "mpi") + [pytest.mark.slow] * (not quick)
    return pytest.param(cluster, number, whole_group, marks=marks)


@pytest.mark.parametrize(
    ("cluster", "number", "whole_group"),
    [
        case("local", signal.SIGTERM, True, quick=True),
        case("local", signal.SIGINT, True),
        case("local", signal.SIGTERM, False),
        *(case("mpi", number, True) for number in CODES),
    ],
)
def test_a_command_with_workers(edges, tmp_path, temporary, cluster, number, whole_group):
    """To the whole group, as a terminal that closes and a batch system send it, or to it alone."""
    process = start(edges, tmp_path / "g", temporary, "--cluster", cluster, "-n", "2")
    until(lambda: list(tmp_path.glob(PIECES)), process)
    if whole_group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    ends_in_order(process, CODES[number], temporary)
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize("there", ["2 processes", pytest.param("files", marks=pytest.mark.slow)])
def test_while_workers_start(edges, tmp_path, temporary, there):
    process = start(edges, tmp_path / "g", temporary, "--cluster", "local", "-n", "2")
    if there == "files":
        until(lambda: list(temporary.glob("penstock-local-*/*/scheduler-*")), process)
    else:
        until(lambda: len(below(process)) >= 2, process)
    process.send_signal(signal.SIGTERM)
    ends_in_order(process, 143, temporary)


@pytest.mark.slow
@pytest.mark.parametrize("others", [(), (signal.SIGINT,)], ids=["one", "two"])
def test_with_a_worker_that_is_stopped(edges, tmp_path, temporary, others):
    """The second signal does not break off the closing, nor has Python wait for the worker."""
    process = start(edges, tmp_path / "g", temporary, "--cluster", "local", "-n", "2")
    until(lambda: list(tmp_path.glob(PIECES)), process)
    worker = next(one for one in below(process) if "spawn_main" in " ".join(one.cmdline()))
    worker.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGHUP)
    for number in others:
        time.sleep(0.3)
        process.send_signal(number)
    ends_in_order(process, CODES[signal.SIGHUP], temporary)


def test_a_signal_that_is_ignored_stays_ignored(edges, tmp_path, temporary):
    one = edges / "0.parquet"
    process = start(one, tmp_path / "g", temporary, "--cluster", "threads", nohup=True)
    until(lambda: list(tmp_path.glob(".g.partial/*")), process)
    process.send_signal(signal.SIGHUP)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_signals_until_python_has_ended(number):
    """Python gives up its handlers while it ends."""
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
        [sys.executable, "-P", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    assert process.stdout.readline() == "ready\n"
    while process.poll() is None:
        process.send_signal(number)
        time.sleep(0.0005)
    _, said = process.communicate()
    assert process.returncode == CODES[number], said
    assert "Traceback" not in said
