"""Two writers of one output, and an output whose writer is killed at any moment."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from penstock import Graph, generate, partition_graph
from penstock.errors import CorruptFile, OutputExists, PenstockError, UsageError
from penstock.files import FileEntry
from penstock.formats import Format
from penstock.locks import lock_of
from penstock.output import Output
from penstock.output_lock import output_lock, own_directory, refusal
from penstock.pipelines.job.parts import partition_into


@pytest.fixture
def graph(tmp_path):
    generate("sbm", tmp_path / "g", nodes=300, seed=1, quiet=True)
    return Graph.open(tmp_path / "g")


def penstock(*words, **more):
    command = [sys.executable, "-P", "-m", "penstock", *map(str, words)]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE, **more)


def make(path, text="new", **more):
    """Write an output of two pieces, as jobs do; return how many pieces were there."""
    form = Format("thing", 1, "thing.json", "thing", "Make one", "Restore it")
    with Output(path, kind="thing", identity={"options": {"text": text}}, **more).open() as out:
        there = 0
        for piece in ("a", "b"):
            if out.pieces.done(piece):
                there += 1
                continue
            (out.result / piece).write_text(text)
            out.pieces.save(piece, {}, [FileEntry(piece, len(text), "")])
        out.describe(form, {"files": {key: {"bytes": len(text)} for key in ("a", "b")}})
        out.finish()
    return there


def content(folder):
    return {file.name: file.read_text() for file in folder.iterdir() if file.suffix != ".json"}


# -- killed at any moment -------------------------------------------------------------------------

# The events of Python's audit hooks at which a file or folder gets, changes or loses its name.
EVENTS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "open"}
KILLED = """
import itertools, os, pathlib, signal, sys
sys.path.insert(0, sys.argv[2])
import penstock.output
from test_outputs import EVENTS, content, make

out = pathlib.Path(sys.argv[1], "out")
exchanges, before = (word == "True" for word in sys.argv[3:])
if not exchanges:  # as on NFS
    penstock.output.exchange = lambda one, other: False

def forked(work):
    if (child := os.fork()) == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def killed(moment):
    seen = itertools.count(1)
    def hook(event, _):
        if event in EVENTS and next(seen) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    make(out, overwrite=before)

old, new = {"a": "old", "b": "old"}, {"a": "new", "b": "new"}
for moment in itertools.count(1):
    penstock.output.remove(out)
    if before:
        make(out, "old")
    ended = forked(lambda: killed(moment))
    found = content(out) if out.exists() else None
    allowed = [new, old] if before else [new, None]
    if not exchanges:
        allowed.append(None)  # for a moment neither is there
    assert found in allowed, (moment, found)
    done = penstock.output.Output(out, kind="thing", identity={"options": {"text": "new"}})
    if done.finished is None or (out.parent / ".out.partial").exists():
        make(out, overwrite=True, resume=True)
    assert content(out) == new, moment
    left = set(os.listdir(out.parent)) - {".out.lock"}  # which nobody holds
    assert left == {"out"}, (moment, left)
    if ended == 0:
        break
