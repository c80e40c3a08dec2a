"""An input that becomes another one while a job reads it, or before the job is resumed.

A file gets another time of change, as if it were written again; a folder becomes another one, as
with ``--overwrite``.
"""

import os
import shutil
import time
from pathlib import Path

import fsspec
import numpy as np
import pytest
from every_job import READS, RESUMES, call, cells, published, results, words_of

from penstock.pipelines.cli import run
from penstock.pipelines.tables.sources import stamp_of

# How an input that is a folder is made anew.
OTHER = {
    "graph": "generate sbm {0}/graph.other --nodes 600 --seed 2",
    "walks": "walk {0}/graph {0}/walks.other --length 10 --seed 2 --cluster threads",
    "vectors": "word2vec train {0}/walks {0}/vectors.other --dim 8 --seed 2 --cluster threads",
    "embedded": "embed train {0}/graph {0}/embedded.other --model dot --dim 8 --epochs 1 --seed 2 "
    "--cluster threads",
    "run": "gnn train {0}/graph {0}/run.other --epochs 1 --seed 2 --cluster threads",
}


@pytest.fixture(scope="session")
def two(given, tmp_path_factory):
    """The inputs, and another one of each kind next to it."""
    folder = tmp_path_factory.mktemp("two") / "given"
    shutil.copytree(given, folder)
    for words in OTHER.values():
        assert run([*words.format(folder).split(), "-q"]) == 0
    return folder


def prepared(job, two, home):
    """Return the command on a copy of the inputs, and which of them changes."""
    copy = home.parent / f"{home.name}-given"
    shutil.copytree(two, copy)
    words = words_of(job, copy, home / "out")
    if job == "partition":
        shutil.copytree(copy / "graph.other", home / "out.other")
        return words, home / "out"
    return words, copy / READS[job]


