"""Set-up from an operator's document, checked key by key; applying it again changes nothing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

import sqlalchemy as sa
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from service import ids
from service.agents import programs
from service.agents.options import DEFAULT_NAME, DEFAULT_TIMEOUT_S, Agent, AgentOptions, RepositorySetup, VariableName
from service.clock import Duration, parse_duration, rfc3339
from service.errors import ServiceError
from service.reference import ALIASES, PLATFORMS, checked_path, location, without_login
from service.rules import TriggerRule
from service.store import agents, hosts, organizations, repositories, schema, sessions, tokens
from service.store.database import lock_all
from service.store.invitations import Invitation
from service.store.organizations import Offer, Organization
from service.store.schema import GitHubApp, by_owner
from service.store.sessions import Member
from service.text import shown_in_one_line

Platform = Annotated[
    Literal["github", "gitlab", "forgejo"],
    BeforeValidator(
        lambda name: ALIASES.get(name, name) if isinstance(name, str) else name,
        json_schema_input_type=Literal["github", "gitlab", "forgejo", "gitea"],
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(shown_in_one_line)]
AgentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
_FORGEJO_API: Final = "/api/v1"


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class TokenEntry(_Entry):
    """A token; it is created once for each alias, and its value is shown only then."""

    alias: Name
    scopes: tuple[tokens.Scope, ...] = ("admin",)
    duration: Duration = "30d"


class HostEntry(_Entry):
    """A connected code host."""

    platform: Platform
    host: Name | None = None
    group: Name | None = None
    probe: Literal["api", "git"] = "api"
    api_url: str | None = None
    clone_url: str | None = None
    token_env: VariableName | None = None
    token_ends: date | None = None
    """The day on which the token expires; None to rely on the host's information."""
    token_command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] | None = None
    """The command that prints a token of short life."""
    app: GitHubApp | None = None
    """A GitHub App whose installation has the token."""
    rotate: bool = False
    """Whether the service rotates GitLab's token in `token_env` before it expires."""

    @model_validator(mode="after")
    def _has_one_token(self) -> Self:
        if sum(map(bool, (self.token_env, self.token_command, self.app))) > 1:
            raise ValueError("a host has one of token_env, token_command and app")
        if self.app is not None and (self.platform != "github" or self.probe != "api"):
            raise ValueError("app is for the platform github with its API (probe api)")
        if self.rotate and (self.platform != "gitlab" or self.probe != "api" or self.token_env is None):
            raise ValueError("rotate is for the platform gitlab with its API (probe api) and token_env")
        return self


class RepositoryEntry(_Entry):
    """A configured repository."""

    name: Name
    platform: Platform
    path: Name
    url: Name | None = None
    """A URL, or a folder (relative to the document); None for the clone URL of the platform's connected host."""
    protected: tuple[Name, ...] | None = None
    """Patterns of branches that no run may work on, possibly none; None protects only the default branch."""
    triggers: tuple[TriggerRule, ...] | None = None
    """The rules by which deliveries start runs; None for no change, initially none."""
    webhook_secret_env: VariableName | None = None
    """The variable with its webhook's secret; None for no change, initially the one in `service.toml`."""
    setup: RepositorySetup | None = None
    """How it is prepared for an agent; None for no change, initially nothing."""


class DayBudget(_Entry):
    """The most that all agents of an organization together may spend in a day (UTC); None for no limit."""

    day_usd: Annotated[float, Field(gt=0)] | None = None
    day_tokens: Annotated[int, Field(gt=0)] | None = None


class OrganizationEntry(_Entry):
    """An organization with its tokens, code hosts and repositories."""

    name: Name
    slug: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")] | None = None
    active: bool = True
    entitlements: tuple[Literal["ServiceAPI", "CreateOrganizations"], ...] = ("ServiceAPI",)
    budget: DayBudget | None = None
    """The organization's budget; None for no change."""
    tokens: tuple[TokenEntry, ...] = ()
    hosts: tuple[HostEntry, ...] = ()
    repositories: tuple[RepositoryEntry, ...] = ()


