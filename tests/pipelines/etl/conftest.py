import pandas as pd
import pytest

from penstock import Graph, etl


@pytest.fixture
def make(tmp_path):
    """Make a graph of a table, or of what etl reads; return it opened, and the report.

    make(frame)                      as Parquet
    make(frame, "e.csv", "other")    in a file of this name; the graph has a name, too
    make("1 2\\n", "e.txt")           a text in a file of this name
    """

    def make(table, file="e.parquet", name="g", *, rows=1 << 20, **options):
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
