"""Checkpoints: whole or not there, whatever ends the process, and what was kept stays."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from penstock.workers.training import checkpoint as module


def test_the_best_is_written_before_the_last_names_it(small, monkeypatch):
    """Killed between the two, a run would never write the best one again."""
    one = small(partitions=5)
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
        one.save({"epoch": 1}, names=("last", "best"))
    assert one.checkpoints.load("best").about == {"epoch": 1}
    assert one.checkpoints.load("last").about == {"epoch": 0}


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
    """Killed at random moments; every time it resumes from its last checkpoint.

    What is on disk then is compared, to the bit, with an undisturbed training run.
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
    rng, positions, longest = random.Random(16), [], 0.12
    killed = Killed(folder)
    try:
        while len(set(positions)) < 5:  # if cores are busy, little is saved before a kill
            saved = killed.run(rng.uniform(0.0, longest))
            longest *= 1 if saved else 1.2
            survivor = small("killed", partitions=6)
            assert survivor.checkpoints.has() or not saved
            if survivor.checkpoints.has():
                found = survivor.checkpoints.load()
                position = (found.about["epoch"], found.about["start"])
                if saved:  # nothing that was reported as saved is lost
                    assert position >= saved[-1]
                contents = survivor.contents(found.versions)
                np.testing.assert_array_equal(contents, expect(position))
                np.testing.assert_array_equal(found.tensors["rates"], np.arange(3.0))
                positions.append(position)
            survivor.close()
    finally:
        killed.close()
    assert positions == sorted(positions)


def test_a_best_checkpoint_without_a_last_one_keeps_its_versions(small):
    """A run is killed between the two, and saves at another moment when it is resumed."""
    one = small(partitions=5)
    one.epoch(0)
    one.save({"epoch": 0}, names=("best",))
    best = one.contents()
    one.close()
    again = small(partitions=5)
    again.epoch(0)
    again.epoch(1)
    again.save({"epoch": 1})
    np.testing.assert_array_equal(again.contents(again.checkpoints.load("best").versions), best)