class AgentEntry(AgentOptions):
    """An agent; without an organization it serves every organization."""

    name: AgentName
    argv: tuple[Annotated[str, Field(min_length=1, max_length=2000)], ...] = ()
    """The command; with a preset: another program, or additional arguments."""
    organization: str | None = None
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = DEFAULT_TIMEOUT_S
    network: bool = False
    environment: tuple[VariableName, ...] = ()


class Setup(_Entry):
    """The whole document."""

    organizations: tuple[OrganizationEntry, ...] = ()
    offers: tuple[Offer, ...] = ()
    agents: tuple[AgentEntry, ...] = ()


class SetupError(ServiceError):
    """The set-up cannot be applied; the text names the entry and says how to fix it."""


def apply_setup(
    connection: sa.Connection, setup: Setup, folder: Path, now: int, data: Path | None = None
) -> dict[str, Any]:
    """Apply a document in one transaction and return the result, including the values of new tokens.

    `data` is the data folder if agents run on this machine; otherwise None.

    Raises:
        SetupError: An entry contradicts the existing state, or lacks something.
    """
    # One of two such entries would silently replace the other, or get its tokens.
    _distinct("organizations", [(org.name, f"the slug {_slug(org)}") for org in setup.organizations])
    _distinct("offers", [(offer.code, f"the code {offer.code}") for offer in setup.offers])
    for number, entry in enumerate(setup.organizations):
        where = f"organizations.{number}"
        _distinct(f"{where}.tokens", [(token.alias, f"the alias {token.alias}") for token in entry.tokens])
        platforms = [(host.host or host.platform, f"the platform {host.platform}") for host in entry.hosts]
        _distinct(f"{where}.hosts", platforms)
        _distinct(f"{where}.repositories", [(repo.name, f"the name {repo.name}") for repo in entry.repositories])
        paths = [(repo.name, repo.platform, repo.path.removesuffix(".git")) for repo in entry.repositories]
        _distinct(f"{where}.repositories", [(name, f"the path {on}:{path.lower()}") for name, on, path in paths])
    # Locked against other changes, so that everything in the document is read once and written once.
    lock_all(connection)
    state = _Organizations(connection, setup.organizations, folder, now)
    results = [state.apply(entry) for entry in setup.organizations]
    state.store()
    owners = organizations.named(connection, [entry.organization for entry in setup.agents if entry.organization])
    known = {agent.key: agent for agent in agents.all_of(connection)}
    wished, identities = [], []
    for agent_entry in setup.agents:
        owner = None if agent_entry.organization is None else _named(owners, agent_entry.organization)
        scope = "for all organizations" if owner is None else f"in the organization {owner.id}"
        wished.append(_agent(agent_entry, owner, data))
        identities.append((agent_entry.name, f"the name {agent_entry.name} {scope}"))
    _distinct("agents", identities)
    changed = {agent.key: agent for agent in wished if agent != known.get(agent.key)}
    agents.put_all(connection, [*changed.values()], now)
    applied = [_outcome("agent", agent.name, agent.organization_id, known.get(agent.key), agent) for agent in wished]
    check_fallbacks(connection)
    for offer in setup.offers:
        old = organizations.offer_by_code(connection, offer.code)
        wanted = replace(offer, retired=offer.retired or (old is not None and old.retired))
        organizations.put_offer(connection, wanted)
        applied.append(_outcome("offer", offer.code, None, old, wanted))
    state.check_triggers()
    return {
        "organizations": results,
        "offers": [offer.code for offer in organizations.all_offers(connection)],
        "agents": sorted({DEFAULT_NAME} | {agent.name for agent in agents.all_of(connection)}),
        "applied": [*applied, *state.applied],
    }


