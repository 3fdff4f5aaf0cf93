"""Connected code hosts: an organization has at most one for each platform (spec 2.7)."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import sqlalchemy as sa

from service import ids
from service.clock import Micros
from service.reference import location
from service.store import events
from service.store.database import lock_subject
from service.store.rows import delete, records_of, replace_rows, update
from service.store.schema import GitHubApp, hosts

PROBES: Final = ("api", "git")
_last_status: Final = sa.func.coalesce(hosts.c.status, "ok")


@dataclass(frozen=True, slots=True)
class Host:
    """A connected code host."""

    platform: str
    host: str
    """The host's name in repository URLs."""
    group: str | None
    """Comma-separated groups or owners whose repositories the organization may use; None for any on the host."""
    probe: str
    """`api` asks the host's HTTP API, `git` asks a repository with `git ls-remote`."""
    api_url: str | None
    clone_url: str | None
    """A template with `{path}` for clone URLs; if None, only configured repositories can be used."""
    token_env: str | None
    """The environment variable that holds the host's token; None for anonymous access."""
    token_ends: str | None = None
    """The day on which the token expires (ISO 8601), as the operator configured it."""
    token_command: tuple[str, ...] = ()
    """The command that prints a token of short life, in place of `token_env`."""
    app: GitHubApp | None = None
    """Its tokens are used in place of `token_env`."""
    rotate: bool = False
    """Whether the service rotates the token in `token_env` before it expires."""
    status: str | None = field(default=None, compare=False)
    """The answer of its last check; None: `ok`, or it was never checked."""
    token_told: str | None = field(default=None, compare=False)
    """The day on which the token expires, as the host last reported it."""

    def owns(self, path: str) -> bool:
        groups = [group.strip().strip("/").lower() for group in (self.group or "").split(",") if group.strip()]
        return not groups or path.lower().startswith(tuple(f"{group}/" for group in groups))

    def clone_url_of(self, path: str) -> str | None:
        """Return the clone URL of a repository; None if there is no template, or the groups do not include it."""
        if self.clone_url is not None and self.owns(path):
            return self.clone_url.replace("{path}", path)
        return None


def connect(connection: sa.Connection, organization_id: str, host: Host, now: Micros) -> None:
    """Connect a host, replacing the organization's host on that platform, if any."""
    lock_subject(connection, "host", organization_id, host.platform)
    put_all(connection, [(organization_id, host)], now)


def note_answer(
    connection: sa.Connection, organization_id: str, host: Host, status: str, day: str | None, now: Micros
) -> None:
    """Store the day on which, according to a host, its token expires (None: no news), and a new status with its event.

    The status is not stored if another request stored one since `host` was read.
    """
    same = (hosts.c.organization_id == organization_id, hosts.c.platform == host.platform)
    before = host.status or "ok"
    if day:
        update(connection, hosts, *same, token_told=day)
    if status != before and update(connection, hosts, *same, _last_status == before, status=status):
        data = {"platform": host.platform, "host": host.host, "status": status, "previous_status": before}
        events.record(connection, organization_id, "health.changed", data, now)


def put_all(connection: sa.Connection, connected: Sequence[tuple[str, Host]], now: Micros) -> None:
    """Connect hosts, given with organization ids; the caller ensures that nothing else changes them."""
    rows = [
        asdict(host) | {"app": host.app, "id": f"host_{ids.ulid(now)}", "organization_id": owner, "connected_at": now}
        for owner, host in connected
    ]
    replace_rows(connection, hosts, rows, [hosts.c.organization_id, hosts.c.platform])


def disconnect(connection: sa.Connection, organization_id: str, platform: str) -> bool:
    return delete(connection, hosts, organization_id=organization_id, platform=platform) > 0


def of(connection: sa.Connection, organization_id: str) -> list[Host]:
    return records_of(connection, Host, hosts, organization_id=organization_id, order=[hosts.c.platform])


def at(connection: sa.Connection, organization_id: str, platform: str, url: str) -> Host | None:
    """Return the connected host that a repository's address is on; None: it is on none."""
    if (place := location(url)) is None:
        return None
    connected = of(connection, organization_id)
    return next((host for host in connected if (host.platform, host.host) == (platform, place.host)), None)


def clone_url(connected: Iterable[Host], platform: str, path: str) -> str | None:
    of_platform = (host for host in connected if host.platform == platform)
    return next((url for host in of_platform if (url := host.clone_url_of(path))), None)


def variables(connection: sa.Connection) -> set[str]:
    """Return the environment variables that hold the tokens of hosts."""
    return {name for name in connection.scalars(sa.select(hosts.c.token_env).distinct()) if name}
