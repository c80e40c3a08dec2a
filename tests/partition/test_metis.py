import gc
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pymetis
import pytest

from penstock import Graph
from penstock.csr import CSR
from penstock.partition import metis
from penstock.partition.metis import MetisError, run_metis, shared_adjacency
from penstock.writer import create_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "g"
    edges = np.unique(np.random.default_rng(0).integers(0, 300, (2000, 2)), axis=0)
    with create_graph(path) as writer:
        writer.edges(CSR.from_edges(edges[:, 0], edges[:, 1], 300), shard_edges=400)
        writer.nodes()
        writer.manifest = replace(writer.manifest, directed=True)
    return Graph.open(path)


def test_the_adjacency_is_symmetric_without_loops_or_repeats(graph):
    csr = graph.csr()
    pairs = {(a, b) for a, b in zip(csr.sources().tolist(), csr.indices.tolist(), strict=True)}
    expected = sorted({*pairs, *((b, a) for a, b in pairs)} - {(a, a) for a in range(300)})
    with shared_adjacency(graph) as adjacency:
        sources = np.repeat(np.arange(300), np.diff(adjacency.indptr))
        found = list(zip(sources.tolist(), adjacency.indices.tolist(), strict=True))
        np.testing.assert_array_equal(adjacency.weights, csr.degrees() + 1)
        # Any other type would be copied by pymetis.
        assert adjacency.indices.dtype == pymetis.zero_copy_dtype()
    assert found == expected


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


def test_what_metis_refuses_is_a_failure_with_its_reason(graph):
    with (
        shared_adjacency(graph) as adjacency,
        pytest.raises(MetisError, match="METIS failed: "),
    ):
        # A part count that METIS takes for an input error.
        run_metis(adjacency, -3, tolerance=1.03, recursive=False, seed=0)


@pytest.mark.parametrize(
    ("way", "message", "memory"),
    [
        ("os.kill(os.getpid(), 11)", "SIGSEGV", False),
        ("os.kill(os.getpid(), 9)", "SIGKILL", True),
        ("os._exit(3)", "no message", False),
        ("raise MemoryError('no more')", "no more", True),
    ],
)
def test_a_process_that_dies_is_a_failure(graph, tmp_path, monkeypatch, way, message, memory):
    (tmp_path / "metis_child.py").write_text(f"import os\n{way}\n")
    monkeypatch.setattr(metis, "__file__", str(tmp_path / "metis.py"))
    with shared_adjacency(graph) as adjacency, pytest.raises(MetisError, match=message) as caught:
        run_metis(adjacency, 4, tolerance=1.03, recursive=False, seed=0)
    assert caught.value.memory is memory


@pytest.mark.parametrize("late", [0.0, 1.0])
def test_a_sigterm_is_no_error_that_metis_throws(graph, tmp_path, monkeypatch, late):
    """METIS took it for one, and answered with what it had: parts of which one owned everything.

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
    with (
        shared_adjacency(graph) as adjacency,
        pytest.raises(MetisError, match="it was ended by SIGTERM"),
    ):
        run_metis(adjacency, 4, tolerance=1.03, recursive=False, seed=0)


def test_ctrl_c_ends_a_metis_that_would_run_on(graph, tmp_path, monkeypatch):
    note = tmp_path / "pid"
    script = f"import os, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    (tmp_path / "metis_child.py").write_text(script)
    monkeypatch.setattr(metis, "__file__", str(tmp_path / "metis.py"))
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with shared_adjacency(graph) as adjacency:
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            with pytest.raises(KeyboardInterrupt):
                run_metis(adjacency, 4, tolerance=1.03, recursive=False, seed=0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


@pytest.mark.slow
def test_no_descriptor_is_left_open(graph):
    if not sys.platform.startswith("linux"):
        pytest.skip("counts descriptors in /proc")

    def shared() -> int:
        gc.collect()  # an error of an earlier test may still hold its frames, and they their maps
        # Only memory files: sockets of other tests may go at any time.
        links = []
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                links.append(str(descriptor.readlink()))
        return sum("memfd:" in link for link in links)

    before = shared()
    for _ in range(3):
        with shared_adjacency(graph):
            assert shared() > before
    assert shared() == before


def test_the_memory_estimate_counts_both_directions(graph):
    undirected = Graph(graph.path, replace(graph.manifest, directed=False))
    more = metis.memory_needed(graph) - metis.memory_needed(undirected)
    assert more == metis.BYTES_AN_ENTRY * graph.num_edges


def test_the_time_estimate_counts_the_start_of_a_process(graph):
    assert metis.seconds_needed(graph) >= 1
    assert metis.seconds_needed(graph) == pytest.approx(
        metis.SECONDS_AT_LEAST + 2 * graph.num_edges * metis.SECONDS_AN_ENTRY
    )


def stopped_child(folder, monkeypatch):
    """Make METIS' process one that stops itself, after it noted its number."""
    note = folder / "pid"
    script = (
        f"import os, signal\nopen({str(note)!r}, 'w').write(str(os.getpid()))\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    (folder / "metis_child.py").write_text(script)
    monkeypatch.setattr(metis, "__file__", str(folder / "metis.py"))
    return note


def test_a_process_that_is_stopped_is_named_and_then_killed(graph, tmp_path, monkeypatch, capsys):
    note = stopped_child(tmp_path, monkeypatch)
    with (
        shared_adjacency(graph) as adjacency,
        pytest.raises(MetisError, match="after 1 s without computing, stopped") as caught,
    ):
        run_metis(adjacency, 4, tolerance=1.03, recursive=False, seed=0, timeout=1, quiet=False)
    assert not caught.value.memory
    pid = int(note.read_text())
    assert f"METIS (process {pid}) has not computed for 0." in capsys.readouterr().err
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class Seen:
    """A process that is in these states, and has computed for so long."""

    def __init__(self, *seen):
        self.pid, self._seen = 7, iter(seen)

    def status(self):
        status, self._cpu = next(self._seen)
        return status

    def cpu_times(self):
        return SimpleNamespace(user=self._cpu, system=0.0)


def looked_at(*seen):
    """Return what is said of a process seen in these states, every other of 30 seconds."""
    said = []
    idle = metis.Idle(os.getpid(), 30, said.append)
    idle._process = Seen(*seen)
    for _ in seen:
        idle.look(2)
    return said


@pytest.mark.parametrize(
    "alive", [("sleeping", 1.01), ("stopped", 1.01), ("running", 1.0), ("disk-sleep", 1.0)]
)
def test_a_sign_of_life_begins_anew(alive):
    stopped, later = [("stopped", 1.0)] * 14, [("stopped", alive[1])] * 14
    assert looked_at(("running", 1.0), *stopped, alive, *later) == [
        "METIS (process 7) has not computed for 16 s, it is stopped (SIGSTOP); after 30 s it is "
        "killed, and METIS has failed (--worker-timeout)",
        "METIS (process 7) computes again",
        "METIS (process 7) has not computed for 16 s, it is stopped (SIGSTOP); after 30 s it is "
        "killed, and METIS has failed (--worker-timeout)",
    ]


@pytest.mark.parametrize(("status", "how"), [("stopped", ", stopped by SIGSTOP"), ("sleeping", "")])
def test_without_a_sign_of_life_it_has_failed(status, how):
    message = rf"METIS \(process 7\) was killed after 30 s without computing{how}$"
    with pytest.raises(MetisError, match=message):
        looked_at(*[(status, 1.0)] * 17)


def test_a_process_that_waits_for_a_core_may_wait():
    assert looked_at(*[("running", 1.0)] * 100) == []
