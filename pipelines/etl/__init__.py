"""``penstock etl``: edges in, graph out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.paths import client_input, client_path
from penstock.pipelines.etl.job import EtlJob
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.job import run as run_job

__all__ = ["EtlOptions", "EtlReport", "etl"]


def etl(
    edges: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    cluster: ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> EtlReport:
    """Make a graph at ``out`` of one or more inputs of ``edges``; options are EtlOptions' fields.

    etl("follows.parquet", "follows", source="follower", target="followed", directed=True)
    etl(["train.txt"], "fb15k", format="triples", valid="valid.txt", test="test.txt")

    ``directed=None`` decides by the edges: those with relations are directed, others are not.
    """
    sources = [edges] if isinstance(edges, str | Path) else list(edges)
    inputs = [client_input(source) for source in sources]
    return run_job(EtlJob(inputs, client_path(out), EtlOptions(**options), cluster, quiet=quiet))
