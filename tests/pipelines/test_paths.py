"""On a cluster that was started in another folder, paths are still the client's."""

import os
from pathlib import Path

import numpy as np
import pytest

from penstock import etl, gnn
from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec
from penstock.pipelines.cli import run


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """A folder with a running cluster, the cluster, and another folder with data."""
    theirs, ours = tmp_path_factory.mktemp("theirs"), tmp_path_factory.mktemp("ours")
    random = np.random.default_rng(1)
    lines = "\n".join(f"{a},{b}" for a, b in random.integers(0, 100, (500, 2)))
    for name in ("edges-1.csv", "valid.csv", "test.csv"):
        (ours / name).write_text(f"src,dst\n{lines}\n")
    rows = (f"{i},{i % 2},{'train valid test'.split()[i % 3]},{i % 2}" for i in range(100))
    (ours / "nodes.csv").write_text("id,label,split,x\n" + "\n".join(rows) + "\n")
    np.save(ours / "x.npy", random.random((100, 4), dtype=np.float32))
    (ours / "starts.txt").write_text("3\n5\n")
    (ours / "model.yaml").write_text("layers: [{kind: gcn}]\n")
    before = Path.cwd()
    os.chdir(theirs)
    try:
        with connect(ClusterSpec(cluster="local", workers=2, no_tls=True), input_bytes=0) as owner:
            owner.write_scheduler_file("scheduler.json")
            (theirs / "scheduler.json").rename(ours / "scheduler.json")
            # As the name of a started cluster, this is not an address.
            yield theirs, ClusterSpec(cluster=str(ours / "scheduler.json")), ours
    finally:
        os.chdir(before)


NODES = {"nodes": "nodes.csv", "label": "label", "split": "split"}


@pytest.fixture
def ours(far, monkeypatch):
    """The current folder; that of the workers stays empty."""
    theirs, _, folder = far
    monkeypatch.chdir(folder)
    yield folder
    assert not list(theirs.iterdir())


@pytest.fixture
def cluster(far):
    return far[1]


def test_gnn(ours, cluster):
    etl("edges-1.csv", "g", cluster=cluster, features="x.npy", **NODES)
    gnn.train("g", "run", spec="model.yaml", epochs=2, cluster=cluster)
    assert (ours / "run/checkpoints/last.safetensors").is_file()
    gnn.predict("run", "predictions", cluster=cluster, graph="g")
    assert (ours / "predictions/_predictions.json").is_file()


@pytest.mark.parametrize(
    "command",
    [
        "etl edges-*.csv cli/g --nodes nodes.csv --features x.npy --valid valid.csv "
        "--scratch cli/scratch --cluster scheduler.json",
        "walk cli/g cli/w --starts starts.txt --length 5 --cluster scheduler.json",
        "generate rmat cli/rmat --scale 5",
        "partition cli/rmat -k 2",
        "info cli/rmat",
        "validate cli/rmat",
    ],
)
def test_commands(ours, command, capsys):
    """Each takes up what those before it have left."""
    assert run(command.split()) == 0, capsys.readouterr().err
    assert str(ours) not in capsys.readouterr().out  # people see what they typed