@pytest.mark.parametrize("job", cells(READS))
def test_an_input_that_changes_while_a_job_reads_it(job, two, commands, whole, tmp_path):
    """It ends with the name of the input, or has read all of it before: never a mixture."""
    expected, count = whole(job)
    words, path = prepared(job, two, tmp_path)
    code, said = commands.run(words, tmp_path, count // 2, "change", path)
    assert "Traceback" not in said
    if code == 0:
        assert results(tmp_path / "out") == expected
    else:
        assert code == 1, said
        assert str(path) in said
        assert not published(job, tmp_path / "out")


ANEW = {"partition", "nodes", "predict"}  # which keep nothing of an interrupted run


@pytest.mark.parametrize(
    "job", cells(sorted((RESUMES & {*READS}) - ANEW), quick=("etl", "walk", "gnn"))
)
def test_an_input_that_changes_before_a_job_is_resumed(job, two, commands, whole, tmp_path):
    _, count = whole(job)
    words, path = prepared(job, two, tmp_path)
    assert commands.run(words, tmp_path, count // 2, "kill")[0] == -9
    if path.is_dir():
        path.rename(f"{path}.before")
        Path(f"{path}.other").rename(path)
    else:
        os.utime(path)
    said = call([*words, "--resume"], code=2)
    assert path.name in said
    assert not published(job, tmp_path / "out")


# Files that an option names.
NAMED = [
    ("etl {out}.edges.csv {out} --valid {out}.valid.csv", "valid.csv"),
    ("etl {out}.edges.csv {out} --nodes {out}.nodes.csv", "nodes.csv"),
    ("etl {out}.edges.csv {out} --features {out}.features.npy", "features.npy"),
    ("walk {given}/graph {out} --starts {out}.starts.txt --walks 9", "starts.txt"),
]


@pytest.mark.parametrize(("line", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_file_that_an_option_names(line, name, given, commands, tmp_path):
    out = tmp_path / "home/out"
    out.parent.mkdir()
    for kind, text in {
        "edges.csv": "src,dst\n0,1\n1,2\n",
        "valid.csv": "src,dst\n0,2\n",
        "nodes.csv": "id\n0\n1\n2\n",
        "starts.txt": "0\n1\n",
    }.items():
        Path(f"{out}.{kind}").write_text(text)
    np.save(f"{out}.features.npy", np.zeros((3, 2), np.float32))
    words = [*line.format(given=given, out=out).split(), "--cluster", "threads"]
    path = Path(f"{out}.{name}")
    code, said = commands.run(words, out.parent, 4, "change", path)
    assert code == 1, said
    assert path.name in said
    assert not out.exists()
    assert commands.run(words, out.parent, 12, "kill")[0] == -9
    os.utime(path)
    said = call([*words, "--resume"], code=2)
    assert path.name in said


INITS = {
    "word2vec": "word2vec train {0}/walks {1} --dim 8 --epochs 3 --checkpoint-epochs 1 "
    "--deterministic --init {0}/vectors",
    "embed": "embed train {0}/graph {1} --model dot --dim 8 --epochs 2 --batch 100 --partitions 8 "
    "--checkpoint-minutes 1e-9 --init {0}/embedded",
    "gnn": "gnn train {0}/graph {1} --epochs 9 --checkpoint-epochs 3 --init {0}/run",
}


@pytest.mark.parametrize("job", cells(INITS, quick=("embed", "gnn")))
def test_what_a_training_begins_with(job, two, commands, tmp_path):
    """It ends with the name of what changes before all of it is read; later it may be gone."""
    home, given = tmp_path / "home", tmp_path / "given"
    home.mkdir()
    shutil.copytree(two, given)
    words = [*INITS[job].format(given, home / "out").split(), "--cluster", "threads"]
    init = Path(words[words.index("--init") + 1])
    assert commands.run(words, home)[0] == 0
    expected, count = results(home / "out"), commands.count
    shutil.rmtree(home / "out")
    assert commands.run(words, home, 3 * count // 4, "kill")[0] == -9
    init.rename(f"{init}.kept")
    for _ in "resumed", "finished":
        call([*words, "--resume"])
        assert results(home / "out") == expected
    Path(f"{init}.kept").rename(init)
    shutil.rmtree(home / "out")
    code, said = commands.run(words, home, count // 10, "change", init)
    assert code == 1, said
    assert init.name in said
    assert not published(job, home / "out")


BASES = ["walk {0}/graph {1}", "similar {0}/vectors --all {1}", "gnn predict {0}/run {1}"]


@pytest.mark.parametrize("line", BASES)
def test_a_base(line, given, commands, tmp_path):
    home, base = tmp_path / "home", tmp_path / "base"
    home.mkdir()
    assert run([*line.format(given, base).split(), "--cluster", "threads", "-q"]) == 0
    words = [*line.format(given, home / "out").split(), "--cluster", "threads", "--base", str(base)]

    def another():
        shutil.copytree(base, f"{base}.other")

    another()
    code, said = commands.run(words, home, 3, "change", base)
    assert code == 1, said
    assert base.name in said
    assert not (home / "out").exists()
    if line.startswith("gnn"):  # which keeps nothing of an interrupted run
        return
    assert commands.run(words, home, 8, "kill")[0] == -9
    another()
    shutil.rmtree(base)
    Path(f"{base}.other").rename(base)
    said = call([*words, "--resume"], code=2)
    assert base.name in said


FINISHED = [
    *BASES,
    "etl {0}/edges.parquet {1} --source a --target b",
    "centrality {0}/edges.parquet {1} --source a --target b --metrics closeness",
]


@pytest.mark.parametrize("line", FINISHED)
def test_a_base_that_a_finished_output_does_not_need(line, given, tmp_path):
    base = tmp_path / "base"
    how = ["--cluster", "threads", "-q"]
    words = [*line.format(given, tmp_path / "out").split(), *how, "--base", str(base)]
    assert run([*line.format(given, base).split(), *how]) == 0
    assert run(words) == 0
    shutil.rmtree(base)
    assert run([*words, "--resume"]) == 0


def test_a_url():
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/stamps/e.csv", b"1,2\n")
    before = stamp_of("memory://stamps/e.csv")
    assert before == stamp_of("memory://stamps/e.csv") is not None
    time.sleep(0.01)
    memory.pipe_file("/stamps/e.csv", b"1,3\n")
    assert stamp_of("memory://stamps/e.csv") != before
    memory.rm("/stamps/e.csv")
    assert stamp_of("memory://stamps/e.csv") is None
