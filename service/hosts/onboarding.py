"""Onboarding: a GitLab project becomes a repository of an organization, with its webhook; again changes nothing."""

import os
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa

from service.clock import Clock
from service.hosts.gitlab import OnboardingError, Project, find_project
from service.hosts.gitlab_api import GitLabApi
from service.hosts.webhook import Webhook, ensure_webhook
from service.settings import Settings
from service.store import repositories
from service.store.database import Database
from service.store.hosts import Host
from service.store.repositories import Repository

_NOT_WANTED: Final = Webhook(configured=None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The project to onboard; the id wins when both are given, one of them is."""

    project_id: int | None
    path: str | None

    def is_met_by(self, repository: Repository) -> bool:
        """Whether a repository is the project."""
        if repository.platform != "gitlab":
            return False
        if self.project_id is not None:
            return repository.project_id == self.project_id
        return repository.path.lower() == (self.path or "").lower()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an onboarding."""

    is_new: bool
    repository: Repository
    webhook_failure: str | None
    """Why there is no webhook although one is configured; None: there is, or none is wanted."""


class Onboarding:
    """Onboards projects of one connected host for one organization."""

    def __init__(self, database: Database, organization_id: str, host: Host, settings: Settings, clock: Clock) -> None:
        self._database = database
        self._organization_id = organization_id
        self._host = host
        self._settings = settings
        self._clock = clock

    def onboard(self, wanted: Wanted) -> Outcome:
        """Connect a project; one that is connected is asked for nothing but its webhook.

        Raises:
            OnboardingError: GitLab has no such project or cannot be asked.
        """
        with self._database.read() as connection:
            of_ours = repositories.of(connection, self._organization_id)
        known = next((one for one in of_ours if wanted.is_met_by(one)), None)
        wants_webhook = self._settings.gitlab.webhook_url is not None
        if known is not None and not wants_webhook:
            return Outcome(is_new=False, repository=known, webhook_failure=None)
        project = self._project(wanted, known)
        # GitLab is asked before the database is held: its answers take their time.
        webhook = self._webhook(project) if wants_webhook else _NOT_WANTED
        with self._database.write() as connection:
            kept, is_new = self._keep(connection, project, webhook)
        return Outcome(is_new=is_new, repository=kept, webhook_failure=webhook.failure)

    def _project(self, wanted: Wanted, known: Repository | None) -> Project:
        if known is not None and known.project_id is not None:
            return Project(known.path, known.url, known.project_id)
        try:
            return find_project(self._host, wanted.project_id, wanted.path, self._settings.probing.timeout_s)
        except OnboardingError:
            if known is None:
                raise
            # It is connected, whatever GitLab says of it just now.
            return Project(known.path, known.url, None)

    def _webhook(self, project: Project) -> Webhook:
        if self._host.api_url is None:
            return Webhook(configured=False, failure="the webhook needs GitLab's API: connect the host with --api-url")
        if project.id is None:
            return Webhook(
                configured=None, failure="the webhook could not be set: GitLab did not name the project's id"
            )
        api = GitLabApi(self._host, self._settings.probing.timeout_s)
        return ensure_webhook(api, project.id, self._settings.gitlab, os.environ)

    def _keep(self, connection: sa.Connection, project: Project, webhook: Webhook) -> tuple[Repository, bool]:
        """Store the project, as the repository that it is already if it is one; say whether it is new."""
        of_ours = repositories.of(connection, self._organization_id)
        same = next((one for one in of_ours if _is(one, project)), None)
        if same is None:
            names = {one.name for one in of_ours}
            name = project.path if project.path not in names else f"gitlab:{project.path}"
            made = Repository(name, "gitlab", project.path, project.url, project.id)
        elif same.path.lower() == project.path.lower():
            made = replace(same, project_id=project.id or same.project_id)
        else:
            # Moved or renamed in GitLab: the id is what stays.
            repositories.remove(connection, self._organization_id, same.name)
            made = replace(same, path=project.path, url=project.url)
        if webhook.configured is not None:
            made = replace(made, webhook_configured=webhook.configured)
        repositories.put(connection, self._organization_id, made, self._clock())
        return made, same is None


def _is(repository: Repository, project: Project) -> bool:
    if repository.platform != "gitlab":
        return False
    same_id = project.id is not None and repository.project_id == project.id
    return same_id or repository.path.lower() == project.path.lower()
