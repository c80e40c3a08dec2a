"""Centralities of today on the base of yesterday's: the same values, computed for what changed."""

import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from penstock import centrality, etl
from penstock.errors import BaseRefused, InputError

METRICS = (
    "closeness,harmonic,betweenness,eccentricity,pagerank,component,strong-component,clustering,"
    "diameter"
)


def edges(seed, graphs):
    parts = []
    for graph in graphs:
        random = np.random.default_rng((seed, graph))
        ends = random.integers(0, 12, (int(random.integers(3, 40)), 2))
        parts.append(pd.DataFrame({"graph_id": graph, "source": ends[:, 0], "target": ends[:, 1]}))
    found = pd.concat(parts)
    return found.assign(weight=np.random.default_rng(seed).integers(1, 5, len(found)) / 2)


def values(out, kind):
    return pq.read_table(out / kind).to_pandas()


@pytest.mark.parametrize("options", [{}, {"directed": True}, {"weighted": True}])
def test_unchanged_graphs_take_their_values_and_the_result_is_that_of_a_new_run(tmp_path, options):
    before = edges(1, range(60))
    changed = edges(2, range(0, 60, 7))
    kept = before[~before.graph_id.isin([*range(0, 60, 7), 5])]
    after = pd.concat([kept, changed, edges(3, range(100, 110))])
    before.to_parquet(tmp_path / "before.parquet")
    after.to_parquet(tmp_path / "after.parquet")
    given = {"format": "zoo", "metrics": METRICS, **options}
    centrality(tmp_path / "before.parquet", tmp_path / "c0", **given)
    new = centrality(tmp_path / "after.parquet", tmp_path / "new", **given)
    based = centrality(tmp_path / "after.parquet", tmp_path / "c1", base=tmp_path / "c0", **given)
    assert new.from_base is None
    assert based.from_base is not None
    assert based.from_base.kept == kept.graph_id.nunique()
    again = centrality(tmp_path / "after.parquet", tmp_path / "c2", base=tmp_path / "c1", **given)
    assert again.from_base is not None
    assert (again.from_base.kept, again.from_base.made) == (again.graphs, 0)
    for kind in ("nodes", "graphs"):
        for out in ("c1", "c2"):
            pd.testing.assert_frame_equal(
                values(tmp_path / "new", kind), values(tmp_path / out, kind), check_exact=True
            )


def test_a_graph_that_failed_is_computed_again(tmp_path):
    edges(1, range(5)).to_parquet(tmp_path / "e.parquet")
    given = {"format": "zoo", "metrics": "pagerank", "max_iter": 1}
    first = centrality(tmp_path / "e.parquet", tmp_path / "c0", **given)
    assert first.failed == 5
    again = centrality(tmp_path / "e.parquet", tmp_path / "c1", base=tmp_path / "c0", **given)
    assert again.from_base is not None
    assert (again.failed, again.from_base.kept) == (5, 0)


def test_a_base_with_other_options_is_refused(tmp_path):
    edges(1, range(5)).to_parquet(tmp_path / "e.parquet")
    centrality(tmp_path / "e.parquet", tmp_path / "c0", format="zoo", metrics="closeness")
    for options in ({"metrics": "pagerank"}, {"wf_improved": False}, {"directed": True}):
        given = {"format": "zoo", "metrics": "closeness", **options}
        with pytest.raises(InputError):
            centrality(tmp_path / "e.parquet", tmp_path / "c1", base=tmp_path / "c0", **given)
    assert not (tmp_path / "c1").exists()


def test_another_base_at_the_same_path_is_another_base(tmp_path):
    given = {"format": "zoo", "metrics": "closeness"}
    whole, base = edges(1, range(30)), tmp_path / "base"
    for night, order in enumerate((range(30), range(29, -1, -1), range(5, 25))):
        one = pd.concat(
            [whole[whole.graph_id == i].assign(graph_id=n) for n, i in enumerate(order)]
        )
        one.to_parquet(tmp_path / "e.parquet")
        more = {} if night == 0 else {"base": base}
        centrality(tmp_path / "e.parquet", tmp_path / "new", **more, **given)
        centrality(tmp_path / "e.parquet", tmp_path / f"whole{night}", **given)
        pd.testing.assert_frame_equal(
            values(tmp_path / "new", "nodes"), values(tmp_path / f"whole{night}", "nodes")
        )
        shutil.rmtree(base, ignore_errors=True)
        (tmp_path / "new").rename(base)


def test_pagerank_of_one_graph_starts_from_that_of_its_base(tmp_path):
    random = np.random.default_rng(0)
    ends = random.integers(0, 800, (2, 6000)) ** 2 // 800
    new = np.array([[900, 3], [4, 901]])
    for day, edges in enumerate((ends, np.concatenate([ends[:, 20:], new], axis=1))):
        named = pd.DataFrame({"src": edges[0], "dst": edges[1]}).map(lambda n: f"n{n}")
        named.to_parquet(tmp_path / f"{day}.parquet")
        base = tmp_path / "g0" if day else None
        etl(tmp_path / f"{day}.parquet", tmp_path / f"g{day}", directed=True, base=base)
    given = {"metrics": "pagerank,component", "tol": 1e-7}
    centrality(tmp_path / "g0", tmp_path / "c0", **given)
    whole = centrality(tmp_path / "g1", tmp_path / "whole", **given)
    centrality(tmp_path / "g1", tmp_path / "c1", base=tmp_path / "c0", **given)
    found, wanted = (values(tmp_path / out, "nodes") for out in ("c1", "whole"))
    pd.testing.assert_frame_equal(found.drop(columns="pagerank"), wanted.drop(columns="pagerank"))
    # Each is nearer to the limit than alpha / (1 - alpha) times the last change: tol per node.
    apart = np.abs(found.pagerank - wanted.pagerank).sum()
    assert apart < 2 * 0.85 / 0.15 * 1e-7 * whole.nodes
    few = {**given, "max_iter": 4}
    assert centrality(tmp_path / "g1", tmp_path / "few", **few).failed == 1
    assert centrality(tmp_path / "g1", tmp_path / "c2", base=tmp_path / "c1", **few).failed == 0


def test_one_graph_is_no_base_of_several(tmp_path):
    edges(1, range(5)).to_parquet(tmp_path / "e.parquet")
    etl(tmp_path / "e.parquet", tmp_path / "one", source="source", target="target")
    centrality(tmp_path / "one", tmp_path / "c0", metrics="pagerank,component")
    with pytest.raises(BaseRefused):  # components do not begin with others
        centrality(tmp_path / "one", tmp_path / "c1", metrics="component", base=tmp_path / "c0")
    given = {"format": "zoo", "metrics": "pagerank", "base": tmp_path / "c0"}
    with pytest.raises(InputError):
        centrality(tmp_path / "e.parquet", tmp_path / "c1", **given)
