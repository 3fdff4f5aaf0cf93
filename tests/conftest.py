"""What holds for all tests."""

import os


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait for a service, a worker or a terminal."""
    return (os.cpu_count() or 1) + 1
