"""Both forges, each with a client of it."""

import contextlib
from collections.abc import Iterator

import pytest

from service.forge.github import GitHub
from service.forge.gitlab import GitLab
from tests.service.forge.github import GitHubServer
from tests.service.forge.gitlab import GitLabForge


@pytest.fixture
def github_forge() -> Iterator[GitHubServer]:
    """A GitHub with the repository acme/api."""
    with contextlib.closing(GitHubServer()) as server:
        yield server


@pytest.fixture
def gitlab_forge() -> Iterator[GitLabForge]:
    """A GitLab with the project acme/web."""
    with contextlib.closing(GitLabForge()) as server:
        yield server


def client_of(server: GitHubServer | GitLabForge, token: str = "bot-token") -> GitHub | GitLab:
    """Return a client of a forge."""
    if isinstance(server, GitHubServer):
        return GitHub(server.url, "acme/api", token, 120)
    return GitLab(server.url, "acme/web", token, 120)


@pytest.fixture(params=("github", "gitlab"))
def forge(request: pytest.FixtureRequest) -> GitHubServer | GitLabForge:
    """Each of the two in turn."""
    server: GitHubServer | GitLabForge = request.getfixturevalue(f"{request.param}_forge")
    return server
