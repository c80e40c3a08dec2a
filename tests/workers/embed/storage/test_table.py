"""A table on disk: what is read is what was written, or an error says file and offset."""

import errno
import fcntl
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptFile, MissingFile, TruncatedFile
from penstock.workers.embed.storage import PAGE, Geometry, Version
from penstock.workers.embed.storage import direct as module
from penstock.workers.embed.storage.direct import PartitionFiles, aligned_bytes
from penstock.workers.embed.storage.place import chunks

GEOMETRY = Geometry.of(3, 100, 100, 1)


@pytest.fixture
def table(tmp_path):
    made = PartitionFiles(tmp_path, GEOMETRY)
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


@given(st.integers(1, 10**7), st.integers(1, 3000), st.integers(0, 2))
def test_files_are_whole_pages_and_chunks_are_all_of_a_file(rows, width, states):
    geometry = Geometry.of(5, rows, width, states)
    assert geometry.rows >= rows
    assert (geometry.rows - rows) * width * 4 < PAGE * width * 4
    assert geometry.array_bytes % PAGE == 0
    at = PAGE
    for number, chunk in enumerate(chunks(geometry)):
        assert (chunk.number, chunk.offset) == (number, at)
        assert chunk.offset % PAGE == 0
        at += chunk.stop - chunk.start
    assert at == geometry.file_bytes
    assert number < 480


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("direct", [True, False])
def test_what_is_read_is_what_was_written(tmp_path, aligned, direct, monkeypatch):
    monkeypatch.setattr("penstock.workers.embed.storage._CHUNK", 3 * PAGE)
    table = PartitionFiles(tmp_path, GEOMETRY, direct=direct)
    assert len(table.chunks) > 10
    slots = [a_slot(seed=seed, aligned=aligned) for seed in range(3)]
    versions = [Version(p, 5) for p in range(3)]
    for future in [table.write(s, v) for s, v in zip(slots, versions, strict=True)]:
        moved = future.result()
        assert moved.bytes_written == GEOMETRY.file_bytes
        assert moved.ended >= moved.started
    table.close()
    table = PartitionFiles(tmp_path, GEOMETRY, direct=direct)
    for slot, version in zip(slots, versions, strict=True):
        found = a_slot(seed=99, aligned=aligned)
        assert table.read(version, found).result().bytes_read == GEOMETRY.file_bytes
        assert same(found, slot)
    table.close()


def test_an_exchange_writes_one_and_reads_another(table):
    first, second = a_slot(seed=1), a_slot(seed=2)
    table.write(second, Version(1, 4)).result()
    memory = [array.copy() for array in first]
    moved = table.exchange(memory, store=Version(0, 9), load=Version(1, 4)).result()
    assert moved.bytes_read == moved.bytes_written == GEOMETRY.file_bytes
    assert same(memory, second)
    table.read(Version(0, 9), memory).result()
    assert same(memory, first)


def test_another_version_than_the_page_says_is_refused(tmp_path, table):
    slot = a_slot()
    with pytest.raises(MissingFile):
        table.read(Version(0, 1), slot).result()
    table.write(slot, Version(0, 7)).result()
    (tmp_path / Version(0, 7).name).rename(tmp_path / Version(0, 8).name)
    with pytest.raises(CorruptFile):
        table.read(Version(0, 8), slot).result()


@pytest.mark.parametrize("what", ["bit", "page", "older page", "first page"])
def test_a_torn_file_is_found_by_its_sums(table, what):
    slot, version, at = a_slot(), Version(2, 4), 3 * PAGE
    table.write(a_slot(seed=5), version).result()
    older = table.path(version).read_bytes()[at : at + PAGE]
    table.write(slot, version).result()
    table.read(version, slot).result()
    with table.path(version).open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(40 if what == "first page" else at)
        changed = {"bit": bytes([byte[0] ^ 4]), "page": bytes(PAGE), "older page": older}
        file.write(changed.get(what, b"\xff"))
    with pytest.raises(CorruptFile) as error:
        table.read(version, slot).result()
    assert version.name in str(error.value)


