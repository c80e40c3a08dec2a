"""Features, labels and splits of a rank's nodes, and what is said of those that will not do."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from penstock.errors import UsageError

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
