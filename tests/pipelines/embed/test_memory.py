"""Memory and disk space that training is expected to take."""

from penstock import embed


def test_a_warm_start_is_counted(graph, tmp_path):
    embed.train(graph, tmp_path / "first", dim=4, epochs=1)
    cold, warm = (
        embed.train.plan(graph, tmp_path / "run", dim=4, **more).memory.bytes or 0
        for more in ({}, {"init": tmp_path / "first"})
    )
    assert warm > cold


def test_the_disk_space_has_the_matrices_of_relations(graph, tmp_path):
    """They are much larger here than the vectors of nodes."""
    options = {"model": "rescal", "dim": 128, "epochs": 2, "batch": 1000, "negatives": 8}
    plan = embed.train.plan(graph, tmp_path / "run", **options)
    embed.train(graph, tmp_path / "run", **options)
    took = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*"))
    assert took < (plan.disk.bytes or 0) < 2 * took
