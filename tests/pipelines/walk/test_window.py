"""The window in time of a walk: what bounds mean."""

from datetime import datetime

import numpy as np
import pytest
from graphs import write_graph

from penstock import CSR, Graph, etl, walk_array
from penstock.errors import UsageError

DAY = 86400 * 10**9
NOON = 20_777 * DAY + DAY // 2  # 2026-11-20


def chain(tmp_path, times, kind):
    """Return a path of nodes, whose edge n has the n-th time; ``kind`` is the kind in
    graph.json."""
    nodes = np.arange(len(times))
    csr = CSR.from_edges(nodes, nodes + 1, len(times) + 1, times=np.asarray(times))
    return write_graph(tmp_path / "g", csr, times=kind)


def taken(graph, **options):
    """Return which edges may be taken."""
    paths = walk_array(graph, length=2, **options)
    return [n for n, path in enumerate(paths[:-1].tolist()) if path[1] >= 0]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Graphs as etl makes them, by the kind of their times."""
    folder = tmp_path_factory.mktemp("tables")
    columns = {
        "dates": ["2026-11-20", "2026-11-21"],
        "whole": ["20261120", "20261121"],
        "floats": ["0.5", "1.5"],
    }
    made = {}
    for name, times in columns.items():
        rows = [f"{n},{n + 1},{time}\n" for n, time in enumerate(times)]
        (folder / f"{name}.csv").write_text("src,dst,t\n" + "".join(rows))
        made[name] = folder / name
        etl(folder / f"{name}.csv", made[name], time="t", directed=True)
    return made


def test_a_date_is_a_date_on_timestamps_and_a_number_on_numbers(tables):
    graphs = {name: Graph.open(path) for name, path in tables.items()}
    kinds = {name: graph.manifest.times for name, graph in graphs.items()}
    assert kinds == {"dates": "timestamp", "whole": "number", "floats": "number"}
    for text in ("20261121", "2026-11-21", "2026-11-21T01:00:00+01:00"):
        assert taken(graphs["dates"], since=text) == [1]
        assert taken(graphs["dates"], until=text) == [0]
    assert taken(graphs["whole"], until="20261121") == [0]
    assert taken(graphs["floats"], since="1") == [1]
    for bad in ("2026", "5", 1_700_000_000_000_000_000):
        with pytest.raises(UsageError):
            walk_array(graphs["dates"], until=bad)
    for name in ("whole", "floats"):
        with pytest.raises(UsageError):
            walk_array(graphs[name], since="2026-11-21")


def test_bounds_are_exact_and_may_be_numbers_or_dates(tmp_path):
    graph = chain(tmp_path / "stamps", NOON + np.arange(4), "timestamp")
    noon = "2026-11-20T12:00:00"
    assert taken(graph, since=f"{noon}.000000002") == [2, 3]
    assert taken(graph, until=np.datetime64(f"{noon}.000000001")) == [0]
    assert taken(graph, since=datetime(2026, 11, 20, 12)) == [0, 1, 2, 3]  # as UTC
    most = 2**63 - 1
    graph = chain(tmp_path / "whole", [-most - 1, 0, 2, most], "number")
    assert taken(graph, since=2) == [2, 3]
    assert taken(graph, since="0.5", until="2.5") == [2]
    assert taken(graph, since=-(2**70), until=2**70) == [0, 1, 2, 3]
    with pytest.raises(UsageError):
        walk_array(graph, since=2**63)
    assert taken(chain(tmp_path / "floats", [0.1, 0.2], "number"), until=0.2) == [0]
