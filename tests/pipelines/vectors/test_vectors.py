"""Vectors in every format: what is written is read again, what is wrong is named."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import export_vectors, vector_parts
from penstock.errors import InputError, OutputExists, UsageError
from penstock.files import save_npy
from penstock.pipelines.vectors import Vectors, store, write_vectors


def values_of(rows, width, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


@pytest.fixture
def written(tmp_path):
    """A directory of Penstock with vectors of whole numbers."""

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
        pa.chunked_array([["x"], ["y z", "ü", ""]], pa.large_string()),
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


def test_ids_that_are_there_twice_or_null_are_not_written(tmp_path):
    for ids in (np.array([7, 8, 7]), pa.array([7, None, 8]), pa.array([7, 8])):
        with pytest.raises(InputError):
            write_vectors(tmp_path, ids, values_of(3, 2))
    assert not list(tmp_path.iterdir())


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


# -- Parquet and .npy ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.int32(), 3)], ids=str
)
def test_any_list_of_numbers_in_parquet(tmp_path, kind):
    table = pa.table(
        {
            "node": pa.array(["a", "b"]),
            "class": pa.array([1, 2]),
            "embedding": pa.array([[1, 2, 3], [4, 5, 6]]).cast(kind),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    found = Vectors.open(tmp_path / "x.parquet")
    assert found.ids.to_pylist() == ["a", "b"]
    assert found.values.dtype == np.float32
    assert found.values.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "columns",
    [
        {"id": [1, 2], "vector": [[1.0], [1.0, 2.0]]},
        {"id": [1, 2], "vector": [[1.0], None]},
        {"id": [1, 2], "vector": [[1.0], [None]]},
        {"id": [1, 2], "vector": [["a"], ["b"]]},
        {"id": [1, 1], "vector": [[1.0], [2.0]]},
        {"vector": [[1.0], [2.0]]},
        {"id": [1, 2], "a": [[1.0], [2.0]], "b": [[1.0], [2.0]]},
    ],
)
def test_bad_parquet(tmp_path, columns):
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="x.parquet"):
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
    (tmp_path / "short.txt").write_text("a\n")
    with pytest.raises(InputError):
        Vectors.open(tmp_path / "x.npy", ids=tmp_path / "short.txt")
    for wrong in (values.ravel(), values[:, :0], np.array([[1, 2], [3, None]], object)):
        np.save(tmp_path / "wrong.npy", wrong, allow_pickle=True)
        with pytest.raises(InputError, match="wrong.npy"):
            Vectors.open(tmp_path / "wrong.npy")
    save_npy(tmp_path, "wide.npy", values.astype(np.float64))
    assert Vectors.open(tmp_path / "wide.npy").values.dtype == np.float32


def test_files_in_folders_by_globs_and_compressed(written, tmp_path):
    """As other tables: Parquet, Arrow IPC, and text in any compression."""
    folder = written(["a", "b", "c"])
    expected = Vectors.open(folder)
    (tmp_path / "lake").mkdir()
    table = pq.read_table(folder / "part-00000.parquet")
    for number in range(3):
        pq.write_table(table.slice(number, 1), tmp_path / f"lake/{number}.parquet")
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=2)
    found = [tmp_path / "lake", tmp_path / "lake/*.parquet", tmp_path / "x.arrow"]
    for kind in ("text", "binary"):
        export_vectors(folder, tmp_path / kind, format=kind)
        for codec, name in (("zstd", "zst"), ("bz2", "bz2")):
            found.append(tmp_path / f"{kind}.{name}")
            with pa.output_stream(str(found[-1]), compression=codec) as packed:
                packed.write((tmp_path / kind).read_bytes())
        found.append(f"file://{tmp_path / kind}")
    for path in found:
        vectors = Vectors.open(path)
        assert vectors.ids.to_pylist() == ["a", "b", "c"]
        np.testing.assert_array_equal(vectors.values, expected.values)


# -- word2vec's formats ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "binary"])
def test_gensim_loads_every_bit_and_what_it_saves_is_read(tmp_path, kind):
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    words = [f"{row}{chr(row)}" for row in range(0x2100, 0x2300)]  # gensim reads 100 kB at a time
    bits = np.random.default_rng(0).integers(0, 2**32, (len(words), 128), np.uint32)
    values = np.nan_to_num(bits.view(np.float32), nan=1.5)
    folder, path, back = tmp_path / "v", tmp_path / "out", tmp_path / "back"
    folder.mkdir()
    write_vectors(folder, words, values)
    assert export_vectors(folder, path, format=kind).rows == len(words)
    loaded = keyed.load_word2vec_format(str(path), binary=kind == "binary")
    assert loaded.index_to_key == words
    np.testing.assert_array_equal(loaded.vectors, values)
    loaded.save_word2vec_format(str(back), binary=kind == "binary")
    for file in (path, back):
        found = Vectors.open(file)
        assert found.ids.to_pylist() == words
        np.testing.assert_array_equal(found.values, values)


def test_ids_that_the_formats_cannot_hold(written, tmp_path):
    folder = written(["new york", "tab\there", "new_york", "plain"])
    for kind in ("text", "binary"):
        for blank in ({}, {"blank": "_"}):  # no longer different
            with pytest.raises(InputError):
                export_vectors(folder, tmp_path / "out", format=kind, **blank)
        assert not (tmp_path / "out").exists()
    for blank in ("::", "\\1"):
        export_vectors(folder, tmp_path / "out", format="text", blank=blank, overwrite=True)
        assert Vectors.open(tmp_path / "out").ids.to_pylist() == [
            f"new{blank}york",
            f"tab{blank}here",
            "new_york",
            "plain",
        ]
    with pytest.raises(InputError):
        export_vectors(written(["", "b"], name="empty"), tmp_path / "out2", format="text")


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
    ("body", "named"),
    [
        (b"3 2\na 1 2\nb 3 4\n", "got 2"),
        (b"2 2\na 1 2\nb 3\n", "line 3"),
        (b"1 4\na 1 2 3 4,5\n", "line 2"),
        (b"a 1 2 3 4,5 \n", "line 1"),
        (b"", "x"),
        (b"2 2\na " + b"\0" * 8 + b"b " + b"\0" * 7, "x"),
        (b"2 2\na 1 2\na 3 4\n", "'a'"),
        (b"just text\nof some sort\n", "x"),
        (b"1 2\n\xff\xfe 1 2\n", "x"),
    ],
)
def test_damaged_files(tmp_path, body, named):
    (tmp_path / "x").write_bytes(body)
    with pytest.raises(InputError) as error:
        Vectors.open(tmp_path / "x")
    assert named in str(error.value)


# -- export ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "kind", "start"),
    [
        ("x", None, "text", b"3 5\n5 0.1"),
        ("x", "binary", "binary", b"3 5\n5 "),
        ("x.vec.gz", None, "text", b"\x1f\x8b"),
        ("x.NPY", None, "npy", b"\x93NUMPY"),
        ("x.parquet", None, "parquet", b"PAR1"),
        ("x.bin", "text", None, None),
        ("x", "npy", None, None),
    ],
)
def test_the_name_says_the_format(written, tmp_path, name, given, kind, start):
    folder, path = written(np.array([5, 6, 7])), tmp_path / name
    options = {} if given is None else {"format": given}
    if kind is None:
        with pytest.raises(UsageError):
            export_vectors(folder, path, **options)
        assert not path.exists()
        return
    assert export_vectors(folder, path, **options).to_dict()["format"] == kind
    assert path.read_bytes().startswith(start)
    found = Vectors.open(path)
    np.testing.assert_array_equal(found.values, values_of(3, 5))
    assert found.find([6, "7"]).tolist() == [1, 2]
    assert str(found.ids.type) == ("int64" if kind in ("npy", "parquet") else "string")


@pytest.mark.parametrize("metric", ["cosine", "dot"])
@pytest.mark.parametrize("kind", ["usearch", "faiss"])
def test_other_programs_search_an_index(written, tmp_path, kind, metric):
    module = pytest.importorskip(kind)
    folder, path = written([f"n{i}" for i in range(300)], width=16), tmp_path / f"x.{kind}"
    export_vectors(folder, path, metric=metric)
    values = values_of(300, 16)
    units = values / np.linalg.norm(values, axis=1, keepdims=True)
    scores = units @ (units if metric == "cosine" else values).T
    if kind == "usearch":
        found = module.index.Index.restore(str(path)).search(units, 5, exact=True).keys
    else:
        found = module.read_index(str(path)).search(units, 5)[1]
    near = np.argsort(-scores, axis=1)[:, :5]
    same = (found.astype(int)[:, :, None] == near[:, None]).any(axis=2)
    assert same.mean() > 0.95
    ids = pq.read_table(tmp_path / "x.ids.parquet")["id"].to_pylist()
    assert ids == [f"n{i}" for i in range(300)]
    with pytest.raises(UsageError):
        export_vectors(folder, tmp_path / "x.npy", metric="dot")


def test_ids_next_to_values_are_theirs(written, tmp_path, monkeypatch):
    old, new = written(np.arange(3), name="old"), written(np.arange(7, 10), name="new")
    path, ids = tmp_path / "x.npy", tmp_path / "x.ids.parquet"
    ids.write_bytes(b"of another program")
    with pytest.raises(OutputExists):
        export_vectors(old, path, format="npy")
    assert ids.read_bytes() == b"of another program"
    assert not path.exists()
    export_vectors(old, path, format="npy", overwrite=True)
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
