"""Hosts as MPICH and Open MPI spell them, and what is wrong with others."""

import pytest

from penstock.cluster.mpi.hosts import check_hosts, parse_hosts
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


def test_a_hostfile(tmp_path):
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


@pytest.mark.parametrize("line", ["h1:0", "h1:two", "h1:2 slots=2", "h1 cores=2", "-x:4"])
def test_a_bad_line_is_named(line, tmp_path):
    file = tmp_path / "hosts.txt"
    file.write_text(f"h0\n{line}\n")
    with pytest.raises(UsageError) as caught:
        parse_hosts(str(file))
    assert line in str(caught.value)


def test_fewer_slots_than_ranks():
    with pytest.raises(UsageError):
        check_hosts(parse_hosts("h1:2,h2:1"), 8)
