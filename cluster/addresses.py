"""The addresses of Penstock's schedulers and of their dashboards."""

from __future__ import annotations

import socket
from functools import cache
from typing import TYPE_CHECKING, Any

import psutil

from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from distributed import Security
    from distributed.deploy import Cluster


def scheduler_addresses(
    spec: ClusterSpec, folder: str, *, used: Security | None, remote: bool
) -> dict[str, Any]:
    """Return the scheduler's addresses, as options of LocalCluster.

    folder  for its files
    used    its credentials, or None
    remote  whether workers come from other hosts; if not, it binds to loopback only
    """
    dashboard = spec.dashboard != "none"
    addresses: dict[str, Any] = {
        # Without an address Dask would serve something at its usual port.
        "dashboard_address": spec.dashboard if dashboard else "localhost:0",
        # Its pages take over a second to load: see dashboard.py.
        "scheduler_kwargs": {"dashboard": False, "local_directory": folder},
        "scheduler_port": spec.scheduler_port,
    }
    if spec.interface:
        addresses["interface"] = _known(spec.interface)
    else:
        addresses["host"] = _own_address() if remote else "127.0.0.1"
    addresses["protocol"] = "tcp" if used is None or not used.require_encryption else "tls"
    _free(spec.scheduler_port, addresses.get("host", ""), "--scheduler-port")
    if dashboard:
        host, _, port = spec.dashboard.rpartition(":")
        if not port.isdecimal():
            raise UsageError(
                "option --dashboard has a bad value",
                expected="host:port, such as localhost:8787, or none",
                got=repr(spec.dashboard),
            )
        _free(int(port), host, "--dashboard")
    return addresses


def dashboard_link(cluster: Cluster, spec: ClusterSpec) -> str | None:
    """Return the dashboard's link; its host may differ from the scheduler's."""
    from distributed.utils import format_dashboard_link

    server = cluster.scheduler.services.get("dashboard")
    if server is None or spec.dashboard == "none":
        return None
    host = spec.dashboard.rpartition(":")[0]
    if host in ("", "0.0.0.0", "[::]"):
        return str(cluster.dashboard_link)
    return str(format_dashboard_link(host, server.port))


def is_here(host: str) -> bool:
    """Return whether an address belongs to this host."""
    return host in _own_addresses()


@cache
def _own_addresses() -> set[str]:
    return {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}


def _known(interface: str) -> str:
    known = sorted(psutil.net_if_addrs())
    if interface not in known:
        raise UsageError(
            f"this machine has no network interface {interface!r}",
            expected=f"one of {', '.join(known)}",
        )
    return interface


def _own_address() -> str:
    # The name by which other hosts know this one; --interface chooses if it has several networks.
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise ClusterError(
            f"this host's own name {socket.gethostname()!r} has no address",
            got=str(error),
            remedy="Name the network interface that the other hosts reach: --interface",
        ) from error


def _free(port: int, host: str, option: str) -> None:
    if not port:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ClusterError(
                f"port {port} of {option} cannot be used",
                got=error.strerror,
                remedy="Choose another, or 0 for any free port",
            ) from error
