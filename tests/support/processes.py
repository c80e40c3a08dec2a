"""Processes that tests start: what runs below them, and when something has happened."""

import os
import subprocess
import sys
import time
from contextlib import suppress

import psutil


def launch(*words, **how):
    """Start the command as a process of its own, whose output is text in pipes."""
    command = [sys.executable, "-P", "-m", "penstock", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes | how)


def python(*words, **how):
    """Run Python, which must end well, and return what it prints."""
    command = [sys.executable, "-P", *map(str, words)]
    pipes = {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(command, **pipes | how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def until(happens, process=None, seconds=120):
    """Wait until something happens, and return it; ``process`` must not end before."""
    deadline = time.monotonic() + seconds
    while not (found := happens()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return found


def ranks_that(code, folder):
    """Return the environment in which every rank runs ``code`` first, its number in ``rank``."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os\n"
        "rank = os.environ.get('PMI_RANK') or os.environ.get('OMPI_COMM_WORLD_RANK')\n"
        f"if rank is not None:\n    rank = int(rank)\n    {code}\n"
    )
    rest = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{folder}:{rest}" if rest else str(folder)}


def is_rank(process):
    """Return whether a process is a rank, and not what starts or watches them."""
    with suppress(psutil.Error):
        return process.cmdline()[1:4] == ["-P", "-m", "penstock.workers.rank"]
    return False


def below(process):
    """Return the processes that a process has started, and theirs."""
    with suppress(psutil.Error):
        return list(psutil.Process(process.pid).children(recursive=True))
    return []


def running(process, what):
    """Return the processes below one whose command line has ``what``."""
    found = []
    for one in below(process):
        with suppress(psutil.Error):
            found += [one] * (what in " ".join(one.cmdline()))
    return found


def ended(*pids, seconds=30):
    """Return whether processes end in time; a zombie has ended. A process that was killed may
    still be seen for a moment."""
    alive = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            alive.append(psutil.Process(pid))
    deadline = time.monotonic() + seconds
    while any(map(_runs, alive)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(_runs, alive))


def _runs(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
