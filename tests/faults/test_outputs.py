"""Two writers of one output, links in the way, and what killed writers leave."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from penstock import Graph, generate, partition_graph
from penstock.errors import CorruptFile, OutputExists, PenstockError, UsageError
from penstock.files import FileEntry, claimed, fresh_directory, publish, recover
from penstock.output_lock import lock_of, output_lock, own_directory, refusal
from penstock.pipelines.job.partial import partial_output
from penstock.pipelines.job.parts import partition_into


@pytest.fixture
def graph(tmp_path):
    generate("sbm", tmp_path / "g", nodes=300, seed=1, quiet=True)
    return Graph.open(tmp_path / "g")


def penstock(*words, **more):
    command = [sys.executable, "-P", "-m", "penstock", *map(str, words)]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE, **more)


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


def test_a_second_writer_is_refused_and_takes_nothing_away(tmp_path, held):
    mine = tmp_path / ".out.0123abcd.partial"
    mine.mkdir()
    (mine / "work").touch()
    with (
        pytest.raises(OutputExists, match="another penstock is writing"),
        fresh_directory(tmp_path / "out"),
    ):
        pass
    with (
        pytest.raises(OutputExists, match="another penstock etl is writing"),
        partial_output(
            tmp_path / "out",
            {},
            command="penstock etl",
            kind="graph",
            resume=False,
            overwrite=False,
        ),
    ):
        pass
    assert (mine / "work").exists()


def test_a_lock_goes_with_its_holder_however_that_dies(tmp_path, held):
    held.kill()
    held.wait()
    with fresh_directory(tmp_path / "out") as partial:
        (partial / "graph.json").write_text("{}")
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


@pytest.mark.parametrize("name", [".out.lock", ".out.partial"])
def test_a_link_with_a_known_name_is_not_followed(tmp_path, name):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("mine")
    aim = precious / "data" if name.endswith("lock") else precious
    (tmp_path / name).symlink_to(aim)
    with (
        pytest.raises(OutputExists, match="is a symbolic link"),
        partial_output(
            tmp_path / "out", {}, command="etl", kind="graph", resume=False, overwrite=False
        ),
    ):
        pass
    assert os.listdir(precious) == ["data"]
    assert (precious / "data").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's directory")
def test_another_users_directory_is_not_ours(tmp_path):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(OutputExists, match="65534"):
        own_directory(tmp_path / "theirs")


# -- what killed writers leave ------------------------------------------------------------------


def test_only_what_the_manifest_names_is_published(tmp_path):
    with fresh_directory(tmp_path / "out") as partial:
        (partial / "deep").mkdir()
        for name in ("a", "deep/b", "deep/.b.0123abcd.tmp", "deep/c", ".part-1.tmp"):
            (partial / name).touch()
        (partial / "graph.json").write_text(json.dumps({"files": {"a": {}, "deep/b": {}}}))
    found = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*")}
    assert found == {"a", "deep", "deep/b", "graph.json"}


def test_the_old_one_is_there_until_the_new_one_is(tmp_path, monkeypatch):
    for exchange in (True, False):
        if not exchange:
            monkeypatch.setattr("penstock.files.exchange", lambda one, other: False)
        for name in ("new", "out"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "graph.json").write_text(json.dumps({"name": name, "files": {}}))
        publish(tmp_path / "new", tmp_path / "out")
        assert json.loads((tmp_path / "out/graph.json").read_text())["name"] == "new"
        assert os.listdir(tmp_path) == ["out"]


KILLED = """
import os, pathlib, shutil, signal, sys
from penstock import files, generate

where = pathlib.Path(sys.argv[1])
files.exchange = lambda one, other: False  # as on NFS
rename, rmtree, moment = pathlib.Path.rename, shutil.rmtree, sys.argv[2]

def killing_rename(self, target):
    if moment == "between" and self.suffix == ".partial":
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)

def killing_rmtree(path, *more, **named):
    old = pathlib.Path(path)
    if moment == "after" and old.name == ".g.old" and old.exists() and where.exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return rmtree(path, *more, **named)

