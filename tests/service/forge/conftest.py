"""Both forges."""

import contextlib
from collections.abc import Iterator

import pytest

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
