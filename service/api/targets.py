"""Targets: from a repository as a caller names it to what git clones (spec 2.3, 4.4)."""

from dataclasses import dataclass

import sqlalchemy as sa

from service.api.errors import ApiError, bad_request
from service.reference import PLATFORMS, Reference, checked_path, location
from service.store import hosts, repositories
from service.store.repositories import Repository


@dataclass(frozen=True, slots=True)
class Target:
    """A repository that can be worked on."""

    reference: Reference
    url: str


def by_reference(connection: sa.Connection, organization_id: str, reference: Reference) -> Target:
    """Find the repository of a reference: a configured one, else one on a connected host.

    Raises:
        Failure: 400, it is neither.
    """
    found = _configured(connection, organization_id, reference) or _on_host(connection, organization_id, reference)
    if found is None:
        raise _unknown(f"{reference.platform}:{reference.path}")
    return found


def by_text(connection: sa.Connection, organization_id: str, text: str) -> Target:
    """Find the repository that a text names: a configured name, a full URL, `owner/repo` or `group/project`.

    Raises:
        Failure: 400, none of them leads to a repository.
    """
    text = text.strip()
    exact = repositories.by_name(connection, organization_id, text) or repositories.by_url(
        connection, organization_id, text
    )
    if exact is not None:
        return _target(exact)
    candidates = _candidates(connection, organization_id, text)
    # Configured repositories come first: they are known to exist.
    for find in (_configured, _on_host):
        for candidate in candidates:
            if target := find(connection, organization_id, candidate):
                return target
    raise _unknown(text)


def _candidates(connection: sa.Connection, organization_id: str, text: str) -> list[Reference]:
    where = location(text)
    if where is None:
        platforms: tuple[str, ...] = PLATFORMS
        path = text
    else:
        connected = hosts.of(connection, organization_id)
        platforms = tuple(host.platform for host in connected if host.host == where.host)
        path = where.path
    found = []
    for platform in platforms:
        try:
            found.append(Reference(platform, checked_path(platform, path)))
        except ValueError:
            continue
    return found


def _configured(connection: sa.Connection, organization_id: str, reference: Reference) -> Target | None:
    found = repositories.by_path(connection, organization_id, reference.platform, reference.path)
    return None if found is None else _target(found)


def _on_host(connection: sa.Connection, organization_id: str, reference: Reference) -> Target | None:
    for host in hosts.of(connection, organization_id):
        url = host.clone_url_of(reference.path) if host.platform == reference.platform else None
        if url is not None:
            return Target(reference, url)
    return None


def _target(repository: Repository) -> Target:
    return Target(Reference(repository.platform, repository.path), repository.url)


def _unknown(text: str) -> ApiError:
    return bad_request(
        "unknown_repository",
        f"the repository {text!r} is neither configured nor on a connected code host; "
        "add it with runwarden service repository add, or connect its host with runwarden service host connect",
    )
