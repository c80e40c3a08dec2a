import numpy as np
import pyarrow as pa
import pytest

from penstock.arrow import as_arrow, as_numpy

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64"]


@pytest.mark.parametrize("kind", [*TYPES, "bool", "<M8[s]"])
@pytest.mark.parametrize("size", [0, 1, 9, 20])
def test_an_array_becomes_what_arrow_makes_of_it(kind, size):
    values = np.arange(size).astype(kind)
    for array in (values, values[::2], values[::-1]):
        assert as_arrow(array).equals(pa.array(array))
        missing = np.arange(len(array)) % 3 == 1
        found = as_arrow(array, missing)
        found.validate(full=True)
        assert found.equals(pa.array(array, mask=missing))


@pytest.mark.parametrize("kind", [*TYPES, "bool"])
def test_a_column_becomes_what_numpy_makes_of_it(kind):
    whole = pa.array(np.arange(30) % 2 == 0 if kind == "bool" else np.arange(30).astype(kind))
    gaps = pa.array(whole.to_pylist(), mask=np.arange(30) % 4 == 0, type=whole.type)
    for column in (whole, whole[3:17], whole[:0], pa.chunked_array([whole[3:9], whole[11:12]])):
        np.testing.assert_array_equal(as_numpy(column), np.asarray(column), strict=True)
    for column in (gaps, gaps[3:17], pa.chunked_array([gaps[3:9], whole[11:12]])):
        filled = np.asarray(column.fill_null(whole[1]))
        np.testing.assert_array_equal(as_numpy(column, whole[1].as_py()), filled, strict=True)
    texts = pa.array(["a", "b"])
    assert as_numpy(texts).tolist() == ["a", "b"]
    assert np.isnan(as_numpy(pa.array([None, 1.5]), np.nan)[0])
