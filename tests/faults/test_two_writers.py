"""Two writers of one output: the second is refused, and the first finishes undisturbed."""

import os
import shutil
import threading

import pytest
from every_job import JOBS, call, cells, results, words_of
from processes import until

from penstock import Graph, generate
from penstock.output_lock import output_lock
from penstock.partition.part import partition_path
from penstock.pipelines.job.parts import partition_into


@pytest.mark.parametrize("job", cells(JOBS))
def test_a_second_writer_is_refused(job, given, commands, whole, tmp_path):
    expected, count = whole(job)
    home, gate = tmp_path / "home", tmp_path / "gate"
    home.mkdir()
    words = words_of(job, given, home / "out")
    commands.start(words, home, count // 2, "wait", gate)
    until(gate.exists)
    try:
        said = call([*words, "--overwrite"], code=1)
        assert str(home / "out") in said
    finally:
        gate.unlink()
    code, said = commands.wait()
    assert code == 0, said
    assert results(home / "out") == expected
    assert os.listdir(home) == ["out"]


@pytest.mark.parametrize("job", cells(JOBS))
def test_what_exists_stays_unless_it_is_to_be_replaced(job, given, whole, tmp_path):
    """And what is not such an output is never replaced."""
    expected, _ = whole(job)
    out = tmp_path / "out"
    words = words_of(job, given, out)
    call(words)
    call(words, code=1)
    assert results(out) == expected
    if job == "vectors":  # a file is replaced by a file, a folder by none
        out.unlink()
    taken = out / "partition/k3" if job == "partition" else out
    shutil.rmtree(taken, ignore_errors=True)
    taken.mkdir()
    (taken / "thesis.tex").write_text("years")
    for more in ([], ["--overwrite"]):
        call([*words, *more], code=1)
    assert os.listdir(taken) == ["thesis.tex"]
    assert os.listdir(tmp_path) == ["out"]


def test_jobs_that_need_a_partition_share_the_one_that_is_made(tmp_path):
    generate("sbm", tmp_path / "g", nodes=300, seed=1, quiet=True)
    graph, found = Graph.open(tmp_path / "g"), []
    threads = [
        threading.Thread(target=lambda: found.append(partition_into(graph, 3, quiet=True)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [partition_path(graph, 3)] * 3


def test_writers_that_wait_take_turns(tmp_path):
    inside = []

    def work():
        for _ in range(20):
            with output_lock(tmp_path / "out", wait=True):
                inside.append(1)
                assert len(inside) == 1
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not inside
    assert os.listdir(tmp_path) == []
