import json

import pytest

from penstock.documents import parse_json, parse_yaml

DIGITS = "1" * 5000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        (b"\xff", "can't decode byte"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        (DIGITS, "4300 digits"),
        ("", "Expecting value"),
    ],
)
def test_what_is_no_json_is_a_value_error(text, why):
    with pytest.raises(ValueError, match=why):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "while parsing"),
        (b"\xff\xfe\xff", "unacceptable character"),
        ("[" * 5000 + "]" * 5000, "nested too deeply"),
        (DIGITS, "4300 digits"),
        ("!!python/object/apply:os.abort []", "could not determine a constructor"),
    ],
)
def test_what_is_no_plain_yaml_is_a_value_error(text, why):
    with pytest.raises(ValueError, match=why):
        parse_yaml(text)


def test_plain_data_is_read():
    value = {"a": [1, 2.5, None, True, "b"]}
    assert parse_json(json.dumps(value)) == parse_yaml(json.dumps(value)) == value
