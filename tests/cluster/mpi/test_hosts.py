"""Hosts as MPICH and Open MPI spell them, and what is wrong with others."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.mpi.hosts import Host, check_hosts, host_of_ranks, parse_hosts
from penstock.errors import UsageError

HOSTFILE = """
# the partition of tonight
h1            # one slot
h2:4          # MPICH's way
h3 slots=4    # Open MPI's
h4.site.org slots=4 max_slots=8
   10.0.0.5:2

h1:2
h3   max-slots=2
"""


def test_a_list() -> None:
    assert parse_hosts("h1:4,h2") == (Host("h1", 4), Host("h2", 1))
    assert parse_hosts(" h1 , h2:2, h1:3,") == (Host("h1", 4), Host("h2", 2))


def test_a_hostfile(tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text(HOSTFILE)
    hosts = parse_hosts(str(file))
    assert [(host.name, host.slots) for host in hosts] == [
        ("h1", 3),
        ("h2", 4),
        ("h3", 5),
        ("h4.site.org", 4),
        ("10.0.0.5", 2),
    ]
    assert hosts[1].origin == f"{file}, line 4"


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9)), min_size=1))
def test_slots_of_one_name_add_up(named: list[tuple[str, int]]) -> None:
    hosts = parse_hosts(",".join(f"{name}:{slots}" for name, slots in named))
    assert [host.name for host in hosts] == list(dict.fromkeys(name for name, _ in named))
    for host in hosts:
        assert host.slots == sum(slots for name, slots in named if name == host.name)
    ranks = host_of_ranks(hosts, sum(slots for _, slots in named))
    assert all(ranks.count(host.name) == host.slots for host in hosts)
    assert host_of_ranks(hosts, 1) == (hosts[0].name,)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("h1:0", "'0' is not a number of slots"),
        ("h1:", "'' is not a number of slots"),
        ("h1:two", "'two' is not a number of slots"),
        ("h1:2:3", "'2:3' is not a number of slots"),
        ("h1 slots=-1", "'-1' is not a number of slots"),
        ("h1:2 slots=2", "slots are given twice"),
        ("h1 slots=2 slots=2", "slots are given twice"),
        ("h1 slots=4 max_slots=2", "max_slots=2 is less than slots=4"),
        ("h1 h2", "'h2' is not understood"),
        ("h1 cores=2", "'cores=2' is not understood"),
        ("me@h1", "'me@h1' is no host name"),
        ("-x:4", "'-x:4' is no host name"),
    ],
)
def test_a_bad_line_is_named(line: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text(f"h0\n{line}\n")
    with pytest.raises(UsageError, match="line 2: ") as caught:
        parse_hosts(str(file))
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
    if " " not in line:
        with pytest.raises(UsageError, match=f"--hosts h0,{line}, entry 2: ") as caught:
            parse_hosts(f"h0,{line}")
        assert said in str(caught.value)


def test_nothing_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# nobody\n")
    for text in ("", " ,", str(tmp_path / "empty")):
        with pytest.raises(UsageError, match="names no host"):
            parse_hosts(text)
    with pytest.raises(UsageError, match="there is no hostfile /nowhere/hosts"):
        parse_hosts("/nowhere/hosts")


def test_fewer_slots_than_ranks() -> None:
    hosts = parse_hosts("h1:2,h2:1")
    with pytest.raises(UsageError) as caught:
        check_hosts(hosts, 8)
    assert str(caught.value) == (
        "8 workers do not fit on 2 hosts. Expected at least 8 slots, got 3: h1:2,h2:1. Name more "
        "hosts or slots (--hosts h1:7,...), or take fewer workers (--workers 3)."
    )


def test_an_unknown_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lookup(name: str, port: Any) -> list[Any]:
        if name == "h9":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    file = tmp_path / "hosts.txt"
    file.write_text("h1:2\nh2:2\nh9:4\n")
    with pytest.raises(UsageError, match="the host 'h9' is unknown") as caught:
        check_hosts(parse_hosts(str(file)), 8)
    assert f"{file}, line 3" in str(caught.value)
    assert "Name or service not known" in str(caught.value)
    check_hosts(parse_hosts("h1:2,h2"), 3)


def test_this_host_is_known() -> None:
    check_hosts(parse_hosts("localhost:4,127.0.0.1"), 5)
