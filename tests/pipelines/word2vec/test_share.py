"""A warm start that trains on what changed, and on a share of the rest."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock import etl, walk, word2vec
from penstock.errors import InputError, UsageError
from penstock.pipelines.vectors import Vectors

GROUP = 30
TINY = 1e-9  # of this many nodes, none
# Few nodes: as many threads as one, so that the result is that of the seed.
GIVEN = {"dim": 8, "walks": 3, "length": 10, "deterministic": True, "shards": 2}


def groups(count):
    """Return edges of groups of nodes that no edge joins."""
    random = np.random.default_rng(0)
    parts = [random.integers(0, GROUP, (150, 2)) + GROUP * number for number in range(count)]
    return pd.DataFrame(np.concatenate(parts), columns=["src", "dst"])


def make(folder, name, frame, **options):
    frame.to_parquet(folder / f"{name}.parquet")
    etl(folder / f"{name}.parquet", folder / name, **{"directed": False, **options})
    return folder / name


@pytest.fixture
def days(tmp_path):
    """Two days: in the second, edges of the third of ten groups, and a new node, differ."""
    before = groups(10)
    make(tmp_path, "g0", before)
    after = before.copy()
    after.loc[300:306, "dst"] = 2 * GROUP + 1
    after.loc[307, "dst"] = 7000
    make(tmp_path, "g1", after, base=tmp_path / "g0")
    word2vec(tmp_path / "g0", tmp_path / "v0", **GIVEN)
    return tmp_path


def rows_of(vectors, ids):
    opened = Vectors.open(vectors)
    return np.asarray(opened.values)[opened.find(pa.array(ids))]


def test_only_walks_from_changed_nodes_train_with_a_tiny_share(days):
    report = word2vec(days / "g1", days / "v1", init=days / "v0", share=TINY, **GIVEN)
    assert 0 < report.words <= (GROUP + 1) * 3 * 10
    elsewhere = [n for n in range(10 * GROUP) if n // GROUP != 2]
    np.testing.assert_array_equal(rows_of(days / "v1", elsewhere), rows_of(days / "v0", elsewhere))
    changed = [2 * GROUP + 1, 7000]
    assert np.abs(rows_of(days / "v1", changed)).min() > 0
    assert not np.array_equal(rows_of(days / "v1", changed[:1]), rows_of(days / "v0", changed[:1]))
    # The next day compares with this one: nothing has changed since.
    for share in (TINY, 0):
        with pytest.raises(UsageError, match="--share"):
            word2vec(days / "g1", days / "v2", init=days / "v1", share=share, **GIVEN)


def test_a_share_of_the_others_is_trained_too(days):
    words = [
        word2vec(days / "g1", days / f"v{share}", init=days / "v0", share=share, **GIVEN).words
        for share in (TINY, 0.4, 1.0)
    ]
    assert words[0] < words[1] < words[2]
    assert words[1] - words[0] == pytest.approx(0.4 * (words[2] - words[0]), rel=0.3)
    whole = word2vec(days / "g1", days / "whole", init=days / "v0", **GIVEN)
    assert whole.words == words[2]
    for name in ("vectors.npy", "context.npy"):
        assert (days / "whole" / name).read_bytes() == (days / "v1.0" / name).read_bytes()


def test_a_share_needs_vectors_of_an_earlier_graph(days):
    walk(days / "g1", days / "w", walks=3, length=10)
    word2vec(days / "w", days / "of walks", dim=8)
    other = make(days, "other", groups(10), directed=True)
    for given, options, error in (
        ("g1", {"init": days / "of walks"}, UsageError),
        ("w", {"init": days / "v0"}, UsageError),
        (other.name, {"init": days / "v0"}, InputError),
    ):
        with pytest.raises(error):
            word2vec(days / given, days / "v1", share=0.1, dim=8, **options)
    assert not (days / "v1").exists()
