import json

import pytest

from penstock.documents import parse_json, parse_yaml


@pytest.mark.parametrize("text", ["{", b"\xff", ""])
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_json(text)


@pytest.mark.parametrize("text", ["a: [", b"\xff\xfe\xff", "!!python/object/apply:os.abort []"])
def test_what_is_no_plain_yaml_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_yaml(text)


def test_plain_data_is_read():
    value = {"a": [1, 2.5, None, True, "b"]}
    assert parse_json(json.dumps(value)) == parse_yaml(json.dumps(value)) == value
