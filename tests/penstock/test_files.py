import hashlib
import os
import resource

import numpy as np
import pytest

from penstock.files import append_text, atomic, file_entry, save_npy, sha256_of


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10, dtype=np.int32),
        np.arange(12.0).reshape(3, 4).T,
        np.zeros((0, 5), np.float32),
        np.array([True, False]),
        np.arange(4, dtype=">i4"),
        np.arange(20)[::3],
        np.arange(3 << 20, dtype=np.int32),  # hashed and written side by side
    ],
)
def test_an_array_reads_back_and_its_checksum_is_that_of_the_file(tmp_path, array):
    entry = save_npy(tmp_path, "deep/a.npy", array)
    path = tmp_path / "deep/a.npy"
    np.testing.assert_array_equal(np.load(path), array)
    assert np.load(path).dtype == array.dtype
    assert entry.sha256 == hashlib.sha256(path.read_bytes()).hexdigest() == sha256_of(path)
    assert entry.bytes == path.stat().st_size
    assert entry == file_entry(tmp_path, "deep/a.npy")
    np.save(tmp_path / "b.npy", np.ascontiguousarray(array))
    assert path.read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    with atomic(tmp_path / "a") as one, atomic(tmp_path / "a") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a").read_text() == "one"
    assert os.listdir(tmp_path) == ["a"]


def test_a_line_that_does_not_fit_on_the_disk_is_not_written_in_part(tmp_path):
    path = tmp_path / "lines"
    append_text(path, "one\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError):  # noqa: PT011
            append_text(path, "a longer line\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    append_text(path, "two\n")
    assert path.read_text() == "one\ntwo\n"
