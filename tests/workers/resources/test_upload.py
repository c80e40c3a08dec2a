"""Mapped arrays are read into a GPU's memory by several threads."""

import numpy as np
import pytest

from penstock.workers.resources import upload


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_what_is_uploaded_is_what_was_mapped(tmp_path, dtype):
    import cupy as cp

    random = np.random.default_rng(0)
    into = cp.full(11_000_003, -1, dtype)
    first, pairs = 0, []
    for number, count in enumerate((5_000_000, 0, 1, 6_000_000)):
        np.save(tmp_path / f"{number}.npy", random.integers(0, 2**31, count).astype(dtype))
        mapped = np.load(tmp_path / f"{number}.npy", mmap_mode="r" if count else None)
        pairs.append((mapped, into[first : first + count]))
        first += count
    upload.upload(iter(pairs))
    found = into.get()
    np.testing.assert_array_equal(found[:first], np.concatenate([host for host, _ in pairs]))
    assert (found[first:] == -1).all()
