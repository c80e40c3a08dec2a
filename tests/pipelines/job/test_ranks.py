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
def test_errors_of_ranks_have_the_types_of_errors_of_tasks(monkeypatch, cause, kind):
    def run(*_, **__):
        raise GangError("rank 1 failed") from cause

    monkeypatch.setattr("penstock.cluster.gang.run", run)
    with pytest.raises(PenstockError) as raised:
        run_ranks(None, "builtins:abs", (), ranks=2, title="train", quiet=True)
    assert type(raised.value) is kind
