"""Every job with too little disk or memory: an error, nothing published; a second run finishes."""

import os

import pytest
from every_job import JOBS, again, call, cells, published, refused, results, words_of

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")


def fill(disk, leave):
    """Take the disk but for ``leave`` bytes; return the file that takes it."""
    found = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(found.f_bavail * found.f_frsize - leave))
    return filler


@root
@pytest.mark.parametrize("job", cells(JOBS))
def test_a_disk_that_fills_up_midway(job, given, mount, commands, whole):
    expected, count = whole(job)
    disk = mount("size=96m")
    home = disk / "home"
    home.mkdir()
    words = words_of(job, given, home / "out")
    code, said = commands.run(words, home, count // 3, "fill", disk / "filler")
    assert code == 1, said
    assert "Traceback" not in said
    assert "This is a bug" not in said
    assert not published(job, home / "out")
    (disk / "filler").unlink()
    call(again(job, words))
    assert results(home / "out") == expected
    assert os.listdir(home) == ["out"]


@root
@pytest.mark.parametrize("job", cells(JOBS, quick=("etl", "walk", "embed")))
def test_a_disk_that_is_too_small_or_read_only_is_found_before_the_work(job, given, mount):
    """Nothing is left."""
    disk = mount("size=8m")
    words = words_of(job, given, disk / "out")
    filler = fill(disk, 12288)
    refused(words, disk, codes=(1,))
    filler.unlink()
    mount("remount,ro")
    refused(words, disk, disk, codes=(1,))


@pytest.mark.parametrize("job", cells(JOBS))
def test_too_little_memory(job, given, commands, whole, tmp_path):
    """A limit of 50 MB, which Python alone exceeds. What takes hardly any memory may run."""
    expected, _ = whole(job)
    words = words_of(job, given, tmp_path / "out")
    code, said = commands.run(words, tmp_path, memory=50 << 20)
    assert "Traceback" not in said
    assert "This is a bug" not in said
    if code:
        assert code == 1, said
        assert not published(job, tmp_path / "out")
        call(again(job, words))
    assert results(tmp_path / "out") == expected
