"""Small disks for tests of full disks: importable by tests, see pyproject.toml.

Only root can mount them; otherwise a test skips.
"""

import gc
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest


def mount(folder, option):
    """Mount a disk in memory with an option such as ``size=8m``, or mount it again."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a small disk here: {done.stderr.strip()}")
    return folder


def unmount(folder, *, seconds=20):
    """Unmount a disk once no process holds its files; if that takes long, fail with their names.

    Threads of Arrow's pool unmap a file some milliseconds after it was read and closed, more where
    cores are busy; and a process that a command has started may end a little after it.
    """
    deadline = time.monotonic() + seconds
    while (done := _umount(folder)).returncode:
        if time.monotonic() > deadline:
            holders = holders_of(folder)
            # Else pytest fails to remove the folder, in this run and in every later one.
            _umount(folder, "--lazy")
            pytest.fail(f"{done.stderr.strip()}; held by {holders}")
        gc.collect()  # an error that is kept keeps its frames, and they their files
        time.sleep(0.1)


def holders_of(folder):
    """Return the processes that have files of a folder open or mapped, or work there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        files = set()
        for link in [*process.glob("fd/*"), *process.glob("map_files/*"), process / "cwd"]:
            with suppress(OSError):
                files.add(link.readlink())
        with suppress(OSError):
            command = (process / "cmdline").read_text().replace("\0", " ")
            held = [file for file in files if file.is_relative_to(folder)]
            found += [f"{process.name} {command}({file})" for file in held]
    return found


def _umount(folder, *options):
    command = ["umount", *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
