"""The last whole run of a flow as metrics of Prometheus, for node_exporter's textfile collector."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

from penstock.files import save_text
from penstock.pipelines.flow.records import RunRecord, State


def save_metrics(run: RunRecord) -> None:
    """Write ``runs/FLOW.prom``, beside the folder of the run."""
    if run.whole:
        path = run.folder.parent / f"{run.body['flow']}.prom"
        save_text(path, "".join(f"{line}\n" for line in _lines(run)))


def _lines(run: RunRecord) -> Iterator[str]:
    flow = f'flow="{run.body["flow"]}"'
    day = dt.datetime.fromisoformat(run.date).replace(tzinfo=dt.UTC).timestamp()
    values = {
        "penstock_run_passed": int(run.state == State.PASSED),
        "penstock_run_seconds": run.seconds or 0.0,
        "penstock_run_date_seconds": int(day),
        "penstock_run_ended_seconds": int(time.time()),
    }
    for name, value in values.items():
        yield f"# TYPE {name} gauge"
        yield f"{name}{{{flow}}} {value}"
    yield "# TYPE penstock_stage_seconds gauge"
    for stage, one in run.stages.items():
        yield f'penstock_stage_seconds{{{flow},stage="{stage}"}} {one.get("seconds") or 0.0}'
    yield "# TYPE penstock_gate_met gauge"
    for stage, one in run.stages.items():
        for number, gate in enumerate(one.get("gates", [])):
            named = f'{flow},stage="{stage}",metric="{gate["metric"]}",gate="{number}"'
            yield f"penstock_gate_met{{{named}}} {int(gate['met'])}"