def _distinct(where: str, entries: Iterable[tuple[str, str]]) -> None:
    """Refuse two entries with the same identity; each is given as a name and an identity."""
    seen: dict[str, str] = {}
    for number, (name, identity) in enumerate(entries):
        entry = f"{where}.{number} ({name})"
        other = seen.setdefault(identity, entry)
        if other != entry:
            raise SetupError(f"{other} and {entry} both have {identity}: remove or change one of them")


def _outcome(kind: str, name: str, organization_id: str | None, before: object, after: object) -> dict[str, str | None]:
    outcome = "added" if before is None else "unchanged" if before == after else "changed"
    return {"kind": kind, "name": name, "organization": organization_id, "outcome": outcome}


def find_organization(connection: sa.Connection, slug: str) -> Organization:
    """Return the organization with a slug or id.

    Raises:
        SetupError: There is no such organization.
    """
    return _named(organizations.named(connection, [slug]), slug)


def _named(known: Mapping[str, Organization], slug: str) -> Organization:
    organization = known.get(slug.lower()) or known.get(slug)
    if organization is None:
        raise SetupError(f"there is no organization {slug!r}; create it with: runwarden service org create NAME")
    return organization


def make_token(
    connection: sa.Connection, organization: Organization, entry: TokenEntry, now: int
) -> tuple[tokens.TokenRecord, str]:
    """Create a token; the organization needs the entitlement ServiceAPI (spec 5.5).

    Raises:
        SetupError: The organization lacks the entitlement.
    """
    if "ServiceAPI" not in organization.entitlements:
        raise SetupError(
            f"the organization {organization.slug} needs the entitlement ServiceAPI to have tokens; "
            f"give it with: runwarden service org grant {organization.slug} ServiceAPI"
        )
    life = parse_duration(entry.duration)
    return tokens.create(connection, organization.id, scopes=entry.scopes, alias=entry.alias, now=now, life_micros=life)


def welcome(
    connection: sa.Connection, organization: Organization, invitation: Invitation, now: int
) -> tuple[Member, tokens.TokenRecord, str]:
    """Make the user who accepted an invitation a member with its role, and a token of that role with its value.

    Raises:
        SetupError: The organization lacks the entitlement ServiceAPI.
        LastAdminError: The organization's last admin was invited to another role.
    """
    role = invitation.role
    member = sessions.put_member(connection, organization.id, invitation.email, now, role)
    scopes: tuple[tokens.Scope, ...] = ("admin",) if role == "admin" else sessions.ROLES[role]
    alias = f"first {'administrator' if role == 'admin' else role}"
    return member, *make_token(connection, organization, TokenEntry(alias=alias, scopes=scopes), now)


def connect_host(connection: sa.Connection, organization: Organization, entry: HostEntry, now: int) -> hosts.Host:
    """Connect a code host, by default the platform's public one; the first host starts the trial.

    Raises:
        SetupError: The address that its kind of probe needs is missing.
    """
    host = _host(entry)
    hosts.connect(connection, organization.id, host, now)
    organizations.start_trial(connection, organization.id, now)
    return host


