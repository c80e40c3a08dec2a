"""``penstock generate``: graphs to try things on, the same for the same seed.

generate("rmat", "g", scale=16)             skewed degrees, as in Graph500
generate("sbm", "g", nodes=10_000)          blocks with features and labels that a GNN can learn
generate("kg", "g", entities=10_000)        a knowledge graph with a planted rule
generate("zoo", "g", graphs=1_000_000)      very many small graphs side by side
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.paths import client_path
from penstock.pipelines.job import run

if TYPE_CHECKING:
    from penstock.pipelines.generate.job import GenerateJob
    from penstock.pipelines.generate.report import GenerateReport

# Of each kind: the module, and what its job and options begin with.
_MODULES = {
    "rmat": ("rmat", "Rmat"),
    "sbm": ("sbm", "Sbm"),
    "kg": ("knowledge", "Knowledge"),
    "zoo": ("zoo", "Zoo"),
}
KINDS = tuple(_MODULES)


def generate(kind: str, out: str | Path, *, quiet: bool = True, **options: Any) -> GenerateReport:
    """Make a random graph, and save it in the directory ``out``.

    Parameters
    ----------
    kind
        ``"rmat"``, ``"sbm"`` (stochastic block model, with features and labels), ``"kg"`` (a
        knowledge graph) or ``"zoo"`` (many small graphs).
    out
        Directory to write.
    quiet
        Print no progress.
    **options
        The options of ``penstock generate KIND``, as ``scale`` of ``"rmat"`` or ``nodes`` of
        ``"sbm"``; ``seed`` of all. The same seed gives the same graph on any number of cores.

    Returns
    -------
    GenerateReport
        Counts, sizes and times; ``text()`` and ``to_dict()``.

    Raises
    ------
    UsageError
        An unknown kind, or options that it does not have.
    CapacityError
        It does not fit on the disk or in memory.
    OutputExists
        ``out`` is taken, and ``overwrite`` is not set.

    Examples
    --------
    >>> generate("rmat", "g", scale=20, edge_factor=16, seed=1)
    """
    if kind not in _MODULES:
        known = ", ".join(KINDS)
        raise UsageError(f"there is no kind of graph {kind!r}", expected=f"one of {known}")
    from penstock.pipelines.generate import options as known_options

    given = getattr(known_options, f"{_MODULES[kind][1]}Options")(**options)
    return run(job_of(kind, client_path(out), given, quiet=quiet))


def job_of(kind: str, out: Path, options: Any, *, quiet: bool) -> GenerateJob:
    """Return the job that makes a graph of ``kind``; only its own modules are loaded."""
    module, name = _MODULES[kind]
    made = getattr(import_module(f"penstock.pipelines.generate.{module}"), f"{name}Job")
    job: GenerateJob = made(out, options, quiet=quiet)
    return job
