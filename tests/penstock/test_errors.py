import os
import pickle
import re

import pytest

from penstock import caches, errors
from penstock.errors import (
    CapacityError,
    ClusterError,
    GraphError,
    InputError,
    PenstockError,
    PenstockWarning,
    UsageError,
    warn,
)

KINDS = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, PenstockError)]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "It broke."),
        ({"expected": "a", "got": "b"}, "It broke. Expected a, got b."),
        ({"expected": "a"}, "It broke. Expected a."),
        ({"got": "b"}, "It broke. Got b."),
        ({"got": "b", "remedy": "Mend it"}, "It broke. Got b. Mend it."),
        ({"remedy": "Did you mean x?"}, "It broke. Did you mean x?"),
        ({"got": "two\nlines\n"}, "It broke. Got two lines."),
    ],
)
def test_an_error_is_one_paragraph(fields, text):
    assert str(PenstockError("It broke", **fields)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_the_way_from_a_worker(kind):
    sent = kind("a", expected="b", got="c", remedy="d")
    got = pickle.loads(pickle.dumps(sent))
    assert type(got) is kind
    assert got.to_dict() == sent.to_dict()
    assert got.to_dict()["error"] == kind.__name__


def test_a_warning_is_one_line_that_points_to_the_line_that_called_us(tmp_path, monkeypatch):
    nowhere = tmp_path / "file"
    nowhere.touch()
    monkeypatch.setenv("PENSTOCK_CACHE", str(nowhere))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / f"penstock-cache-{os.geteuid()}/cupy"))
    for call in (caches.cache_folder, caches.keep_cupy_kernels, lambda: warn("two\nlines")):
        with pytest.warns(PenstockWarning) as found:
            call()
        (one,) = found
        assert one.filename == __file__
        assert "\n" not in str(one.message)


def test_only_bad_usage_exits_with_two():
    assert {kind for kind in KINDS if kind.exit_code != 1} == {UsageError}
    assert UsageError.exit_code == 2


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes():
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__)
    assert set(drawn) | {"PenstockError"} == {kind.__name__ for kind in KINDS}
    for kind in (GraphError, ClusterError):
        branch = re.search(rf"├── {kind.__name__} .*\n((?:│   .*\n)*)", errors.__doc__)
        below = re.findall(r"[├└]── (\w+)", branch[1])
        assert {child.__name__ for child in kind.__subclasses__()} == set(below)
    assert not issubclass(InputError, GraphError)
    assert not issubclass(CapacityError, GraphError)
