"""What holds for all tests."""

import os
from pathlib import PurePath

import pytest

LONGEST = (
    "test_pictures_states.py",
    "test_schemathesis.py",
    "test_campaign.py",
    "test_soak.py",
    "test_partner_admin.py",
    "test_hostile_desk.py",
    "test_hostile_bytes.py",
)
"""They begin first: begun last, one of them would keep a single processor busy while the others have nothing to do."""


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait for a service, a worker or a terminal."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files that take longest in front; the rest stay as they are."""
    order = {name: index for index, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(PurePath(item.path).name, len(LONGEST)))
