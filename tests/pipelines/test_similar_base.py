"""``penstock similar --base``: the neighbours of a new search, for which few rows meet all."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InputError, UsageError
from penstock.pipelines.similar import similar
from penstock.pipelines.vectors import write_vectors


def save(folder, ids, values):
    folder.mkdir()
    write_vectors(folder, np.asarray(ids), np.asarray(values, np.float32))
    return folder


def table(out):
    return pq.read_table(sorted(out.glob("part-*.parquet")))


def same(one, other):
    return table(one).equals(table(other))


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    counts=st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)),
    metric=st.sampled_from(["cosine", "dot"]),
    k=st.sampled_from([1, 3, 200]),
    ordered=st.booleans(),
)
def test_the_result_is_that_of_a_new_search(tmp_path_factory, seed, counts, metric, k, ordered):
    """Vectors of few values, so that many scores are equal."""
    folder, random = tmp_path_factory.mktemp("similar"), np.random.default_rng(seed)
    gone, moved, new = counts
    values = random.integers(-1, 2, (60, 3))
    kept = np.sort(random.permutation(60)[gone:])
    after, ids = values[kept].copy(), kept * 2
    after[random.permutation(len(kept))[:moved]] += 1
    after = np.concatenate([after, random.integers(-1, 2, (new, 3))])
    ids = np.concatenate([ids, 2 * random.permutation(60)[:new] + 1])
    if not ordered:
        order = random.permutation(len(ids)) if seed % 2 else np.roll(np.arange(len(ids)), 1)
        after, ids = after[order], ids[order]
    options = {"k": k, "metric": metric}
    before = save(folder / "before", np.arange(60) * 2, values)
    similar(before, out=folder / "s0", **options)
    today = save(folder / "today", ids, after)
    similar(today, out=folder / "new", **options)
    try:
        report = similar(today, out=folder / "s1", base=folder / "s0", **options)
    except InputError:  # k is cut to the number of vectors
        assert k == 200
        assert len(ids) != 60
        return
    assert same(folder / "new", folder / "s1")
    again = similar(today, out=folder / "s2", base=folder / "s1", **options)
    assert again.from_base.made == 0
    assert same(folder / "new", folder / "s2")
    assert report.from_base.kept + report.from_base.made == len(ids)


def test_few_rows_meet_all_vectors(tmp_path):
    values = np.random.default_rng(0).standard_normal((2500, 8))
    similar(save(tmp_path / "a", np.arange(2500), values), out=tmp_path / "s0", k=5)
    values[::500] += 1e-4
    similar(save(tmp_path / "b", np.arange(2500), values), out=tmp_path / "new", k=5)
    report = similar(tmp_path / "b", out=tmp_path / "s1", base=tmp_path / "s0", k=5)
    assert same(tmp_path / "new", tmp_path / "s1")
    had = table(tmp_path / "s0").to_pandas()
    had = had.id[had.neighbour % 500 == 0].nunique()
    assert 5 < report.from_base.made < 5 + had / 2


def test_small_moves_count_once_they_add_up(tmp_path):
    values = np.random.default_rng(0).standard_normal((300, 8))
    options = {"k": 5, "tolerance": 0.1}
    similar(save(tmp_path / "v0", np.arange(300), values), out=tmp_path / "s0", **options)
    made = []
    for day in range(1, 6):
        values[7] *= 1.04
        today = save(tmp_path / f"v{day}", np.arange(300), values)
        out, base = tmp_path / f"s{day}", tmp_path / f"s{day - 1}"
        made.append(similar(today, out=out, base=base, **options).from_base.made)
    assert [count > 0 for count in made] == [False, False, True, False, False]
    # Without a tolerance the lists are exact, also on a base that is not.
    report = similar(today, out=tmp_path / "exact", base=out, k=5)
    similar(today, out=tmp_path / "new", k=5)
    assert report.from_base.made > 0
    assert same(tmp_path / "exact", tmp_path / "new")


def test_a_base_of_another_kind_is_refused(tmp_path):
    values = np.random.default_rng(0).standard_normal((60, 4))
    folder = save(tmp_path / "v", np.arange(60), values)
    named = save(tmp_path / "named", [f"n{n}" for n in range(60)], values)
    similar(folder, out=tmp_path / "s", k=3)
    given = {"base": tmp_path / "s", "k": 3}
    for vectors, more in (
        (folder, {**given, "k": 4}),
        (folder, {**given, "metric": "dot"}),
        (folder, {**given, "tolerance": 0.1}),
        (named, given),
    ):
        with pytest.raises(InputError):
            similar(vectors, out=tmp_path / "t", **more)
    for more in ({"approximate": True}, {"candidates": tmp_path / "c"}):
        with pytest.raises(UsageError):
            similar(folder, out=tmp_path / "t", **given, **more)
    with pytest.raises(UsageError):
        similar(folder, 3, **given)


def test_approximate_neighbours_are_no_base(tmp_path):
    pytest.importorskip("usearch")
    values = np.random.default_rng(0).standard_normal((60, 4))
    folder = save(tmp_path / "v", np.arange(60), values)
    similar(folder, out=tmp_path / "near", k=3, approximate=True)
    with pytest.raises(InputError):
        similar(folder, out=tmp_path / "t", k=3, base=tmp_path / "near")
