"""The register of started clusters: names, claims, and whatever else may lie in its folder."""

import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from penstock.cluster.daemon import registry
from penstock.cluster.daemon.registry import check_name, claim, draft, find
from penstock.errors import ClusterError, UsageError
from penstock.workers.processes import process_start


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    monkeypatch.setenv("PENSTOCK_STATE", str(folder))
    return folder


def put(entry):
    claim(entry, draft(entry.token))
    return entry


def dead(name="default", **more):
    """An entry whose daemon has ended: this process is another than that of its number."""
    entry = registry.this_process(name, "local", "a")
    return replace(entry, pid_started=entry.pid_started - 1, **more)


# -- names ----------------------------------------------------------------------------------------


def test_no_name_leads_out_of_the_folder():
    for name in "|.|..|../a|a/b|/a|a/../../b|~a|-a|a\n|a\0|ä|mpi".split("|"):
        assert find(name) is None
        with pytest.raises(UsageError):
            check_name(name)
    for name in ("a", "a..b", "Night-1_2."):
        check_name(name)
        assert registry.this_process(name, "local", "a").folder.parent == registry.state_folder()


# -- alive, dead, elsewhere -----------------------------------------------------------------------


def test_processes_are_distinguished_by_when_they_began():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ticks = process_start(child.pid)
        assert ticks is not None
        entry = replace(dead(), pid=child.pid, pid_started=ticks)
        assert entry.alive() is True
        assert replace(entry, pid_started=ticks + 1).alive() is False
        assert replace(entry, host="another.host").alive() is None
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert entry.alive() is False, "a zombie keeps nothing"
    assert entry.alive() is False
    assert process_start(child.pid) is None


# -- claims ---------------------------------------------------------------------------------------


def test_of_many_claims_one_succeeds(state):
    put(dead())
    entries = [registry.this_process("default", "local", str(i)) for i in range(8)]
    start, won, lost = threading.Barrier(8), [], []

    def race(entry):
        folder = draft(entry.token)
        start.wait()
        try:
            claim(entry, folder)
            won.append(entry)
        except ClusterError as error:
            lost.append(error)

    threads = [threading.Thread(target=race, args=(entry,)) for entry in entries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    assert find("default") == won[0]
