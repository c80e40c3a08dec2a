"""Whose outputs are: a flow replaces nothing that it has not made itself."""

from __future__ import annotations

from penstock.errors import OutputExists
from penstock.pipelines.flow.document import Flow
from penstock.pipelines.flow.state import FlowState


def refuse_output(flow: Flow, state: FlowState, stage: str) -> None:
    """Raise OutputExists if a stage would replace what this flow has not made."""
    spec = flow.stages[stage]
    if spec.in_place and spec.inputs[0].stage is not None:
        return  # a part of another stage's output
    output, record = flow.written(stage), state.record(stage)
    if output is None or not output.exists():
        return
    if record:
        maker = record["by"]["flow"]
        if maker == flow.name:
            return
        problem = f"which the flow {maker} made"
    elif output.is_dir() and not any(output.iterdir()):
        return
    else:
        problem = "where something exists that this flow did not make"
    raise OutputExists(
        f"stage {stage} would write {output}, {problem}",
        expected="nothing, an empty folder, or what this flow has made there",
        remedy="Move it away, or give this flow another folder:, or the stage another name; "
        "or give --replace-outputs, with which the stage may replace it",
    )
