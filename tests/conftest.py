"""Shared by all tests: the guard, the skips and their reasons, the data folder, small graphs."""

import gc
import os
import signal
import subprocess
import sys
import threading
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

# A slow example means that the machine is busy: these tests run while others do.
settings.register_profile("busy", settings.default, deadline=None)
settings.load_profile("busy")

ROOT = Path(__file__).parents[1]

# Shells start what runs in the background with SIGINT ignored, and so would be what tests start.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

if find_spec("penstock") is None or find_spec("penstock.kernels") is None:
    # ``python -m pytest`` puts the repository on sys.path, whose folder penstock/ hides the
    # installed package, which has the other six folders.
    pytest.exit(
        "The tests need an installed penstock, and do not see one: install it (pip install "
        "'.[test]' or pip install -e '.[test]') and run `pytest`, not `python -m pytest`, whose "
        "first entry on sys.path is this folder.",
        returncode=4,
    )


@cache
def cuda_devices():
    """Return how many CUDA devices CuPy sees, and the reason to skip if they are too few."""
    if find_spec("cupy") is None:
        return 0, "CuPy is not installed"
    import cupy

    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return 0, f"CuPy sees no CUDA device: {error}"
    return count, f"CuPy sees {count} CUDA device(s)"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run all tests in several processes if pytest-xdist is installed and no option decides.

    Two per core, as most wait for processes that they started; four at most, of which each may take
    two GB. Tests of a file stay together, so that they share its fixtures. On a GPU all run in one
    process, since some measure its memory.

    Files keep their order: xdist would begin with those of many tests, and at the end wait for one
    process that has a file of a single long one.
    """
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    cores = len(os.sched_getaffinity(0))
    if (
        everything
        and getattr(config.option, "numprocesses", 0) is None  # 0: there is no pytest-xdist
        and "PYTEST_XDIST_WORKER" not in os.environ
        and "slow" not in config.option.markexpr
        and not config.option.usepdb
        and not config.option.trace
        and config.option.capture != "no"
        and find_spec("cupy") is None
        and cores > 1
    ):
        config.option.numprocesses = min(cores * 2, 4)
        config.option.dist = "loadfile"
    config.option.loadscopereorder = False


def pytest_configure(config):
    # Not in pyproject.toml, which would import penstock before the check above.
    # In the second place: it overrides "error", and what stands behind it overrides it.
    config.getini("filterwarnings").insert(1, "always::penstock.errors.PenstockWarning")


def pytest_collection_modifyitems(config, items):
    if "slow" not in config.option.markexpr:
        for item in items:
            if item.get_closest_marker("slow") is not None:
                item.add_marker(pytest.mark.skip(reason="slow: run with -m slow"))
    _skip_once(config, items)


def _skip_once(config, items):
    """Of a test's skipped cases keep one, which shows the reason: there are thousands."""
    skipped, kept, others = set(), [], []
    for item in items:
        name = item.nodeid.partition("[")[0]
        if item.get_closest_marker("skip") is not None or _lacks_devices(item) is not None:
            if name in skipped:
                others.append(item)
                continue
            skipped.add(name)
        kept.append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Spare the garbage collector all permanent objects: modules, tests, Numba's tables.

    It would examine every object now and then, and at the end there are more than a million:
    a quarter of the time that collecting tests takes, and some of every test's.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item):
    if (reason := _lacks_devices(item)) is not None:
        pytest.skip(reason)


def _lacks_devices(item):
    """Return why a test that needs GPUs cannot run here."""
    for mark, needed in (("gpu", 1), ("multigpu", 2)):
        if item.get_closest_marker(mark) is not None and cuda_devices()[0] < needed:
            return f"needs {needed} CUDA device(s): {cuda_devices()[1]}"
    return None


@pytest.fixture(scope="session")
def root():
    """The repository; skipped if the tests run without it."""
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("needs the repository around the tests")
    return ROOT


@pytest.fixture(scope="session")
def data():
    """The folder of real data sets."""
    folder = os.environ.get("PENSTOCK_DATA")
    if not folder:
        pytest.skip("needs real data: set PENSTOCK_DATA to its folder")
    if not Path(folder).is_dir():
        pytest.skip(f"PENSTOCK_DATA names no folder: {folder}")
    return Path(folder)


