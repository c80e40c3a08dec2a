"""The hosts of the other tests here are hosts: apart, joined by a network, and gone at the end."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.cluster.mpi.mpiexec import find_launcher, loaded_library
from penstock.errors import PenstockError

pytestmark = pytest.mark.netns
CONFTEST = Path(__file__).with_name("conftest.py")

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 22), 0.5)"


def ask(hosts, host, *command, said=None, status=0, **popen):
    """Run a command on a host and return what it says."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = hosts.run(host, command, text=True, **pipes, **popen)
    answer, complaint = process.communicate(said, timeout=30)
    assert process.returncode == status, complaint
    return answer if status == 0 else complaint


def reaches(hosts, host, other):
    """Whether a connection can be made from one host to the other."""
    command = [sys.executable, "-I", "-S", "-c", CONNECT, other]
    return hosts.run(host, command, stderr=subprocess.DEVNULL).wait(timeout=30) == 0


def links():
    return subprocess.check_output(["ip", "-brief", "link"], text=True)


def mounts():
    return Path("/proc/self/mounts").read_text()


def namespaces_in_use():
    """Every namespace that some process of this machine lives in."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/ns/*"):
        with suppress(OSError):  # it ended while we looked
            found.add(str(place.readlink()))
    return found


def test_hosts_are_apart(hosts):
    for number, host in enumerate(hosts.names, 1):
        assert ask(hosts, host, "hostname").strip() == host
        assert f" 10.77.0.{number}/24 " in ask(hosts, host, "ip", "-4", "address", "show", "eth0")
    ask(hosts, "h1", "sh", "-c", f"touch /dev/shm/mine {hosts.tmp}/mine")
    for folder in ("/dev/shm", hosts.tmp):
        assert hosts.files("h1", folder) == ["mine"]
        assert hosts.files("h2", folder) == []
        assert "mine" not in os.listdir(folder)
    sleeper = hosts.run("h2", ["sleep", "1000"])
    ask(hosts, "h1", "sh", "-c", "echo /proc/[0-9]*")  # sees some processes, but
    assert "sleep" not in ask(hosts, "h1", "sh", "-c", "cat /proc/[0-9]*/cmdline")
    assert sleeper.poll() is None


def test_a_command_runs_where_it_is_told_to(hosts, tmp_path):
    assert ask(hosts, "h1", "pwd", cwd=tmp_path).strip() == str(tmp_path)
    assert ask(hosts, "h1", "printenv", "ONE", env={**os.environ, "ONE": "1"}).strip() == "1"
    assert ask(hosts, "h1", "sh", "-c", "exit 7", status=7) == ""
    with pytest.raises(KeyError):
        hosts.run("h9", ["true"])


def test_hosts_reach_each_other_unless_the_link_is_cut(hosts, wait_until):
    for host in hosts.names:
        for other in hosts.names:
            assert reaches(hosts, host, other)
    hosts.cut("h3")
    assert not reaches(hosts, "h1", "h3")
    assert not reaches(hosts, "h3", "h1")
    assert reaches(hosts, "h3", "h3")
    assert reaches(hosts, "h1", "h2")
    hosts.mend("h3")
    wait_until(lambda: reaches(hosts, "h1", "h3"), "h1 reaches h3 again")
    assert reaches(hosts, "h3", "h1")


@pytest.mark.parametrize(("sender", "receiver"), [("h1", "h3"), ("h3", "h1")])
def test_a_shaped_link_is_as_slow_as_asked(hosts, sender, receiver):
    hosts.shape("h3", "8mbit")
    send = f"head -c 500000 /dev/zero | {hosts.agent} {receiver} wc -c"
    start = time.monotonic()
    assert ask(hosts, sender, "sh", "-c", send).strip() == "500000"
    # A megabyte a second, of which 80 kB may come at once.
    assert time.monotonic() - start > 0.4


def test_the_agent_takes_what_ssh_takes(hosts):
    for words, answer in (
        (["h2", "hostname"], "h2\n"),
        (["-x", "h2", "hostname"], "h2\n"),
        (["-o", "BatchMode=yes", "-p22", "-qT", "root@h2", "-x", "hostname"], "h2\n"),
        (["-l", "root", "h2", "--", "printf", "%s", "-x"], "-x"),
        # The words are joined with spaces and read by a shell, there and not here.
        (["h2", "printf", "'[%s]'", "a", "'b  c'", '"d\\"e"'], '[a][b  c][d"e]'),
        (["h2", "A='x y';", "export", "A;", "printenv", "A;", "echo", "$USER"], "x y\nroot\n"),
        (["h2", '"/bin/echo"', "ä", "'*'"], "ä *\n"),
        (["-n", "h2", "cat"], ""),
    ):
        assert ask(hosts, "h1", hosts.agent, *words, said="not read") == answer


def test_the_agent_passes_on_input_output_errors_and_status(hosts):
    text = "line\n" * 200_000
    assert ask(hosts, "h1", hosts.agent, "h2", "cat", said=text) == text
    complaint = ask(hosts, "h1", hosts.agent, "h2", "echo wrong >&2; exit 3", status=3)
    assert complaint == "wrong\n"
    assert ask(hosts, "h1", hosts.agent, "h2", "kill -9 $$", status=137) == ""


def test_the_agent_forwards_no_environment(hosts):
    environment = {**os.environ, "MINE": "1"}
    there = ask(hosts, "h1", hosts.agent, "h2", "env; pwd", env=environment)
    assert "MINE" not in there
    assert f"TMPDIR={hosts.tmp}\n" in there


def test_the_agent_says_what_is_wrong(hosts):
    for words, complaint in (
        (["h9", "hostname"], "ssh: Could not resolve hostname h9: "),
        (["h2"], "agent: a command is needed"),
        ([], "usage: agent"),
        (["--wrong", "h2", "hostname"], "usage: agent"),
    ):
        assert ask(hosts, "h1", hosts.agent, *words, status=255).startswith(complaint)
    hosts.cut("h2")
    words = ["-o", "ConnectTimeout=0.5", "h2", "hostname"]
    complaint = ask(hosts, "h1", hosts.agent, *words, status=255)
    assert complaint.startswith("ssh: connect to host h2 port 22: ")


def test_what_a_killed_agent_started_lives_on(hosts, wait_until):
    hosts.run("h1", [hosts.agent, "h2", "exec sleep 1000"])
    wait_until(lambda: "sleep 1000" in hosts.processes("h2").values(), "sleep runs on h2")
    [agent] = hosts.processes("h1")
    hosts.kill("h1", agent)
    wait_until(lambda: not hosts.processes("h1"), "the agent is gone")
    [pid] = [pid for pid, line in hosts.processes("h2").items() if line == "sleep 1000"]
    hosts.kill("h2", pid)
    wait_until(lambda: not hosts.processes("h2"), "sleep is gone")


def test_processes_are_listed_and_killed_by_host(hosts, wait_until):
    sleeper = hosts.run("h2", ["sleep", "1000"])
    [pid] = wait_until(lambda: list(hosts.processes("h2")), "sleep runs")
    assert not any(hosts.processes(host) for host in ("h1", "h3", "h4"))
    with pytest.raises(ProcessLookupError, match=f"h1 has no process {pid}"):
        hosts.kill("h1", pid)
    hosts.kill("h2", pid, signal.SIGTERM)
    sleeper.wait(timeout=10)
    assert not hosts.processes("h2")


def test_nothing_is_left(make_hosts, wait_until):
    before = links(), mounts()
    with pytest.raises(ValueError, match="the test failed"), make_hosts(2) as hosts:
        made = hosts.namespaces()
        assert len(made) == 2 * 5 + 1
        assert made <= namespaces_in_use()
        folder = Path(hosts.agent).parent
        hosts.run("h1", ["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1000; done"])
        assert hosts.run("h1", ["setsid", "--fork", "sleep", "1000"]).wait(timeout=10) == 0
        hosts.run("h1", [hosts.agent, "h2", f"touch {hosts.tmp}/a /dev/shm/b; sleep 1000"])
        wait_until(lambda: "b" in hosts.files("h2", "/dev/shm"), "h2 has its file")
        running = [pid for host in hosts.names for pid in hosts.processes(host)]
        assert len(running) >= 5
        assert (links(), mounts()) == before
        raise ValueError("the test failed")
    assert not any(Path(f"/proc/{pid}").exists() for pid in running)
    assert not made & namespaces_in_use()
    assert not folder.exists()
    assert (links(), mounts()) == before


def test_several_can_exist_at_once(hosts, make_hosts):
    with make_hosts(2) as others:
        assert not hosts.namespaces() & others.namespaces()
        others.cut("h2")
        assert reaches(hosts, "h1", "h2")
    assert reaches(hosts, "h1", "h2")


def test_hosts_end_with_who_made_them(make_hosts, tmp_path, wait_until):
    """Also when that is killed: only its folder remains."""
    maker = (
        "import importlib.util, sys, time\n"
        f"spec = importlib.util.spec_from_file_location('netns', {str(CONFTEST)!r})\n"
        "netns = importlib.util.module_from_spec(spec)\n"
        "sys.modules['netns'] = netns\n"
        "spec.loader.exec_module(netns)\n"
        "with netns.Hosts(2) as hosts:\n"
        "    hosts.run('h1', ['sleep', '1000'])\n"
        "    print(*hosts.namespaces(), flush=True)\n"
        "    time.sleep(1000)\n"
    )
    command = [sys.executable, "-P", "-c", maker]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        made = set(process.stdout.readline().split())
        process.kill()
    assert made
    wait_until(lambda: not made & namespaces_in_use(), "all namespaces are gone")


@pytest.mark.mpi
def test_an_mpi_world_spans_the_hosts(hosts, wait_until, tmp_path):
    try:
        mpiexec = find_launcher(None, loaded_library()).path
    except PenstockError as error:
        pytest.skip(f"needs MPI: {error}")
    hello = tmp_path / "hello.py"
    hello.write_text(
        "import socket\n"
        "from mpi4py import MPI\n"
        "world = MPI.COMM_WORLD\n"
        "names = world.gather(socket.gethostname())\n"
        "total = world.allreduce(world.rank)\n"
        "if world.rank == 0: print(*names, total)\n"
    )
    version = subprocess.check_output([mpiexec, "--version"], text=True)
    if "HYDRA" in version:
        options = ["-launcher", "ssh", "-launcher-exec", hosts.agent, "-hosts", "h1,h2,h3,h4"]
    else:
        agent = ["--mca", "plm_rsh_agent"] if " 4." in version else ["--prtemca", "plm_ssh_agent"]
        options = [*agent, hosts.agent, "--host", "h1:1,h2:1,h3:1,h4:1", "--allow-run-as-root"]
        options += ["--bind-to", "none"]
    command = [mpiexec, *options, "-n", "4", sys.executable, "-P", str(hello)]
    assert ask(hosts, "h1", *command) == "h1 h2 h3 h4 6\n"
    for host in hosts.names:  # what serves an agent there ends a moment after the agent
        wait_until(lambda host=host: not hosts.processes(host), f"nothing runs on {host}")
