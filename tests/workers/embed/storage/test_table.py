"""A table on disk: what is read is what was written, or an error names the file."""

import errno
import fcntl
import os

import numpy as np
import pytest

from penstock.errors import CorruptFile, MissingFile, TruncatedFile
from penstock.workers.embed.storage import PAGE, Geometry, Version
from penstock.workers.embed.storage import direct as module
from penstock.workers.embed.storage.direct import PartitionFiles, aligned_bytes, open_table
from penstock.workers.embed.storage.queue_files import QueueFiles

GEOMETRY = Geometry.of(6, 100, 100, 1)
VERSIONS = [Version(partition, 5) for partition in range(6)]


@pytest.fixture(params=[PartitionFiles, QueueFiles])
def table(request, tmp_path):
    made = request.param(tmp_path, GEOMETRY)
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


@pytest.mark.parametrize(
    ("kind", "aligned", "direct"),
    [
        (PartitionFiles, True, True),
        (PartitionFiles, True, False),
        (PartitionFiles, False, True),
        (PartitionFiles, False, False),
        (QueueFiles, True, True),
        (QueueFiles, False, False),
    ],
)
def test_what_is_read_is_what_was_written(tmp_path, kind, aligned, direct, monkeypatch):
    """Requests in flight together do not mix, nor do those of an exchange."""
    monkeypatch.setattr("penstock.workers.embed.storage.CHUNK", 3 * PAGE)
    slots = [a_slot(seed, aligned=aligned) for seed in range(6)]
    table = kind(tmp_path, GEOMETRY, direct=direct)
    for future in [table.write(s, v) for s, v in zip(slots, VERSIONS, strict=True)]:
        assert future.result().bytes_written == GEOMETRY.file_bytes
    table.close()
    table = kind(tmp_path, GEOMETRY, direct=direct)
    found = [a_slot(99, aligned=aligned) for _ in VERSIONS]
    for future in [table.read(v, s) for v, s in zip(VERSIONS, found, strict=True)]:
        assert future.result().bytes_read == GEOMETRY.file_bytes
    assert all(map(same, found, slots))
    table.exchange(found[0], store=Version(2, 9), load=VERSIONS[3]).result()
    assert same(found[0], slots[3])
    table.read(Version(2, 9), found[0]).result()
    assert same(found[0], slots[0])
    table.close()


def test_another_version_than_the_page_says_is_refused(tmp_path, table):
    with pytest.raises(MissingFile):
        table.read(Version(0, 1), a_slot()).result()
    table.write(a_slot(), Version(0, 7)).result()
    (tmp_path / Version(0, 7).name).rename(tmp_path / Version(0, 8).name)
    with pytest.raises(CorruptFile):
        table.read(Version(0, 8), a_slot()).result()


@pytest.mark.parametrize("what", ["bit", "page", "older page", "first page"])
def test_a_torn_file_is_found_by_its_sums(table, what):
    version, at = Version(2, 4), 3 * PAGE
    table.write(a_slot(5), version).result()
    older = table.path(version).read_bytes()[at : at + PAGE]
    table.write(a_slot(), version).result()
    table.read(version, a_slot()).result()
    at = 40 if what == "first page" else at
    byte = table.path(version).read_bytes()[at] ^ 4
    with table.path(version).open("r+b") as file:
        file.seek(at)
        file.write({"page": bytes(PAGE), "older page": older}.get(what, bytes([byte])))
    with pytest.raises(CorruptFile) as error:
        table.read(version, a_slot()).result()
    assert version.name in str(error.value)


def test_a_file_that_was_cut_off_is_refused(table):
    version = Version(2, 1)
    table.write(a_slot(), version).result()
    assert table.path(version).stat().st_blocks * 512 >= GEOMETRY.file_bytes  # its space is taken
    os.truncate(table.path(version), GEOMETRY.file_bytes - PAGE)
    for read in (table.read(version, a_slot()).result, lambda: table.check([version])):
        with pytest.raises(TruncatedFile):
            read()


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
    table = PartitionFiles(tmp_path, GEOMETRY)
    slot, found = a_slot(), a_slot(3)
    table.write(slot, Version(1, 1)).result()
    table.read(Version(1, 1), found).result()
    assert same(slot, found)
    table.close()


@pytest.mark.gpu
@pytest.mark.parametrize("storage", ["threads", "kvikio", "queues"])
def test_a_table_of_a_gpu_is_that_of_the_host(tmp_path, storage):
    import cupy

    if storage == "kvikio":
        pytest.importorskip("kvikio")
    table = open_table(tmp_path, GEOMETRY, device=True, storage=storage)
    slot = a_slot()
    on_device = [cupy.asarray(array) for array in slot]
    table.write(on_device, Version(0, 1)).result()
    for array in on_device:
        array[:] = 0
    table.exchange(on_device, store=Version(1, 1), load=Version(0, 1)).result()
    assert same([array.get() for array in on_device], slot)
    table.close()
    plain = PartitionFiles(tmp_path, GEOMETRY)
    found = a_slot(7)
    plain.read(Version(0, 1), found).result()
    assert same(found, slot)
    plain.close()
