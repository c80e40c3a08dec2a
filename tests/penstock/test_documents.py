import pytest

from penstock.documents import parse_yaml


@pytest.mark.parametrize("text", ["a: [", b"\xff\xfe\xff", "!!python/object/apply:os.abort []"])
def test_yaml_with_tags_or_errors_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_yaml(text)
