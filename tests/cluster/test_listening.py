"""What runs on one host listens on loopback, and answers no page of another site."""

import json
import os
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from penstock import connect
from penstock.cluster.daemon.registry import find
from penstock.cluster.mpi.launcher import loaded_library
from penstock.pipelines.cli import run

# docs/cluster.md describes mpiexec's control port: no option binds it, and ranks inherit it.
MPIEXEC = ("mpiexec", "hydra_pmi_proxy")


STAGE = """
import json, sys
from pathlib import Path
sys.path.append("{tests}")
from test_listening import look
def make(out):
    before = map(tuple, json.loads(Path("{folder}/before").read_text()))
    Path("{folder}/seen").write_text(json.dumps(look({flow}, *before)))
    out.mkdir()
"""


def listening(process):
    with suppress(psutil.Error):
        found = [one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        return {(one.laddr.ip, one.laddr.port) for one in found}
    return set()


def status(address, host):
    """Return the status of a page of the scheduler, None if no server answers."""
    connection = HTTPConnection(*address, timeout=5)
    try:
        connection.request("GET", "/info/main/workers.html", headers={"Host": host})
        return connection.getresponse().status
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def ports_of(pid):
    """Return the addresses on which a process and its descendants listen."""
    top = psutil.Process(pid)
    return {one: listening(one) for one in [top, *top.children(recursive=True)]}


def look(pid, *before):
    """Return the addresses of a process and its descendants, and the pages that answer another
    host.

    before  earlier addresses: tests before this one may have left some
    """
    top, ports = psutil.Process(pid), ports_of(pid)
    every = list(ports)
    ports = {one: places - set(before) for one, places in ports.items()}
    inherited = {place for one in every if one.name() in MPIEXEC for place in ports[one]}
    pages = [place for place in ports[top] if status(place, f"localhost:{place[1]}") == 200]
    answers = [status(place, f"elsewhere.example:{place[1]}") for place in pages]
    return [ip for ip, _ in set().union(*ports.values()) - inherited], answers


@contextmanager
def running(kind, folder):
    """Start a cluster; give the process that has its scheduler, or what a stage of a flow saw."""
    if kind == "flow":
        (folder / "mine.py").write_text(
            STAGE.format(tests=Path(__file__).parent, folder=folder, flow=os.getpid())
        )
        (folder / "flow.yaml").write_text('stages: {a: {python: "mine:make"}}')
        assert run(["run", str(folder / "flow.yaml"), "-q"]) == 0
        yield folder / "seen"
    elif kind == "daemon":
        assert run(["cluster", "start", "--cluster", "local", "-n", "1", "-q"]) == 0
        try:
            yield find("default").pid
        finally:
            run(["cluster", "stop", "-q"])
    else:
        with connect(kind, workers=1):
            yield os.getpid()


@pytest.mark.parametrize(
    "kind", ["threads", "local", pytest.param("mpi", marks=pytest.mark.mpi), "daemon", "flow"]
)
def test_nothing_listens_beyond_this_host(kind, tmp_path, monkeypatch):
    if kind == "mpi" and (library := loaded_library()) and library.name != "mpich":
        pytest.skip("ranks and mpiexec of other MPIs have ports of their own")
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    before = set().union(*ports_of(os.getpid()).values())
    (tmp_path / "before").write_text(json.dumps(list(before)))
    with running(kind, tmp_path) as where:
        if isinstance(where, Path):
            seen, answers = json.loads(where.read_text())
        else:
            seen, answers = look(where, *before)
    assert seen
    assert all(ip_address(ip).is_loopback for ip in seen)
    assert set(answers) == (set() if kind == "threads" else {403})  # which serve no pages
