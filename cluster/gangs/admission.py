"""A gang's way in: asking the coordinator for workers, and what is said where there are none."""

from __future__ import annotations

from typing import Any

from penstock.cluster.answer import SILENT_SECONDS, ask
from penstock.cluster.gangs.coordinator import install
from penstock.errors import ClusterError


def admit(client: Any, ranks: int | None, timeout: float) -> dict[str, Any]:
    """Return the workers of a gang, once they are free; start ranks where there are none."""
    install(client)
    answer = _ask(client, ranks, timeout)
    if answer["status"] == "none":
        from penstock.cluster.mpi.attach import start_world  # here: it starts processes

        start_world(client, ranks, timeout)
        answer = _ask(client, ranks, timeout)
    if answer["status"] == "admitted":
        return answer
    wanted = "all ranks" if ranks is None else f"{ranks} ranks"
    if answer["status"] == "small":
        raise ClusterError(
            f"a gang of {wanted} does not fit into the cluster",
            expected=f"at most {answer['reason']}, the size of its largest MPI world",
            remedy="Ask for fewer with -k, or start the cluster with more workers: -n",
        )
    if answer["status"] == "failed":
        raise ClusterError(
            "the cluster's MPI world ended and could not be started again",
            got=answer["reason"],
            remedy="Start the cluster anew",
        )
    raise ClusterError(
        f"there were no workers for a gang of {wanted}",
        expected=f"them to be free within {timeout:g} s",
        got=answer["reason"],
        remedy="Wait for the other gangs, or give more time: gang.run(start_timeout=...)",
    )


def _ask(client: Any, ranks: int | None, timeout: float) -> dict[str, Any]:
    admitted: dict[str, Any] = ask(
        client,
        client.scheduler.gang_admit,
        within=timeout + SILENT_SECONDS,
        ranks=ranks,
        timeout=timeout,
        client=client.id,
    )
    return admitted
