"""Two hosts train a network over a slow link: their communication is mostly hidden."""

import json
import os

import pytest

from penstock import Graph, generate, partition_graph

pytestmark = [pytest.mark.netns, pytest.mark.mpi, pytest.mark.slow]

# The link is so slow that exchanges take a third of the time of an epoch without them, on a slow
# machine and on a fast one. What cannot be hidden is packing, copying into and out of sockets,
# looking after messages, and adding. So 75 to 95 % are hidden. No overlap at all, every exchange
# waited for at once, gave 18 % in one run and -7 % in another: without barriers one rank packs and
# adds while the other still does.
BITS = 10e6  # of an epoch, either way
SHARE = 1 / 3
LEAST_HIDDEN = 0.6
TRIES = 3


@pytest.fixture
def graph(tmp_path):
    """Blocks with few edges between them: summing takes longer than ghosts travel."""
    path = tmp_path / "g"
    degrees = {"degree_inside": 149.85, "degree_outside": 0.15}
    generate("sbm", path, nodes=30_000, blocks=47, width=100, noise=100, quiet=True, **degrees)
    partition_graph(Graph.open(path), k=2, quiet=True)
    return path


def test_most_of_the_communication_is_hidden(make_hosts, graph, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores, one for each host")
    words = "--layers 3 --hidden 128 --dropout 0 --epochs 4 --evaluate-every 4 --json"
    where = "--cluster mpi -n 2 --hosts h1:1,h2:1 --interface eth0 -k 2 --measure-overlap 11"

    def measure(number):
        line = f"-m penstock gnn train {graph} {tmp_path}/run{number} {words} {where}"
        done = hosts.python("h1", *line.split(), cwd=tmp_path)
        out, err = done.communicate(timeout=150)
        assert done.returncode == 0, err
        found = json.loads(out)["overlap"]
        assert found["transport"] == "MPI messages"
        return found

    with make_hosts(2) as hosts:
        hosts.divide_cores()
        hosts.prefer()
        for host in hosts.names:
            hosts.shape(host, "250mbit")
        seconds = SHARE * measure("first")["left_out"][1]
        for host in hosts.names:
            hosts.shape(host, f"{BITS / seconds:.0f}bit")
        check(measure, seconds)


def check(measure, seconds):
    """Measure until a share is reported, which must be high enough; three times at most.

    If other processes disturb a measurement so that its spread is too wide, it reports no share.
    That is not a failure of the overlap, unless it never reports one. A share that was reported
    counts, and is not measured again until it pleases.
    """
    untold = []
    for number in range(TRIES):
        found = measure(number)
        if found["hidden"] is not None:
            assert found["whole"][1] > seconds / 2, found
            assert found["hidden"][1] >= LEAST_HIDDEN, found
            return
        untold.append(found)
    pytest.fail(f"{TRIES} measurements could not tell: {untold}")
