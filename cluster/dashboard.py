"""The scheduler's dashboard, loaded on first use: importing Bokeh takes over a second.

A page of another site must not read it through a name that leads to this machine: if it listens on
loopback, requests for another host are refused. Neither Dask nor Bokeh has a setting for this
(``allow_websocket_origin`` covers only a page's later messages).
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from penstock.cluster.addresses import dashboard_link
from penstock.cluster.spec import ClusterSpec

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.deploy import Cluster

# Hosts in requests for this machine.
LOOPBACK_HOST = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
# Served without Bokeh; they list its pages.
_LISTS = ("/sitemap.json", "/individual-plots.json")


def serve_dashboard(cluster: Cluster, spec: ClusterSpec) -> str | None:
    """Load the dashboard of a cluster on its first request.

    Returns its link, or None if ``spec`` disables it. Pages that need no Bokeh (health, metrics,
    tables) do not load it.
    """
    link, scheduler = dashboard_link(cluster, spec), cluster.scheduler
    dask_setup(scheduler, later=link is not None and not scheduler.http_application.applications)
    return link


def dask_setup(scheduler: Scheduler, *, later: bool = False) -> None:
    """Make a scheduler refuse requests for other hosts; ``later``: also load its pages on demand.

    Dask calls this function if the module is preloaded.
    """
    served = scheduler.http_application
    find = served.find_handler
    here = ip_address(scheduler.http_server.address).is_loopback

    def find_handler(request: Any, **options: Any) -> Any:
        nonlocal later
        from tornado.web import ErrorHandler

        if here and LOOPBACK_HOST.fullmatch(request.host) is None:
            return served.get_handler_delegate(request, ErrorHandler, {"status_code": 403})
        found = find(request, **options)
        absent = issubclass(found.handler_class, ErrorHandler) or request.path in _LISTS
        if not (later and absent):
            return found
        from distributed.dashboard.scheduler import connect

        later = False
        connect(served, scheduler.http_server, scheduler, prefix="/")
        return find(request, **options)

    served.find_handler = find_handler
