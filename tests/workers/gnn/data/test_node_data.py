"""Features, labels and splits of a rank's nodes, and what is said of those that will not do."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from penstock.errors import UsageError
from penstock.workers.gnn.data.local import open_local

# -- bad input -------------------------------------------------------------------------------------

NAN = np.arange(12.0).reshape(6, 2)
NAN[4, 1] = np.nan

BAD = {  # what the error names
    "nan": ({"features": NAN}, "'n4'"),
    "sparse nan": ({"features": sp.csr_matrix(NAN)}, "'n4'"),
    "outside": ({"label": np.array([0, 1, 0, 2, 0, 1], np.int32)}, "'n3'"),
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
}


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_trained_on(ring, partitioned, on_threads, case, k):
    columns, named = BAD[case]
    graph = ring(**columns)
    where = graph.path, partitioned(graph, k) if k > 1 else None
    with pytest.raises(UsageError, match=named):
        on_threads(k, lambda comm: open_local(comm, *where, weighted=False).__enter__())