def _host(entry: HostEntry) -> hosts.Host:
    api_url, platform = entry.api_url, PLATFORMS[entry.platform]
    if entry.probe == "api" and api_url is None:
        if platform.host is None or entry.host not in {None, platform.host}:
            needed = f"api_url (--api-url){f', such as {platform.api}' if platform.host is None else ''}"
            raise SetupError(f"{entry.platform}: a private host needs {needed}, or probe git (--probe)")
        api_url = platform.api
    if entry.platform == "forgejo" and api_url and not api_url.rstrip("/").endswith(_FORGEJO_API):
        right = f"{api_url.rstrip('/')}{_FORGEJO_API}"
        raise SetupError(f"forgejo: api_url (--api-url) must end with {_FORGEJO_API}: write {right}")
    if entry.probe == "git" and entry.clone_url is None:
        example = "clone_url (--clone-url), such as https://git.example/{path}.git"
        raise SetupError(f"{entry.platform}: probe git needs {example}")
    named = location(entry.clone_url or "")
    host = None if named is None else named.host
    if entry.api_url is not None:
        host = urlsplit(entry.api_url).hostname
        # An API address needs no path: `https://api.acme.ghe.com` serves the repositories of `acme.ghe.com`.
        host = host.removeprefix("api.") if host and host.endswith(".ghe.com") else host
        host = None if entry.api_url.rstrip("/") == platform.api else host
    host = entry.host or host or platform.host
    if host is None:
        raise SetupError(f"{entry.platform}: name its host (--host), as in the addresses of its repositories")
    same = {"group", "probe", "clone_url", "token_env", "app", "rotate"}
    ends = None if entry.token_ends is None else entry.token_ends.isoformat()
    more = {"api_url": api_url, "token_ends": ends, "token_command": entry.token_command or ()}
    return hosts.Host(entry.platform, host.lower(), **more | {name: getattr(entry, name) for name in same})


def add_repository(
    connection: sa.Connection, organization: Organization, entry: RepositoryEntry, folder: Path, now: int
) -> repositories.Repository:
    """Configure a repository; a folder is stored as an absolute path.

    Raises:
        SetupError: It has no clone address, or another repository has its name.
    """
    try:
        held = {_key(repo): repo for repo in repositories.of(connection, organization.id)}
        repository = _repository(entry, held, hosts.of(connection, organization.id), folder)
        repositories.put(connection, organization.id, repository, now)
    except ValueError as error:
        raise SetupError(f"repository {entry.name}: {error}") from error
    return repository


def _repository(
    entry: RepositoryEntry,
    held: Mapping[tuple[str, str], repositories.Repository],
    connected: Iterable[hosts.Host],
    folder: Path,
) -> repositories.Repository:
    """Return a repository as configured by an entry; `held` are those of its organization, by platform and path.

    Raises:
        ValueError: It has no clone address, or another repository has its name.
    """
    path = checked_path(entry.platform, entry.path)
    kept = held.get((entry.platform, path.lower()))
    namesake = next((repo for repo in held.values() if repo.name == entry.name and repo is not kept), None)
    if namesake is not None:
        raise repositories.taken(entry.name, namesake.path)
    if entry.url is None:
        url = hosts.clone_url(connected, entry.platform, path)
        if url is None:
            raise ValueError("it needs a url (--url), or a connected host with a clone URL")
    else:
        url = entry.url if location(entry.url) is not None else str((folder / entry.url).resolve())
    triggers, secret, setup = ((), None, None) if kept is None else (kept.triggers, kept.webhook_secret_env, kept.setup)
    return repositories.Repository(
        entry.name,
        entry.platform,
        path,
        url,
        protected=entry.protected,
        triggers=triggers if entry.triggers is None else entry.triggers,
        webhook_secret_env=entry.webhook_secret_env or secret,
        setup=entry.setup or setup,
    )


def check_triggers(connection: sa.Connection, organization: Organization, repository: repositories.Repository) -> None:
    """Check that the agents in a repository's rules exist, and accept its MCP servers.

    Raises:
        SetupError: An agent is missing, or does not accept MCP servers.
    """
    has_servers = repository.setup is not None and repository.setup.mcp_servers
    for rule in repository.triggers:
        agent = agents.by_name(connection, organization.id, rule.agent)
        names = f"a trigger names the agent {rule.agent!r}"
        if agent is None:
            fault = f"{names}, which is not configured; list them with: runwarden service agent list"
            raise SetupError(f"repository {repository.name}: {fault}")
        if has_servers and not programs.takes_servers(agent):
            fault = f"it has mcp_servers, and {names}, but {programs.TAKES_NONE}"
            raise SetupError(f"repository {repository.name}: {fault}")


