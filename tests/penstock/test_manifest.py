import pytest

from penstock.errors import MissingFile, TruncatedFile
from penstock.files import FileEntry
from penstock.manifest import FeatureEntry, Manifest, ShardEntry

FULL = Manifest(
    nodes=3,
    edges=4,
    directed=False,
    shards=(ShardEntry(0, 2, 3), ShardEntry(2, 3, 1)),
    dtypes={"indptr": "int64", "indices": "int32"},
    files={"a.npy": FileEntry("a.npy", 3, "0" * 64)},
    times="timestamp",
    relations=("likes", "wants"),
    features=FeatureEntry("sparse", 10, "float32", (0, 2), 6),
    feature_names=tuple("abcdefghij"),
    labels="class",
    classes=("x", "y"),
    splits={"train": 1, "valid": 1, "test": 1},
    heldout={"valid": 2},
    graphs=2,
    made={"by": "a test", "options": {"seed": 0}},
)


def test_a_manifest_reads_back(tmp_path):
    FULL.save(tmp_path)
    assert Manifest.load(tmp_path) == FULL
    small = Manifest(0, 0, True, (), {"indptr": "int64", "indices": "int32"}, {})
    small.save(tmp_path)
    assert Manifest.load(tmp_path) == small


def test_files_are_compared_with_what_is_there(tmp_path):
    with pytest.raises(MissingFile):
        FULL.check_files(tmp_path)
    (tmp_path / "a.npy").write_bytes(b"12")
    with pytest.raises(TruncatedFile):
        FULL.check_files(tmp_path)
    (tmp_path / "a.npy").write_bytes(b"123")
    FULL.check_files(tmp_path)
