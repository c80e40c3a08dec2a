"""A table on disk: what is read is what was written, or an error names the file."""

import errno
import fcntl
import os

import numpy as np
import pytest

from penstock.workers.embed.storage import PAGE, Geometry
from penstock.workers.embed.storage import direct as module
from penstock.workers.embed.storage.direct import PartitionFiles, new_slot, open_table
from penstock.workers.embed.storage.queue_files import QueueFiles

GEOMETRY = Geometry.of(6, 100, 100, 1)


@pytest.fixture(params=[PartitionFiles, QueueFiles])
def table(request, tmp_path):
    made = request.param(tmp_path, GEOMETRY)
    yield made
    made.close()


def a_slot(seed=0, geometry=GEOMETRY):
    """Return a slot of random values."""
    rng, found = np.random.default_rng(seed), new_slot(geometry)
    for array in found:
        array[:] = rng.random(array.shape, np.float32)
    return found


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("kind", [PartitionFiles, QueueFiles])
@pytest.mark.parametrize("states", [0, 1, 2])
def test_what_is_read_is_what_was_written(tmp_path, kind, states, monkeypatch):
    """Requests in flight together do not mix, nor do those of an exchange."""
    monkeypatch.setattr(module, "CHUNK", 3 * PAGE)
    geometry = Geometry.of(6, 100, 100, states)
    slots = [a_slot(seed, geometry) for seed in range(6)]
    table = kind(tmp_path, geometry, number=4)
    for future in [table.write(slot, p) for p, slot in enumerate(slots)]:
        assert future.result().bytes_written == geometry.bytes
    table.close()
    table = kind(tmp_path, geometry, [5] * 6, 5)
    found = [a_slot(99, geometry) for _ in slots]
    for future in [table.read(p, slot) for p, slot in enumerate(found)]:
        assert future.result().bytes_read == geometry.bytes
    assert all(map(same, found, slots))
    table.exchange(found[0], store=2, load=3).result()
    assert same(found[0], slots[3])
    table.read(2, found[0]).result()
    assert same(found[0], slots[0])
    table.close()


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
    table.write(slot, 1).result()
    table.read(1, found).result()
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
    on_device = tuple(cupy.asarray(array) for array in slot)
    table.write(on_device, 0).result()
    for array in on_device:
        array[:] = 0
    table.exchange(on_device, store=1, load=0).result()
    assert same([array.get() for array in on_device], slot)
    table.close()
    plain = PartitionFiles(tmp_path, GEOMETRY, [1] * 6)
    found = a_slot(7)
    plain.read(0, found).result()
    assert same(found, slot)
    plain.close()