def check_fallbacks(connection: sa.Connection) -> None:
    """Check that the fallbacks of all agents exist, and lead back to none of them.

    Raises:
        SetupError: One is missing, or leads back.
    """
    graph: dict[str, list[str]] = {}
    for agent in agents.all_of(connection):
        for name in agent.options.fallback:
            fallback = agents.by_name(connection, agent.organization_id or "", name)
            if fallback is None:
                text = f"the fallback {name!r} is not configured; list agents with: runwarden service agent list"
                raise SetupError(f"agent {agent.name}: {text}")
            graph.setdefault(agent.key, []).append(fallback.key)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        names = " → ".join(key.partition("/")[2] for key in error.args[1][::-1])
        raise SetupError(f"the fallbacks of agents lead in a circle: {names}; remove one") from error


def put_agent(connection: sa.Connection, entry: AgentEntry, now: int, data: Path | None = None) -> Agent:
    """Configure an agent; `data` is the data folder if it runs on this machine; otherwise None.

    Raises:
        SetupError: Its organization does not exist, its options contradict each other, or something is missing.
    """
    owner = None if entry.organization is None else find_organization(connection, entry.organization)
    agent = _agent(entry, owner, data)
    agents.put(connection, agent, now)
    check_fallbacks(connection)
    return agent


def _agent(entry: AgentEntry, owner: Organization | None, data: Path | None) -> Agent:
    options = AgentOptions.model_validate(entry.model_dump(include=set(AgentOptions.model_fields)))
    whose = None if owner is None else owner.id
    agent = Agent(entry.name, entry.argv, entry.timeout_s, entry.network, entry.environment, options, whose)
    faults = [*programs.contradictions(agent), *([] if data is None else programs.missing(agent, data))]
    if faults:
        raise SetupError(f"agent {entry.name}: {'; '.join(faults)}")
    return agent