def test_another_geometry_is_said(tmp_path):
    one, two = (
        PartitionFiles(tmp_path, Geometry.of(2, rows, 4096 // rows, 1)) for rows in (1024, 512)
    )
    one.write(a_slot(one.geometry), Version(0, 1)).result()
    with pytest.raises(CorruptFile):
        two.read(Version(0, 1), a_slot(two.geometry)).result()
    one.close()
    two.close()


def test_the_space_of_a_file_is_taken_when_it_is_made(table):
    table.write(a_slot(), Version(0, 1)).result()
    assert table.path(Version(0, 1)).stat().st_blocks * 512 >= GEOMETRY.file_bytes


def test_a_file_that_was_cut_off_says_so(table):
    table.write(a_slot(), Version(2, 1)).result()
    os.truncate(table.path(Version(2, 1)), GEOMETRY.file_bytes - PAGE)
    for does in (table.read(Version(2, 1), a_slot()).result, lambda: table.check([Version(2, 1)])):
        with pytest.raises(TruncatedFile):
            does()


@pytest.mark.parametrize("other_disk", [False, True])
def test_a_version_is_on_scratch_until_it_is_published(tmp_path, monkeypatch, other_disk):
    """Moved, or copied to another disk; what is published is not written again."""

    def refused(*paths):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    if other_disk:
        whole = module.Path.replace
        monkeypatch.setattr(
            module.Path, "replace",
            lambda here, to: refused() if here.parent != to.parent else whole(here, to),
        )  # fmt: skip
    folder, scratch = tmp_path / "run", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    table, first, second = (
        PartitionFiles(folder, GEOMETRY, scratch=scratch),
        a_slot(),
        a_slot(seed=1),
    )
    found = a_slot(seed=2)
    table.write(second, Version(0, 1)).result()
    table.write(first, Version(0, 1)).result()
    assert [path.name for path in scratch.iterdir()] == [Version(0, 1).name]
    assert not [*folder.iterdir()]
    table.publish([Version(0, 1)])
    assert [path.name for path in folder.iterdir()] == [Version(0, 1).name]
    assert len([*scratch.iterdir()]) == other_disk
    table.read(Version(0, 1), found).result()
    assert same(found, first)
    table.write(second, Version(0, 2)).result()
    assert [path.name for path in scratch.iterdir()] == [Version(0, 2).name]
    table.read(Version(0, 1), found).result()
    assert same(found, first)
    table.forget(0)
    assert not [*scratch.iterdir()]
    table.close()


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
    table = PartitionFiles(tmp_path, GEOMETRY)
    slot, found = a_slot(), a_slot(seed=3)
    table.write(slot, Version(1, 1)).result()
    table.read(Version(1, 1), found).result()
    assert same(slot, found)
    table.close()


def _is_direct(fd):
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


def test_requests_in_flight_together_do_not_mix(table):
    slots = [a_slot(seed=seed) for seed in range(3)]
    for number in range(1, 6):
        writes = [table.write(slot, Version(p, number)) for p, slot in enumerate(slots)]
        for write in writes:
            write.result()
        found = [a_slot(seed=9) for _ in slots]
        reads = [table.read(Version(p, number), slot) for p, slot in enumerate(found)]
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
        from penstock.workers.embed.storage.gpu import KvikioFiles as Kind
    else:
        Kind = PartitionFiles  # noqa: N806
    table = Kind(tmp_path, GEOMETRY, device=True)
    slot = a_slot()
    on_device = [cupy.asarray(array) for array in slot]
    table.write(on_device, Version(0, 1)).result()
    for array in on_device:
        array[:] = 0
    table.exchange(on_device, store=Version(1, 1), load=Version(0, 1)).result()
    assert same([array.get() for array in on_device], slot)
    table.close()
    plain = PartitionFiles(tmp_path, GEOMETRY)
    found = a_slot(seed=7)
    plain.read(Version(0, 1), found).result()
    assert same(found, slot)
    plain.close()