print(moment)
"""


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("before", [False, True])
def test_a_kill_at_any_moment_leaves_the_old_or_the_new(tmp_path, exchanges, before):
    (tmp_path / "place").mkdir()
    words = [tmp_path / "place", Path(__file__).parent, exchanges, before]
    done = subprocess.run(
        [sys.executable, "-P", "-c", KILLED, *map(str, words)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_what_is_whole_is_not_made_again(tmp_path):
    with (
        pytest.raises(KeyboardInterrupt),
        Output(tmp_path / "out", kind="thing", identity={"options": {"text": "new"}}).open() as out,
    ):
        (out.result / "a").write_text("new")
        out.pieces.save("a", {}, [FileEntry("a", 3, "")])
        raise KeyboardInterrupt
    with pytest.raises(UsageError, match="--text"):
        make(tmp_path / "out", "other", resume=True)
    with (
        pytest.raises(UsageError),
        Output(
            tmp_path / "out", kind="thing", identity={"options": {"text": "new"}}, resume=True
        ).open(),
    ):
        raise UsageError("there is no cluster 'nosuch'")  # takes no work away
    assert make(tmp_path / "out", resume=True) == 1


def test_bad_usage_at_first_leaves_nothing(tmp_path):
    with pytest.raises(UsageError), Output(tmp_path / "g", kind="graph", identity={}).open() as out:
        (out.result / "part").touch()
        raise UsageError("bad")
    assert os.listdir(tmp_path) == []


def test_only_what_the_manifest_names_is_published(tmp_path):
    with Output(tmp_path / "out", kind="graph").open() as out:
        (out.result / "deep").mkdir()
        for name in ("a", "deep/b", "deep/.b.0123abcd.tmp", "deep/c", ".part-1.tmp"):
            (out.result / name).touch()
        body = {"files": {"a": {}, "deep/b": {}}}
        (out.result / "graph.json").write_text(json.dumps(body))
    found = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*")}
    assert found == {"a", "deep", "deep/b", "graph.json"}


def test_what_is_not_this_jobs_is_never_replaced(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").touch()
    (tmp_path / "file").touch()
    for name in ("photos", "file"):
        with pytest.raises(OutputExists):
            make(tmp_path / name, overwrite=True)
    assert (tmp_path / "photos/a.jpg").exists()
    make(tmp_path / "out")
    with pytest.raises(OutputExists):
        make(tmp_path / "out")
    (tmp_path / "empty").mkdir()
    make(tmp_path / "empty")


# -- two writers --------------------------------------------------------------------------------


HOLD = """
import pathlib, sys
from penstock.output_lock import output_lock
with output_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path):
    """Another process that writes to tmp_path/out, until its standard input is closed."""
    command = [sys.executable, "-P", "-c", HOLD, str(tmp_path / "out")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.stdin.close()


def test_a_second_writer_is_refused(tmp_path, held):
    with pytest.raises(OutputExists):
        make(tmp_path / "out")
    held.kill()
    held.wait()
    make(tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of threads and fork
@pytest.mark.parametrize("name", ["out", "new/folder/out"])
def test_what_a_folder_will_refuse_is_known_before(name):
    """Asked in a process of another user where this one is root, who may write anywhere."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / name
        assert refusal(lock_of(out)) is None
        Path(folder).chmod(0o555)
        if (child := os.fork()) == 0:
            told = 1
            try:
                if os.geteuid() == 0:
                    os.seteuid(65534)
                expected = refusal(lock_of(out))
                with output_lock(out):
                    pass
            except PermissionError as error:
                told = 0 if str(error) == str(expected) else 2
            finally:
                os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        Path(folder).chmod(0o755)


def test_who_waits_comes_after(tmp_path, held):
    timer = threading.Timer(0.3, held.stdin.close)
    timer.start()
    with output_lock(tmp_path / "out", wait=True):
        assert held.stdin.closed
    timer.join()
    assert os.listdir(tmp_path) == []


def test_writers_of_two_threads_take_turns(tmp_path):
    inside, most, lock = 0, 0, threading.Lock()

    def work():
        nonlocal inside, most
        for _ in range(20):
            with output_lock(tmp_path / "out", wait=True):
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_two_partitions_at_once_leave_one_that_is_whole(graph):
    runs = [penstock("partition", graph.path, "-k", "2", "-q") for _ in range(2)]
    errors = [run.communicate(timeout=120)[1] for run in runs]
    codes = sorted(run.returncode for run in runs)
    assert codes[0] == 0
    if codes[1]:
        refused = next(e for e, run in zip(errors, runs, strict=True) if run.returncode)
        assert "is writing" in refused or "exists" in refused
    from penstock.partition.part import Partition, partition_path

    Partition.open(partition_path(graph, 2)).validate()
    assert [path.name for path in (graph.path / "partition").iterdir()] == ["k2"]


def test_jobs_that_need_a_partition_share_the_one_that_is_made(graph):
    found, failed = [], []

    def job():
        try:
            found.append(partition_into(graph, 3, quiet=True))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=job) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(found) == 3
    assert len(set(found)) == 1


def test_two_generates_at_once(tmp_path):
    runs = [
        penstock("generate", "rmat", tmp_path / "r", "--scale", "10", "-q", "--overwrite")
        for _ in range(3)
    ]
    errors = [run.communicate(timeout=120)[1] for run in runs]
    assert 0 in [run.returncode for run in runs]
    for run, error in zip(runs, errors, strict=True):
        assert run.returncode == 0 or "another penstock generate rmat is writing" in error
    Graph.open(tmp_path / "r").validate()


# -- links --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_output_that_is_a_link_is_replaced_where_it_points_to(tmp_path):
    (tmp_path / "edges.txt").write_text("1 2\n2 3\n")
    (tmp_path / "disk").mkdir()
    (tmp_path / "g").symlink_to(tmp_path / "disk/g")
    for more in ([], ["--overwrite"]):
        run = penstock("etl", tmp_path / "edges.txt", tmp_path / "g", "-q", *more)
        assert run.communicate(timeout=120)[1] == ""
        assert run.returncode == 0
    assert (tmp_path / "g").is_symlink()
    assert Graph.open(tmp_path / "disk/g").num_nodes == 3
    assert os.listdir(tmp_path / "disk") == ["g"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's directory")
def test_another_users_directory_is_not_ours(tmp_path):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(OutputExists):
        own_directory(tmp_path / "theirs")


# -- names in manifests -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/etc/passwd", "../other/a.npy", "shards/../../a", "", "a\0b"])
def test_names_that_leave_the_directory_are_refused(name):
    with pytest.raises(CorruptFile):
        FileEntry(name, 1, "0" * 64)


@pytest.mark.parametrize("name", ["/etc/passwd", "../../x"])
def test_a_graph_and_a_partition_with_such_names_are_not_opened(graph, name):
    from penstock.partition.part import Partition, partition_path

    partition_graph(graph, k=2, quiet=True)
    at = partition_path(graph, 2)
    for manifest, opened in (
        (at / "partition.json", lambda: Partition.open(at)),
        (graph.path / "graph.json", lambda: Graph.open(graph.path)),
    ):
        body = json.loads(manifest.read_text())
        body["files"][name] = next(iter(body["files"].values()))
        manifest.write_text(json.dumps(body))
        with pytest.raises(PenstockError):
            opened()
