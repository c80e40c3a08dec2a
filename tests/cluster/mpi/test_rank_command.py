"""The command and the environment of ranks follow from the options."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cluster.mpi.mpiexec import Launcher, Library
from penstock.cluster.mpi.rank_command import WorldPlan, world_environment
from penstock.cluster.spec import ClusterSpec

PLAN = WorldPlan(ClusterSpec(), "tcp://127.0.0.1:8786", "mpi-1a.1", Path("/tmp/w"), remote=False)
HYDRA = Launcher("/usr/bin/mpiexec", "hydra", (5, 0))
MPICH = Library("mpich", (5, 0), "/usr/lib/libmpi.so.12", "MPICH 5.0")


@pytest.mark.parametrize(
    ("remote", "environ", "device"),
    [
        (False, {}, "lo"),
        (True, {}, None),
        (False, {"UCX_NET_DEVICES": "ib0"}, "ib0"),
        (False, {"UCX_TLS": "rc"}, None),
    ],
)
def test_ranks_of_one_host_listen_on_it_alone(remote, environ, device):
    env = world_environment(replace(PLAN, remote=remote), HYDRA, MPICH, environ)
    assert env.get("UCX_NET_DEVICES") == device
    assert env.get("FI_TCP_IFACE") == (None if remote else "lo")
    assert env.get("OMPI_MCA_btl_tcp_if_include") == (None if remote else "lo")
