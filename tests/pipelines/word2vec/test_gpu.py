"""The whole job on a GPU: from text and from a graph to vectors that tell what belongs together."""

import json
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import until

import penstock
from penstock import ClusterSpec, vector_parts
from penstock.errors import PenstockError
from penstock.formats import read_file_table
from penstock.pipelines.vectors import Vectors
from penstock.workers.training.checkpoint import about_of

pytestmark = pytest.mark.gpu
GPU = ClusterSpec(device="gpu")


def within_minus_across(vectors, group):
    """Return by how much cosines inside groups are above those between them."""
    units = vectors.values / np.linalg.norm(vectors.values, axis=1, keepdims=True)
    cosines, same = units @ units.T, group[:, None] == group[None, :]
    np.fill_diagonal(same, val=False)
    return float(cosines[same].mean() - cosines[group[:, None] != group[None, :]].mean())


@pytest.mark.parametrize("more", [{}, {"shared_windows": 2}, {"ns_exponent": 0.5}])
def test_words_of_a_group_are_near(tmp_path, more):
    random = np.random.default_rng(1)
    groups = random.integers(0, 20, 20_000)
    words = 10 * groups[:, None] + random.integers(0, 10, (20_000, 20))
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(f"w{word}" for word in line) for line in words))
    report = penstock.word2vec(
        text, tmp_path / "v", dim=32, epochs=3, cluster=GPU, quiet=True, **more
    )
    assert report.on_gpu
    assert report.device == "gpu"
    vectors = Vectors.open(tmp_path / "v")
    group = np.array([int(word[1:]) // 10 for word in vectors.ids.to_pylist()])
    assert within_minus_across(vectors, group) > 0.3


@pytest.mark.parametrize(
    "more", [{}, {"app": "node2vec", "p": 0.5, "q": 2.0}, {"same_walks": True}]
)
def test_nodes_of_a_block_are_near(tmp_path, more):
    penstock.generate(
        "sbm",
        tmp_path / "g",
        nodes=1000,
        blocks=4,
        degree_inside=20.0,
        degree_outside=2.0,
        quiet=True,
    )
    how = {"dim": 32, "length": 20, "epochs": 3, "lr": 0.05}
    penstock.word2vec(tmp_path / "g", tmp_path / "v", cluster=GPU, quiet=True, **how, **more)
    vectors = Vectors.open(tmp_path / "v")
    graph = penstock.Graph.open(tmp_path / "g")
    label = dict(zip(graph.user_ids().to_pylist(), np.asarray(graph.labels()), strict=True))
    group = np.array([label[node] for node in vectors.ids.to_pylist()])
    assert within_minus_across(vectors, group) > 0.2


def test_a_resumed_training_ends_as_it_would(tmp_path):
    """Epochs are counted on: the vectors of a warm start are where the first training run ended."""
    penstock.generate("sbm", tmp_path / "g", nodes=500, blocks=4, quiet=True)
    how = {"dim": 16, "length": 20, "quiet": True, "cluster": GPU}
    penstock.word2vec(tmp_path / "g", tmp_path / "one", **how)
    penstock.word2vec(
        tmp_path / "g", tmp_path / "two", init=tmp_path / "one", lr=1e-9, min_lr=1e-9, **how
    )
    one, two = (Vectors.open(tmp_path / name) for name in ("one", "two"))
    np.testing.assert_allclose(two.values, one.values, atol=1e-5)


def test_a_killed_training_resumes_and_one_that_diverges_keeps_its_checkpoint(tmp_path):
    penstock.generate("sbm", tmp_path / "g", nodes=20_000, quiet=True)
    out, epochs = tmp_path / "v", 30
    command = [sys.executable, "-P", "-m", "penstock", "word2vec", "train", str(tmp_path / "g")]
    command += [str(out), "-q", "--device", "gpu", "--dim", "32", "--epochs", str(epochs)]
    command += ["--checkpoint-minutes", "1e-9"]  # one a round, which is an epoch here
    last = tmp_path / ".v.partial/scratch/checkpoints/last.safetensors"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: number_in(last) >= 2, process, 90)
        process.kill()
    kept = last.read_bytes()
    # So large that the first dot products are infinite in single precision.
    done = subprocess.run([*command, "--resume", "--lr", "1e38"], capture_output=True, text=True)
    assert done.returncode == 1
    assert last.read_bytes() == kept
    done = subprocess.run([*command, "--resume", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert 0 < report["resumed"] < 1
    assert (report["device"], report["words"]) == ("gpu", epochs * 20_000 * 10 * 80)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [*range(1, epochs + 1)]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert np.isfinite(Vectors.open(out).values).all()


def number_in(last):
    """Return the number of a checkpoint, 0 before the first."""
    with suppress(PenstockError):  # none, or not yet
        return int(about_of(last)["number"])
    return 0


def test_parts_of_a_graph_are_written_while_vectors_are_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_parts, "PART_BYTES", 100 * 16 * 4)
    penstock.generate("sbm", tmp_path / "g", nodes=2050, quiet=True)
    penstock.word2vec(tmp_path / "g", tmp_path / "v", cluster=GPU, quiet=True, dim=16, length=20)
    files = sorted((tmp_path / "v").glob("part-*.parquet"))
    assert len(files) == 21
    found = pa.concat_tables([pq.read_table(file) for file in files])
    vectors = Vectors.open(tmp_path / "v")
    assert found["id"].combine_chunks().equals(vectors.ids)
    np.testing.assert_array_equal(np.array(found["vector"].to_pylist(), np.float32), vectors.values)
    assert check_vectors(tmp_path / "v") >= {file.name for file in files}
    assert found["count"].to_numpy().sum() == 2050 * 10 * 20  # in all walks, as these are few


def check_vectors(folder):
    """Compare the files of vectors with their sums, and return their names."""
    listed = read_file_table(json.loads((folder / "vectors.json").read_text())["files"])
    for entry in listed.values():
        entry.check_size(folder, listed_in="", remedy="")
        entry.check_sum(folder, remedy="")
    return set(listed)
