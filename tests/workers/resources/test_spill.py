"""What is done about a GPU's memory and cores, with dask-cuda and without."""

import pytest

from penstock.workers.resources.spill import spill_data


@pytest.mark.gpu
def test_dask_cuda_takes_what_it_is_given(tmp_path):
    pytest.importorskip("dask_cuda", reason="needs dask-cuda")
    data = spill_data("1GB", 2000)
    store = data[0](str(tmp_path), **data[1])
    for number in range(4):
        store[number] = bytes(900)
    assert [len(store[number]) for number in range(4)] == [900] * 4
    assert list(tmp_path.rglob("*"))  # what exceeds 2,000 bytes lies on disk
