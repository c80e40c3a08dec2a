"""The disk space of training out of core is known before it starts, and is not exceeded."""

from __future__ import annotations

import os

import numpy as np
import pytest
from graphs import write_graph
from small_disks import mount, unmount

from penstock import CSR, ClusterSpec, embed
from penstock.errors import CapacityError
from penstock.temporary import host_name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")

NODES = 4000
OPTIONS = {"dim": 64, "batch": 50, "negatives": 8, "epochs": 2, "partitions": 8}
TABLE = 2 * 4 * NODES * OPTIONS["dim"]


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    """A graph whose vectors are much larger than its edges."""
    path = tmp_path_factory.mktemp("sparse") / "g"
    ends = np.random.default_rng(0).integers(0, NODES, (2, 6000))
    return write_graph(path, CSR.from_edges(*ends, NODES))


@pytest.fixture
def disk(tmp_path):
    """A folder in which a small disk can be mounted."""
    yield tmp_path / "disk"
    if (tmp_path / "disk").is_mount():
        unmount(tmp_path / "disk")


def test_a_run_takes_what_its_disk_has(sparse, tmp_path, disk):
    """The disk holds two versions of each partition if they fit, else one and a few more."""
    size = round(1.7 * TABLE)
    mount(disk, f"size={size}")
    options = {**OPTIONS, "cluster": ClusterSpec(cluster="threads")}
    ample = embed.train.plan(sparse, tmp_path / "run", **options).disk.bytes or 0
    tight = embed.train.plan(sparse, disk / "run", **options).disk.bytes or 0
    assert 2 * TABLE < ample < 2.3 * TABLE
    assert 1.3 * TABLE < tight < size
    embed.train(sparse, tmp_path / "run", **options)
    embed.train(sparse, disk / "run", **options)
    ours, theirs = (embed.vectors(at / "run").values for at in (disk, tmp_path))
    np.testing.assert_array_equal(ours, theirs)


def test_a_scratch_disk_that_is_too_small_is_said_before(sparse, tmp_path, disk):
    spec = ClusterSpec(cluster="threads", worker_scratch=mount(disk, "size=80m"))
    options = {**OPTIONS, "cluster": spec}
    assert "scratch" in dict(embed.train.plan(sparse, tmp_path / "run", **options).steps)
    options["dim"] = 4096
    with pytest.raises(CapacityError, match=str(disk)):
        embed.train(sparse, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
    # What a killed worker left there does not count.
    left = disk / f"penstock-{os.geteuid()}" / f"worker-{host_name()}-0badc0de"
    left.mkdir(mode=0o700, parents=True)
    left.parent.chmod(0o700)
    left.with_name(f".{left.name}.lock").touch()
    (left / "nodes").write_bytes(bytes(79 << 20))
    embed.train(sparse, tmp_path / "after", **options | {"dim": 64})
    assert not left.exists()
    # In memory, nothing is written to scratch.
    options |= {"dim": 8, "partitions": 1}
    assert "scratch" not in dict(embed.train.plan(sparse, tmp_path / "run", **options).steps)
