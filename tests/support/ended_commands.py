"""Commands that end themselves midway, killed or by Ctrl-C, at a file that they are about to write.

One process has loaded the libraries and is forked for each command, which spares most of the time
that a command takes. Nothing that commands do has been done in it, so no thread runs in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LIBRARIES = ["distributed", "numba", "pyarrow.parquet", "safetensors.numpy"]

FORKING = """
import json, os, signal, sys, threading, time
from penstock.pipelines import signals
from penstock.pipelines.cli import main

for module in sys.argv[1:]:
    __import__(module)


def place(event, given):
    if event == "open" and isinstance(given[0], str) and given[2] & (os.O_WRONLY | os.O_RDWR):
        return given[0]
    if event == "os.rename":
        return str(given[1])
    if event in ("os.mkdir", "os.remove", "shutil.rmtree"):
        return str(given[0])
    return ""


def end_midway(prefix, at, how, count):
    lock, seen = threading.Lock(), 0

    def look(event, given):
        nonlocal seen
        if not place(event, given).startswith(prefix):
            return
        if signals._heard:
            if how == "ctrl-c twice":  # and more often, whatever it does to end in order
                os.kill(os.getpid(), signal.SIGINT)
            return
        with lock:
            seen += 1
            os.write(count, b".")
            if seen != at:
                return
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGINT)
        while not signals._heard:  # the main thread hears it, and this is another
            time.sleep(0.001)

    sys.addaudithook(look)


for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored here
        said, count = (os.open(order[name], os.O_WRONLY | os.O_CREAT) for name in ("said", "count"))
        os.dup2(said, 1)
        os.dup2(said, 2)
        end_midway(order["prefix"], order["at"], order["how"], count)
        main(order["words"])
    _, status = os.waitpid(child, 0)
    print(json.dumps([child, os.waitstatus_to_exitcode(status)]), flush=True)
"""


class Commands:
    """Runs commands, one after another, each in a process and a process group of its own.

    After a command ``group`` is its process group, and ``count`` how many files and folders of its
    output it was about to make, move or remove, until it was told to end.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.group, self.count = folder, 0, 0
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", FORKING, *LIBRARIES],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, words: list[str], output: Path, at: int = 0, how: str = "") -> tuple[int, str]:
        """Run a command, and end it at so many files below ``output``; return code and words."""
        files = {name: self.folder / name for name in ("said", "count")}
        for file in files.values():
            file.unlink(missing_ok=True)
        order = {"words": words, "prefix": str(output), "at": at, "how": how}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order | files, default=str) + "\n")
        self._process.stdin.flush()
        self.group, code = json.loads(self._process.stdout.readline())
        self.count = files["count"].stat().st_size
        return code, files["said"].read_text()

    def alive(self) -> bool:
        """Return whether the last command left a process."""
        try:
            os.killpg(self.group, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """End the process that is forked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
