"""Checkpoints: whole or not there, whatever ends the process, and what was kept stays."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from small_disks import mount, unmount

from penstock.errors import CapacityError, CorruptFile, MissingFile
from penstock.workers.embed.storage import Geometry
from penstock.workers.embed.storage.versions import Versions
from penstock.workers.training import checkpoint as module


def test_a_place_that_a_checkpoint_names_is_not_written():
    versions = Versions(Geometry.of(2, 10, 16, 1, places=3))
    history = {}
    rng = random.Random(3)
    kept = {}
    for _ in range(500):
        partition = rng.randrange(2)
        version = versions.next(partition)
        assert version.number == versions.current(partition).number + 1
        for names in kept.values():
            assert (partition, version.place) != (partition, names[partition].place) or (
                names[partition].number == 0
            )
        versions.wrote(version)
        history[partition, version.place] = version
        if rng.random() < 0.2:
            name = rng.choice(["last", "best"])
            versions.keep(name)
            kept[name] = list(versions.newest)
        for names in kept.values():
            for named in names:
                assert named.number == 0 or history[named.partition, named.place] == named


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(small):
    whole = small("whole", partitions=8)
    for epoch in range(3):
        whole.epoch(epoch)
    whole.buffer.flush()
    first = small("parts", partitions=8)
    first.epoch(0)
    for state in first.buffer.visits(1):
        for phase in state:
            first.train(phase)
        if state.number == 5:
            first.save({"epoch": 1, "start": 6})
        if state.number == 9:
            break  # what comes after the checkpoint is lost
    first.close()
    again = small("parts", partitions=8)
    about = again.checkpoints.load().about
    assert about == {"epoch": 1, "start": 6}
    again.epoch(1, start=6)
    again.epoch(2)
    again.buffer.flush()
    np.testing.assert_array_equal(again.contents(), whole.contents())


def test_the_best_checkpoint_stays_beside_the_last(small):
    one = small(partitions=5, places=3)
    one.epoch(0)
    one.save({"epoch": 0}, names=("last", "best"))
    best = one.contents()
    for epoch in range(1, 4):
        one.epoch(epoch)
        one.save({"epoch": epoch})
    last = one.contents()
    one.close()
    again = small(partitions=5, places=3)
    found = {name: again.checkpoints.load(name) for name in ("last", "best")}
    assert found["best"].about == {"epoch": 0}
    assert found["last"].number == 4
    np.testing.assert_array_equal(found["best"].tensors["rates"], np.arange(3.0))
    np.testing.assert_array_equal(again.contents(found["best"].versions), best)
    np.testing.assert_array_equal(again.contents(found["last"].versions), last)
    again.epoch(4)
    np.testing.assert_array_equal(again.contents(found["best"].versions), best)
    names = sorted(path.name for path in again.folder.glob("*.safetensors"))
    assert names == ["best.safetensors", "last.safetensors"]


@pytest.mark.parametrize("names", [("last", "best"), ("best", "last")])
def test_the_best_is_there_before_the_last_tells_of_it(small, monkeypatch, names):
    """Killed between the two, a run would never write the best one again."""
    one = small(partitions=5, places=3)
    one.epoch(0)
    one.save({"epoch": 0}, names=("last", "best"))
    one.epoch(1)
    whole = module.atomic
    written = []

    @contextmanager
    def killed(path):
        written.append(path.name)
        if len(written) == 2:
            raise KeyboardInterrupt
        with whole(path) as temporary:
            yield temporary

    monkeypatch.setattr(module, "atomic", killed)
    with pytest.raises(KeyboardInterrupt):
        one.save({"epoch": 1}, names=names)
    assert one.checkpoints.load("best").about == {"epoch": 1}
    assert one.checkpoints.load("last").about == {"epoch": 0}


def test_damaged_checkpoints_are_found(small):
    one = small(partitions=4)
    assert not one.checkpoints.has()
    with pytest.raises(MissingFile):
        one.checkpoints.load()
    one.epoch(0)
    one.save({"epoch": 0})
    path = one.folder / "last.safetensors"
    kept = path.read_bytes()
    for damaged in (kept[:-9], kept[:-1] + b"?", kept[:40]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFile) as error:
            one.checkpoints.load()
        assert path.name in str(error.value)
    path.write_bytes(kept)
    one.checkpoints.load()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_real_disk_that_fills_midway(tmp_path, small):
    folder = mount(tmp_path / "small", "size=2m")
    with ExitStack() as stack:
        stack.callback(unmount, folder)
        one = small("small", partitions=5)
        stack.callback(one.close)  # before the disk goes
        one.epoch(0)
        one.save({"epoch": 0})
        before = one.contents()
        room = os.statvfs(folder)
        (folder / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize))
        one.epoch(1)  # the table has its space already
        with pytest.raises(CapacityError):
            one.save({"epoch": 1})
        found = one.checkpoints.load()
        assert found.about == {"epoch": 0}
        np.testing.assert_array_equal(one.contents(found.versions), before)
        (folder / "filler").unlink()
        one.save({"epoch": 1})
        assert one.checkpoints.load().about == {"epoch": 1}


# One process that has loaded everything, and is forked for each training run that will be killed.
FORKING = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import Small
import safetensors.numpy
from penstock.kernels.cpu.philox import random_words

random_words(0, 0, 0, 1, 1)

def tell(*words):
    # In one call: a kill between the pieces that an unbuffered print writes would join two lines.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def train():
    small = Small(Path(sys.argv[2]), partitions=6)
    epoch, start = 0, 0
    if small.checkpoints.has():
        about = small.checkpoints.load().about
        epoch, start = about["epoch"], about["start"]
    tell("pid", os.getpid())
    while True:
        for state in small.buffer.visits(epoch, start=start):
            for phase in state:
                small.train(phase)
            if state.number % 3 == 2:
                small.save({"epoch": epoch, "start": state.number + 1})
                tell("saved", epoch, state.number + 1)
        epoch, start = epoch + 1, 0

for line in sys.stdin:
    child = os.fork()
    if not child:
        train()
    os.waitpid(child, 0)
    tell("ended")
"""


