import pickle

import pytest

from penstock import errors
from penstock.errors import PenstockError, UsageError

KINDS = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, PenstockError)]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_the_way_from_a_worker(kind):
    sent = kind("a", expected="b", got="c", remedy="d")
    got = pickle.loads(pickle.dumps(sent))
    assert type(got) is kind
    assert got.to_dict() == sent.to_dict()
    assert got.to_dict()["error"] == kind.__name__


def test_only_bad_usage_exits_with_two():
    assert {kind for kind in KINDS if kind.exit_code != 1} == {UsageError}
    assert UsageError.exit_code == 2
