import gzip

import pandas as pd
import pytest

from penstock.errors import InputError
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.layout import find_layout
from penstock.pipelines.etl.reading.pieces import find_pieces


def pieces(paths, kind="csv", target_bytes=64 << 20, **options):
    checked = EtlOptions(**options)
    paths = [str(path) for path in paths]
    return find_pieces(paths, kind, find_layout(paths, checked, kind), checked, target_bytes)


def test_what_cannot_be_cut_is_one_piece(tmp_path):
    (tmp_path / "quoted.csv").write_text('"1","2"\n' * 1000)
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 1000))
    for name in ("quoted.csv", "packed.csv.gz"):
        (piece,) = pieces([tmp_path / name], target_bytes=100)
        assert (piece.start, piece.stop) == (0, -1)
    (tmp_path / "names.csv").write_text('"src","dst"\n' + "1,2\n" * 1000)
    assert len(pieces([tmp_path / "names.csv"], target_bytes=3000)) == 2
    (tmp_path / "quotes.txt").write_text('"1" "2"\n' * 1000)  # edge lists do not quote
    assert len(pieces([tmp_path / "quotes.txt"], "edgelist", 4000, id_type="string")) == 2


def test_order_is_by_path(tmp_path):
    for name in ("c.csv", "a.csv", "b.csv"):
        (tmp_path / name).write_text("1,2\n")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".b.csv.crc").touch()
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "d.csv").write_text("3,4\n")
    names = ["a.csv", "b.csv", "c.csv", "deeper/d.csv"]
    for paths in (
        [tmp_path],
        [tmp_path / "deeper", tmp_path / "c.csv", tmp_path / "[ab].csv", tmp_path / "a.csv"],
        [tmp_path / "**" / "*.csv"],
        [f"file://{tmp_path}"],
    ):
        found = pieces(paths)
        assert [piece.path for piece in found] == [str(tmp_path / name) for name in names]
        assert [piece.number for piece in found] == [0, 1, 2, 3]


def test_missing_and_empty_files(tmp_path):
    for name in ("a.csv", "*.csv"):
        with pytest.raises(InputError, match="csv"):
            pieces([tmp_path / name])
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").touch()
    with pytest.raises(InputError, match=r"a\.csv"):
        pieces([tmp_path])
    (tmp_path / "c.csv").write_text("1,2\n")
    (piece,) = pieces([tmp_path])
    assert piece.path == str(tmp_path / "c.csv")


def test_empty_parquet_is_no_piece(tmp_path):
    full = pd.DataFrame({"src": [1], "dst": [2]})
    full.iloc[:0].to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"no rows in .*a\.parquet"):
        pieces([tmp_path], "parquet")
    full.to_parquet(tmp_path / "b.parquet")
    assert len(pieces([tmp_path], "parquet")) == 1


@pytest.mark.parametrize("second", ["dst,src\n1,2\n", "3,4\n"])
def test_headers_must_agree(tmp_path, second):
    (tmp_path / "a.csv").write_text("src,dst\n1,2\n")
    (tmp_path / "b.csv").write_text(second)
    with pytest.raises(InputError, match=r"b\.csv, row 1"):
        pieces([tmp_path])


@pytest.mark.parametrize("second", [{"src": ["a"], "dst": ["b"]}, {"src": [1], "to": [2]}])
def test_schemas_must_agree(tmp_path, second):
    pd.DataFrame({"src": [1], "dst": [2]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame(second).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet"):
        pieces([tmp_path], "parquet")


def test_integers_of_other_widths_agree(tmp_path):
    pd.DataFrame({"src": [1], "dst": [2]}).to_parquet(tmp_path / "a.parquet")
    other = pd.DataFrame({"x": ["?"], "dst": [2], "src": [1]}).astype(
        {"src": "int32", "dst": "uint8"}
    )
    other.to_parquet(tmp_path / "b.parquet")
    assert len(pieces([tmp_path], "parquet")) == 2
