from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from penstock import Graph, etl
from penstock.pipelines.etl.report import EtlReport

Make = Callable[..., tuple[Graph, EtlReport]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a graph of a table, or of what etl reads; return it opened, and the report.

    make(frame)                      as Parquet
    make(frame, "e.csv", "other")    in a file of this name; the graph has a name, too
    make("1 2\\n", "e.txt")           a text in a file of this name
    """

    def make(
        table: Any, file: str = "e.parquet", name: str = "g", *, rows: int = 1 << 20, **options: Any
    ) -> tuple[Graph, EtlReport]:
        path = tmp_path / file
        if isinstance(table, str):
            path.write_text(table)
        elif not isinstance(table, pd.DataFrame):
            path = table
        elif path.suffix == ".parquet":
            table.to_parquet(path, row_group_size=rows)
        else:
            separator = {".csv": ",", ".tsv": "\t"}.get(path.suffix, " ")
            table.to_csv(path, index=False, sep=separator)
        report = etl(path, tmp_path / name, overwrite=True, **options)
        return Graph.open(tmp_path / name), report

    return make
