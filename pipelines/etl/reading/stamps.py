"""Which files a run reads, as they were when it began: none may change before it is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InputError
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.tables.sources import find_files, format_of, stamp_of

_NODE_TABLES = ("parquet", "arrow", "csv", "tsv")


@dataclass
class Inputs:
    """The files of a run and their stamps, taken before it reads the first byte."""

    edges: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, edges: Iterable[str], kind: str, options: EtlOptions) -> Inputs:
        """Note the files that a run will read as they are now."""
        files = find_files(list(edges), None if kind == "tu" else kind)
        for path in (options.valid, options.test):
            files += [] if path is None else find_files([str(path)], kind)
        tables = [] if options.nodes is None else find_files([str(options.nodes)])
        tables = [path for path in tables if format_of(path) in _NODE_TABLES]
        if options.features is not None and options.features.is_file():
            tables.append(str(options.features))
        return cls({path: stamp_of(path) for path in files}, {p: stamp_of(p) for p in tables})

    def to_dict(self) -> dict[str, Any]:
        """Return the stamp of every file by its path."""
        return self.edges | self.nodes

    @contextmanager
    def reading_edges(self) -> Iterator[None]:
        """Raise InputError if a file of edges is not what it was when the block ends."""
        with _reading(self.edges):
            yield

    @contextmanager
    def reading_nodes(self) -> Iterator[None]:
        """Raise InputError if the node table or the features are not what they were, likewise."""
        with _reading(self.nodes):
            yield


@contextmanager
def _reading(stamps: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except Exception:
        _check(stamps)  # of half a file anything may be said: that it changed is the cause
        raise
    _check(stamps)


def _check(stamps: dict[str, Any]) -> None:
    for path, before in stamps.items():
        if stamp_of(path) != before:
            raise InputError(
                f"{path} changed while this run was reading it",
                expected="a file that stays as it is until it is read",
                remedy="Run again when it is whole: what writes it should write another file and "
                "rename it, between runs",
            )
