"""The scheduler's dashboard, loaded when somebody first looks at it: Bokeh takes over a second."""

from __future__ import annotations

from typing import Any

# Found without Bokeh, and tell what pages it has.
_LISTS = ("/sitemap.json", "/individual-plots.json")


def load_when_asked_for(scheduler: Any) -> None:
    """Have a scheduler of this process, started without its dashboard, load it on first demand.

    Pages that need no Bokeh (health, metrics, tables) do not load it.
    """
    served = scheduler.http_application
    if served.applications:
        return  # it is there
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
