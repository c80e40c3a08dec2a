"""Checkpoints: whole or not there, whatever ends the process, and what was kept stays."""

from contextlib import contextmanager

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