class _Organizations:
    """The organizations of a document with their hosts and repositories: read together, changed, stored together."""

    def __init__(self, connection: sa.Connection, entries: Sequence[OrganizationEntry], folder: Path, now: int) -> None:
        self._connection = connection
        self._folder = folder
        self._now = now
        self._named = organizations.named(connection, [_slug(entry) for entry in entries])
        known = [*{org.id for org in self._named.values()}]
        self._tokens = by_owner(connection, tokens.TokenRecord, schema.tokens, known)
        self._hosts = by_owner(connection, hosts.Host, schema.hosts, known)
        self._repositories = defaultdict[str, dict[tuple[str, str], repositories.Repository]](dict)
        """Keyed by organization, then by platform and path."""
        for owner, held in by_owner(connection, repositories.Repository, schema.repositories, known).items():
            self._repositories[owner] = {_key(repo): repo for repo in held}
        self._created: list[Organization] = []
        self._budgets: dict[str, DayBudget] = {}
        self._connected: list[tuple[str, hosts.Host]] = []
        self._configured: list[tuple[str, repositories.Repository]] = []
        self.applied: list[dict[str, str | None]] = []
        """The outcome for each host and repository."""

    def apply(self, entry: OrganizationEntry) -> dict[str, object]:
        """Apply an entry and return the resulting organization.

        Raises:
            SetupError: It contradicts the existing state, or lacks something.
        """
        existing = organization = self._named.get(_slug(entry))
        budget = entry.budget or DayBudget()
        if organization is None:
            organization = Organization(
                id=f"org_{ids.ulid(self._now)}",
                name=entry.name,
                slug=_slug(entry),
                parent_id=None,
                active=entry.active,
                entitlements=entry.entitlements,
                offer_code=None,
                created_at=self._now,
                day_usd=budget.day_usd,
                day_tokens=budget.day_tokens,
            )
            self._created.append(organization)
            self._named[organization.slug] = organization
        elif entry.budget and budget != DayBudget(day_usd=organization.day_usd, day_tokens=organization.day_tokens):
            self._budgets[organization.id] = budget
        connected = {host.platform: host for host in self._hosts[organization.id]}
        for host in map(_host, entry.hosts):
            before = connected.get(host.platform)
            self.applied.append(_outcome("host", host.platform, organization.id, before, host))
            if before != host:
                connected[host.platform] = host
                self._connected.append((organization.id, host))
        configured, held = [], self._repositories[organization.id]
        for wanted_repo in entry.repositories:
            try:
                repository = _repository(wanted_repo, held, connected.values(), self._folder)
            except ValueError as error:
                raise SetupError(f"repository {wanted_repo.name}: {error}") from error
            known = held.get(_key(repository))
            name = f"{repository.platform}:{repository.path}"
            self.applied.append(_outcome("repository", name, organization.id, known, repository))
            if known != repository:
                held[_key(repository)] = repository
                self._configured.append((organization.id, repository))
            configured.append(repository)
        shown, held_tokens = [], reversed(self._tokens[organization.id])
        valid = {row.alias: row for row in held_tokens if row.is_valid(self._now)}
        for wish in entry.tokens:
            kept = valid.get(wish.alias)
            token, value = (kept, None) if kept else make_token(self._connection, organization, wish, self._now)
            document = {"id": token.id, "alias": token.alias, "value": value, "scopes": list(token.scopes)}
            shown.append(document | {"expires_at": rfc3339(token.expires_at)})
        places = {(host.platform, host.host) for host in connected.values()}
        return {
            "id": organization.id,
            "name": organization.name,
            "slug": organization.slug,
            "created": existing is None,
            "differs": [] if existing is None else _differences(existing, entry),
            "tokens": shown,
            "hosts": [host.platform for host in entry.hosts],
            "repositories": [
                {"name": repo.name, "platform": repo.platform, "path": repo.path, "url": without_login(repo.url)}
                # None: its address names no host.
                | {"connected": (repo.platform, where.host) in places if where is not None and where.host else None}
                for repo, where in ((repo, location(repo.url)) for repo in configured)
            ],
        }

    def store(self) -> None:
        """Store everything that is new or has changed."""
        organizations.add(self._connection, self._created)
        for organization_id, budget in self._budgets.items():
            organizations.change(self._connection, organization_id, **budget.model_dump())
        hosts.put_all(self._connection, self._connected, self._now)
        repositories.put_all(self._connection, self._configured, self._now)
        owners = [*{owner for owner, _ in self._connected}]
        for owner in by_owner(self._connection, organizations.Trial, schema.trials, owners):
            organizations.start_trial(self._connection, owner, self._now)

    def check_triggers(self) -> None:
        """Check the rules of these organizations' repositories, including those that the document leaves out."""
        for organization in {org.id: org for org in self._named.values()}.values():
            for repository in self._repositories[organization.id].values():
                check_triggers(self._connection, organization, repository)


def _key(repo: repositories.Repository) -> tuple[str, str]:
    return repo.platform, repo.path.lower()


def _slug(entry: OrganizationEntry) -> str:
    return entry.slug or organizations.slug_of(entry.name)


def _differences(organization: Organization, entry: OrganizationEntry) -> list[str]:
    """Return the steps, mostly commands, that would make an organization equal to its entry in the document.

    The commands are not run: applying a document again must not undo later decisions.
    """
    slug = organization.slug
    wanted = set(entry.entitlements)
    held = set(organization.entitlements)
    commands = [] if organization.active == entry.active else [f"{'activate' if entry.active else 'deactivate'} {slug}"]
    commands += [f"grant {slug} {entitlement}" for entitlement in sorted(wanted - held)]
    commands += [f"withdraw {slug} {entitlement}" for entitlement in sorted(held - wanted)]
    name = f"name the entry {organization.name!r}, as the organization with the slug {slug}, or change its slug"
    differing = [] if organization.name == entry.name else [name]
    return [*differing, *(f"runwarden service org {command}" for command in commands)]
