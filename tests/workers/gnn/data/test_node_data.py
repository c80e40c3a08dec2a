"""Features, labels and splits of a rank's nodes, and what is said of those that will not do."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from penstock.errors import GraphError, UsageError
from penstock.splits import SplitFile, save_split
from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.data.local import open_local


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("own", [False, True])
def test_a_split_from_a_file_takes_the_place_of_the_graphs(ring, opened, tmp_path, k, own):
    graph = ring(**({} if own else {"split": None}))
    splits = np.array([2, 0, -1, 1, 0, 0], np.int8)
    save_split(tmp_path / "split.parquet", graph, splits)
    for local in opened(graph, k, split=SplitFile(tmp_path / "split.parquet")):
        np.testing.assert_array_equal(local.splits, splits[local.ids[: local.owned]])
    save_split(tmp_path / "none.parquet", graph, np.full(6, 1, np.int8))
    with pytest.raises(UsageError):
        opened(graph, split=SplitFile(tmp_path / "none.parquet"))


# -- bad input -------------------------------------------------------------------------------------

NAN, LARGE = np.arange(12.0).reshape(6, 2), np.arange(12.0).reshape(6, 2)
NAN[4, 1], LARGE[2, 0] = np.nan, 1e300

BAD = {  # what the error names
    "no features": ({"features": None}, "features"),
    "nan": ({"features": NAN}, "'n4'"),
    "too large": ({"features": LARGE}, "'n2'"),
    "sparse nan": ({"features": sp.csr_matrix(NAN)}, "'n4'"),
    "no labels": ({"labels": None, "label": None}, "labels"),
    "no splits": ({"split": None}, "splits"),
    "outside": ({"label": np.array([0, 1, 0, 2, 0, 1], np.int32)}, "'n3'"),
    "negative": ({"label": np.array([0, 1, 0, 1, 0, -2], np.int32), "classes": None}, "'n5'"),
    "several, outside": (
        {
            "labels": "multi",
            "label": pa.array([[0], [], [1, 0], [0, 3], None, []], pa.list_(pa.int32())),
        },
        "'n3'",
    ),
    "infinite value": (
        {"labels": "value", "classes": None, "label": pa.array([0, 1, np.inf, 0, 0, 0.0])},
        "'n2'",
    ),
    "nothing to train on": ({"split": np.array([1, 1, 2, 1, 1, 2], np.int8)}, "train"),
    "no label to train on": ({"label": pa.array([None, 1, 1, None, 0, 1], pa.int32())}, "train"),
}


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_trained_on(ring, opened, case, k):
    columns, named = BAD[case]
    graph = ring(**columns)
    with pytest.raises(UsageError) as error:
        opened(graph, k)
    assert named in str(error.value)


def test_a_partition_of_another_graph(ring, partitioned):
    partition = partitioned(ring(), 1)
    other = ring("other", ids=list("abcdef"))
    with pytest.raises(GraphError), open_local(SingleRank(), other.path, partition, weighted=False):
        pass
