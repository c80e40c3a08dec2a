"""Pieces that compute on a GPU at once: so many, each on a stream of its own, in bounded memory.

No GPU is needed: streams are counted.
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from penstock.pipelines.centrality.tasks import _Streams


@pytest.fixture
def made(monkeypatch):
    """Give the list of the streams that are made."""
    streams = []

    def stream(*, non_blocking):
        assert non_blocking  # else launches of all streams wait for those of the default one
        streams.append(nullcontext())
        return streams[-1]

    fake = SimpleNamespace(cuda=SimpleNamespace(Stream=stream))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return streams


def at_once(streams, pieces, size, most):
    """Return how many of so many pieces held a stream at the same time, at most."""
    counting, now, peak = threading.Lock(), 0, 0
    together = threading.Barrier(2)

    def piece(_):
        nonlocal now, peak
        with streams.hold(size, most):
            with counting:
                now += 1
                peak = max(peak, now)
            try:
                together.wait(0.2)  # for another one, if there may be another
            except threading.BrokenBarrierError:
                together.reset()
            with counting:
                now -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(piece, range(pieces)))
    return peak


def test_pieces_compute_at_once_on_streams_that_are_used_again(made):
    assert 2 <= at_once(_Streams(3), 12, size=1, most=100) <= 3
    assert 2 <= len(made) <= 3


def test_pieces_that_do_not_fit_together_wait_for_each_other(made):
    assert at_once(_Streams(3), 3, size=60, most=100) == 1
    assert len(made) == 1


def test_a_piece_that_fails_gives_its_stream_back(made):
    streams = _Streams(1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), streams.hold(1, 1):
            raise ZeroDivisionError
    assert len(made) == 1
