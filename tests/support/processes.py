"""Processes that tests start: what runs below them, and when something has happened."""

import time
from contextlib import suppress

import psutil


def until(happens, process, seconds=120):
    """Wait until something happens while a process runs; it must not end before."""
    deadline = time.monotonic() + seconds
    while not happens():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def below(process):
    """Return the processes that a process has started, and theirs."""
    with suppress(psutil.Error):
        return list(psutil.Process(process.pid).children(recursive=True))
    return []


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
