"""Commands to which something happens midway: at a file of the output that they are about to write.

One process is forked for each command. It loads the libraries, and then the modules that each
command has loaded: that saves most of the time that a command takes. It does nothing else, so no
thread runs in it.
"""

import json
import os
import subprocess
import sys
import time

LIBRARIES = ["distributed", "numba", "pyarrow.parquet", "safetensors.numpy"]

FORKING = """
import contextlib, gc, json, os, pathlib, resource, signal, sys, threading, time
from penstock.pipelines import signals
from penstock.pipelines.cli import main

SIGNALS = {"kill": signal.SIGKILL, "ctrl-c": signal.SIGINT, "ctrl-c twice": signal.SIGINT,
           "term": signal.SIGTERM, "hup": signal.SIGHUP}

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


def happen(how, path):
    if how == "wait":  # until the test removes the file
        pathlib.Path(path).touch()
        while os.path.exists(path):
            time.sleep(0.01)
    elif how == "change":  # a file gets another time; a folder becomes another one
        if os.path.isdir(path):
            os.rename(path, f"{path}.before")
            os.rename(f"{path}.other", path)
        else:
            os.utime(path)
    elif how == "fill":
        found = os.statvfs(os.path.dirname(path))
        pathlib.Path(path).write_bytes(bytes(found.f_bavail * found.f_frsize))
    else:
        os.kill(os.getpid(), SIGNALS[how])
        while not signals.heard:  # the main thread hears it, and this is another
            time.sleep(0.001)


def watch(prefix, at, how, path, count):
    lock, seen = threading.Lock(), 0

    def look(event, given):
        nonlocal seen
        if not place(event, given).startswith(prefix):
            return
        if signals.heard:
            if how == "ctrl-c twice":  # and more often, whatever it does to end in order
                os.kill(os.getpid(), signal.SIGINT)
            return
        with lock:
            seen += 1
            os.write(count, b".")
            if seen != at:
                return
        happen(how, path)

    sys.addaudithook(look)


for line in sys.stdin:
    order, (loaded, names) = json.loads(line), os.pipe()
    gc.freeze()  # else most of a command's time goes to looking through what is loaded
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGHUP):  # they may be ignored here
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        said, count = (os.open(order[name], os.O_WRONLY | os.O_CREAT) for name in ("said", "count"))
        os.dup2(said, 1)
        os.dup2(said, 2)
        if order["memory"]:
            resource.setrlimit(resource.RLIMIT_RSS, (order["memory"],) * 2)
        watch(order["prefix"], order["at"], order["how"], order["path"], count)
        try:
            main(order["words"])
        finally:
            found = [one for one in sys.modules if one.startswith("penstock.") and "mpi" not in one]
            os.write(names, " ".join(found).encode())
    os.close(names)
    _, status = os.waitpid(child, 0)
    os.set_blocking(loaded, False)
    with contextlib.suppress(BlockingIOError):
        for module in os.read(loaded, 1 << 16).decode().split():
            __import__(module)
    os.close(loaded)
    print(json.dumps([child, os.waitstatus_to_exitcode(status)]), flush=True)
"""


class Commands:
    """Runs commands, one after another, each in a process and a process group of its own.

    After a command ``group`` is its process group, and ``count`` how many files and folders of its
    output it was about to make, move or remove until it heard a signal.
    """

    def __init__(self, folder):
        self.folder, self.group, self.count = folder, 0, 0
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", FORKING, *LIBRARIES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, words, output, *args, **more):
        """Run a command as ``start`` does; return its exit code and what it printed."""
        self.start(words, output, *args, **more)
        return self.wait()

    def start(self, words, output, at=0, how="", path="", memory=0):
        """Start a command to which something happens at the nth file below ``output``.

        how     a signal ("kill", "ctrl-c", "ctrl-c twice", "term", "hup"); "wait" while ``path``
                exists; "change" the input ``path``; "fill" the disk of the file ``path``
        memory  bytes that the system grants it
        """
        files = {name: self.folder / name for name in ("said", "count")}
        for file in files.values():
            file.unlink(missing_ok=True)
        order = {"words": words, "prefix": str(output), "at": at, "how": how, "path": path}
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps(order | files | {"memory": memory}, default=str) + "\n"
        )
        self._process.stdin.flush()

    def wait(self):
        """Wait for the command; return its exit code and what it printed."""
        assert self._process.stdout is not None
        self.group, code = json.loads(self._process.stdout.readline())
        self.count = (self.folder / "count").stat().st_size
        return code, (self.folder / "said").read_text()

    def assert_nothing_runs(self):
        """Fail if the last command leaves a process."""
        deadline = time.monotonic() + 30
        while self._alive():
            assert time.monotonic() < deadline, "a process was left"
            time.sleep(0.01)

    def _alive(self):
        try:
            os.killpg(self.group, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self):
        """End the process that is forked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
