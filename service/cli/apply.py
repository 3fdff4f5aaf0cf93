"""`apply`: the setup of a service from a document, all of which is read at once, compared, and stored at once."""

import json
import os
import shlex
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import sqlalchemy as sa
from pydantic import ValidationError

from service import ids, setup
from service.agents.options import DEFAULT_NAME
from service.cli.output import AdminCommand, AdminContext, elsewhere_option, operator
from service.clock import Micros, now_micros, rfc3339
from service.errors import first_fault
from service.reference import location, without_login
from service.settings import Settings
from service.setup import DayBudget, OrganizationEntry, Setup, SetupError
from service.store import agents, audit, hosts, organizations, repositories, tokens
from service.store import schema as tables
from service.store.database import lock_all
from service.store.organizations import Organization
from service.store.rows import by_owner

_ACTIONS: Final = {"agent": "agent.add", "host": "host.connect", "offer": "offer.add", "repository": "repository.add"}
"""The name of a document's entry in the audit trail."""
_UNCONNECTED: Final = "  on no connected host of its platform: it is used without a token, and no results are posted"


@click.command("apply", cls=AdminCommand)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@elsewhere_option
def apply(admin: AdminContext, file: Path, *, elsewhere: bool) -> None:
    """Apply FILE (TOML, JSON when it ends in .json, '-' for TOML on standard input); applying again changes nothing."""
    from_stdin = str(file) == "-"
    raw = sys.stdin.buffer.read() if from_stdin else file.read_bytes()
    try:
        content = json.loads(raw) if file.suffix == ".json" else tomllib.loads(raw.decode("utf-8"))
    except ValueError as error:
        raise SetupError(f"{file}: {error}") from error
    try:
        document = Setup.model_validate(content)
    except ValidationError as error:
        raise SetupError(f"{file}: {first_fault(error, content)}") from error
    with admin.change("apply", create=True) as change:
        base = Path.cwd() if from_stdin else file.absolute().parent
        data = None if elsewhere else admin.folder.root
        result, lines = apply_setup(change.connection, document, base, now_micros(), data)
        change.record("apply")
        url = change.connection.engine.url.render_as_string(hide_password=True)
        acts = [("organization.create", org["id"], org["id"]) for org in result["organizations"] if org["created"]]
        for org in result["organizations"]:
            acts += [("token.create", token["id"], org["id"]) for token in org["tokens"] if token["value"] is not None]
        done = [row for row in result["applied"] if row["outcome"] != "unchanged"]
        acts += [(_ACTIONS[row["kind"]], row["name"], row["organization"]) for row in done]
        actor = operator()
        for action, target, owner in acts:
            audit.record(change.connection, actor, action, now_micros(), target=target, organization_id=owner)
    # The rules of agents' repositories are checked with the agents.
    secrets = {host.token_env for org in document.organizations for host in org.hosts}
    secrets |= {repo.webhook_secret_env for org in document.organizations for repo in org.repositories}
    unset = [] if elsewhere else sorted(name for name in secrets if name and not os.environ.get(name))
    result |= {"unset_variables": unset, "data_dir": str(admin.folder.root), "outbox": str(admin.folder.outbox)}
    result["database"] = url
    lines += [f"the variable {name} is not set here; the service needs it" for name in result["unset_variables"]]
    admin.show(result, *lines, f"applied to the service in {result['data_dir']}, database {result['database']}")


@click.command("schema")
@click.argument("file", type=click.Choice(["agents.toml", "service.toml"]))
def schema(file: str) -> None:
    """Print the JSON Schema of FILE, for the editor; agents.toml stands for any document of `apply`."""
    model = Settings if file == "service.toml" else Setup
    click.echo(json.dumps(model.model_json_schema(), indent=2))


