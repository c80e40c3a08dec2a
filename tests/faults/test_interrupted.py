"""Every command that is killed or hears a signal midway, and is then run again.

Nothing is published, no process is left, and the second run ends with the results of one that was
not disturbed. Midway is half the files that a job makes, moves and removes: the same place each
time. Signals at other moments, and to commands with processes of their own: test_signals.py.
"""

import os
import signal

import pytest
from every_job import (
    JOBS,
    QUICK,
    RESUMES,
    VISIBLE,
    again,
    call,
    cells,
    published,
    results,
    words_of,
)

CODES = {"kill": -signal.SIGKILL, "term": 143, "hup": 129, "ctrl-c": 1, "ctrl-c twice": 1}


@pytest.mark.parametrize(
    ("job", "how"),
    [
        *cells(JOBS, "kill", quick=(*QUICK, "embed")),
        *cells(JOBS, "ctrl-c", quick=()),
        *cells(JOBS, "term"),
        # What a job does then is what it does at the others: one job per mechanism.
        *cells(QUICK, "ctrl-c twice", "hup", quick=()),
    ],
)
def test_a_command_that_is_ended_midway(job, how, given, commands, whole, tmp_path):
    expected, count = whole(job)
    out = tmp_path / "out"
    words = words_of(job, given, out)
    code, said = commands.run(words, tmp_path, count // 2, how)
    commands.assert_nothing_runs()
    assert code == CODES[how], said
    assert not published(job, out)
    if how != "kill":
        assert "Traceback" not in said
        left = {one.name for one in tmp_path.iterdir()} - {"out"}
        assert left <= ({".out.partial"} if job in RESUMES - VISIBLE else set())
        assert left or job in VISIBLE or "--resume" not in said
    call(again(job, words))
    assert results(out) == expected
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 0.99])
def test_a_training_out_of_core_is_killed_at_any_moment(share, given, commands, whole, tmp_path):
    """Between versions of partitions, and the checkpoints that name them."""
    expected, count = whole("embed")
    words = words_of("embed", given, tmp_path / "out")
    assert commands.run(words, tmp_path, round(share * count), "kill")[0] == -9
    call([*words, "--resume"])
    assert results(tmp_path / "out") == expected


@pytest.mark.parametrize("job", cells(JOBS))
def test_an_overwrite_that_is_killed_midway(job, given, commands, whole, tmp_path):
    """Readers find the old output."""
    expected, count = whole(job)
    out = tmp_path / "out"
    words = words_of(job, given, out)
    call(words)
    assert commands.run([*words, "--overwrite"], tmp_path, count // 2, "kill")[0] == -9
    # A partition is made in its graph.
    assert {n: b for n, b in results(out).items() if "/." not in n} == expected
    call([*words, "--overwrite"])
    assert results(out) == expected
    assert os.listdir(tmp_path) == ["out"]


# "vectors" is a file, which has no record of its identity.
@pytest.mark.parametrize("job", cells(sorted({*JOBS} - {"vectors"}), quick=(*QUICK, "etl")))
def test_resuming_what_is_finished_is_success(job, given, whole, tmp_path):
    expected, _ = whole(job)
    words = words_of(job, given, tmp_path / "out")
    call(words)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    call([*words, "--resume"])
    assert results(tmp_path / "out") == expected
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert after.keys() == before.keys()


OTHER = {
    "etl": ["--directed"],
    "walk": ["--seed", "7"],
    "word2vec": ["--window", "3"],
    "embed": ["--seed", "7"],
    "gnn": ["--hidden", "7"],
    "centrality": ["--directed"],
    "shares": ["--samples", "9"],
    "similar": ["-k", "3"],
}


@pytest.mark.parametrize("job", cells(OTHER, quick=("etl", "gnn")))
def test_other_options_do_not_resume_a_run(job, given, commands, whole, tmp_path):
    """The second command is refused, and nothing of the first is lost."""
    expected, count = whole(job)
    words = words_of(job, given, tmp_path / "out")
    assert commands.run(words, tmp_path, count // 2, "kill")[0] == -9
    call([*words, *OTHER[job], "--resume"], code=2)
    call(again(job, words))
    assert results(tmp_path / "out") == expected
