"""Measuring a disk: it measures something, as dd does, and leaves nothing."""

import pytest

from penstock.errors import CapacityError, PenstockError
from penstock.workers.embed.storage import bandwidth


def test_a_disk_is_measured_and_left_as_it_was(tmp_path):
    found = bandwidth.measure(tmp_path, 8 << 20, threads=2)
    for rate in (found.read, found.write, found.exchange):
        assert 1e5 < rate < 1e12
    assert not list(tmp_path.iterdir())


def test_dd_is_read_right(tmp_path):
    try:
        found = bandwidth.measure_dd(tmp_path, 8 << 20)
    except PenstockError as error:
        pytest.skip(str(error))
    assert 1e5 < found.read < 1e12
    assert 1e5 < found.write < 1e12
    assert not list(tmp_path.iterdir())


def test_fio_is_read_right(tmp_path):
    try:
        found = bandwidth.measure_fio(tmp_path, 8 << 20)
    except PenstockError as error:
        pytest.skip(str(error))
    for rate in (found.read, found.write, found.exchange):
        assert 1e5 < rate < 1e12
    assert not list(tmp_path.iterdir())


FIO = """#!/bin/sh
echo 'fio: a note before the JSON'
echo '{"jobs": [{"job_runtime": 500, "read": {"io_bytes": 3000}, "write": {"io_bytes": 1000}}]}'
"""


@pytest.mark.parametrize(
    ("script", "rate"), [(FIO, 8000.0), ("#!/bin/sh\necho no libaio >&2", None)]
)
def test_what_fio_says_is_its_bytes_a_second(tmp_path, monkeypatch, script, rate):
    (tmp_path / "fio").write_text(script)
    (tmp_path / "fio").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if rate is None:
        with pytest.raises(PenstockError, match="fio could not measure the disk. Got no libaio"):
            bandwidth.measure_fio(tmp_path, 1 << 20, block=1 << 16)
    else:
        assert bandwidth.measure_fio(tmp_path, 1 << 20, block=1 << 16).exchange == rate


@pytest.mark.gpu
def test_a_disk_is_measured_from_a_gpu(tmp_path):
    found = bandwidth.measure(tmp_path, 8 << 20, threads=2, device=True)
    for rate in (found.read, found.write, found.exchange):
        assert 1e5 < rate < 1e12


def test_a_disk_without_room_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.sizes.free_disk", lambda folder: 10)
    with pytest.raises(CapacityError, match="a measurement of the disk"):
        bandwidth.measure(tmp_path)


def test_a_dd_that_fails_is_said(tmp_path):
    with pytest.raises(PenstockError, match="dd could not measure"):
        bandwidth._dd([f"if={tmp_path}/none", "of=/dev/null"])