def apply_setup(
    connection: sa.Connection, document: Setup, base: Path, now: Micros, data: Path | None
) -> tuple[dict[str, Any], list[str]]:
    """Apply a document in one transaction; return the result, including the values of new tokens, and its lines.

    Folders in it are relative to `base`. `data` is the data folder if agents run on this machine, otherwise None.

    Raises:
        SetupError: An entry contradicts the existing state, or lacks something.
    """
    # One of two such entries would silently replace the other, or get its tokens.
    _distinct("organizations", [(org.name, f"the slug {org.wanted_slug}") for org in document.organizations])
    _distinct("offers", [(offer.code, f"the code {offer.code}") for offer in document.offers])
    for number, entry in enumerate(document.organizations):
        key = f"organizations.{number}"
        _distinct(f"{key}.tokens", [(token.alias, f"the alias {token.alias}") for token in entry.tokens])
        platforms = [(host.host or host.platform, f"the platform {host.platform}") for host in entry.hosts]
        _distinct(f"{key}.hosts", platforms)
        _distinct(f"{key}.repositories", [(repo.name, f"the name {repo.name}") for repo in entry.repositories])
        paths = [(repo.name, repo.platform, repo.path.removesuffix(".git")) for repo in entry.repositories]
        _distinct(f"{key}.repositories", [(name, f"the path {on}:{path.lower()}") for name, on, path in paths])
    # Locked against other changes, so that everything in the document is read once and written once.
    lock_all(connection)
    state = _Organizations(connection, document.organizations, base, now)
    results = [state.apply(entry) for entry in document.organizations]
    organizations.add(connection, state.created)
    hosts.put_all(connection, state.connected, now)
    repositories.put_all(connection, state.configured, now)
    connected = [*{owner_id for owner_id, _ in state.connected}]
    for owner_id in by_owner(connection, organizations.Trial, tables.trials, connected):
        organizations.start_trial(connection, owner_id, now)
    owners = organizations.by_slugs(connection, [entry.organization for entry in document.agents if entry.organization])
    agent_of = {agent.key: agent for agent in agents.all_of(connection)}
    wished, identities = [], []
    for agent_entry in document.agents:
        slug = agent_entry.organization
        owner = None if slug is None else setup.find_organization(connection, slug, owners)
        scope = "for all organizations" if owner is None else f"in the organization {owner.id}"
        wished.append(setup.agent_of(agent_entry, owner, data))
        identities.append((agent_entry.name, f"the name {agent_entry.name} {scope}"))
    _distinct("agents", identities)
    changed = {agent.key: agent for agent in wished if agent != agent_of.get(agent.key)}
    agents.put_all(connection, [*changed.values()], now)
    applied = [_outcome("agent", agent.name, agent.organization_id, agent_of.get(agent.key), agent) for agent in wished]
    setup.check_fallbacks(connection)
    for offer in document.offers:
        old = organizations.offer_by_code(connection, offer.code)
        new = replace(offer, retired=offer.retired or (old is not None and old.retired))
        organizations.put_offer(connection, new)
        applied.append(_outcome("offer", offer.code, None, old, new))
    # Of these organizations' repositories, including those that the document leaves out.
    for organization in {org.id: org for org in state.known.values()}.values():
        for repository in state.repositories[organization.id].values():
            setup.check_triggers(connection, organization, repository)
    slugs = {organization.id: organization.slug for organization in state.known.values()}
    for row in applied:
        of = f" of {slugs.get(whose, whose)}" if (whose := row["organization"]) else ""
        state.lines.append(f"{row['kind']} {row['name']}{of}  {row['outcome']}")
    result = {
        "organizations": results,
        "offers": [offer.code for offer in organizations.all_offers(connection)],
        "agents": sorted({DEFAULT_NAME} | {agent.name for agent in agents.all_of(connection)}),
        "applied": [*applied, *state.applied],
    }
    return result, state.lines


def _distinct(key: str, entries: Iterable[tuple[str, str]]) -> None:
    """Refuse two entries with the same identity; each is given as a name and an identity."""
    seen: dict[str, str] = {}
    for number, (name, identity) in enumerate(entries):
        entry = f"{key}.{number} ({name})"
        other = seen.setdefault(identity, entry)
        if other != entry:
            raise SetupError(f"{other} and {entry} both have {identity}: remove or change one of them")


def _outcome(kind: str, name: str, organization_id: str | None, before: object, after: object) -> dict[str, str | None]:
    outcome = "unchanged" if before == after else "changed"
    if before is None:
        outcome = "added"
    return {"kind": kind, "name": name, "organization": organization_id, "outcome": outcome}


