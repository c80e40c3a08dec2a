"""Four network namespaces as four hosts: the class `Hosts` and its fixture."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from penstock.cluster.mpi.launcher import find_launcher, loaded_library
from penstock.errors import PenstockError

HERE = Path(__file__).parent
TOOLS = ("unshare", "nsenter", "setpriv", "mount", "ip", "tc")
NAMESPACES = ("net", "uts", "mount", "ipc", "pid")


class Hosts:
    """Hosts h1, h2, ... on one machine, each in namespaces of its own, joined by a bridge.

    A host has its own network (10.77.0.N on eth0), host name, process ids, /dev/shm, and folder for
    temporary files (TMPDIR); other files are shared, as a cluster's home directories are. A process
    of one host cannot see or end one of another. The bridge lies in a network namespace of its own,
    so the machine's network sees nothing of all this, and several `Hosts` do not see each other.
    Process ids that are taken and given here are those of the machine.
    """

    def __init__(self, count=4):
        self.names = [f"h{number}" for number in range(1, count + 1)]
        self.agent = ""
        """Path of the look-alike of ssh that launches commands on a host, from another host."""
        self.tmp = ""
        """The folder for temporary files; every host sees its own there."""
        self._first = {}  # process 1 of every host
        self._switch = 0
        self._keepers = []
        self._started = []
        self._folder = None
        self._closed = threading.Event()

    def __enter__(self):
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, host, command, **popen):
        """Start a command on a host, in the folder `cwd`; ending what is returned ends it.

        The first process of the command is a child of the one that is returned.
        """
        place = popen.pop("cwd", Path.cwd())
        enter = ["nsenter", f"--target={self._first[host]}", *(f"--{name}" for name in NAMESPACES)]
        # nsenter waits for the command outside of the host; the command must not outlive it.
        enter += ["setpriv", "--pdeathsig", "KILL", "env", "-C", str(place), f"TMPDIR={self.tmp}"]
        process = subprocess.Popen([*enter, *map(str, command)], **popen)
        self._started.append(process)
        return process

    def python(self, host, *words, **popen):
        """Start Python on a host; it launches on others, and its output is text in pipes."""
        env = {**os.environ, "PENSTOCK_LAUNCH_AGENT": self.agent}
        given = {"env": env, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self.run(host, [sys.executable, "-P", *words], **given | popen)

    def cut(self, host):
        """Pull the cable: the host keeps its address, and nothing comes or goes any more."""
        self._at_switch(f"link set port-{host} down")

    def mend(self, host):
        """Plug the cable in again."""
        self._at_switch(f"link set port-{host} up")

    def freeze(self, host):
        """Let the host's remote shell hang: an agent is connected, and never answered."""
        os.kill(self._first[host], signal.SIGSTOP)

    def thaw(self, host):
        """Let the host's remote shell go on."""
        with suppress(ProcessLookupError):
            os.kill(self._first[host], signal.SIGCONT)

    def shape(self, host, rate):
        """Bound what the host receives, and what it sends, to a rate such as 100mbit."""
        # The bucket holds a segment of the largest size that TCP hands down. One that did not fit
        # would be cut into packets, each with a timer of its own: at 1gbit that takes a core.
        bucket = f"root tbf rate {rate} burst 80kb latency 50ms"
        for place, device in ((self._switch, f"port-{host}"), (self._first[host], "eth0")):
            _in_network(place, "tc", f"qdisc replace dev {device} {bucket}")

    def divide_cores(self):
        """Give each host its own cores, for processes started from now on."""
        cores = sorted(os.sched_getaffinity(0))
        share = max(1, len(cores) // len(self.names))
        for number, first in enumerate(self._first.values()):
            start = number * share % len(cores)
            os.sched_setaffinity(first, set(cores[start : start + share]))

    def prefer(self):
        """Let processes of the hosts go before others of this machine, so that times mean more."""
        threading.Thread(target=self._prefer, daemon=True).start()

    def _prefer(self):
        while not self._closed.wait(0.2):
            with suppress(OSError):  # it ended meanwhile
                for pid in (pid for host in self.names for pid in self.processes(host)):
                    os.setpriority(os.PRIO_PROCESS, pid, -19)
                    if (group := Path(f"/proc/{pid}/autogroup")).exists():
                        group.write_text("-19")  # if sessions share the cores, not processes

    def processes(self, host):
        """Return the command line of every process of the host, its own process 1 aside."""
        found = {}
        namespace = _namespace(self._first[host], "pid")
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == self._first[host]:
                continue
            try:
                if _namespace(int(entry), "pid") == namespace:
                    line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ")
                    if line:  # empty when it has ended, and its parent does not know yet
                        found[int(entry)] = line.decode(errors="replace").strip()
            except OSError:
                pass  # it ended while we looked
        return found

    def kill(self, host, pid, number=signal.SIGKILL):
        """Send a signal to a process of the host."""
        if pid not in self.processes(host):
            raise ProcessLookupError(f"{host} has no process {pid}")
        os.kill(pid, number)

    def files(self, host, folder):
        """Return every file below a folder as the host sees it, empty folders aside."""
        seen = Path(f"/proc/{self._first[host]}/root{folder}")
        found = (path for path in seen.rglob("*") if not path.is_dir())
        return sorted(str(path.relative_to(seen)) for path in found)

    def close(self):
        """End every process of every host, and with the last one all that was made."""
        self._closed.set()
        for host in self._first:
            self.thaw(host)
        for keeper in self._keepers:
            assert keeper.stdin is not None
            keeper.stdin.close()  # process 1 sees it and ends, the kernel ends the others with it
        for process in [*self._keepers, *self._started]:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for keeper in self._keepers:
            assert keeper.stdout is not None
            keeper.stdout.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _set_up(self):
        self._folder = tempfile.TemporaryDirectory(prefix="hosts-")
        folder = Path(self._folder.name)
        addresses = {name: f"10.77.0.{number}" for number, name in enumerate(self.names, 1)}
        names = [f"{address} {name}" for name, address in addresses.items()]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        agent = folder / "agent"
        agent.write_text(f"#!/bin/sh\nexec '{sys.executable}' -I -S '{HERE / 'agent.py'}' \"$@\"\n")
        agent.chmod(0o755)
        self.agent = str(agent)
        (folder / "tmp").mkdir()
        self.tmp = str(folder / "tmp")

        switch = self._keep(["unshare", "--net", "cat"])
        unshare = ["unshare", *(f"--{name}" for name in NAMESPACES), "--fork", "--kill-child"]
        program = [sys.executable, "-I", "-S", str(HERE / "host.py")]
        keepers = [
            self._keep([*unshare, *program, name, address, str(folder)])
            for name, address in addresses.items()
        ]
        _say(switch, "")
        _hear(switch)  # cat answers, so the namespace exists
        self._switch = switch.pid
        self._at_switch("link add br0 type bridge", "link set br0 up")
        for name, keeper in zip(self.names, keepers, strict=True):
            self._first[name] = int(_hear(keeper))
            self._at_switch(
                f"link add port-{name} type veth peer name eth0 netns {self._first[name]}",
                f"link set port-{name} master br0 up",
            )
            _say(keeper, "plugged in")
        for keeper in keepers:
            _hear(keeper)

    def _keep(self, command):
        keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._keepers.append(keeper)
        return keeper

    def _at_switch(self, *commands):
        _in_network(self._switch, "ip", *commands)


def _in_network(pid, tool, *commands):
    enter = ["nsenter", f"--target={pid}", "--net", tool, "-batch", "-"]
    subprocess.run(enter, input="\n".join(commands) + "\n", text=True, check=True)


def _namespace(pid, name):
    return str(Path(f"/proc/{pid}/ns/{name}").readlink())


def _say(keeper, line):
    assert keeper.stdin is not None
    keeper.stdin.write(line.encode() + b"\n")
    keeper.stdin.flush()


def _hear(keeper):
    assert keeper.stdout is not None
    line = keeper.stdout.readline()
    if not line:
        raise RuntimeError(f"a host did not start: {keeper.args!r} ended with {keeper.wait()}")
    return line.decode().strip()


@cache
def _hindrance():
    """Why hosts cannot be made here."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs Linux and root"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"needs {' and '.join(missing)}: install util-linux and iproute2"
    trial = ["unshare", *(f"--{name}" for name in NAMESPACES), "--fork", "mount", "-t", "tmpfs"]
    tried = subprocess.run([*trial, "none", "/dev/shm"], capture_output=True, text=True)
    return f"namespaces cannot be made here: {tried.stderr.strip()}" if tried.returncode else None


@pytest.fixture
def make_hosts():
    """The class, if hosts can be made; else skipped."""
    if hindrance := _hindrance():
        pytest.skip(hindrance)
    return Hosts


@pytest.fixture
def hosts(make_hosts):
    """Four hosts."""
    with make_hosts(4) as made:
        yield made


@pytest.fixture(autouse=True)
def _mpi():
    try:
        find_launcher(None, loaded_library())
    except PenstockError as error:
        pytest.skip(f"needs MPI: {error}")
