"""Outputs of flows that no stage has run for: their gates and publishing are tried at once."""

import json

from penstock.pipelines.flow.document import read_flow
from penstock.pipelines.flow.state import FlowState


def make_record(folder, /, **body):
    """Keep the record of a run that has passed, unless ``body`` says more; return its folder."""
    whole = {"format": "penstock-run", "version": 1, "flow": "f", "file": "f.yaml", "seconds": 1}
    whole |= {"date": "2026-11-28", "began": "2026-11-28T04:00:00+00:00", "state": "passed"}
    (folder / "logs").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(whole | body))
    return folder


def make_outputs(path, date=None, **variables):
    """Make the outputs of a flow of functions as if they had run: next, all is unchanged.

    The output of a stage is its option ``value``, in a file ``v``; it reports it as ``total``.
    """
    flow = read_flow(path, variables, date=date)
    flow.folder.mkdir(parents=True, exist_ok=True)
    state, contents, by = FlowState(flow), dict[str, str](), {"flow": flow.name, "run": "made"}
    for name, stage in flow.stages.items():
        output, value = flow.output(name), stage.options.get("value", 1)
        output.mkdir(exist_ok=True)
        (output / "v").write_text(str(value))
        made, _ = state.decide(stage, contents, force=False)
        state.begin(stage, made, by)
        state.end(stage, made, {"total": value}, 1.0, by)
        contents[name] = state.content(name, made)