class Killed:
    """Training runs in a folder, each of which is killed after some seconds."""

    def __init__(self, folder):
        command = [sys.executable, "-P", "-c", FORKING, str(Path(__file__).parents[1]), str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, seconds):
        """Train, kill, and return what the run said it had saved: (epoch, start)."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        word, pid = self._process.stdout.readline().split()
        assert word == "pid"
        time.sleep(seconds)
        os.kill(int(pid), signal.SIGKILL)
        saved = []
        while (line := self._process.stdout.readline().split()) != ["ended"]:
            word, epoch, start = line
            assert word == "saved"
            saved.append((int(epoch), int(start)))
        return saved

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=20)


def test_a_kill_at_any_moment_leaves_one_checkpoint_whole(tmp_path, small):
    """Killed at random moments; every time it goes on from its last checkpoint.

    What is on disk then is compared, to the bit, with a training run that nobody stopped.
    """
    reference = small("whole", partitions=6)
    expected = {}
    epochs = iter(range(10**6))

    def expect(wanted):
        """Return the contents at a position, training on to it."""
        while wanted not in expected:
            epoch = next(epochs)
            for state in reference.buffer.visits(epoch):
                for phase in state:
                    reference.train(phase)
                if state.number % 3 == 2:
                    reference.buffer.flush()
                    expected[epoch, state.number + 1] = reference.contents()
        return expected[wanted]

    folder = tmp_path / "killed"
    folder.mkdir()
    rng = random.Random(16)
    positions, longest = [], 0.12
    killed = Killed(folder)
    try:
        for _ in range(16):
            saved = killed.run(rng.uniform(0.0, longest))
            longest *= 1 if saved else 1.2  # where cores are busy nothing is saved so soon
            survivor = small("killed", partitions=6)
            assert survivor.checkpoints.has() or not saved
            if survivor.checkpoints.has():
                found = survivor.checkpoints.load()
                position = (found.about["epoch"], found.about["start"])
                if saved:  # nothing that was said to be saved is lost
                    assert position >= saved[-1]
                contents = survivor.contents(found.versions)
                np.testing.assert_array_equal(contents, expect(position))
                np.testing.assert_array_equal(found.tensors["rates"], np.arange(3.0))
                positions.append(position)
            survivor.close()
    finally:
        killed.close()
    assert len(set(positions)) > 4, f"it did not get on: {positions}"
    assert positions == sorted(positions)
