"""Pages move through queues as they would by a copy, whoever produces the commands.

The controller and the format are tried with the producer of naive/queues.py, and on a GPU with
the kernel's.
"""

import errno
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.naive.queues import Queues
from penstock.kernels.queue_rules import ALIGNMENT, Operation, Producer, QueueFormat, Status, tag
from penstock.workers.embed.storage.direct import open_direct
from penstock.workers.embed.storage.queue_controller import Controller

SMALL = QueueFormat(entries=4, page_bytes=8192)


@dataclass(frozen=True)
class Side:
    """Who produces: the host, or a kernel."""

    name: str

    def queues(self, count, form):
        module = import_module(f"penstock.kernels.{self.name}.queues")
        return module.Queues(count, form)

    def put(self, data):
        if self.name == "naive":
            return data
        import cupy

        return cupy.asarray(data)

    def get(self, data):
        return data.get() if hasattr(data, "get") else data


@pytest.fixture(params=["naive", pytest.param("cuda", marks=pytest.mark.gpu)])
def side(request):
    return Side(request.param)


@contextmanager
def serving(made, path):
    path.touch()
    opened, _ = open_direct(path)
    try:
        with Controller(made.shared, [opened], threads=2) as controller:
            yield controller
    finally:
        os.close(opened)


def some_bytes(blocks, seed=0):
    return np.random.default_rng(seed).integers(0, 256, blocks * ALIGNMENT, np.uint8)


@pytest.mark.parametrize("producer", Producer)
@pytest.mark.parametrize("queues", [1, 3])
@pytest.mark.parametrize("blocks", [1, 2, 7, 8, 9, 67])
def test_write_then_read(side, tmp_path, queues, blocks, producer):
    path, data, offset = tmp_path / "pages", some_bytes(blocks, blocks), 3 * ALIGNMENT
    made = side.queues(queues, SMALL)
    pages = -(-data.size // SMALL.page_bytes)
    with serving(made, path) as controller:
        sent = made.transfer(Operation.WRITE, 0, offset, side.put(data), producer=producer)
        assert list(side.get(sent)) == [Status.DONE, pages]
        assert path.read_bytes()[offset:] == data.tobytes()
        back = side.put(np.full(data.size, 7, np.uint8))
        read = made.transfer(Operation.READ, 0, offset, back, producer=producer)
        assert list(side.get(read)) == [Status.DONE, pages]
        np.testing.assert_array_equal(side.get(back), data)
        assert controller.moved == 2 * data.size


def test_errors_of_the_system_come_back(side, tmp_path):
    (tmp_path / "short").write_bytes(bytes(ALIGNMENT))
    made = side.queues(1, SMALL)
    with serving(made, tmp_path / "short"):
        data = side.put(some_bytes(40))
        ends = made.transfer(Operation.READ, 0, 0, data)
        assert side.get(ends)[0] == errno.EIO  # the file ends before
    made = side.queues(1, SMALL)
    with serving(made, tmp_path / "short"):
        missing = made.transfer(Operation.READ, 5, 0, data)
        assert list(side.get(missing)) == [errno.EBADF, 0]


def test_no_transfer_waits_for_ever(side, tmp_path):
    made, data = side.queues(1, SMALL), side.put(some_bytes(2))
    silent = made.transfer(Operation.READ, 0, 0, data, patience=0.05)
    assert list(side.get(silent)) == [Status.TIMED_OUT, 0]
    made = side.queues(1, SMALL)
    Controller(made.shared).close()
    gone = made.transfer(Operation.READ, 0, 0, data)
    assert list(side.get(gone)) == [Status.STOPPED, 0]


def post_all(queue, count, order, start):
    """Complete ``count`` commands out of order, as a controller with several hands does."""
    for at, which in enumerate(order):
        number = start + at
        ticket = int(queue.commands[(start + which) % queue.form.entries]["ticket"])
        place = number % queue.form.entries
        queue.completions[place]["status"] = 0
        queue.tags[place] = tag(number, queue.form.entries) << 32 | ticket


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_completions_come_in_any_order(data):
    made, queue_form = Queues(1, SMALL), SMALL
    queue, rounds = made.shared.queues[0], 3

    def controller():
        for turn in range(rounds):
            start = turn * queue_form.entries
            while int(queue.submitted[0]) < start + queue_form.entries:
                time.sleep(1e-4)
            for i in range(queue_form.entries):
                queue.staging[i] = turn * queue_form.entries + i
            post_all(queue, queue_form.entries, orders[turn], start)

    places = st.permutations(range(queue_form.entries))
    orders = [data.draw(places) for _ in range(rounds)]
    thread = threading.Thread(target=controller)
    thread.start()
    got = np.zeros(rounds * queue_form.entries * queue_form.page_bytes, np.uint8)
    done = made.transfer(Operation.READ, 0, 0, got, patience=20)
    thread.join()
    assert list(done) == [Status.DONE, rounds * queue_form.entries]
    pages = np.arange(rounds * queue_form.entries)
    np.testing.assert_array_equal(got, np.repeat(pages, queue_form.page_bytes))
