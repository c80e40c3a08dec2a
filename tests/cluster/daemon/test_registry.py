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
from penstock.cluster.running import log_tail
from penstock.cluster.spec import KINDS
from penstock.errors import ClusterError, UsageError
from penstock.workers.processes import process_start

HOLDER = """
import sys
from pathlib import Path
from penstock.workers.locks import try_lock
held = try_lock(Path(sys.argv[1]) / ".lock")
print("held", flush=True)
input()
"""


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


def far(name: str = "default", **more: object) -> Registered:
    return replace(dead(name), host="another.host", **more)  # type: ignore[arg-type]


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["default", "big-4", "a_b.c", "7", "x" * 100])
def test_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "a b", "../a", ".a", "-a", "a/b", "a@b", "tcp://10.0.0.1:8786", "ä", "a\n", "x" * 101],
)
def test_names_with_other_characters(name: str) -> None:
    with pytest.raises(UsageError, match="option --name has a bad value. Expected letters"):
        check_name(name)


@pytest.mark.parametrize("name", [*KINDS, "site.yaml", "site.yml", "scheduler.json"])
def test_names_that_mean_something_else(name: str) -> None:
    with pytest.raises(UsageError, match="--cluster would take it for"):
        check_name(name)


@given(st.text(max_size=20))
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    assert find(name) is None
    try:
        check_name(name)
    except UsageError:
        return
    assert registry.this_process(name, "local").folder.parent == registry.state_folder()


# -- where ----------------------------------------------------------------------------------------


