"""A flow of jobs whose disk is full or read-only, or whose input was cut off, and then is not."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipelines.cli import run

FLOW = """
cluster: threads
stages:
  graph: {job: etl, input: edges, source: a, target: b}
  walks: {job: walk, input: graph, length: 40, walks: 20, publish: "{{where}}"}
variables: {where: published}
"""
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")


def make(home):
    """Make a flow and its input, of two shards."""
    (home / "edges").mkdir(parents=True)
    for shard in range(2):
        nodes = list(range(shard, 1000, 2))
        table = pa.table({"a": nodes, "b": [(7 * node + 3) % 1000 for node in nodes]})
        pq.write_table(table, home / f"edges/{shard}.parquet")
    (home / "flow.yaml").write_text(FLOW)
    return home / "flow.yaml"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What an undisturbed run publishes."""
    flow = make(tmp_path_factory.mktemp("whole") / "home")
    assert run(["run", str(flow), "-q"]) == 0
    return files(flow.parent / "published")


def files(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*.parquet")}


def states(home):
    """Return how runs ended, the first first."""
    records = sorted((home / "runs").glob("*/run.json"))
    return [json.loads(one.read_text())["state"] for one in records]


@pytest.fixture
def recovers(whole, capsys):
    """Return a function that runs a flow that fails, removes the cause, and runs it again."""

    def fails_and_recovers(flow, said, mend, place=None):
        place = place or flow.parent / "published"
        words = ["run", str(flow), "-q", "--set", f"where={place}"]
        assert run(words) == 1
        assert said in capsys.readouterr().err
        mend()
        assert not place.exists()
        assert run(words) == 0
        assert files(place) == whole
        assert states(flow.parent) == ["failed", "passed"]

    return fails_and_recovers


@root
@pytest.mark.slow
def test_a_disk_that_is_full(mount, recovers):
    flow = make(mount("size=8m") / "home")
    found = os.statvfs(flow.parent)
    filler = flow.parent / "filler"
    filler.write_bytes(bytes(found.f_bavail * found.f_frsize - (1 << 20)))
    recovers(flow, "disk", filler.unlink)


@root
@pytest.mark.slow
def test_a_place_to_publish_that_is_read_only(tmp_path, mount, recovers):
    flow, place = make(tmp_path / "home"), mount("size=8m") / "published"
    mount("remount,ro")
    recovers(flow, "Read-only file system", lambda: mount("remount,rw"), place)
