import json

import pytest

from penstock.errors import CorruptFile, MissingFile, NewerVersion, NotAGraph, TruncatedFile
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


def change(root, **values):
    body = json.loads((root / "graph.json").read_text()) | values
    body = {key: value for key, value in body.items() if value is not ...}
    (root / "graph.json").write_text(json.dumps(body))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"version": 2}, NewerVersion),
        ({"format": "other"}, NotAGraph),
        ({"nodes": ...}, CorruptFile),
        ({"nodes": "three"}, CorruptFile),
        ({"edges": -1}, CorruptFile),
        ({"splits": {"train": -1}}, CorruptFile),
        ({"features": {}}, CorruptFile),
        ({"files": {"a": {"bytes": "x", "sha256": "y"}}}, CorruptFile),
        ({"shards": [{"start": 0}]}, CorruptFile),
        ({"dtypes": {}}, CorruptFile),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path, values, kind):
    FULL.save(tmp_path)
    change(tmp_path, **values)
    with pytest.raises(kind) as caught:
        Manifest.load(tmp_path)
    assert str(tmp_path / "graph.json") in str(caught.value)


def test_files_are_compared_with_what_is_there(tmp_path):
    with pytest.raises(MissingFile):
        FULL.check_files(tmp_path)
    (tmp_path / "a.npy").write_bytes(b"12")
    with pytest.raises(TruncatedFile):
        FULL.check_files(tmp_path)
    (tmp_path / "a.npy").write_bytes(b"123")
    FULL.check_files(tmp_path)