pathlib.Path.rename, shutil.rmtree = killing_rename, killing_rmtree
generate("sbm", where, nodes=400, seed=1, overwrite=True, quiet=True)
"""


@pytest.mark.parametrize(("moment", "nodes"), [("between", 300), ("after", 400)])
def test_what_a_kill_in_the_swap_leaves_is_put_right(graph, tmp_path, moment, nodes):
    """Where the file system cannot exchange two names: the old one is back, or it goes."""
    done = subprocess.run([sys.executable, "-P", "-c", KILLED, graph.path, moment], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / ".g.old/graph.json").is_file()
    assert graph.path.exists() == (moment == "after")
    with claimed(graph.path, overwrite=True, kind="graph"):
        assert Graph.open(graph.path).num_nodes == nodes
        assert not (tmp_path / ".g.old").exists()
    generate("sbm", graph.path, nodes=500, seed=1, overwrite=True, quiet=True)
    assert Graph.open(graph.path).num_nodes == 500
    assert not list(tmp_path.glob(".g*partial"))


def test_what_is_hidden_next_to_something_else_is_left_alone(tmp_path):
    for name in ("out", ".out.old"):
        (tmp_path / name).mkdir()
    (tmp_path / "out/graph.json").touch()
    (tmp_path / ".out.old/thesis.tex").touch()
    recover(tmp_path / "out")
    assert (tmp_path / ".out.old/thesis.tex").is_file()


def test_what_was_moved_aside_comes_back(tmp_path):
    (tmp_path / ".out.old").mkdir()
    (tmp_path / ".out.old/graph.json").touch()
    recover(tmp_path / "out")
    assert (tmp_path / "out/graph.json").exists()


# -- names in manifests -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/etc/passwd", "../other/a.npy", "shards/../../a", "", "a\0b"])
def test_names_that_leave_the_directory_are_refused(name):
    with pytest.raises(CorruptFile, match="no name of a file of this directory"):
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
        with pytest.raises(PenstockError, match="no name of a file"):
            opened()


# -- what an interrupted run has done -----------------------------------------------------------


def interrupted(out, work=True):
    options = {"command": "etl", "kind": "graph", "overwrite": False}
    with (
        pytest.raises(KeyboardInterrupt),
        partial_output(out, {"options": {"a": 1}}, resume=False, **options) as place,
    ):
        if work:
            (place.result / "part").touch()
        raise KeyboardInterrupt
    return options


def test_bad_usage_at_resume_takes_no_work_away(tmp_path, capsys):
    """A mistyped --cluster did."""
    options = interrupted(tmp_path / "g")
    with (
        pytest.raises(UsageError, match="no cluster"),
        partial_output(tmp_path / "g", {"options": {"a": 1}}, resume=True, **options),
    ):
        raise UsageError("there is no cluster 'nosuch'")
    assert (tmp_path / ".g.partial/graph/part").exists()
    assert capsys.readouterr().err.count("--resume") == 2


def test_bad_usage_at_first_leaves_nothing(tmp_path, capsys):
    with (
        pytest.raises(UsageError),
        partial_output(
            tmp_path / "g", {}, command="etl", kind="graph", resume=False, overwrite=False
        ) as place,
    ):
        (place.result / "part").touch()
        raise UsageError("bad")
    assert os.listdir(tmp_path) == []
    interrupted(tmp_path / "g", work=False)
    assert os.listdir(tmp_path) == []
    assert capsys.readouterr().err == ""


def test_another_run_is_told_by_what_differs(tmp_path):
    options = interrupted(tmp_path / "g")
    with (
        pytest.raises(UsageError, match="got another cluster, --a-b"),
        partial_output(
            tmp_path / "g", {"options": {"a": 1, "a_b": 2}, "cluster": "x"}, resume=True, **options
        ),
    ):
        pass
    assert (tmp_path / ".g.partial/graph/part").exists()


# -- ends just after publishing -----------------------------------------------------------------


def write_one(out, text, **more):
    """Write an output with one recorded piece, as jobs do."""
    given = {"command": "penstock test", "kind": "thing", "resume": False, "overwrite": False}
    with partial_output(out, {"text": text}, **given | more) as partial:
        if not partial.records.done("piece"):
            (partial.result / "piece.txt").write_text(text)
            entry = FileEntry("piece.txt", len(text), "")
            partial.records.save("piece", {}, [entry])
        files = {"piece.txt": {"bytes": len(text), "sha256": ""}}
        (partial.result / "thing.json").write_text(json.dumps({"files": files}))


def hidden(tmp_path):
    return [p.name for p in tmp_path.iterdir() if p.name.endswith(".partial")]


def end_at(monkeypatch, name):
    """Have the next removal of a folder of that name end the process, as far as it can tell."""
    import shutil

    remove = shutil.rmtree

    def ended(path, *args, **options):
        if str(path).endswith(name) and Path(path).is_dir():
            monkeypatch.setattr(shutil, "rmtree", remove)
            raise KeyboardInterrupt
        remove(path, *args, **options)

    monkeypatch.setattr(shutil, "rmtree", ended)


def test_an_interrupt_just_after_publishing_leaves_nothing(tmp_path, monkeypatch):
    end_at(monkeypatch, "scratch")
    with pytest.raises(KeyboardInterrupt):
        write_one(tmp_path / "out", "new")
    assert (tmp_path / "out/piece.txt").read_text() == "new"
    assert not hidden(tmp_path)


def test_what_a_kill_just_after_publishing_leaves_goes_with_the_next_command(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.pipelines.job.partial._remove", lambda home, partial: None)
    write_one(tmp_path / "out", "new")
    monkeypatch.undo()
    assert hidden(tmp_path)
    with pytest.raises(OutputExists):
        write_one(tmp_path / "out", "new", resume=True)
    assert not hidden(tmp_path)


def test_a_kill_between_exchange_and_removal_does_not_resume_with_the_old_files(
    tmp_path, monkeypatch
):
    write_one(tmp_path / "out", "old")
    end_at(monkeypatch, ".out.partial/thing")  # the old output, which has just been replaced
    with pytest.raises(KeyboardInterrupt):
        write_one(tmp_path / "out", "new", overwrite=True)
    write_one(tmp_path / "out", "new", overwrite=True, resume=True)
    assert (tmp_path / "out/piece.txt").read_text() == "new"
    assert not hidden(tmp_path)
