"""The scheduler's dashboard, loaded when it is first opened: Bokeh takes over a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cluster.addresses import dashboard_link
from penstock.cluster.spec import ClusterSpec

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.deploy import Cluster

# Found without Bokeh, and tell what pages it has.
_LISTS = ("/sitemap.json", "/individual-plots.json")


def serve_dashboard(cluster: Cluster, spec: ClusterSpec) -> str | None:
    """Have the dashboard of a cluster that was started without it loaded on first demand.

    Returns where it answers, None where ``spec`` wants none. Pages that need no Bokeh (health,
    metrics, tables) do not load it.
    """
    link, scheduler = dashboard_link(cluster, spec), cluster.scheduler
    if link is not None and not scheduler.http_application.applications:
        _load_when_asked_for(scheduler)
    return link


def _load_when_asked_for(scheduler: Scheduler) -> None:
    served = scheduler.http_application
    find = served.find_handler

    def find_or_load(request: Any, **options: Any) -> Any:
        from tornado.web import ErrorHandler

        found = find(request, **options)
        if not issubclass(found.handler_class, ErrorHandler) and request.path not in _LISTS:
            return found
        from distributed.dashboard.scheduler import connect

        del served.find_handler
        connect(served, scheduler.http_server, scheduler, prefix="/")
        return served.find_handler(request, **options)

    served.find_handler = find_or_load
