from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import sizes
from penstock.errors import CapacityError, UsageError
from penstock.sizes import (
    available_memory,
    format_bytes,
    format_count,
    need_disk,
    need_memory,
    parse_bytes,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (1500, 1500),
        ("1500", 1500),
        ("1.5GB", 1_500_000_000),
        ("2g", 2 * 10**9),
        (" 3 kB ", 3000),
        ("512MiB", 512 << 20),
        ("1KiB", 1024),
        ("1tib", 1 << 40),
        (".5k", 500),
        ("2.", 2),
    ],
)
def test_sizes_are_read(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", ".", "GB", "1.2.3", "-1", "1 PB", "12 apples", "1ib", "i"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1_234_567, "1.23 MB"),
        (999_600, "1 MB"),
        (5e12, "5 TB"),
        (5e15, "5000 TB"),
    ],
)
def test_sizes_are_written(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(7, "7"), (2_400_000, "2.4 M"), (3e9, "3 G"), (1.2e13, "12000 G")]
)
def test_counts_are_written(count, text):
    assert format_count(count) == text


@given(st.integers(0, 10**16))
def test_what_is_written_reads_back_within_rounding(count):
    assert abs(parse_bytes(format_bytes(count)) - count) <= max(0.006 * count, 0.5)


def test_a_disk_that_is_too_small_is_refused(tmp_path):
    need_disk(tmp_path / "not" / "there" / "yet", 1, "it")
    with pytest.raises(CapacityError, match="the result does not fit on the disk"):
        need_disk(tmp_path / "not" / "there", 1 << 60, "the result")


def test_a_memory_that_is_too_small_is_refused():
    need_memory(1, "it", remedy="None")
    with pytest.raises(CapacityError, match=r"Expected about 2 GB, got 1 GB\. Use less"):
        need_memory(2 * 10**9, "it", limit=10**9, remedy="Use less")
    with pytest.raises(CapacityError):
        need_memory(1 << 60, "it", remedy="Use less")


def test_no_more_than_the_machine_has_is_available():
    assert 0 < available_memory() <= psutil.virtual_memory().total


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_control_group_of_version_2_limits(tmp_path):
    write(tmp_path / "proc/self/cgroup", "0::/batch/job\n")
    batch = tmp_path / "sys/fs/cgroup/batch"
    for folder, limit, used in ((batch, "1000", "400"), (batch / "job", "max", "300")):
        write(folder / "memory.max", limit)
        write(folder / "memory.current", used)
        write(folder / "memory.stat", "anon 5\ninactive_file 50\n")
    assert list(sizes._group_limits(tmp_path)) == [650]


def test_a_control_group_of_version_1_limits(tmp_path):
    write(tmp_path / "proc/self/cgroup", "9:cpu:/\n4:memory:/job\n0::/\n")
    job = tmp_path / "sys/fs/cgroup/memory/job"
    write(job / "memory.limit_in_bytes", "1000\n")
    write(job / "memory.usage_in_bytes", "1200\n")
    write(job / "memory.stat", "total_inactive_file 100\n")
    assert list(sizes._group_limits(tmp_path)) == [0]


def test_no_control_group_is_no_limit(tmp_path):
    assert list(sizes._group_limits(tmp_path)) == []
