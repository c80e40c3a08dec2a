"""The register of started clusters: names, claims, and whatever else may lie in its folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.daemon import registry
from penstock.cluster.daemon.registry import (
    Registered,
    all_registered,
    check_name,
    claim,
    draft,
    find,
    release,
)
from penstock.errors import ClusterError, UsageError
from penstock.workers.processes import process_start


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("PENSTOCK_STATE", str(folder))
    return folder


def put(entry: Registered) -> Registered:
    claim(entry, draft())
    return entry


def dead(name: str = "default", **more: object) -> Registered:
    """An entry whose daemon has ended: this process is another than that of its number."""
    entry = registry.this_process(name, "local")
    return replace(entry, pid_started=entry.pid_started - 1, **more)  # type: ignore[arg-type]


# -- names ----------------------------------------------------------------------------------------


@given(st.text(max_size=20))
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    assert find(name) is None
    try:
        check_name(name)
    except UsageError:
        return
    assert registry.this_process(name, "local").folder.parent == registry.state_folder()


# -- where ----------------------------------------------------------------------------------------


def test_nobody_else_may_look_into_a_cluster(state: Path) -> None:
    entry = put(registry.this_process("default", "local"))
    assert entry.folder.stat().st_mode & 0o077 == 0


# -- what is there --------------------------------------------------------------------------------


def test_what_is_written_is_read() -> None:
    assert all_registered() == []
    entry = put(registry.this_process("default", "mpi", tls="/certs", log="/x/log"))
    assert find("default") == entry
    assert entry.alive()
    entry = replace(entry, address="tcp://10.0.0.1:1", dashboard=None, workers=4)
    registry.update(entry)
    other = put(registry.this_process("big", "local"))
    assert all_registered() == [other, entry]
    assert find("default") == entry
    assert find("small") is None


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b'{"name": "default"}',
        json.dumps(asdict(dead())).encode()[:-40],
        json.dumps(asdict(dead("other"))).encode(),
    ],
    ids=["no JSON", "too little", "cut off", "of another name"],
)
def test_what_is_no_entry_is_passed_over(text: bytes, state: Path) -> None:
    entry = registry.this_process("default", "local")
    entry.folder.mkdir(parents=True)
    (entry.folder / "cluster.json").write_bytes(text)
    good = put(registry.this_process("good", "local"))
    assert all_registered() == [good]
    assert find("default") is None
    put(entry)  # and blocks no other entry
    assert find("default") == entry
    assert sorted(os.listdir(state)) == [entry.folder.name, good.folder.name]


# -- alive, dead, elsewhere -----------------------------------------------------------------------


def test_processes_are_told_apart_by_when_they_began() -> None:
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


def test_an_address_or_why_there_is_none() -> None:
    entry = registry.this_process("big", "local")
    with pytest.raises(ClusterError):
        entry.reachable()
    assert replace(entry, address="tcp://h:1").reachable() == "tcp://h:1"
    with pytest.raises(ClusterError):
        dead("big", address="tcp://h:1").reachable()


# -- claims ---------------------------------------------------------------------------------------


def test_the_name_of_a_live_cluster_is_taken(state: Path) -> None:
    entry = put(replace(registry.this_process("default", "local"), address="tcp://h:1"))
    with pytest.raises(ClusterError):
        claim(registry.this_process("default", "mpi"), draft())
    assert find("default") == entry


def test_the_name_of_a_dead_cluster_is_free(state: Path) -> None:
    old = put(dead())
    new = registry.this_process("default", "local")
    assert claim(new, draft()) == old
    assert all_registered() == [new]
    assert os.listdir(state) == [new.folder.name]


def test_of_many_claims_one_succeeds(state: Path) -> None:
    put(dead())
    entries = [registry.this_process("default", "local") for _ in range(8)]
    start, won, lost = threading.Barrier(8), [], []

    def race(entry: Registered) -> None:
        folder = draft()
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


def test_release_takes_only_its_own(state: Path, tmp_path: Path) -> None:
    old, new = dead(), registry.this_process("default", "local")
    put(old)
    put(new)
    release(old)
    assert find("default") == new
    release(new)
    release(new)
    assert os.listdir(state) == []
