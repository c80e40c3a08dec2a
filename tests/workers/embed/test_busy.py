"""Seconds of training are those of the kernels, on a GPU not those in which they are launched."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.workers.embed.busy import BusyTime


def test_on_a_host_its_clock_tells() -> None:
    busy, begun = BusyTime(), time.perf_counter()
    for _ in range(2):
        with busy.batch():
            time.sleep(0.02)
        time.sleep(0.1)
    busy.settle()
    assert 0.04 <= busy.seconds <= time.perf_counter() - begun - 0.2


class Stream:
    """A stream whose kernels run on after the host has launched them."""

    def __init__(self) -> None:
        self.end = self.synchronized = 0.0

    def launch(self, seconds: float) -> None:
        self.end += seconds


def test_on_a_gpu_events_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, made = Stream(), []

    class Event:
        def __init__(self) -> None:
            made.append(self)

        def record(self) -> None:
            self.at = stream.end

        def synchronize(self) -> None:
            stream.synchronized = max(stream.synchronized, self.at)

    def elapsed(begun: Any, ended: Any) -> float:
        assert stream.synchronized >= ended.at, "asked for before it was there"
        return 1e3 * (ended.at - begun.at)

    cuda = SimpleNamespace(Event=Event, get_elapsed_time=elapsed)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    busy = BusyTime(device=True)
    for _ in range(3):
        for _ in range(2):
            with busy.batch():
                stream.launch(5.0)  # the host has launched it at once
            stream.launch(1.0)  # what is no batch
        busy.settle()
    assert busy.seconds == pytest.approx(30.0)
    assert busy.exposed == 0
    assert len(made) == 5, "events are used again"

    def train(batches: int, keep: int = 0) -> None:
        for _ in range(batches):
            with busy.batch():
                stream.launch(5.0)
        busy.settle(keep)

    stream.launch(2.0)
    busy.swap()
    train(2)
    assert busy.exposed == pytest.approx(1.0 + 2.0)  # since the last batch, to the one after a swap
    stream.launch(7.0)  # no swap
    train(3, keep=2)
    assert stream.synchronized == pytest.approx(stream.end - 10), "two are not waited for"
    assert busy.seconds == pytest.approx(45.0)
    busy.settle()
    busy.pause()
    stream.launch(50.0)  # a checkpoint, before what a swap follows
    busy.swap()
    train(1)
    assert busy.exposed == pytest.approx(3.0)
    assert busy.seconds == pytest.approx(60.0)
