"""The hosts of the other tests here are hosts: apart, joined by a network, and gone at the end."""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.netns


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


def test_nothing_is_left(make_hosts, wait_until):
    before = links(), mounts()
    with pytest.raises(ZeroDivisionError), make_hosts(2) as hosts:
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
        raise ZeroDivisionError
    assert not any(Path(f"/proc/{pid}").exists() for pid in running)
    assert not made & namespaces_in_use()
    assert not folder.exists()
    assert (links(), mounts()) == before
