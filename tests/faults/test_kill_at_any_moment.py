"""A writer that is killed at any change of a name: the old output or the new one is whole."""

import json
import os
import sys
from pathlib import Path

import pytest
from processes import python

from penstock.errors import UsageError
from penstock.files import FileEntry
from penstock.formats import Format
from penstock.output import Output


def output(path, text="new", **more):
    return Output(path, kind="thing", identity={"options": {"text": text}}, **more)


def make(path, text="new", **more):
    """Write an output of two pieces, as jobs do; return how many pieces existed."""
    form = Format("thing", 1, "thing.json", "thing", "Make one", "Restore it")
    with output(path, text, **more).open() as out:
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


# The events of Python's audit hooks at which a file or folder gets, changes or loses its name.
EVENTS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "open"}
KILLED = """
import itertools, os, pathlib, signal, sys
import penstock.output
from test_kill_at_any_moment import EVENTS, content, make, output

out = pathlib.Path(sys.argv[1], "out")
exchange = penstock.output.exchange

def forked(work):
    if (child := os.fork()) == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def killed(moment, before):
    seen = itertools.count(1)
    def hook(event, _):
        if event in EVENTS and next(seen) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    make(out, overwrite=before)

old, new = {"a": "old", "b": "old"}, {"a": "new", "b": "new"}

def killed_at_every_moment(exchanges, before):
    # Without an exchange as on NFS.
    penstock.output.exchange = exchange if exchanges else lambda one, other: False
    for moment in itertools.count(1):
        penstock.output.remove(out)
        if before:
            make(out, "old")
        ended = forked(lambda: killed(moment, before))
        found = content(out) if out.exists() else None
        allowed = [new, old] if before else [new, None]
        if not exchanges:
            allowed.append(None)  # for a moment neither exists
        assert found in allowed, (moment, found)
        if output(out).finished is None or (out.parent / ".out.partial").exists():
            make(out, overwrite=True, resume=True)
        assert content(out) == new, moment
        left = set(os.listdir(out.parent)) - {".out.lock"}  # which no process holds
        assert left == {"out"}, (moment, left)
        if ended == 0:
            return moment

for exchanges in (True, False):
    for before in (False, True):
        print(killed_at_every_moment(exchanges, before))
"""


def test_an_output(tmp_path):
    """A new one, and one that replaces another, with and without an exchange of names."""
    (tmp_path / "place").mkdir()
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    moments = python("-c", KILLED, tmp_path / "place", env={**os.environ, "PYTHONPATH": path})
    assert len(moments.split()) == 4
    assert min(map(int, moments.split())) > 20


def test_what_is_whole_is_not_made_again(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), output(out).open() as made:
        (made.result / "a").write_text("new")
        made.pieces.save("a", {}, [FileEntry("a", 3, "")])
        raise KeyboardInterrupt
    with pytest.raises(UsageError):
        make(out, "other", resume=True)
    with pytest.raises(UsageError), output(out, resume=True).open():
        raise UsageError("there is no cluster 'nosuch'")  # takes no work away
    assert make(out, resume=True) == 1


def test_only_what_the_manifest_names_is_published(tmp_path):
    with Output(tmp_path / "out", kind="graph").open() as out:
        (out.result / "deep").mkdir()
        for name in ("a", "deep/b", "deep/.b.0123abcd.tmp", "deep/c", ".part-1.tmp"):
            (out.result / name).touch()
        body = {"files": {"a": {}, "deep/b": {}}}
        (out.result / "graph.json").write_text(json.dumps(body))
    found = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*")}
    assert found == {"a", "deep", "deep/b", "graph.json"}
