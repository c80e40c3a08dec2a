"""The folder of compiled kernels: one that only this user can write to, or none."""

import os

import pytest

from penstock import caches
from penstock.caches import cache_folder
from penstock.errors import PenstockWarning

NOWHERE = "/dev/null/no"  # not even root can make it


@pytest.fixture(autouse=True)
def shared(tmp_path, monkeypatch):
    """The only temporary folder that there is."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(caches, "SHARED", ())
    monkeypatch.setenv("TMPDIR", str(folder))
    for name in ("PENSTOCK_CACHE", "PENSTOCK_STATE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("CUPY_CACHE_DIR", "CUPY_CACHE_IN_MEMORY"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", NOWHERE)
    return folder


def test_the_first_that_can_be_written(tmp_path, shared, monkeypatch):
    own = shared / f"penstock-cache-{os.geteuid()}"
    assert cache_folder() == own
    assert own.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache/penstock"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg/penstock"
    monkeypatch.setenv("XDG_CACHE_HOME", NOWHERE)
    assert cache_folder() == own
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named"
    monkeypatch.setenv("PENSTOCK_CACHE", NOWHERE)
    with pytest.warns(PenstockWarning, match=f"PENSTOCK_CACHE={NOWHERE}"):
        assert cache_folder() == own
    monkeypatch.delenv("PENSTOCK_CACHE")
    monkeypatch.setenv("TMPDIR", NOWHERE)
    assert cache_folder() is None


@pytest.mark.parametrize("trap", ["link", "readable", "writable", "file"])
def test_a_folder_of_another_user_is_not_used(tmp_path, shared, trap):
    own, theirs = shared / f"penstock-cache-{os.geteuid()}", tmp_path / "theirs"
    if trap == "link":
        theirs.mkdir(mode=0o700)
        own.symlink_to(theirs)
    elif trap == "file":
        own.touch()
    else:
        own.mkdir()
        own.chmod(0o755 if trap == "readable" else 0o777)
    assert cache_folder() is None
    assert trap != "link" or not list(theirs.iterdir())