class _Organizations:
    """The organizations of a document with their hosts and repositories: as they are, and as they are to be stored."""

    def __init__(
        self, connection: sa.Connection, entries: Sequence[OrganizationEntry], folder: Path, now: Micros
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._now = now
        self.known = organizations.by_slugs(connection, [entry.wanted_slug for entry in entries])
        ids = [*{org.id for org in self.known.values()}]
        self._tokens = by_owner(connection, tokens.TokenRecord, tables.tokens, ids)
        self._hosts = by_owner(connection, hosts.Host, tables.hosts, ids)
        self.repositories = defaultdict[str, dict[tuple[str, str], repositories.Repository]](dict)
        """Keyed by organization, then by platform and path."""
        for owner, rows in by_owner(connection, repositories.Repository, tables.repositories, ids).items():
            self.repositories[owner] = {setup.repository_key(repo): repo for repo in rows}
        self.created: list[Organization] = []
        self.connected: list[tuple[str, hosts.Host]] = []
        self.configured: list[tuple[str, repositories.Repository]] = []
        self.applied: list[dict[str, str | None]] = []
        """The outcome for each host and repository."""
        self.lines: list[str] = []

    def apply(self, entry: OrganizationEntry) -> dict[str, object]:
        existing = organization = self.known.get(entry.wanted_slug)
        budget = entry.budget or DayBudget()
        if organization is None:
            organization = Organization(
                id=f"org_{ids.ulid(self._now)}",
                name=entry.name,
                slug=entry.wanted_slug,
                parent_id=None,
                active=entry.active,
                entitlements=entry.entitlements,
                offer_code=None,
                created_at=self._now,
                **budget.model_dump(),
            )
            self.created.append(organization)
            self.known[organization.slug] = organization
        elif entry.budget and budget != DayBudget(day_usd=organization.day_usd, day_tokens=organization.day_tokens):
            organizations.change(self._connection, organization.id, **budget.model_dump())
        connected = {host.platform: host for host in self._hosts[organization.id]}
        lines = list[str]()
        for host in map(setup.host_of, entry.hosts):
            before = connected.get(host.platform)
            self.applied.append(_outcome("host", host.platform, organization.id, before, host))
            lines.append(f"  host {host.platform}  {self.applied[-1]['outcome']}")
            if before != host:
                connected[host.platform] = host
                self.connected.append((organization.id, host))
        documents, present = [], self.repositories[organization.id]
        places = {(host.platform, host.host) for host in connected.values()}
        for repository_entry in entry.repositories:
            try:
                repository = setup.repository_of(repository_entry, present, connected.values(), self._folder)
            except ValueError as error:
                raise SetupError(f"repository {repository_entry.name}: {error}") from error
            key = setup.repository_key(repository)
            name = f"{repository.platform}:{repository.path}"
            self.applied.append(_outcome("repository", name, organization.id, present.get(key), repository))
            if present.get(key) != repository:
                present[key] = repository
                self.configured.append((organization.id, repository))
            place = location(repository.url)
            # None: its address names no host.
            is_connected = None
            if place is not None and place.host:
                is_connected = (repository.platform, place.host) in places
            shown = {"name": repository.name, "platform": repository.platform, "path": repository.path}
            documents.append({**shown, "url": (url := without_login(repository.url)), "connected": is_connected})
            unconnected = _UNCONNECTED if is_connected is False else ""
            lines.append(f"  repository {name}  {self.applied[-1]['outcome']}  {url}{unconnected}")
        token_documents = []
        token_lines = list[str]()
        held_tokens = self._tokens[organization.id]
        valid = {token.alias: token for token in reversed(held_tokens) if token.is_valid(self._now)}
        newest = {token.alias: token for token in held_tokens}
        differs = [] if existing is None else _differences(existing, entry)
        for token_entry in entry.tokens:
            token, value = valid.get(token_entry.alias), None
            if token is None:
                last = newest.get(token_entry.alias)
                if last is not None and last.revoked_at is not None:
                    scopes = " ".join(f"--scope {scope}" for scope in token_entry.scopes)
                    alias = f"--alias {shlex.quote(token_entry.alias)} --duration {token_entry.duration}"
                    differs.append(f"runwarden service token create --org {organization.slug} {scopes} {alias}")
                    continue
                token, value = setup.make_token(self._connection, organization, token_entry, self._now)
            document = {"id": token.id, "alias": token.alias, "value": value, "scopes": list(token.scopes)}
            token_documents.append(document | {"expires_at": (ends := rfc3339(token.expires_at))})
            token_lines.append(f"  token {token.alias}: {value or 'kept'}  until {ends[:10]}")
        self.lines.append(f"{organization.slug}  {'created' if existing is None else 'kept'}")
        self.lines += [f"  it differs from the file, and stays so; to change it: {command}" for command in differs]
        self.lines += [*token_lines, *lines]
        return {
            "id": organization.id,
            "name": organization.name,
            "slug": organization.slug,
            "created": existing is None,
            "differs": differs,
            "tokens": token_documents,
            "hosts": [host.platform for host in entry.hosts],
            "repositories": documents,
        }


def _differences(organization: Organization, entry: OrganizationEntry) -> list[str]:
    """Return the steps, mostly commands, that would make an organization equal to its entry in the document.

    The commands are not run: applying a document again must not undo later decisions.
    """
    slug = organization.slug
    target = set(entry.entitlements)
    present = set(organization.entitlements)
    verb = "activate" if entry.active else "deactivate"
    commands = [] if organization.active == entry.active else [f"{verb} {slug}"]
    commands += [f"grant {slug} {entitlement}" for entitlement in sorted(target - present)]
    commands += [f"withdraw {slug} {entitlement}" for entitlement in sorted(present - target)]
    steps = [f"runwarden service org {command}" for command in commands]
    if organization.name != entry.name:
        text = f"name the entry {organization.name!r}, as the organization with the slug {slug}, or change its slug"
        steps.insert(0, text)
    return steps
