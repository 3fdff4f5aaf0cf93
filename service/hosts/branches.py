"""Default branches, on which a run must not work unless its repository allows it (spec 4.3)."""

import tempfile
from pathlib import Path

from service.execution.git import GitCommandError, GitRunner, login
from service.execution.mirror import default_of
from service.hosts.http import token_for
from service.store import repositories
from service.store.database import Database


def default_branch(database: Database, organization_id: str, platform: str, url: str, timeout_s: float) -> str | None:
    """Return a repository's default branch, stored or asked of its host; None: none, or no answer."""
    with database.read() as connection:
        known = repositories.default_branch(connection, url)
        token = token_for(connection, organization_id, platform, url)
    if known is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="runwarden-branch-") as home:
        try:
            git = GitRunner(Path(home), timeout_s, login(url, token))
            found = default_of(git("ls-remote", "--symref", "--", url, "HEAD"))
        except GitCommandError:
            # The worker asks again before the run starts.
            return None
    if found is not None:
        with database.write() as connection:
            repositories.note_default_branch(connection, url, found)
    return found
