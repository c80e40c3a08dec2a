"""Gangs on clusters that have no MPI: a world is started in addition to their workers."""

import os
import time

import psutil
import pytest

from penstock import connect, gang
from penstock.errors import ClusterError

pytestmark = pytest.mark.mpi


def test_a_local_cluster_gets_a_world_for_its_first_gang(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with connect("local", workers=1) as client:
        found = gang.run(client, lambda comm: (comm.rank, os.getpid()), ranks=2)
        pids = [pid for _, pid in found]
        assert [rank for rank, _ in found] == [0, 1]
        again = gang.run(client, lambda comm: os.getpid(), ranks=2)
        assert again == pids
        assert client.submit(lambda: 3, pure=False).result() == 3
        with pytest.raises(ClusterError):
            gang.run(client, lambda comm: None, ranks=3)
    deadline = time.monotonic() + 10
    while any(psutil.pid_exists(pid) for pid in pids) or list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, list(tmp_path.iterdir())
        time.sleep(0.05)


@pytest.mark.slow
def test_a_plain_dask_cluster_will_do():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=0, dashboard_address="localhost:0") as cluster,
        Client(cluster) as client,
    ):
        assert gang.run(client, lambda comm: comm.size, ranks=2) == [2, 2]


@pytest.mark.slow
def test_a_job_with_ranks_gets_a_world_at_once():
    with connect(ranks=2) as client:
        assert gang.run(client, lambda comm: comm.size) == [2, 2]
