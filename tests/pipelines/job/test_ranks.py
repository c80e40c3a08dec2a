"""What runs on ranks: a function or its name, with arguments that may be asked for."""

import errno

import pytest

from penstock.errors import CapacityError, ClusterError, GangError, PenstockError
from penstock.pipelines.job.ranks import run_ranks


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (MemoryError(), CapacityError),
        (OSError(errno.ENOSPC, "full", "a"), CapacityError),
        (OSError(errno.EACCES, "denied", "a"), PenstockError),
        (CapacityError("it is full"), CapacityError),
        (ClusterError("it timed out"), GangError),
        (ValueError("x"), GangError),
        (None, GangError),
    ],
)
def test_what_the_system_refused_a_rank_is_said_as_of_a_task(monkeypatch, cause, kind):
    def run(*_, **__):
        raise GangError("rank 1 failed") from cause

    monkeypatch.setattr("penstock.cluster.gang.run", run)
    with pytest.raises(PenstockError) as raised:
        run_ranks(None, "builtins:abs", (), ranks=2, title="train", quiet=True)
    assert type(raised.value) is kind
