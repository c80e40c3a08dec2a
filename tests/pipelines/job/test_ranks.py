"""What runs on ranks: a function or its name, with arguments that may be asked for."""

from __future__ import annotations

import errno
import sys
from typing import Any

import pytest

from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, ClusterError, GangError, PenstockError
from penstock.pipelines.job.ranks import run_ranks
from penstock.pipelines.job.workers import Workers


def test_a_worker_imports_nothing_of_its_client() -> None:
    spec = ClusterSpec(cluster="local", workers=1)
    with connect(spec) as client:
        workers = Workers(client, spec, quiet=False)
        assert workers.ranks("builtins:isinstance", (int,), title="ask") == [False]
        assert workers.ranks(isinstance, (int,), title="ask") == [False]
        assert workers.tasks("ask", abs, [(-1,), (-2,)], [1, 1], "numbers") == [1, 2]
        (loaded,) = client.run(lambda: sorted(sys.modules)).values()
    assert "penstock.workers.compiling" in loaded
    assert not [name for name in loaded if name.startswith("penstock.pipelines")]


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
def test_what_the_system_refused_a_rank_is_said_as_of_a_task(
    monkeypatch: pytest.MonkeyPatch,
    cause: BaseException | None,
    kind: type[PenstockError],
) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise GangError("rank 1 failed") from cause

    monkeypatch.setattr("penstock.cluster.gang.run", run)
    with pytest.raises(PenstockError) as raised:
        run_ranks(None, "builtins:abs", (), ranks=2, title="train", quiet=True)  # type: ignore[arg-type]
    assert type(raised.value) is kind
