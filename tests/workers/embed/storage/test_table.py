"""A table on disk: what is read is what was written, or an error names the file."""

import errno
import fcntl
import os

import numpy as np
import pytest

from penstock.errors import CorruptFile, MissingFile, PenstockError, TruncatedFile
from penstock.workers.embed.storage import PAGE, Geometry, Version, open_table
from penstock.workers.embed.storage import direct as module
from penstock.workers.embed.storage.direct import DirectFile, aligned_bytes

GEOMETRY = Geometry.of(3, 100, 100, 1)
VERSIONS = [Version(partition, place, 5 + place) for partition in range(3) for place in range(2)]


@pytest.fixture
def table(tmp_path):
    made = open_table(tmp_path / "nodes.table", GEOMETRY, device=False)
    yield made
    made.close()


def a_slot(seed=0, *, aligned=True):
    """Return a slot of random values; one that is not aligned begins 4 bytes after a page."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(GEOMETRY.arrays):
        memory = aligned_bytes(GEOMETRY.array_bytes + PAGE)[0 if aligned else 4 :]
        array = memory[: GEOMETRY.array_bytes].view(np.float32)
        array[:] = rng.random(len(array), np.float32)
        found.append(array.reshape(GEOMETRY.rows, GEOMETRY.width))
    return found


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("direct", [True, False])
def test_what_is_read_is_what_was_written(tmp_path, aligned, direct, monkeypatch):
    """Requests in flight together do not mix, nor do those of an exchange."""
    monkeypatch.setattr("penstock.workers.embed.storage.CHUNK", 3 * PAGE)
    slots = [a_slot(seed, aligned=aligned) for seed in range(6)]
    table = DirectFile(tmp_path / "t", GEOMETRY, direct=direct)
    for future in [table.write(s, v) for s, v in zip(slots, VERSIONS, strict=True)]:
        assert future.result().bytes_written == GEOMETRY.partition_bytes
    table.close()
    table = DirectFile(tmp_path / "t", GEOMETRY, direct=direct)
    found = [a_slot(99, aligned=aligned) for _ in VERSIONS]
    for future in [table.read(v, s) for v, s in zip(VERSIONS, found, strict=True)]:
        assert future.result().bytes_read == GEOMETRY.partition_bytes
    assert all(map(same, found, slots))
    table.exchange(found[0], store=Version(2, 0, 9), load=VERSIONS[3]).result()
    assert same(found[0], slots[3])
    table.read(Version(2, 0, 9), found[0]).result()
    assert same(found[0], slots[0])
    table.close()


def test_another_version_than_the_page_says_is_refused(table):
    with pytest.raises(CorruptFile):
        table.read(Version(0, 0, 1), a_slot()).result()
    table.write(a_slot(), Version(0, 0, 7)).result()
    with pytest.raises(CorruptFile):
        table.read(Version(0, 0, 8), a_slot()).result()


@pytest.mark.parametrize("what", ["bit", "page", "older page", "first page"])
def test_a_torn_place_is_found_by_its_sums(table, what):
    first, at = Version(2, 1, 3), table.offset(Version(2, 1, 3)) + 3 * PAGE
    table.write(a_slot(5), first).result()
    older = table.path.read_bytes()[at : at + PAGE]
    table.write(a_slot(), Version(2, 1, 4)).result()
    table.read(Version(2, 1, 4), a_slot()).result()
    at = table.offset(first) + 40 if what == "first page" else at
    byte = table.path.read_bytes()[at] ^ 4
    with table.path.open("r+b") as file:
        file.seek(at)
        file.write({"page": bytes(PAGE), "older page": older}.get(what, bytes([byte])))
    with pytest.raises(CorruptFile) as error:
        table.read(Version(2, 1, 4), a_slot()).result()
    assert "nodes.table" in str(error.value)


def test_a_table_that_is_only_read_is_neither_made_nor_written(tmp_path, table):
    assert table.path.stat().st_blocks * 512 >= GEOMETRY.file_bytes  # its space is taken
    with pytest.raises(MissingFile):
        open_table(tmp_path / "none", GEOMETRY, device=False, read_only=True)
    assert not (tmp_path / "none").exists()
    slot, found = a_slot(), a_slot(1)
    table.write(slot, Version(0, 0, 1)).result()
    reader = open_table(table.path, GEOMETRY, device=False, read_only=True)
    reader.read(Version(0, 0, 1), found).result()
    assert same(slot, found)
    with pytest.raises(PenstockError):
        reader.write(slot, Version(0, 1, 2)).result()
    reader.close()


def test_a_file_that_was_cut_off_is_refused(table):
    table.write(a_slot(), Version(2, 1, 1)).result()
    os.truncate(table.path, GEOMETRY.file_bytes - PAGE)
    with pytest.raises(TruncatedFile):
        table.read(Version(2, 1, 1), a_slot()).result()
    with pytest.raises(TruncatedFile):
        open_table(table.path, GEOMETRY, device=False, read_only=True)


@pytest.mark.parametrize("where", ["open", "read"])
def test_a_file_system_without_o_direct_is_read_by_the_page_cache(tmp_path, monkeypatch, where):
    real = {"open": os.open, "read": os.preadv}

    def refusing_open(path, flags, *more):
        if where == "open" and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real["open"](path, flags, *more)

    def refusing_read(fd, buffers, offset):
        if where == "read" and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real["read"](fd, buffers, offset)

    monkeypatch.setattr(module.os, "open", refusing_open)
    monkeypatch.setattr(module.os, "preadv", refusing_read)
    table = DirectFile(tmp_path / "t", GEOMETRY)
    slot, found = a_slot(), a_slot(3)
    table.write(slot, Version(1, 0, 1)).result()
    table.read(Version(1, 0, 1), found).result()
    assert same(slot, found)
    table.close()


@pytest.mark.gpu
@pytest.mark.parametrize("by_kvikio", [False, True])
def test_a_table_of_a_gpu_is_that_of_the_host(tmp_path, by_kvikio):
    import cupy

    if by_kvikio:
        pytest.importorskip("kvikio")
        from penstock.workers.embed.storage.gpu import KvikioFile as Kind
    else:
        Kind = DirectFile  # noqa: N806
    table = Kind(tmp_path / "t", GEOMETRY, device=True)
    slot = a_slot()
    on_device = [cupy.asarray(array) for array in slot]
    table.write(on_device, Version(0, 0, 1)).result()
    for array in on_device:
        array[:] = 0
    table.exchange(on_device, store=Version(1, 0, 1), load=Version(0, 0, 1)).result()
    assert same([array.get() for array in on_device], slot)
    table.close()
    plain = DirectFile(tmp_path / "t", GEOMETRY)
    found = a_slot(7)
    plain.read(Version(0, 0, 1), found).result()
    assert same(found, slot)
    plain.close()
