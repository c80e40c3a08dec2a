"""Which options of a cluster have an effect on which kind: what would be ignored is refused."""

from __future__ import annotations

import os
from dataclasses import replace

from penstock.cluster.mpi import inside_mpi_job
from penstock.cluster.spec import KINDS, ClusterSpec
from penstock.errors import UsageError, warn
from penstock.options import flag

INSIDE = "inside"  # a script that mpiexec has started itself
RUNNING = "running"  # a cluster that is there already
_STARTED = frozenset({"local", "mpi", "cuda", "slurm"})
_PROCESSES = _STARTED | {INSIDE}
_OURS = _PROCESSES | {"threads"}
# The kinds on which an option has an effect; others have one on every kind.
EFFECTS: dict[str, frozenset[str]] = {
    "workers": _STARTED | {"threads"},
    "threads": _OURS,
    "memory_limit": _OURS,
    "hosts": frozenset({"mpi"}),
    "mpiexec": frozenset({"mpi"}),
    "device_limit": frozenset({"mpi", "cuda"}),
    "interface": _PROCESSES,
    "scheduler_port": _STARTED,
    "dashboard": _PROCESSES,
    "worker_timeout": _PROCESSES | {RUNNING},
    "tls": _PROCESSES | {RUNNING},
    "no_tls": _PROCESSES | {RUNNING},
}
# What threads have anyway: no connection that could be encrypted, and no dashboard.
_ANYWAY = {"no_tls": True, "dashboard": "none"}
_OF_A_GPU = ("device_pool", "device_limit")


def with_effect(spec: ClusterSpec, kind: str) -> ClusterSpec:
    """Return ``spec`` without the options that have no effect on ``kind``.

    Raises UsageError where one was given with a kind, and warns where ``auto`` has chosen the kind.
    Dask's configuration is for every kind, and gives none.

    kind  as ``kind_for`` returns it: of ``auto``, what that means for a job
    """
    place = _place(kind)
    plain, left = ClusterSpec(), {}
    for name in ClusterSpec.__dataclass_fields__:
        value = getattr(spec, name)
        if value == getattr(plain, name):
            continue
        if place not in EFFECTS.get(name, {place}):
            if name in spec.given and not (place == "threads" and _ANYWAY.get(name) == value):
                _without_effect(spec, name, kind, place)
        elif name in _OF_A_GPU and spec.device == "cpu":
            if name in spec.given:
                raise UsageError(
                    f"{flag(name)} is about a GPU's memory, and has no effect with --device cpu",
                    got=f"{flag(name)} {value}",
                    remedy="Leave one of them out",
                )
        else:
            continue
        left[name] = getattr(plain, name)
    return replace(spec, **left) if left else spec


def _place(kind: str) -> str:
    if kind not in KINDS:
        return RUNNING
    return INSIDE if kind == "mpi" and inside_mpi_job(os.environ) is not None else kind


def _without_effect(spec: ClusterSpec, name: str, kind: str, place: str) -> None:
    """Raise, or warn, that an option has no effect."""
    option = flag(name)
    kinds = " or ".join(one for one in KINDS if one in EFFECTS[name])
    if spec.cluster == "auto":
        warn(
            f"{option} has no effect on {kind}, which is what --cluster auto means for this job: "
            f"name one of the kinds {kinds} to have it"
        )
        return
    where = {
        RUNNING: f"the cluster {kind}, which runs already",
        INSIDE: "the workers of a script that mpiexec has started",
    }
    raise UsageError(
        f"{option} has no effect on {where.get(place, f'--cluster {kind}')}",
        expected=f"it with --cluster {kinds}",
        got=f"{option} {getattr(spec, name)}",
        remedy=f"Leave {option} out"
        + (", or give it to penstock cluster start" if place == RUNNING else ""),
    )
