"""The kind mpi: ready soon, gone without a trace, and clear about what kept it from starting."""

import os
import time

import pytest
from distributed import Client, LocalCluster
from processes import ended, ranks_that, until

from penstock import connect, gang
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError
from penstock.limits import usable_memory
from penstock.pipelines.job.capacity import task_capacity

pytestmark = pytest.mark.mpi


def test_ranks_are_workers_and_leave_nothing_behind(temporary, left_over):
    spec = ClusterSpec(cluster="mpi", workers=2, memory_limit="500MB", threads=2)
    with connect(spec) as client:
        can = task_capacity(client, spec)
        assert (can.tasks, can.task_memory) == (4, usable_memory(500_000_000) // 2)
        pids = list(client.run(os.getpid).values())
        assert len(set(pids)) == 2
        assert client.submit(lambda: 5, pure=False).result() == 5
        started = time.monotonic()
    assert time.monotonic() - started < 5
    assert ended(*pids)
    assert not left_over()
    assert not list(temporary.iterdir())


@pytest.fixture
def first(tmp_path, monkeypatch):
    """Have every rank run some code first of all."""
    return lambda code: monkeypatch.setenv(*ranks_that(code, tmp_path / "site").popitem())


@pytest.mark.slow
def test_a_rank_that_does_not_arrive_is_named(first, temporary, left_over):
    code = "import time\n    print('a lazy one', flush=True)\n    if rank == 2: time.sleep(600)"
    first(code)
    started = time.monotonic()
    with pytest.raises(ClusterError) as raised, connect("mpi", workers=3, start_timeout=4):
        pass
    assert "rank 2" in str(raised.value)
    # Started processes are ended, which takes seconds if the cores are busy, and not 600.
    assert time.monotonic() - started < 4 + 15
    assert not left_over()
    assert not list(temporary.iterdir())


def test_a_rank_that_dies_at_the_start_is_an_error_at_once(first, temporary, left_over):
    code = "if rank == 1:\n        print('no disk here', flush=True)\n        os._exit(3)"
    first(code)
    started = time.monotonic()
    with pytest.raises(ClusterError) as raised, connect("mpi", workers=2, start_timeout=60):
        pass
    assert time.monotonic() - started < 20
    assert "no disk here" in str(raised.value)
    assert not left_over()
    assert not list(temporary.iterdir())


def test_a_rank_with_another_penstock_is_refused(first, left_over):
    code = "import penstock\n    penstock.__version__ = '0.0.9'"
    first(code)
    with pytest.raises(ClusterError), connect("mpi", workers=1):
        pass
    assert not left_over()


# -- clusters that have no MPI: a world is started in addition to their workers --------------------


def test_a_local_cluster_gets_a_world_for_its_first_gang(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with connect("local", workers=1) as client:
        found = gang.run(client, lambda comm: (comm.rank, os.getpid()), ranks=2)
        ranks, pids = zip(*found, strict=True)
        assert ranks == (0, 1)
        assert gang.run(client, lambda comm: os.getpid(), ranks=2) == [*pids]
        assert client.submit(lambda: 3, pure=False).result() == 3
        with pytest.raises(ClusterError):
            gang.run(client, lambda comm: None, ranks=3)
    assert ended(*pids)
    until(lambda: not list(tmp_path.iterdir()), seconds=10)


@pytest.mark.slow
def test_a_plain_dask_cluster_and_a_job_with_ranks_get_a_world_too():
    with (
        LocalCluster(n_workers=0, dashboard_address="localhost:0") as cluster,
        Client(cluster) as client,
    ):
        assert gang.run(client, lambda comm: comm.size, ranks=2) == [2, 2]
    with connect(ranks=2) as client:
        assert gang.run(client, lambda comm: comm.size) == [2, 2]