@pytest.fixture(scope="session")
def mpirun():
    """Run a program as ranks of an MPI world, and return what they wrote, together, as stdout.

    mpirun(path, 4, "argument")          a Python program
    mpirun(["-m", "module"], 4)          what else stands after ``python -P``
    mpirun(path, 4, timeout=10)          seconds, after which all is killed and the test fails
    mpirun(path, 4, gpus=True)           ranks that exchange memory of GPUs
    """
    import psutil

    from penstock.cluster.mpi.launcher import find_launcher, loaded_library
    from penstock.cluster.mpi.mpiexec import exported_names, launch_command, launch_environment
    from penstock.errors import PenstockError

    try:
        library = loaded_library()
        launcher = find_launcher(None, library)
    except PenstockError as error:
        pytest.skip(f"needs MPI: {error}")

    def run(program, ranks, *arguments, timeout=60.0, gpus=False):
        words = [str(program)] if isinstance(program, Path) else [*program]
        env = launch_environment(launcher, os.environ, root=os.geteuid() == 0, library=library)
        env.pop("PYTHONUNBUFFERED", None)  # mpiexec would mix the lines of ranks
        command = launch_command(
            launcher,
            [sys.executable, "-P", *words, *arguments],
            ranks=ranks,
            hosts=None,
            gpus=gpus,
            exported=exported_names(env),
        )
        with subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            restore_signals=False,
        ) as process:
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                    one.kill()
                output, _ = process.communicate()
                pytest.fail(f"{words} ran for more than {timeout:g} s; it wrote:\n{output}")
        return subprocess.CompletedProcess(command, process.returncode, output)

    return run


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The temporary folder of this process and all that it starts, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


# Read by every Python that finds it on its path: this host shows a GPU.
_WITH_A_GPU = """
import pathlib

glob = pathlib.Path.glob


def with_a_gpu(self, pattern, **options):
    return iter([self / "nvidia0"]) if str(self) == "/dev" else glob(self, pattern, **options)


pathlib.Path.glob = with_a_gpu
"""


@pytest.fixture
def pretend_gpu(tmp_path, monkeypatch):
    """Have this process and those that it starts see a GPU, and a CuPy of the source given.

    pretend_gpu("raise ImportError('libnvrtc.so.12: cannot open shared object file')")
    """
    from penstock.workers.resources import device

    def pretend(cupy):
        folder = tmp_path / "pretended"
        folder.mkdir(exist_ok=True)
        (folder / "cupy.py").write_text(cupy)
        (folder / "sitecustomize.py").write_text(_WITH_A_GPU)
        monkeypatch.setattr(Path, "glob", Path.glob)  # what follows is undone
        exec(_WITH_A_GPU, {})
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, "cupy", raising=False)
        device.look_again()

    yield pretend
    sys.modules.pop("cupy", None)
    monkeypatch.undo()
    device.look_again()


@pytest.fixture
def make_graph(tmp_path):
    """Write a random graph and return it opened.

    make_graph()                                        undirected, 100 nodes, about 500 edges
    make_graph(nodes, edges, directed=True, seed=1)     no loops, no duplicates
    make_graph(weights=True, relations=3, times=True)   edge columns
    make_graph(features="dense", labels=4)              or "sparse"; labels come with splits
    make_graph(name="other", shard_edges=64)            several shards
    """
    import numpy as np
    import scipy.sparse as sp
    from graphs import write_graph

    from penstock.csr import CSR

    def make(
        nodes=100,
        edges=500,
        *,
        directed=False,
        seed=0,
        weights=False,
        relations=0,
        times=False,
        features=None,
        width=8,
        labels=0,
        shard_edges=1 << 24,
        name="graph",
    ):
        random = np.random.default_rng(seed)
        pairs = np.unique(random.integers(0, max(nodes, 1), (edges, 2)), axis=0)
        if not directed:
            pairs = np.unique(np.sort(pairs, axis=1), axis=0)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        columns = {}
        if weights:
            columns["weights"] = random.random(len(pairs), dtype=np.float32) + np.float32(0.5)
        if relations:
            columns["relations"] = random.integers(0, relations, len(pairs)).astype(np.int32)
        if times:
            columns["times"] = random.integers(0, 10**6, len(pairs))
        if not directed:
            pairs = np.concatenate([pairs, pairs[:, ::-1]])
            columns = {key: np.concatenate([value, value]) for key, value in columns.items()}
        csr = CSR.from_edges(pairs[:, 0], pairs[:, 1], nodes, **columns)
        made, columns = {"directed": directed, "shard_edges": shard_edges}, {}
        if relations:
            made["relations"] = tuple(f"relation {i}" for i in range(relations))
        if labels:
            made |= {"labels": "class", "classes": tuple(f"class {i}" for i in range(labels))}
            columns["label"] = random.integers(0, labels, nodes).astype(np.int32)
            columns["split"] = random.integers(0, 3, nodes).astype(np.int8)
        if features == "dense":
            made["features"] = random.standard_normal((nodes, width), dtype=np.float32)
        elif features == "sparse":
            made["features"] = sp.random(nodes, width, 0.2, "csr", np.float32, random_state=random)
        return write_graph(tmp_path / name, csr, nodes=columns, **made)

    return make
