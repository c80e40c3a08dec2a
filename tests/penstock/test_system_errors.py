from __future__ import annotations

import errno
from pathlib import Path

import pytest

from penstock.errors import CapacityError, PenstockError
from penstock.files import atomic
from penstock.pipelines.cli import _as_ours
from penstock.pipelines.job.tasks import _as_user_sees
from penstock.system_errors import MORE_MEMORY, from_system, full_disk_explained


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_with_one_remedy_everywhere(tmp_path: Path, number: int) -> None:
    def full() -> OSError:
        return OSError(number, "no room", str(tmp_path / "a"))

    said = [from_system(full()), _as_ours(full()), _as_user_sees(full(), "read")]
    for block in (atomic, full_disk_explained):
        with pytest.raises(CapacityError) as raised, block(tmp_path / "a"):
            raise full()
        assert raised.value.got.endswith(" free")
        said.append(raised.value)
    assert {type(error) for error in said} == {CapacityError}
    assert len({error.remedy for error in said}) == 1
    assert [error.what for error in said if "in the step" not in error.what] == [
        f"the disk is full: could not write {tmp_path}/a"
    ] * 4


def test_a_file_that_may_not_become_as_large_is_named(tmp_path: Path) -> None:
    """By ulimit -f, or as its file system has no larger ones; such errors name no file."""
    with pytest.raises(CapacityError) as raised, atomic(tmp_path / "a"):
        raise OSError(errno.EFBIG, "File too large")
    assert raised.value.what == f"a file may not become as large: {tmp_path}/a"
    said = from_system(OSError(errno.EFBIG, "File too large", "b"))
    assert said is not None
    assert (said.what, said.remedy) == ("a file may not become as large: b", raised.value.remedy)


def test_too_many_open_files_are_said_with_the_limit() -> None:
    for error in (OSError(errno.EMFILE, "Too many"), OSError(errno.ENFILE, "Too many", "a")):
        said = from_system(error, " in the step 'train'")
        assert said is not None
        assert said.what == "too many files are open in the step 'train'"
        assert said.remedy is not None
        assert "ulimit -n" in said.remedy


def test_memory_that_runs_out_has_one_remedy() -> None:
    said = [from_system(MemoryError()), _as_ours(MemoryError())]
    said.append(_as_user_sees(MemoryError(), "read"))
    assert {(type(error), error.remedy) for error in said} == {(CapacityError, MORE_MEMORY)}
    assert said[2].what == "memory ran out in the step 'read'"


def test_a_path_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        (tmp_path / "none").open()
    for error in (from_system(raised.value), _as_ours(raised.value)):
        assert type(error) is PenstockError
        assert str(error).startswith(f"cannot use {tmp_path}/none. Got No such file or directory.")


def test_other_errors_are_left_as_they_are() -> None:
    for error in (ValueError("x"), OSError("a connection broke"), KeyError("y")):
        assert from_system(error) is None
        assert _as_user_sees(error, "read") is error
