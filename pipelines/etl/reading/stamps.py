"""The files that a run reads, and their state when it begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.manifest import FILE_NAME as MANIFEST
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.tables.sources import find_files, format_of, stamp_of

_NODE_TABLES = ("parquet", "arrow", "csv", "tsv")


def files_read(edges: Iterable[str], kind: str, options: EtlOptions) -> dict[str, Any]:
    """Return the stamp of every file that a run reads, by its path."""
    files = find_files(list(edges), None if kind == "tu" else kind)
    for path in (options.valid, options.test, *options.remove):
        files += [] if path is None else find_files([str(path)], kind)
    tables = [] if options.nodes is None else find_files([str(options.nodes)])
    files += [path for path in tables if format_of(path) in _NODE_TABLES]
    if options.features is not None and options.features.is_file():
        files.append(str(options.features))
    files += [str(one / MANIFEST) for one in (options.features_as, options.base) if one is not None]
    return {path: stamp_of(path) for path in files}
