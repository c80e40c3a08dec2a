"""``penstock word2vec train`` on inputs that have nothing, or the wrong things, to learn from."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import word2vec
from penstock.errors import InputError, OutputExists, PenstockError, UsageError
from penstock.pipelines.vectors import Vectors, write_vectors

SMALL = {"dim": 16, "epochs": 1, "sample": 0, "min_count": 1}


@pytest.mark.parametrize(
    ("text", "options"),
    [("a\n", {}), ("a\nb\nc\n" * 9, {"deterministic": True}), ("a b c d\n" * 50, {"sample": 1e-9})],
)
def test_a_training_without_pairs_fails(tmp_path, text, options):
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(InputError):
        word2vec(tmp_path / "t.txt", tmp_path / "v", **{**SMALL, **options})
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize("name", ["vocabulary.parquet", "vocabulary.counts.npy"])
def test_a_vocabulary_that_was_cut_off_is_counted_again(tmp_path, name):
    (tmp_path / "t.txt").write_text("a b c d e f\n" * 50)
    with pytest.raises(PenstockError):  # which keeps what is counted
        word2vec(tmp_path / "t.txt", tmp_path / "v", **SMALL, lr=1e30)
    (found,) = tmp_path.rglob(name)
    os.truncate(found, found.stat().st_size // 2)
    assert word2vec(tmp_path / "t.txt", tmp_path / "v", **SMALL, resume=True).rows == 6


def test_files_have_ids_of_one_kind(tmp_path):
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, ids in zip(paths, ([1, 2], ["x", "y"]), strict=True):
        pq.write_table(pa.table({"l": [ids] * 3}), path)
    with pytest.raises(UsageError):
        word2vec(paths, tmp_path / "v", **SMALL)
    # Integers of different widths are no problem.
    pq.write_table(pa.table({"l": pa.array([[1, 3]] * 3, pa.list_(pa.int16()))}), paths[1])
    assert word2vec(paths, tmp_path / "v", **SMALL).rows == 3


def test_inputs_in_another_order_are_another_run(tmp_path):
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in paths:
        path.write_text(f"{path.stem} c d\n" * 9)
    made = word2vec(paths, tmp_path / "v", **SMALL)
    assert word2vec(paths, tmp_path / "v", **SMALL, resume=True) == made
    for other in (paths[::-1], [*paths, paths[1]]):
        with pytest.raises(OutputExists):
            word2vec(other, tmp_path / "v", **SMALL, resume=True)
    with pytest.raises(OutputExists):  # only an interrupted run resumes at another rate
        word2vec(paths, tmp_path / "v", **SMALL, lr=0.01, resume=True)


def test_context_of_a_warm_start_is_checked(tmp_path):
    folder = tmp_path / "old"
    folder.mkdir()
    ones = np.ones((9, 16), np.float32)
    write_vectors(folder, [f"w{number}" for number in range(9)], ones, context=ones)
    path = folder / "context.npy"
    path.write_bytes(path.read_bytes()[:-7])
    (tmp_path / "t.txt").write_text("w1 w2 w3 w8\n" * 9)
    with pytest.raises(PenstockError, match=path.name):
        word2vec(tmp_path / "t.txt", tmp_path / "v", init=folder, **SMALL)


@pytest.mark.parametrize("name", ["t.txt", "t.txt.gz", "t.txt.ZST"])
def test_a_byte_order_mark_is_not_a_word(tmp_path, name):
    path = tmp_path / name

    def write(data):
        compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower())
        with pa.output_stream(str(path), compression=compression) as stream:
            stream.write(data)

    for text in (b"a b\nc \xef\xbb\xbf\n", b"a b\n"):
        found = []
        for mark in (b"", b"\xef\xbb\xbf"):
            write(mark + text)
            word2vec(path, tmp_path / "v", overwrite=True, **SMALL)
            found.append(Vectors.open(tmp_path / "v").ids.to_pylist())
        assert found[0] == found[1]
    for coding in ("utf-16", "utf-32"):
        write("a b\n".encode(coding))
        with pytest.raises(InputError, match=name):
            word2vec(path, tmp_path / "x", **SMALL)


def test_vectors_are_not_sentences(tmp_path):
    folder = tmp_path / "vectors"
    folder.mkdir()
    write_vectors(folder, np.arange(9), np.ones((9, 4), np.float32))
    for path in (folder, folder / "part-00000.parquet"):
        with pytest.raises(UsageError):
            word2vec(path, tmp_path / "v", **SMALL)
