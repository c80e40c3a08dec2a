import numpy as np
import pytest

from penstock.kernels.cpu import philox as cpu
from penstock.kernels.naive import philox as naive

ONES32, ONES64 = 2**32 - 1, 2**64 - 1

# Random123's known answers for philox4x32-10: counter (four words), key (two words), result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES32,) * 4, (ONES32,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("module", [naive, cpu], ids=["naive", "cpu"])
@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN, ids=["zeros", "ones", "pi"])
def test_known_answers(module, counter, key, answer):
    which, seed = counter[0] | counter[1] << 32, key[0] | key[1] << 32
    words = module.random_words(seed, counter[3], which, 1, counter[2])
    assert words.dtype == np.uint32
    assert words.tolist() == [list(answer)]


@pytest.mark.parametrize("seed", [0, 1, 2**63, ONES64])
@pytest.mark.parametrize("first", [0, 12345, 2**32 - 3, 2**63 - 2])
def test_backends_agree(seed, first):
    truth = naive.random_words(seed, 7, first, 10, 3)
    np.testing.assert_array_equal(cpu.random_words(seed, 7, first, 10, 3), truth)
    keys = naive.random_keys(seed, 7, first, 10)
    np.testing.assert_array_equal(cpu.random_keys(seed, 7, first, 10), keys)
    words = naive.random_words(seed, 7, first, 10).astype(np.uint64)
    np.testing.assert_array_equal(keys, words[:, 0] | words[:, 1] << np.uint64(32))


def test_draws_of_any_numbers():
    which = np.array([5, 2**63 + 1, 0, 5], np.uint64)
    found = cpu.random_words_of(3, 7, which, 1)
    np.testing.assert_array_equal(found, naive.random_words_of(3, 7, which, 1))
    for row, number in zip(found, which.tolist(), strict=True):
        assert row.tolist() == naive.random_words(3, 7, number, 1, 1)[0].tolist()


@pytest.mark.parametrize(
    "steps", [3, np.array([0, 7, 2**31 - 1, 7], np.int32)], ids=["one", "each"]
)
def test_first_words(backend, same, steps):
    which = np.array([5, 2**63 + 1, 0, 5], np.uint64)
    truth = naive.draws(2**40 + 3, 7, which, steps)
    step = steps if isinstance(steps, int) else backend.put(steps)
    same(backend.module("philox").draws(2**40 + 3, 7, backend.put(which), step), truth)
