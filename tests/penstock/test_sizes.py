import pytest

from penstock.errors import UsageError
from penstock.sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (1500, 1500),
        ("1500", 1500),
        ("1.5GB", 1_500_000_000),
        (" 3 kB ", 3000),
        ("512MiB", 512 << 20),
        ("1tib", 1 << 40),
        (".5k", 500),
    ],
)
def test_sizes_are_read(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", ".", "GB", "1.2.3", "-1", "1 PB", "1ib"])
def test_a_bad_size_is_refused(text):
    with pytest.raises(UsageError):
        parse_bytes(text)
