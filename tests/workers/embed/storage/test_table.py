"""A table on disk: what is read is what was written, or an error says file and offset."""

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


@pytest.fixture
def table(tmp_path):
    made = open_table(tmp_path / "nodes.table", GEOMETRY, device=False)
    yield made
    made.close()


def a_slot(geometry=GEOMETRY, seed=0, *, aligned=True):
    """Return a slot of random values; one that is not aligned begins 4 bytes after a page."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(geometry.arrays):
        memory = aligned_bytes(geometry.array_bytes + PAGE)[0 if aligned else 4 :]
        array = memory[: geometry.array_bytes].view(np.float32)
        array[:] = rng.random(len(array), np.float32)
        found.append(array.reshape(geometry.rows, geometry.width))
    return found


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("direct", [True, False])
def test_what_is_read_is_what_was_written(tmp_path, aligned, direct, monkeypatch):
    monkeypatch.setattr("penstock.workers.embed.storage._CHUNK", 3 * PAGE)
    table = DirectFile(tmp_path / "t", GEOMETRY, direct=direct)
    assert len(table._chunks) > 10
    slots = [a_slot(seed=seed, aligned=aligned) for seed in range(6)]
    versions = [Version(p, place, 5 + place) for p in range(3) for place in range(2)]
    for future in [table.write(s, v) for s, v in zip(slots, versions, strict=True)]:
        moved = future.result()
        assert moved.bytes_written == GEOMETRY.partition_bytes
        assert moved.ended >= moved.started
    table.close()
    table = DirectFile(tmp_path / "t", GEOMETRY, direct=direct)
    for slot, version in zip(slots, versions, strict=True):
        found = a_slot(seed=99, aligned=aligned)
        assert table.read(version, found).result().bytes_read == GEOMETRY.partition_bytes
        assert same(found, slot)
    table.close()


def test_an_exchange_writes_one_and_reads_another(table):
    first, second = a_slot(seed=1), a_slot(seed=2)
    table.write(second, Version(1, 0, 4)).result()
    memory = [array.copy() for array in first]
    moved = table.exchange(memory, store=Version(0, 1, 9), load=Version(1, 0, 4)).result()
    assert moved.bytes_read == moved.bytes_written == GEOMETRY.partition_bytes
    assert same(memory, second)
    table.read(Version(0, 1, 9), memory).result()
    assert same(memory, first)


def test_another_version_than_the_page_says_is_refused(table):
    slot = a_slot()
    with pytest.raises(CorruptFile):
        table.read(Version(0, 0, 1), slot).result()
    table.write(slot, Version(0, 0, 7)).result()
    with pytest.raises(CorruptFile):
        table.read(Version(0, 0, 8), slot).result()


@pytest.mark.parametrize("what", ["bit", "page", "older page"])
def test_a_torn_place_is_found_by_its_sums(table, what):
    slot = a_slot()
    table.write(a_slot(seed=5), Version(2, 1, 3)).result()
    at = table.offset(Version(2, 1, 3)) + PAGE + 2 * PAGE
    with table.path.open("rb") as file:
        file.seek(at)
        older = file.read(PAGE)
    table.write(slot, Version(2, 1, 4)).result()
    table.read(Version(2, 1, 4), slot).result()
    with table.path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        changed = {"bit": bytes([byte[0] ^ 4]), "page": bytes(PAGE), "older page": older}
        file.write(changed[what])
    with pytest.raises(CorruptFile) as error:
        table.read(Version(2, 1, 4), slot).result()
    assert "nodes.table" in str(error.value)


def test_a_damaged_page_is_found(table):
    slot = a_slot()
    table.write(slot, Version(0, 0, 1)).result()
    with table.path.open("r+b") as file:
        file.seek(table.offset(Version(0, 0, 1)) + 40)
        file.write(b"\xff")
    with pytest.raises(CorruptFile):
        table.read(Version(0, 0, 1), slot).result()


def test_the_space_of_a_table_is_taken_when_it_is_made(table):
    assert table.path.stat().st_blocks * 512 >= GEOMETRY.file_bytes


def test_a_table_that_is_only_read_is_neither_made_nor_written(tmp_path, table):
    with pytest.raises(MissingFile):
        open_table(tmp_path / "none", GEOMETRY, device=False, read_only=True)
    assert not (tmp_path / "none").exists()
    slot, found = a_slot(), a_slot(seed=1)
    table.write(slot, Version(0, 0, 1)).result()
    reader = open_table(table.path, GEOMETRY, device=False, read_only=True)
    reader.read(Version(0, 0, 1), found).result()
    assert same(slot, found)
    with pytest.raises(PenstockError):
        reader.write(slot, Version(0, 1, 2)).result()
    reader.close()
    os.truncate(table.path, GEOMETRY.file_bytes - 1)
    with pytest.raises(TruncatedFile):
        open_table(table.path, GEOMETRY, device=False, read_only=True)


def test_a_file_that_was_cut_off_says_where(table):
    table.write(a_slot(), Version(2, 1, 1)).result()
    os.truncate(table.path, GEOMETRY.file_bytes - PAGE)
    with pytest.raises(TruncatedFile):
        table.read(Version(2, 1, 1), a_slot()).result()


@pytest.mark.parametrize("where", ["open", "read"])
def test_a_file_system_without_o_direct_is_read_by_the_page_cache(tmp_path, monkeypatch, where):
    real = {"open": os.open, "read": os.preadv}

    def refusing_open(path, flags, *more):
        if where == "open" and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real["open"](path, flags, *more)

    def refusing_read(fd, buffers, offset):
        if where == "read" and _is_direct(fd):
            raise OSError(errno.EINVAL, "Invalid argument")
        return real["read"](fd, buffers, offset)

    monkeypatch.setattr(module.os, "open", refusing_open)
    monkeypatch.setattr(module.os, "preadv", refusing_read)
    table = DirectFile(tmp_path / "t", GEOMETRY)
    slot, found = a_slot(), a_slot(seed=3)
    table.write(slot, Version(1, 0, 1)).result()
    table.read(Version(1, 0, 1), found).result()
    assert same(slot, found)
    table.close()


def _is_direct(fd):
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


def test_requests_in_flight_together_do_not_mix(table):
    versions = [Version(p, place, 1) for p in range(3) for place in range(2)]
    slots = [a_slot(seed=seed) for seed in range(6)]
    for round_ in range(5):
        writes = [
            table.write(s, Version(v.partition, v.place, round_ + 1))
            for s, v in zip(slots, versions, strict=True)
        ]
        for write in writes:
            write.result()
        found = [a_slot(seed=9) for _ in slots]
        reads = [
            table.read(Version(v.partition, v.place, round_ + 1), s)
            for s, v in zip(found, versions, strict=True)
        ]
        for read in reads:
            read.result()
        assert all(same(a, b) for a, b in zip(slots, found, strict=True))
        slots = slots[1:] + slots[:1]


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
    found = a_slot(seed=7)
    plain.read(Version(0, 0, 1), found).result()
    assert same(found, slot)
    plain.close()
