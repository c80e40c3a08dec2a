"""A GPU that is there and cannot be used is said; the ranks of a gang agree."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import connect, gang
from penstock.errors import ClusterError, MissingExtra, PenstockWarning
from penstock.workers.resources import device

Pretend = Callable[[str], None]
HOST = socket.gethostname()
LOST_LIBRARY = "libnvrtc.so.12: cannot open shared object file"
BROKEN = f"raise ImportError({LOST_LIBRARY!r})"
# The second of two ranks finds another CuPy than the first, which works as far as looking goes.
ON_RANK_1 = f"""
import os
from penstock.workers.resources.device import local_rank
if local_rank(os.environ) == 1:
    {BROKEN}
class runtime:
    getDeviceCount = staticmethod(lambda: 1)
class nvrtc:
    getVersion = staticmethod(lambda: (12, 4))
class cuda:
    pass
cuda.runtime, cuda.nvrtc = runtime, nvrtc
"""


@pytest.mark.slow
def test_a_client_is_warned_of_workers_that_cannot_use_their_gpu(pretend_gpu: Pretend) -> None:
    pretend_gpu(BROKEN)
    with (
        pytest.warns(PenstockWarning, match=f"on the CPU, though .* on {HOST}: .*{LOST_LIBRARY}"),
        connect("local", workers=2) as client,
    ):
        assert set(client.run(device.gpu).values()) == {False}
    with connect("local", workers=1, device="cpu") as client:
        assert set(client.run(device.gpu).values()) == {False}
    with (
        pytest.raises(MissingExtra, match=f"--device gpu .* {HOST} .*{LOST_LIBRARY}"),
        connect("local", workers=1, device="gpu"),
    ):
        pass


def test_who_asks_for_the_kind_cuda_asks_for_gpus(
    pretend_gpu: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.cluster import connect as module
    from penstock.cluster.local import open_local

    pretend_gpu(BROKEN)
    # dask-cuda's workers, as far as this goes.
    monkeypatch.setattr(
        "penstock.cluster.cuda.open_cuda",
        lambda spec, quiet: open_local(module.replace(spec, workers=1), processes=True),
    )
    with pytest.raises(MissingExtra, match=LOST_LIBRARY), connect("cuda"):
        pass


@pytest.mark.mpi
@pytest.mark.slow
def test_ranks_that_do_not_agree_are_named(pretend_gpu: Pretend) -> None:
    pretend_gpu(ON_RANK_1)
    with (
        pytest.warns(PenstockWarning, match="1 of 2 workers compute on the CPU"),
        connect("mpi", workers=2) as client,
        pytest.raises(ClusterError, match="some ranks of this gang compute on a GPU") as caught,
    ):
        gang.run(client, lambda comm: comm.rank)
    said = str(caught.value)
    assert f"rank 0 on host {HOST}" in said
    assert (
        f"got rank 1 on host {HOST}: CuPy cannot be imported: ImportError: {LOST_LIBRARY}" in said
    )
    assert "--device cpu" in said
    with (
        pytest.raises(MissingExtra, match=LOST_LIBRARY),
        connect("mpi", workers=2, device="gpu"),
    ):
        pass


@pytest.mark.mpi
def test_a_gang_without_a_gpu_is_a_gang(pretend_gpu: Pretend) -> None:
    pretend_gpu(BROKEN)
    with pytest.warns(PenstockWarning, match="2 of 2 workers"), connect("mpi", workers=2) as client:
        assert gang.run(client, lambda comm: comm.rank) == [0, 1]


def penstock(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "penstock", *words],
        capture_output=True, text=True, check=False, env=dict(os.environ),
    )  # fmt: skip


def test_the_command_says_it_in_a_line(
    pretend_gpu: Pretend, make_graph: Any, tmp_path: Path
) -> None:
    pretend_gpu("raise RuntimeError('CuPy failed to load the driver')")
    graph = str(make_graph().path)
    done = penstock("walk", graph, str(tmp_path / "w"), "--length", "3", "-q")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("penstock: warning: the job computes on the CPU, though there is a GPU")
    assert "RuntimeError: CuPy failed to load the driver" in line
    assert line.endswith("or give --device cpu")
    done = penstock("walk", graph, str(tmp_path / "x"), "--device", "cpu", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    done = penstock("walk", graph, str(tmp_path / "y"), "--device", "gpu", "-q")
    assert done.returncode == 1
    assert "--device gpu asks for a GPU" in done.stderr
    assert "CuPy failed to load the driver" in done.stderr
