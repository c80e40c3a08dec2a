import os
import signal
import time
from threading import Thread

import numpy as np
import pymetis
import pytest
from graphs import write_graph

from penstock.csr import CSR
from penstock.partition import metis
from penstock.partition.metis import MetisError, run_metis, shared_adjacency


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    edges = np.unique(np.random.default_rng(0).integers(0, 300, (2000, 2)), axis=0)
    csr, path = CSR.from_edges(*edges.T, 300), tmp_path_factory.mktemp("graphs") / "g"
    return write_graph(path, csr, shard_edges=400, directed=True)


@pytest.mark.parametrize("recursive", [False, True])
def test_another_process_gives_what_pymetis_gives_here(graph, recursive):
    with shared_adjacency(graph) as adjacency:
        parts, cut = run_metis(adjacency, 4, tolerance=1.03, recursive=recursive, seed=7)
        here = pymetis.part_graph(
            4,
            pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices),
            vweights=adjacency.weights,
            recursive=recursive,
            options=pymetis.Options(seed=7, ufactor=30, ctype=1, ncuts=8, niter=20),
        )
        sources = np.repeat(np.arange(300), np.diff(adjacency.indptr))
        assert cut == here.edge_cuts == np.sum(parts[sources] != parts[adjacency.indices]) // 2
    np.testing.assert_array_equal(parts, here.vertex_part)


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Give METIS' process another program, which notes its number first; return where."""

    def child(code):
        note = tmp_path / "pid"
        (tmp_path / "metis_child.py").write_text(
            f"import os, signal, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\n{code}\n"
        )
        monkeypatch.setattr(metis, "__file__", str(tmp_path / "metis.py"))
        return note

    return child


def run(graph, **more):
    with shared_adjacency(graph) as adjacency:
        run_metis(adjacency, 4, tolerance=1.03, recursive=False, seed=0, **more)


@pytest.mark.parametrize(
    ("way", "memory", "timeout"),
    [
        ("os.kill(os.getpid(), 9)", True, 30),
        ("os._exit(3)", False, 30),
        ("os.kill(os.getpid(), signal.SIGSTOP)", False, 2),
    ],
)
def test_a_process_that_dies_or_stops_is_a_failure_and_is_gone(graph, child, way, memory, timeout):
    note = child(way)
    with pytest.raises(MetisError) as caught:
        run(graph, timeout=timeout)
    assert caught.value.memory is memory
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


@pytest.mark.parametrize("late", [0.0, 1.0])
def test_a_sigterm_is_not_an_error_of_metis(graph, tmp_path, monkeypatch, late):
    """METIS took it for one, and returned its current parts: one of them owned everything.

    late  seconds after which the thread begins to wait for signals, as on a busy machine
    """
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, time\n"
        "wait = signal.sigwait\n"
        f"signal.sigwait = lambda numbers: (time.sleep({late}), wait(numbers))[1]\n"
    )
    (tmp_path / "pymetis.py").write_text(
        "import ctypes, os, signal, time\n"
        "from types import SimpleNamespace\n"
        "Options = CSRAdjacency = lambda *_, **__: None\n"
        "def part_graph(*_, vweights, **__):\n"
        "    ctypes.CDLL(None).signal(signal.SIGTERM, 1)\n"  # as METIS does: not its end
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(0.5)\n"
        "    return SimpleNamespace(vertex_part=[0] * len(vweights), edge_cuts=0)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(MetisError):
        run(graph)


def test_ctrl_c_ends_a_metis_that_would_run_on(graph, child):
    note = child("time.sleep(60)")

    def interrupt():
        while not note.exists() or not note.read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGALRM)

    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            run(graph)
    finally:
        signal.signal(signal.SIGALRM, previous)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
