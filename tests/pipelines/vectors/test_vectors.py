"""Vectors in every format: what is written is read again, what is wrong is named."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import export_vectors, vector_parts
from penstock.errors import CorruptFile, InputError, OutputExists, TruncatedFile, UsageError
from penstock.files import save_npy
from penstock.pipelines.cli import run
from penstock.pipelines.vectors import Vectors, store, tables, word2vec, write_vectors


def values_of(rows, width, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


@pytest.fixture
def written(tmp_path):
    """A directory of ours with vectors of whole numbers."""

    def write(ids, width=5, name="v", **more):
        folder = tmp_path / name
        folder.mkdir()
        write_vectors(folder, ids, values_of(len(ids), width), **more)
        return folder

    return write


# -- our own directory -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids",
    [
        np.array([5, 3, 9, 2**40]),
        pa.array(["a", "b c", "ü", ""]),
        pa.chunked_array([["x"], ["y", "z", "w"]], pa.large_string()),
        pa.array([1, 2, 3, 4], pa.uint8()),
        ["list", "of", "text", "ids"],
    ],
)
def test_what_is_written_is_read(written, ids):
    folder = written(ids, counts=np.arange(4), context=values_of(4, 5, seed=1), made_by="a test")
    found = Vectors.open(folder)
    expected = store.as_ids(ids)
    assert found.ids.equals(expected)
    np.testing.assert_array_equal(found.values, values_of(4, 5))
    np.testing.assert_array_equal(found.context, values_of(4, 5, seed=1))
    assert found.about["made_by"] == "a test"
    assert (len(found), found.dimension) == (4, 5)
    # Anyone else reads the same from the Parquet files.
    table = pq.read_table(sorted(folder.glob("part-*.parquet")))
    np.testing.assert_array_equal(table["vector"].to_pylist(), values_of(4, 5))
    assert table["count"].to_pylist() == [0, 1, 2, 3]
    assert table["id"].to_pylist() == expected.to_pylist()


def test_many_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_parts, "PART_BYTES", 4 * 5 * 30)
    write_vectors(tmp_path, np.arange(100), values_of(100, 5))
    assert len(list(tmp_path.glob("part-*.parquet"))) == 4
    found = Vectors.open(tmp_path)
    assert found.ids.to_pylist() == list(range(100))
    assert isinstance(found.values, np.memmap)
    assert found.context is None
    assert Vectors.open(found) is found
    (tmp_path / "vectors.json").unlink()
    plain = Vectors.open(tmp_path)  # the parts alone say the same
    assert plain.ids.equals(found.ids)
    np.testing.assert_array_equal(plain.values, found.values)


def test_none_at_all(tmp_path):
    write_vectors(tmp_path, np.empty(0, np.int64), np.empty((0, 4), np.float32))
    assert len(Vectors.open(tmp_path)) == 0


def test_ids_that_are_there_twice_or_null_are_not_written(tmp_path):
    with pytest.raises(InputError, match="1 ids a second time.*7 in rows 0 and 2"):
        write_vectors(tmp_path, np.array([7, 8, 7]), values_of(3, 2))
    with pytest.raises(InputError, match="without an id.*null in row 1"):
        write_vectors(tmp_path, pa.array([7, None, 8]), values_of(3, 2))
    with pytest.raises(InputError, match="2 ids for 3 vectors"):
        write_vectors(tmp_path, pa.array([7, 8]), values_of(3, 2))
    assert not list(tmp_path.iterdir())


def test_a_damaged_directory_says_so(written):
    folder = written(np.arange(50))
    with (folder / "vectors.npy").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(TruncatedFile, match=r"vectors.npy has the wrong size"):
        Vectors.open(folder)
    body = json.loads((folder / "vectors.json").read_text())
    (folder / "vectors.json").write_text(json.dumps(body | {"rows": "many"}))
    with pytest.raises((CorruptFile, TruncatedFile)):
        Vectors.open(folder)


def test_a_manifest_that_lists_no_vectors(tmp_path):
    store.FORMAT.save(tmp_path, {"files": {}})
    said = "vectors.json is damaged. Expected vectors.npy among its files, got none"
    with pytest.raises(CorruptFile, match=said):
        Vectors.open(tmp_path)


# -- ids -------------------------------------------------------------------------------------------


def test_integers_are_found_by_their_text_and_the_other_way_round(written):
    numbers = Vectors.open(written(np.array([10, 20, 30])))
    assert numbers.find(["20", "x", "30"]).tolist() == [1, -1, 2]
    assert numbers.find([20, 99]).tolist() == [1, -1]
    assert numbers.find(np.array([30, 10])).tolist() == [2, 0]
    assert numbers.find(["20", 10]).tolist() == [1, 0]
    assert numbers.find([None, "1.5", ""]).tolist() == [-1, -1, -1]
    words = Vectors.open(written(["10", "b"], name="words"))
    assert words.find([10, "b", 3]).tolist() == [0, 1, -1]
    np.testing.assert_array_equal(words["b"], values_of(2, 5)[1])
    assert numbers.find([]).tolist() == []


def test_unknown_ids_are_counted_and_the_first_ten_named(written):
    vectors = Vectors.open(written(np.arange(5)))
    with pytest.raises(InputError) as failed:
        vectors.rows([3, *range(100, 115)])
    text = str(failed.value)
    assert "no vectors of 15 of 16 ids" in text
    assert "100, 101" in text
    assert "109 and 5 more" in text
    assert "110" not in text


def test_nan_and_infinite_values_are_named(tmp_path, monkeypatch):
    from penstock.pipelines.vectors import vectors as module

    monkeypatch.setattr(module, "_CHUNK_BYTES", 64)
    values = values_of(40, 4)
    values[7, 2], values[33, 0] = np.nan, np.inf
    write_vectors(tmp_path, np.arange(40) * 10, values)
    with pytest.raises(InputError, match="2 vectors with NaN or infinite values.*70, 330"):
        Vectors.open(tmp_path).check_finite()


# -- Parquet and .npy ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.int32(), 3)],
    ids=str,
)
def test_any_list_of_numbers_in_parquet(tmp_path, kind):
    table = pa.table({
        "node": pa.array(["a", "b"]),
        "class": pa.array([1, 2]),
        "embedding": pa.array([[1, 2, 3], [4, 5, 6]]).cast(kind),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet")
    found = Vectors.open(tmp_path / "x.parquet")
    assert found.ids.to_pylist() == ["a", "b"]
    assert found.values.dtype == np.float32
    assert found.values.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [1, 2], "vector": [[1.0], [1.0, 2.0]]}, "different lengths.*1 numbers.*2 in row 1"),
        ({"id": [1, 2], "vector": [[1.0], None]}, "1 rows without a vector.*row 1"),
        ({"id": [1, 2], "vector": [[1.0], [None]]}, "1 nulls in its vectors"),
        ({"id": [1, 1], "vector": [[1.0], [2.0]]}, "a second time"),
        ({"id": [1, 2], "vector": [["a"], ["b"]]}, "lists of numbers"),
        ({"id": [1, 2], "vector": [1.0, 2.0]}, "a column vector with lists"),
        ({"vector": [[1.0], [2.0]]}, "a column id"),
        ({"id": [1, 2], "a": [[1.0], [2.0]], "b": [[1.0], [2.0]]}, "a column vector"),
    ],
)
def test_bad_parquet(tmp_path, columns, message):
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=message):
        Vectors.open(tmp_path / "x.parquet")


def test_parquet_that_is_none(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=r"cannot read .*x.parquet as Parquet"):
        Vectors.open(tmp_path / "x.parquet")


def test_npy_and_its_ids(tmp_path):
    values = values_of(3, 4)
    save_npy(tmp_path, "x.npy", values)
    assert Vectors.open(tmp_path / "x.npy").ids.to_pylist() == [0, 1, 2]
    (tmp_path / "names.txt").write_text("a\nb c\r\nü\n")
    named = Vectors.open(tmp_path / "x.npy", ids=tmp_path / "names.txt")
    assert named.ids.to_pylist() == ["a", "b c", "ü"]
    save_npy(tmp_path, "x.ids.npy", np.array([7, 8, 9]))
    assert Vectors.open(tmp_path / "x.npy").ids.to_pylist() == [7, 8, 9]
    tables.write_npy(tmp_path / "x.npy", pa.array(["p", "q", "r"]), values)
    again = Vectors.open(tmp_path / "x.npy")
    assert again.ids.to_pylist() == ["p", "q", "r"]
    np.testing.assert_array_equal(again.values, values)
    (tmp_path / "short.txt").write_text("a\n")
    with pytest.raises(InputError, match="1 ids for 3 vectors"):
        Vectors.open(tmp_path / "x.npy", ids=tmp_path / "short.txt")
    save_npy(tmp_path, "flat.npy", values.ravel())
    with pytest.raises(InputError, match=r"flat.npy holds no vectors"):
        Vectors.open(tmp_path / "flat.npy")
    save_npy(tmp_path, "none.npy", values[:, :0])
    with pytest.raises(InputError, match=r"none.npy holds no vectors.*got 3x0"):
        Vectors.open(tmp_path / "none.npy")
    save_npy(tmp_path, "huge.npy", values.astype(np.float64) * 1e300)
    with pytest.raises(InputError, match="3 vectors with NaN or infinite"):
        Vectors.open(tmp_path / "huge.npy").check_finite()
    save_npy(tmp_path, "wide.npy", values.astype(np.float64))
    assert Vectors.open(tmp_path / "wide.npy").values.dtype == np.float32


def test_npy_of_python_objects(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[1, 2], [3, None]], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"Python objects.*array.astype\('float32'\)") as raised:
        Vectors.open(tmp_path / "x.npy")
    assert "etl" not in str(raised.value)
    np.save(tmp_path / "y.npy", np.ones((2, 3), np.float32))
    np.save(tmp_path / "y.ids.npy", np.array(["a", 7], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"y.ids.npy holds Python objects.*astype\('str'\)"):
        Vectors.open(tmp_path / "y.npy")
    np.save(tmp_path / "y.ids.npy", np.arange(2).reshape(2, 1))
    with pytest.raises(InputError, match=r"y.ids.npy holds no ids.*shape \(2, 1\)"):
        Vectors.open(tmp_path / "y.npy")
    (tmp_path / "z.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match=r"z.npy is damaged.*numpy.save"):
        Vectors.open(tmp_path / "z.npy")
    for content in (b"PAR1", b""):
        (tmp_path / "ids.parquet").write_bytes(content)
        with pytest.raises(InputError, match=r"cannot read .*ids.parquet as Parquet"):
            Vectors.open(tmp_path / "y.npy", ids=tmp_path / "ids.parquet")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"parts": 0}, "0 in 0 parts"),
        ({"parts": 2}, "part-00001"),
        ({"files": None}, "damaged"),
    ],
)
def test_a_manifest_that_was_edited(written, changed, said):
    folder = written(np.arange(9))
    path = folder / "vectors.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises((CorruptFile, InputError), match=said):
        Vectors.open(folder)


def test_a_part_that_is_no_parquet(written):
    folder = written(np.arange(9))
    part = folder / "part-00000.parquet"
    part.write_bytes(b"x" * part.stat().st_size)
    with pytest.raises(CorruptFile, match=r"part-00000.parquet cannot be read as Parquet"):
        Vectors.open(folder)


def test_nothing_there(tmp_path):
    with pytest.raises(UsageError, match="is no file: vectors are read more than once"):
        Vectors.open("/dev/null")
    with pytest.raises(UsageError, match="there are no vectors at"):
        Vectors.open(tmp_path / "x")
    with pytest.raises(InputError, match="holds no vectors"):
        Vectors.open(tmp_path)
    (tmp_path / "x.txt").write_text("a b\n")
    with pytest.raises(UsageError, match=r"only an .npy file takes ids"):
        Vectors.open(tmp_path / "x.txt", ids=tmp_path / "y.txt")


# -- word2vec's formats ----------------------------------------------------------------------------


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1, max_size=9),
             unique=True, min_size=1, max_size=8),
    st.integers(1, 9),
    st.sampled_from(["text", "binary"]),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_words_and_every_bit_of_values_come_back(tmp_path_factory, words, width, kind, seed):
    path = tmp_path_factory.mktemp("w") / "vectors"
    bits = np.random.default_rng(seed).integers(0, 2**32, (len(words), width), np.uint32)
    values = np.nan_to_num(bits.view(np.float32), nan=1.5)
    word2vec.write(path, pa.array(words), values, kind)
    found = Vectors.open(path)
    assert found.ids.to_pylist() == words
    np.testing.assert_array_equal(found.values, values)


@pytest.mark.parametrize("kind", ["text", "binary"])
def test_gensim_loads_what_is_exported_and_its_own_is_read(written, tmp_path, kind):
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    rows = 300  # gensim reads in pieces of 100 kB
    folder = written(np.arange(rows) * 7, width=128)
    path, back = tmp_path / "out", tmp_path / "back"
    report = export_vectors(folder, path, format=kind)
    assert report.rows == rows
    loaded = keyed.load_word2vec_format(str(path), binary=kind == "binary")
    assert loaded.index_to_key == [str(7 * row) for row in range(rows)]
    np.testing.assert_array_equal(loaded.vectors, values_of(rows, 128))
    loaded.save_word2vec_format(str(back), binary=kind == "binary")
    found = Vectors.open(back)
    assert found.ids.to_pylist() == loaded.index_to_key
    np.testing.assert_array_equal(found.values, loaded.vectors)


def test_ids_that_the_formats_cannot_hold(written, tmp_path):
    folder = written(["new york", "tab\there", "new_york", "plain"])
    for kind in ("text", "binary"):
        with pytest.raises(InputError, match="2 ids cannot be written.*'new york'.*--blank"):
            export_vectors(folder, tmp_path / "out", format=kind)
        with pytest.raises(InputError, match="no longer different"):
            export_vectors(folder, tmp_path / "out", format=kind, blank="_")
        assert not (tmp_path / "out").exists()
    export_vectors(folder, tmp_path / "out", format="text", blank="::")
    assert Vectors.open(tmp_path / "out").ids.to_pylist() == [
        "new::york", "tab::here", "new_york", "plain",
    ]  # fmt: skip
    for blank in ("\\", "\\0", "\\1", "$1", "\\\\x"):
        export_vectors(folder, tmp_path / "out", format="text", blank=blank, overwrite=True)
        assert Vectors.open(tmp_path / "out").ids[0].as_py() == f"new{blank}york"
    empty = written(["", "b"], name="empty")
    with pytest.raises(InputError, match="an empty id"):
        export_vectors(empty, tmp_path / "out2", format="text")


def test_files_of_other_programs(tmp_path):
    # word2vec's own program ends text lines with a blank, and binary vectors with a newline.
    (tmp_path / "t").write_bytes(b"2 3\na 1.000000 2.000000 3.000000 \nb 4 5e-1 -6 \n")
    expected = [[1, 2, 3], [4, 0.5, -6]]
    assert Vectors.open(tmp_path / "t").values.tolist() == expected
    body = b"".join(
        word + np.array(row, "<f4").tobytes() + b"\n"
        for word, row in zip((b"a ", b"b "), expected, strict=True)
    )
    (tmp_path / "b").write_bytes(b"2 3\n" + body)
    assert Vectors.open(tmp_path / "b").values.tolist() == expected
    assert Vectors.open(tmp_path / "b").ids.to_pylist() == ["a", "b"]
    # GloVe's has no first line of counts; a word may be a quote; .gz.
    for name in ("g.gz", "h.GZ"):
        (tmp_path / name).write_bytes(gzip.compress(b'" 1 2 3\n"b 4 0.5 -6\n'))
        found = Vectors.open(tmp_path / name)
        assert found.values.tolist() == expected
        assert found.ids.to_pylist() == ['"', '"b']


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"3 2\na 1 2\nb 3 4\n", "cut short.*3 vectors.*got 2"),
        (b"2 2\na 1 2\nb 3\n", "not in word2vec's text format.*got 1 numbers in line 3"),
        (b"2 2\na 1 2\nb 3 x\n", "not in word2vec's text format.*'x' in line 3, that of 'b'"),
        (b"2 2\na 1 ?\nb 3 4\n", "'\\?' in line 2, that of 'a'"),
        (b"1 4\na 1 2 3 4,5\n", "'4,5' in line 2, that of 'a'"),
        (b"a 1 2 3 4,5 \n", "'4,5' in line 1, that of 'a'"),
        (b"2 2\na " + b"\0" * 8 + b"b " + b"\0" * 7, "cut short"),
        (b"2 2\na 1 2\na 3 4\n", "a second time"),
        (b"just text\nof some sort\n", "not in word2vec's text format"),
        (b"", "holds no vectors"),
        (b"1 2\n\xff\xfe 1 2\n", "UTF-?8"),
    ],
)
def test_damaged_files(tmp_path, body, message):
    (tmp_path / "x").write_bytes(body)
    with pytest.raises(InputError, match=message):
        Vectors.open(tmp_path / "x")


# -- export ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "kind", "start"),
    [
        ("x", None, "text", b"3 5\n5 0.1"),
        ("x", "binary", "binary", b"3 5\n5 "),
        ("x.txt", None, "text", b"3 5\n5 0.1"),
        ("x.out", "text", "text", b"3 5\n5 0.1"),
        ("x.vec.gz", None, "text", b"\x1f\x8b"),
        ("x.GZ", "binary", "binary", b"\x1f\x8b"),
        ("x.bin", None, "binary", b"3 5\n5 "),
        ("x.bin.gz", None, "binary", b"\x1f\x8b"),
        ("x.NPY", None, "npy", b"\x93NUMPY"),
        ("x.parquet", None, "parquet", b"PAR1"),
        *((name, None, None, None) for name in ("x.npz", "x.csv.gz", "x.npy.gz", "x.parquet.gz")),
        *(("x.bin", given, None, None) for given in ("text", "npy")),
        *((name, "text", None, None) for name in ("x.bin.gz", "x.npy", "x.parquet")),
        *((name, "binary", None, None) for name in ("x.txt", "x.vec.gz", "x.npy")),
        *((name, "npy", None, None) for name in ("x", "x.out")),
    ],
)
def test_the_name_says_the_format(written, tmp_path, capsys, name, given, kind, start):
    folder, path = written(np.array([5, 6, 7])), tmp_path / name
    words = ["word2vec", "export", str(folder), str(path), "--json"]
    status = run([*words, "--format", given] if given else words)
    out, err = capsys.readouterr()
    if kind is None:
        assert (status, path.exists(), name in err) == (2, False, True)
        return
    assert (status, json.loads(out)["format"]) == (0, kind)
    assert path.read_bytes().startswith(start)
    found = Vectors.open(path)
    np.testing.assert_array_equal(found.values, values_of(3, 5))
    assert found.find([6, "7"]).tolist() == [1, 2]
    assert str(found.ids.type) == ("int64" if kind in ("npy", "parquet") else "string")


def test_export_options(written, tmp_path):
    folder = written(np.arange(3))
    with pytest.raises(UsageError, match="--blank"):
        export_vectors(folder, tmp_path / "x.npy", blank="_")
    with pytest.raises(UsageError, match="--blank"):
        export_vectors(folder, tmp_path / "x", blank=" ")
    export_vectors(folder, tmp_path / "x")
    with pytest.raises(OutputExists, match="exists"):
        export_vectors(folder, tmp_path / "x")
    export_vectors(folder, tmp_path / "x", overwrite=True)
    with pytest.raises(UsageError, match="among the files of the vectors"):
        export_vectors(folder, folder / "vectors.npy", format="npy", overwrite=True)


def test_ids_next_to_values_are_theirs(written, tmp_path, monkeypatch):
    old, new = written(np.arange(3), name="old"), written(np.arange(7, 10), name="new")
    path, ids = tmp_path / "x.npy", tmp_path / "x.ids.parquet"
    ids.write_bytes(b"of somebody")
    with pytest.raises(OutputExists, match=r"x.ids.parquet exists.*--overwrite"):
        export_vectors(old, path, format="npy")
    assert ids.read_bytes() == b"of somebody"
    assert not path.exists()
    export_vectors(old, path, format="npy", overwrite=True)

    def full(*_):
        raise OSError("no more")

    for name in ("save_npy", "save_table"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="no more"):
            patch.setattr(tables, name, full)
            export_vectors(new, path, format="npy", overwrite=True)
        assert Vectors.open(path).ids.to_pylist() == [0, 1, 2]
    # A process that ends between the two files leaves no values that are not of the ids.
    replace = Path.replace

    def once(self, target):
        if target == path:
            raise OSError("no more")
        return replace(self, target)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no more"):
        patch.setattr(Path, "replace", once)
        export_vectors(new, path, format="npy", overwrite=True)
    assert not path.exists()
    export_vectors(new, path, format="npy", overwrite=True)
    assert Vectors.open(path).ids.to_pylist() == [7, 8, 9]
