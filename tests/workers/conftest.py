import pytest
import thread_ranks


@pytest.fixture(scope="session")
def on_threads():
    """Run ``function(comm, *args)`` as ranks, and return what each returns."""
    return thread_ranks.on_threads
