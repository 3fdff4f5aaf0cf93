"""Both forges, and a service's side of them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.forge.desk import Desk
from tests.service.forge.forges import Forge, GitHubServer, GitLabForge


@pytest.fixture
def github_forge() -> Iterator[GitHubServer]:
    """A GitHub with the repository acme/api."""
    with contextlib.closing(GitHubServer()) as server:
        yield server


@pytest.fixture(params=[GitHubServer, GitLabForge], ids=["github", "gitlab"])
def forge(request: pytest.FixtureRequest) -> Iterator[Forge]:
    """Each of the two in turn: the repository acme/api of GitHub, the project acme/web of GitLab."""
    with contextlib.closing(request.param()) as server:
        yield server


@pytest.fixture
def desk(forge: Forge, tmp_path: Path) -> Iterator[Desk]:
    """A desk on each forge in turn."""
    made = Desk(forge, tmp_path)
    with contextlib.closing(made.database):
        yield made
