"""Word vectors of two ranks: what they combine, and what they learn.

Each has a GPU of its own, or both have the one that there is, and exchange through host memory.
"""

import json

import numpy as np
import pytest
from processes import below, is_rank, launch, until

import penstock
from penstock import ClusterSpec, connect, gang
from penstock.pipelines.vectors import Vectors

pytestmark = [pytest.mark.mpi, pytest.mark.gpu]
TWO = ClusterSpec(cluster="mpi", workers=2, device="gpu")
ONE = ClusterSpec(device="gpu")
# The vocabularies are so small that a row of a shard would go all its way between two exchanges.
OFTEN = {"parts": 2, "sync_words": 20_000, "cluster": TWO}


@pytest.fixture(scope="module")
def client():
    with connect("mpi", workers=2, device="gpu") as client:
        yield client


def test_rows_are_combined_on_the_devices(client):
    """Three pieces of 1000 rows, of which two are under way at once."""

    def combined(comm):
        import cupy
        import numpy

        from penstock.workers.word2vec import deltas

        deltas._DEVICE_CHUNK_VALUES = 1000 * 64
        random = numpy.random.default_rng(1)
        base = [random.normal(size=(3000, 64)).astype(numpy.float32) for _ in range(2)]
        moved = random.normal(size=(2, 2, 3000, 64)).astype(numpy.float32)  # by rank and table
        pairs = random.random(3000).astype(numpy.float32)
        weights = numpy.full(3000, 1 / 3000, numpy.float32)
        put = cupy.asarray
        vectors = put(base[0]), put(base[1])
        of_rows = put(pairs), put(pairs)
        shards = deltas.Shards(comm, vectors, of_rows, put(weights), 2, ordered=False, threads=1)
        for copy, change in zip(shards.copies[0], moved[comm.rank], strict=True):
            copy += put(change)
        shards.combine(words=20_000, lr=0.025)
        comm.synchronize()
        mine = [table.get() for table in (*shards.vectors, *shards.copies[0])]
        return {
            "transport": comm.transport(vectors[0]),
            "tables": mine,
            "base": base,
            "moved": moved,
        }

    import cupy

    one, other = gang.run(client, combined)
    alone = cupy.cuda.runtime.getDeviceCount() == 1
    assert one["transport"] == other["transport"]
    assert (one["transport"] != "NCCL") == alone
    for which in range(2):
        base, sums = one["base"][which], one["moved"][:, which].sum(axis=0)
        vectors, copy = one["tables"][which], one["tables"][2 + which]
        np.testing.assert_array_equal(vectors, copy)
        np.testing.assert_array_equal(vectors, other["tables"][which])
        np.testing.assert_array_equal(vectors, other["tables"][2 + which])
        shares = ((vectors - base) * sums).sum(axis=1) / (sums * sums).sum(axis=1)
        np.testing.assert_allclose(vectors, base + shares[:, None] * sums, atol=1e-4)
        assert shares.min() > 0.45  # between the mean and the sum
        assert shares.max() < 1.001


def test_two_ranks_learn_as_much_as_one(tmp_path):
    random = np.random.default_rng(1)
    groups = random.integers(0, 20, 20_000)
    words = 10 * groups[:, None] + random.integers(0, 10, (20_000, 20))
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(f"w{word}" for word in line) for line in words))
    how = {"dim": 32, "epochs": 5, "quiet": True}
    one = penstock.word2vec(text, tmp_path / "one", cluster=ONE, **how)
    two = penstock.word2vec(text, tmp_path / "two", **OFTEN, **how)
    assert two.ranks == 2
    assert two.words == one.words
    # Where 200 words are under way many times at once, two GPUs learn more than one.
    assert two.loss < 1.1 * one.loss


@pytest.mark.multigpu
def test_a_rank_that_is_killed_amid_exchanges_costs_time_only(tmp_path):
    """The world is started again, and resumes from the last checkpoint."""
    penstock.generate("sbm", tmp_path / "g", nodes=20_000, quiet=True)
    out, epochs = tmp_path / "v", 10
    words = f"word2vec train {tmp_path}/g {out} -q -k 2 --cluster mpi -n 2 --device gpu --dim 64"
    words += f" --epochs {epochs} --sync-words 200000 --checkpoint-minutes 0.005"
    last = tmp_path / ".v.partial/scratch/checkpoints/last.safetensors"
    with launch(*words.split()) as process:
        until(last.exists, process, 90)
        ranks = [one for one in below(process) if is_rank(one)]
        assert len(ranks) == 2
        ranks[-1].kill()
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 0, said
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [*range(1, epochs + 1)]
    assert {line["words"] for line in lines} == {20_000 * 10 * 80}
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert np.isfinite(Vectors.open(out).values).all()


def test_walks_are_shared_by_ranks(tmp_path):
    """Every walk is trained once, by the rank that walked it."""
    penstock.generate("sbm", tmp_path / "g", nodes=1000, blocks=4, quiet=True)
    how = {"dim": 32, "length": 20, "epochs": 3, "quiet": True}
    one = penstock.word2vec(tmp_path / "g", tmp_path / "one", cluster=ONE, **how)
    two = penstock.word2vec(tmp_path / "g", tmp_path / "two", **OFTEN, **how)
    assert (two.words, two.pairs) == (one.words, one.pairs)
    assert two.loss == pytest.approx(one.loss, rel=0.1)
    assert np.isfinite(Vectors.open(tmp_path / "two").values).all()
