"""Theorem 3: the formula of the paper where it is the paper's case, and a simulation elsewhere."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.partition.order import order
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule
from penstock.workers.embed.schedule.theorem import Condition, Machine, exposed_seconds
from penstock.workers.embed.storage import Geometry

# What the paper measured, section 4: Twitter, d = 100, 15 GB of buffer.
PAPER = {"nodes": 41_600_000, "edges": 1_460_000_000, "memory": 15 * 10**9, "slots": 3}
TIMES = {"seconds_per_edge": 1e-7, "read": 3e9, "write": 2e9}


def condition(exchange=None, **changes):
    given = {"row_bytes": 800, "dim": 100, **PAPER, **changes}
    return Condition(machine=Machine(**TIMES, exchange=exchange), **given)


def papers_density():
    """Return what |E| / |V| ** 2 must be at least, by the formula as it is printed."""
    both = TIMES["read"] + TIMES["write"]
    return 96 * 100**2 / (PAPER["memory"] * TIMES["seconds_per_edge"] * both)


def test_the_papers_example():
    assert papers_density() == pytest.approx(1.28e-7)  # printed as about 1e-7
    assert PAPER["edges"] / PAPER["nodes"] ** 2 > papers_density()
    assert condition().holds


def test_with_the_papers_time_of_an_exchange_it_is_the_papers_formula():
    # 2 * P / (w + r) seconds for an exchange of 2 * P bytes each way.
    at = round(papers_density() * PAPER["nodes"] ** 2)
    for edges, holds in ((1.001 * at, True), (0.999 * at, False)):
        found = condition(exchange=2 * 5e9, edges=round(edges))
        assert (found.most >= 3 * found.nodes * found.row_bytes / found.memory) == holds


def test_both_ways_take_longer_than_the_paper_says():
    edges = round(2 * papers_density() * PAPER["nodes"] ** 2)
    assert not condition(edges=edges).holds


@given(
    st.integers(10**4, 10**9),
    st.integers(10**4, 10**11),
    st.integers(10**7, 10**12),
    st.sampled_from([8, 64, 100, 400]),
)
def test_the_bounds_are_those_of_the_condition(nodes, edges, memory, dim):
    found = condition(nodes=nodes, edges=edges, memory=memory, dim=dim, row_bytes=8 * dim)
    table = nodes * 8 * dim
    if found.fewest > 1:
        assert table > memory
        assert 3 * table / found.fewest <= memory or found.fewest == 4
        assert found.fewest == 4 or 3 * table / (found.fewest - 1) > memory
    most = math.floor(found.most)
    for n in {4, 5, most, most + 1, found.fewest} - {0, 1, 2, 3}:
        trained = 2 * 1e-7 * edges / n**2
        swap = table / n * (1 / 3e9 + 1 / 2e9)
        if abs(trained / swap - 1) > 1e-9:
            assert found.holds_for(n) == (trained >= swap)
    # The largest dimension is one for which it holds; it does for none above.
    largest = found.largest_dim
    for d in (largest, *range(largest + 1, largest + 6), 2 * largest + 2):
        if d >= 1:
            changed = condition(nodes=nodes, edges=edges, memory=memory, dim=d, row_bytes=8 * d)
            assert changed.holds == (d == largest)


def test_a_table_in_memory_has_no_swaps():
    found = condition(memory=10**12)
    assert found.fewest == 1
    assert found.holds
    assert "nothing is swapped" in found.describe(1)
    assert found.holds_for(3)


def test_it_is_said_in_words():
    found = condition()
    assert found.describe(8) == (
        f"theorem 3 holds: swaps can hide behind training with up to {found.most:.3g} partitions"
    )
    said = condition(edges=10**7).describe(8)
    assert said.startswith("theorem 3 does not hold")
    assert said.endswith(f"not 8. They would with --dim {condition(edges=10**7).largest_dim}")
    assert "Memory allows --partitions 7" in condition().describe(1000)


def test_a_geometry_has_its_states_in_it():
    geometry = Geometry.of(8, 1000, 100, 2)
    machine = Machine(**TIMES)
    found = Condition.of(geometry, nodes=8000, edges=1, memory=10, slots=3, machine=machine)
    assert found.row_bytes == 1200


def test_swaps_that_hide_by_the_theorem_hide_in_a_schedule():
    """Equal buckets: what the theorem promises is what every swap of the order does."""
    n = 12
    found = condition(row_bytes=800, exchange=4e9)
    edges, size = found.edges // n**2, found.nodes * 800 // n
    steps = list(BucketSchedule(order("prefetch", n), seed=0).scheduled(0))[:-1]
    during = [len(step.during) * edges for step in steps]
    moved = [len(step.evict) * size for step in steps]
    exposed, total = exposed_seconds(during, moved, found.machine)
    assert total == pytest.approx(len(steps) * size * 2 / 4e9)
    assert found.holds_for(n) == (exposed == 0)
    slow = Machine(1e-7 / 50, 3e9, 2e9, 4e9)
    exposed, _ = exposed_seconds(during, moved, slow)
    assert 0 < exposed < total


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize(
    ("name", "n"), [("prefetch", 12), ("prefetch", 37), ("beta", 9), ("cover", 16)]
)
def test_the_condition_is_that_of_the_schedule_that_is_trained(name, n, spread):
    """Swaps hide exactly where it says so: training divides buckets, so that fewer hide each."""
    schedule = BucketSchedule(order(name, n), seed=0, spread=spread)
    swaps = [step for step in schedule.scheduled(3) if step.evict]
    size, in_bucket = 10**9, 10**6
    during = [round(sum(in_bucket / share.of for share in step.during)) for step in swaps]
    moved = [len(step.evict) * size for step in swaps]
    nodes, edges = n * size // 800, n**2 * in_bucket
    # A partition is exchanged in a second, in which so many buckets are trained.
    for speed in (0.1, 0.26, 0.4, 0.6, 0.9, 1.1, 1.7, 2.1, 4.1, 50.0):
        machine = Machine(1 / speed / in_bucket, 1e9, 1e9, 2e9)
        exposed, total = exposed_seconds(during, moved, machine)
        assert total == pytest.approx(sum(map(len, (step.evict for step in swaps))))
        found = Condition(nodes, edges, 800, 100, 3 * size, 3, machine, schedule.hiding)
        assert found.holds_for(n) == (exposed < 1e-5), speed


def test_buckets_that_are_divided_hide_about_half_as_much():
    """Of the paper's two buckets, where each is divided among the states that hold it."""
    for n in (8, 12, 30):
        assert BucketSchedule(order("prefetch", n)).hiding >= 2
        assert 0.5 < BucketSchedule(order("prefetch", n), spread=True).hiding < 2
    assert BucketSchedule(order("prefetch", 3)).hiding == math.inf
