"""A stranger on another host is turned away by the scheduler, and by the ranks of every host."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.netns,
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user"),
]

NOBODY = 65534
STRANGER = Path(__file__).parents[1] / "faults/stranger.py"

# Prints the addresses of its processes, on all of its host's addresses, and of its workers.
DRIVER = """
import json
import os
import sys

import psutil

import penstock


def listening():
    me = psutil.Process()
    for one in [me, *me.children(recursive=True)]:
        for entry in one.net_connections("tcp"):
            if entry.status == psutil.CONN_LISTEN and not entry.laddr.ip.startswith("127."):
                yield entry.laddr.ip.replace("0.0.0.0", "10.77.0.1"), entry.laddr.port


where = {"hosts": "h1:1,h2:1", "interface": "eth0", "workers": 2}
with penstock.connect("mpi", **where, **json.loads(sys.argv[1])) as client:
    assert client.submit(sum, [1, 2]).result() == 3
    told = {"scheduler": client.scheduler.address, "listening": sorted(set(listening()))}
    told["workers"] = list(client.run(lambda dask_worker: dask_worker.address))
    print(json.dumps(told), flush=True)
    sys.stdin.readline()
    assert client.submit(sum, [3, 4]).result() == 7
"""


def knocked(hosts, folder, **options):
    """Let a user of h2 try every port of the cluster; return what it is, and what was answered."""
    words = ["-c", DRIVER, json.dumps(options)]
    driver = hosts.python("h1", *words, cwd=folder, stdin=subprocess.PIPE)
    told = json.loads(driver.stdout.readline() or json.dumps({"error": driver.stderr.read()}))
    assert "error" not in told, told
    keys = [path for path in (folder / "state").rglob("*") if path.suffix == ".pem"]
    for path in keys:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    ports = {f"{host}:{port}" for host, port in told["listening"]}
    ports |= {address.rpartition("/")[2] for address in (told["scheduler"], *told["workers"])}
    words = [str(NOBODY), ":".join(map(str, keys)), *sorted(ports)]
    stranger = hosts.python("h2", STRANGER, *words, cwd=folder)
    said, complaint = stranger.communicate(timeout=100)
    driver.communicate("go on\n", timeout=60)
    assert driver.returncode == 0
    lines = said.splitlines()
    assert lines, complaint
    assert "'status': 'OK'" in lines[0], "the stranger itself does not work"
    tried = [line for line in lines[1:] if not line.startswith("read ")]
    assert len(tried) == 2 * len(ports)
    assert len(told["workers"]) == 2
    told["keys"] = keys
    return told, [line for line in lines[1:] if " refused " not in line]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that a stranger may look into: only what penstock itself closes is closed."""
    for place in (*tmp_path.parents, tmp_path):
        if place.is_relative_to("/tmp") and place != Path("/tmp"):
            place.chmod(0o755)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    return tmp_path


def test_a_stranger_on_another_host_is_turned_away(make_hosts, folder):
    with make_hosts(2) as hosts:
        told, answered = knocked(hosts, folder)
    assert told["scheduler"].startswith("tls://10.77.0.1:")
    assert all(address.startswith("tls://10.77.0.") for address in told["workers"])
    assert len(told["keys"]) == 3
    assert answered == []
