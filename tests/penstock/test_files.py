import errno
import hashlib
import json
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import CapacityError, OutputExists
from penstock.files import (
    append_text,
    atomic,
    file_entry,
    fresh_directory,
    refuse_existing,
    save_json,
    save_npy,
    sha256_of,
)
from penstock.output_lock import output_lock


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


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")

    def fail():
        with atomic(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    with atomic(tmp_path / "a") as one, atomic(tmp_path / "a") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a").read_text() == "one"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_so(tmp_path, code):
    def fail(block):
        with block as place:
            raise OSError(code, "no room", str(place))

    with pytest.raises(CapacityError, match=r"the disk is full: could not write .*a\."):
        fail(atomic(tmp_path / "a"))
    with pytest.raises(CapacityError, match="the disk is full"):
        fail(fresh_directory(tmp_path / "g"))
    with pytest.raises(PermissionError), atomic(tmp_path / "a"):
        raise PermissionError(errno.EACCES, "no")
    assert os.listdir(tmp_path) == []


def test_json_is_strict(tmp_path):
    save_json(tmp_path / "a.json", {"a": [1, "ä"]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": [1, "ä"]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_json(tmp_path / "a.json", float("nan"))
    assert os.listdir(tmp_path) == ["a.json"]


# -- directories --------------------------------------------------------------------------------


def fill(path, text, *, overwrite=False, fail=False):
    with fresh_directory(path, overwrite=overwrite) as root:
        assert not path.exists() or overwrite
        (root / "graph.json").write_text(json.dumps({"text": text}))
        if fail:
            raise RuntimeError("midway")


def test_a_directory_appears_when_it_is_whole(tmp_path):
    fill(tmp_path / "g", "new")
    assert json.loads((tmp_path / "g/graph.json").read_text())["text"] == "new"
    assert os.listdir(tmp_path) == ["g"]


def test_a_failure_midway_leaves_nothing_and_harms_nothing(tmp_path):
    with pytest.raises(RuntimeError):
        fill(tmp_path / "g", "half", fail=True)
    assert os.listdir(tmp_path) == []
    fill(tmp_path / "g", "old")
    with pytest.raises(RuntimeError):
        fill(tmp_path / "g", "half", overwrite=True, fail=True)
    assert json.loads((tmp_path / "g/graph.json").read_text())["text"] == "old"
    assert os.listdir(tmp_path) == ["g"]


def test_a_graph_is_replaced_only_when_asked(tmp_path):
    fill(tmp_path / "g", "old")
    with pytest.raises(OutputExists, match="--overwrite"):
        fill(tmp_path / "g", "new")
    fill(tmp_path / "g", "new", overwrite=True)
    assert json.loads((tmp_path / "g/graph.json").read_text())["text"] == "new"


def test_what_is_no_graph_is_never_replaced(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").touch()
    (tmp_path / "file").touch()
    for name in ("photos", "file"):
        with pytest.raises(OutputExists, match="not a graph"):
            fill(tmp_path / name, "new", overwrite=True)
    assert (tmp_path / "photos/a.jpg").exists()


def test_an_empty_directory_is_free(tmp_path):
    (tmp_path / "g").mkdir()
    refuse_existing(tmp_path / "g", overwrite=False)
    with fresh_directory(tmp_path / "g") as root:
        (root / "graph.json").write_text(json.dumps({"text": "new"}))
    assert (tmp_path / "g/graph.json").exists()


def test_the_directory_stands_where_a_link_leads(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    (tmp_path / "g").symlink_to(tmp_path / "disk/g")
    fill(tmp_path / "g", "new")
    assert (tmp_path / "g").is_symlink()
    assert json.loads((tmp_path / "disk/g/graph.json").read_text())["text"] == "new"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with fresh_directory(type(tmp_path)(".")) as root:
        (root / "graph.json").write_text(json.dumps({"text": "dot"}))
    assert json.loads((tmp_path / "here/graph.json").read_text())["text"] == "dot"


def test_a_line_that_does_not_fit_on_the_disk_is_not_there_in_part(tmp_path):
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


def test_a_lock_that_cannot_be_made_is_not_waited_for():
    with pytest.raises(FileNotFoundError), output_lock(Path("/proc/x")):
        pass