def test_the_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/ann")
    monkeypatch.setenv("PENSTOCK_STATE", "/mine")
    assert registry.state_folder() == registry.state_home() == Path("/mine")
    monkeypatch.delenv("PENSTOCK_STATE")
    assert registry.state_folder() == Path("/var/ann/penstock/clusters")
    assert registry.state_home() == Path("/var/ann/penstock")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert registry.state_folder() == Path("/home/ann/.local/state/penstock/clusters")


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
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"name": "default"}',
        json.dumps(asdict(dead())).encode()[:-40],
        json.dumps(asdict(dead()) | {"pid": "many"}).encode(),
        json.dumps(asdict(dead("other"))).encode(),
    ],
)
def test_what_is_no_entry_is_passed_over(text: bytes, state: Path) -> None:
    entry = registry.this_process("default", "local")
    entry.folder.mkdir(parents=True)
    (entry.folder / "cluster.json").write_bytes(text)
    (state / "README").write_text("hello")
    good = put(registry.this_process("good", "local"))
    assert all_registered() == [good]
    assert find("default") is None
    put(entry)  # and stands in nobody's way
    assert find("default") == entry
    assert sorted(os.listdir(state)) == ["README", entry.folder.name, good.folder.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another user's folder")
def test_what_another_user_put_there_is_passed_over(state: Path) -> None:
    """A job that went by it would send its work to a scheduler of his."""
    mine = put(dead("mine"))
    for name in ("theirs", "linked"):
        put(dead(name, address="tcp://127.0.0.1:1"))
    theirs, linked = (state / f"{name}@{mine.host}" for name in ("theirs", "linked"))
    os.chown(theirs, 65534, 65534)
    elsewhere = state / "elsewhere"
    linked.rename(elsewhere)
    linked.symlink_to(elsewhere)
    assert all_registered() == [mine]
    assert find("theirs") is None


def test_a_file_in_the_way(state: Path) -> None:
    entry = registry.this_process("default", "local")
    state.mkdir()
    entry.folder.write_text("hello")
    put(entry)
    assert find("default") == entry


def test_entries_of_a_later_penstock_are_read() -> None:
    entry = put(registry.this_process("default", "local"))
    path = entry.folder / "cluster.json"
    path.write_text(json.dumps(asdict(entry) | {"colour": "blue"}))
    assert find("default") == entry


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
    with pytest.raises(ClusterError, match="cluster 'big' is still waiting for its workers"):
        entry.reachable()
    assert replace(entry, address="tcp://h:1").reachable() == "tcp://h:1"
    with pytest.raises(ClusterError, match="runs no more.*penstock cluster start --name big, or"):
        dead("big", address="tcp://h:1").reachable()
    assert far(address="tcp://h:1").reachable() == "tcp://h:1"


def test_this_host_comes_first_then_the_latest() -> None:
    old = put(far(started_at="2026-01-01T00:00:00+00:00"))
    new = put(replace(far(started_at="2026-01-02T00:00:00+00:00"), host="third.host"))
    assert find("default") == new
    mine = put(dead(started_at="2025-01-01T00:00:00+00:00"))
    assert find("default") == mine
    assert {entry.host for entry in all_registered()} == {old.host, new.host, mine.host}


# -- claims ---------------------------------------------------------------------------------------


def test_the_name_of_a_live_cluster_is_taken(state: Path) -> None:
    entry = put(replace(registry.this_process("default", "local"), address="tcp://h:1"))
    with pytest.raises(ClusterError) as caught:
        claim(registry.this_process("default", "mpi"), draft())
    assert str(caught.value) == (
        f"there is a cluster 'default' already. Got kind local at tcp://h:1, kept by process "
        f"{os.getpid()}. Stop it with penstock cluster stop, or choose another --name."
    )
    assert find("default") == entry


def test_the_name_of_a_dead_cluster_is_free(state: Path) -> None:
    old = put(dead())
    new = registry.this_process("default", "local")
    assert claim(new, draft()) == old
    assert all_registered() == [new]
    assert os.listdir(state) == [new.folder.name]


def test_other_hosts_are_left_alone() -> None:
    there = put(far())
    here = registry.this_process("default", "local")
    assert claim(here, draft()) is None
    assert all_registered() == [there, here]


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


def test_a_process_that_holds_the_register_for_ever(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that was stopped (SIGSTOP) just then."""
    monkeypatch.setattr(registry, "_PATIENCE", 0.1)
    put(registry.this_process("other", "local"))
    command = [sys.executable, "-P", "-c", HOLDER, str(state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(
            ClusterError,
            match=rf"the register of clusters .* waits for process {holder.pid}, which has not "
            rf"moved for 0.1 s.*kill -9 {holder.pid}",
        ):
            put(registry.this_process("default", "local"))
        holder.kill()
    put(registry.this_process("default", "local"))


def test_release_takes_only_its_own(state: Path, tmp_path: Path) -> None:
    old, new = dead(), registry.this_process("default", "local")
    put(old)
    put(new)
    release(old)
    assert find("default") == new
    release(new)
    release(new)
    assert os.listdir(state) == []


def test_the_log_of_a_failure_is_kept_if_it_says_something(state: Path) -> None:
    for text, left in (("", []), ("no room\n", ["log"])):
        entry = put(registry.this_process("default", "local"))
        (entry.folder / "log").write_text(text)
        release(entry, keep_log=True)
        assert find("default") is None
        assert (os.listdir(entry.folder) if entry.folder.exists() else []) == left
    entry = put(registry.this_process("default", "local"))
    assert os.listdir(entry.folder) == ["cluster.json"], "it goes with the next start"


def test_a_scheduler_file_goes_with_its_cluster(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    entry = replace(
        registry.this_process("default", "local"), scheduler_file=str(file), address="tcp://h:1"
    )
    for text in ('{"address": "tcp://h:2"}', "[]", "{"):
        put(entry)
        file.write_text(text)
        release(entry)
        assert file.exists(), "another's"
    put(entry)
    file.write_text('{"address": "tcp://h:1"}')
    release(entry)
    assert not file.exists()


@pytest.mark.parametrize("lines", [0, 1, 20, 21, 50_000])
def test_the_tail_of_a_log(lines: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(b"line %d \xff\n" % i for i in range(lines)))
    last = log_tail(log).splitlines()
    assert len(last) == min(lines, 20)
    if lines:
        assert last[-1] == f"line {lines - 1} \N{REPLACEMENT CHARACTER}"
    assert log_tail(tmp_path / "nothing") == ""
