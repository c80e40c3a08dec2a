"""``penstock run``: a flow, which is a YAML file of stages, as tasks of one Dask scheduler.

module       owns
document     the file: stages, inputs, variables, checked; what a stage can run: any command of the
             command line; the paths that stages write and publish, which must not overlap
gates        what metrics are expected to be
state        the identities of outputs, so that unchanged stages are skipped
options      the options of a run, which choose its stages
run          one run: which stages, in which order, gates, publishing
engine       where stages run: the scheduler, drivers, workers, time limits
stage        what runs on a driver: a job, or python: a function of the user's, in a child process
detach       a run that outlives its shell
display      what is seen of a run while it is under way
publishing   copying outputs to the places where readers find them
records      what is kept of runs
planning     ``--plan``
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.pipelines.flow.report import FlowReport

__all__ = ["run_flow"]


def run_flow(
    flow: str | Path,
    *,
    variables: Mapping[str, str] | None = None,
    quiet: bool = True,
    **options: Any,
) -> FlowReport:
    """Run the stages of a flow that must run, check their gates, and publish what passed.

    Parameters
    ----------
    flow
        The YAML file.
    variables
        Values of the flow's variables.
    quiet
        Print no progress.
    **options
        Options of ``penstock run``: ``date``, ``accept`` and ``reason``, ``force``, ``first`` (its
        ``--from``), ``only``, ``replace_targets``, ``replace_outputs``.

    Returns
    -------
    FlowReport
        State, and of every stage its state, metrics, gates and errors; ``text()`` and
        ``to_dict()``.

    Raises
    ------
    UsageError
        The file is wrong; the error names the position.
    OutputExists
        Another run of the flow is under way; or a stage would write over what this flow has not
        made, or publish to a place of another flow.

    Examples
    --------
    >>> report = run_flow("nightly.yaml", variables={"day": "2026-11-23"})
    >>> report.state
    'passed'
    """
    # The process of a function imports this package, and nothing of these.
    from penstock.errors import UsageError
    from penstock.paths import client_path
    from penstock.pipelines.flow.document import read_flow
    from penstock.pipelines.flow.options import RunOptions
    from penstock.pipelines.flow.run import FlowRun

    how = RunOptions(report=False, **options)
    if how.set or how.dates or how.detach:
        raise UsageError("run_flow runs one day in this process", remedy="Give variables and date")
    return FlowRun(read_flow(client_path(flow), variables, date=how.date), how, quiet=quiet).run()
