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


def test_the_file_says_what_it_is(tmp_path):
    FULL.save(tmp_path)
    body = json.loads((tmp_path / "graph.json").read_text())
    assert (body["format"], body["version"]) == ("penstock-graph", 1)
    assert body["files"] == {"a.npy": {"bytes": 3, "sha256": "0" * 64}}


def test_sparsity_is_the_share_of_zeros():
    assert FULL.features.sparsity(3) == pytest.approx(0.8)


def test_a_key_of_a_later_minor_change_is_passed_over(tmp_path):
    FULL.save(tmp_path)
    change(tmp_path, colour="blue")
    assert Manifest.load(tmp_path) == FULL


def change(root, **values):
    body = json.loads((root / "graph.json").read_text()) | values
    body = {key: value for key, value in body.items() if value is not ...}
    (root / "graph.json").write_text(json.dumps(body))


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ({"version": 2}, NewerVersion, "version 1 or older, got version 2. Upgrade"),
        ({"version": "x"}, NewerVersion, "got version x"),
        ({"format": "other"}, NotAGraph, "not the manifest of a graph"),
        ({"nodes": ...}, CorruptFile, "'nodes'"),
        ({"nodes": "3"}, CorruptFile, "got '3' for nodes"),
        ({"edges": -1}, CorruptFile, "-1 where a count should be"),
        ({"nodes": True}, CorruptFile, "got True for nodes"),
        ({"directed": "no"}, CorruptFile, "got 'no' for directed"),
        ({"splits": None}, CorruptFile, "got None for splits"),
        ({"splits": {"train": -1}}, CorruptFile, "got -1 where a count should be"),
        ({"splits": {"train": 0.5}}, CorruptFile, "got 0.5 for splits.train"),
        ({"heldout": []}, CorruptFile, "got [] for heldout"),
        ({"graphs": "x"}, CorruptFile, "got 'x' for graphs"),
        ({"features": {}}, CorruptFile, "no 'kind'"),
        ({"features": []}, CorruptFile, "got [] for features"),
        ({"shards": None}, CorruptFile, "got None for shards"),
        ({"dtypes": None}, CorruptFile, "got None for dtypes"),
        ({"files": {"a": {"bytes": "x", "sha256": "y"}}}, CorruptFile, "got 'x' for bytes"),
        ({"files": None}, CorruptFile, "got a value of another type"),
        ({"shards": [{"start": 0}]}, CorruptFile, "stop"),
        ({"shards": [{"start": 0, "stop": None, "edges": 1}]}, CorruptFile, "None"),
        ({"files": []}, CorruptFile, "is damaged"),
        ({"files": {"a": {"size": 1}}}, CorruptFile, "is damaged"),
        ({"features": {"width": 3}}, CorruptFile, "is damaged"),
        ({"dtypes": {}}, CorruptFile, "dtypes.indptr"),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path, values, kind, message):
    FULL.save(tmp_path)
    change(tmp_path, **values)
    with pytest.raises(kind) as caught:
        Manifest.load(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / "graph.json") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("{", CorruptFile), ("", CorruptFile), ("[1]", NotAGraph), ('"x"', NotAGraph)],
)
def test_what_is_no_json_object_is_refused(tmp_path, text, kind):
    (tmp_path / "graph.json").write_text(text)
    with pytest.raises(kind):
        Manifest.load(tmp_path)
    (tmp_path / "graph.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(CorruptFile):
        Manifest.load(tmp_path)


def test_what_is_no_graph_says_what_it_is_instead(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name, got in (("no", "no such dir"), ("file", "a file"), ("folder", "no such file in it")):
        with pytest.raises(NotAGraph, match=f"got {got}.*penstock etl or penstock generate"):
            Manifest.load(tmp_path / name)


def test_files_are_compared_with_what_is_there(tmp_path):
    with pytest.raises(MissingFile, match=r"a\.npy is missing\. Expected a file of 3 bytes"):
        FULL.check_files(tmp_path)
    (tmp_path / "a.npy").write_bytes(b"12")
    with pytest.raises(TruncatedFile, match="Expected 3 bytes, .*, got 2 bytes"):
        FULL.check_files(tmp_path)
    (tmp_path / "a.npy").write_bytes(b"123")
    FULL.check_files(tmp_path)
