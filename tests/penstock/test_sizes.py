import pytest

from penstock.errors import CapacityError, UsageError
from penstock.sizes import need_disk, need_memory, parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (1500, 1500),
        ("1500", 1500),
        ("1.5GB", 1_500_000_000),
        (" 3 kB ", 3000),
        ("512MiB", 512 << 20),
        ("1tib", 1 << 40),
        (".5k", 500),
    ],
)
def test_sizes_are_read(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", ".", "GB", "1.2.3", "-1", "1 PB", "1ib"])
def test_a_bad_size_is_refused(text):
    with pytest.raises(UsageError):
        parse_bytes(text)


def test_a_disk_that_is_too_small_is_refused(tmp_path):
    need_disk(tmp_path / "not" / "there" / "yet", 1, "it")
    with pytest.raises(CapacityError):
        need_disk(tmp_path / "not" / "there", 1 << 60, "the result")


def test_a_memory_that_is_too_small_is_refused():
    need_memory(1, "it", remedy="None")
    with pytest.raises(CapacityError):
        need_memory(2 * 10**9, "it", limit=10**9, remedy="Use less")
    with pytest.raises(CapacityError):
        need_memory(1 << 60, "it", remedy="Use less")
