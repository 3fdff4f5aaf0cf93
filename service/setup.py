"""What operators set up, by a command or by the entry of a document, which is checked key by key.

Every function may raise a `SetupError`, whose text names the entry and says how to fix it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

import sqlalchemy as sa
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from service.agents import invocation, programs
from service.agents.options import DEFAULT_TIMEOUT_S, Agent, AgentOptions, RepositorySetup, VariableName
from service.clock import Duration, Micros, parse_duration
from service.errors import ServiceError
from service.reference import ALIASES, PLATFORMS, checked_path, location
from service.rules import TriggerRule
from service.store import agents, hosts, organizations, repositories, sessions, tokens
from service.store.invitations import Invitation
from service.store.organizations import Offer, Organization
from service.store.repositories import Repository
from service.store.schema import GitHubApp
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
    app: GitHubApp | None = None
    rotate: bool = False

    @model_validator(mode="after")
    def check_token(self) -> Self:
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

    @property
    def wanted_slug(self) -> str:
        """Its slug, by default the one made from its name."""
        return self.slug or organizations.slug_of(self.name)


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
    """The set-up cannot be applied."""


def find_organization(
    connection: sa.Connection, slug: str, present: dict[str, Organization] | None = None
) -> Organization:
    """Return the organization with a slug or id; `known` has those that exist, if they were read before."""
    present = organizations.by_slugs(connection, [slug]) if present is None else present
    organization = present.get(slug.lower()) or present.get(slug)
    if organization is None:
        raise SetupError(f"there is no organization {slug!r}; create it with: runwarden service org create NAME")
    return organization


def make_token(
    connection: sa.Connection, organization: Organization, entry: TokenEntry, now: Micros
) -> tuple[tokens.TokenRecord, str]:
    """Create a token; the organization needs the entitlement ServiceAPI (spec 5.5)."""
    if "ServiceAPI" not in organization.entitlements:
        text = f"the organization {organization.slug} needs the entitlement ServiceAPI to have tokens"
        raise SetupError(f"{text}; give it with: runwarden service org grant {organization.slug} ServiceAPI")
    life = parse_duration(entry.duration)
    return tokens.create(connection, organization.id, scopes=entry.scopes, alias=entry.alias, now=now, life_micros=life)


def welcome(
    connection: sa.Connection, organization: Organization, invitation: Invitation, now: Micros
) -> tuple[Member, tokens.TokenRecord, str]:
    """Make the user who accepted an invitation a member (or `LastAdminError`); return them with a token of the role."""
    role = invitation.role
    member = sessions.put_member(connection, organization.id, invitation.email, now, role)
    scopes: tuple[tokens.Scope, ...] = ("admin",) if role == "admin" else sessions.ROLES[role]
    alias = f"first {'administrator' if role == 'admin' else role}"
    return member, *make_token(connection, organization, TokenEntry(alias=alias, scopes=scopes), now)


def connect_host(connection: sa.Connection, organization: Organization, entry: HostEntry, now: Micros) -> hosts.Host:
    """Connect a code host, by default the platform's public one; the first host starts the trial."""
    host = host_of(entry)
    hosts.connect(connection, organization.id, host, now)
    organizations.start_trial(connection, organization.id, now)
    return host


def host_of(entry: HostEntry) -> hosts.Host:
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
    place = location(entry.clone_url or "")
    host = None if place is None else place.host
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
    connection: sa.Connection, organization: Organization, entry: RepositoryEntry, folder: Path, now: Micros
) -> Repository:
    """Configure a repository; a folder is stored as an absolute path."""
    try:
        present = {repository_key(repo): repo for repo in repositories.of(connection, organization.id)}
        repository = repository_of(entry, present, hosts.of(connection, organization.id), folder)
        repositories.save(connection, organization.id, repository, now)
    except ValueError as error:
        raise SetupError(f"repository {entry.name}: {error}") from error
    check_triggers(connection, organization, repository)
    return repository


def repository_of(
    entry: RepositoryEntry, known: Mapping[tuple[str, str], Repository], connected: Iterable[hosts.Host], folder: Path
) -> Repository:
    """Return an entry's repository (`ValueError`: no address, or a taken name); `known` are its organization's."""
    path = checked_path(entry.platform, entry.path)
    before = known.get((entry.platform, path.lower()))
    namesake = next((repo for repo in known.values() if repo.name == entry.name and repo is not before), None)
    if namesake is not None:
        raise repositories.name_taken(entry.name, namesake.path)
    if entry.url is None:
        url = hosts.clone_url(connected, entry.platform, path)
        if url is None:
            raise ValueError("it needs a url (--url), or a connected host with a clone URL")
    else:
        url = entry.url if location(entry.url) is not None else str((folder / entry.url).resolve())
    before = before or Repository(entry.name, entry.platform, path, url)
    if before.url != url:
        # It may be the address of another project.
        before = replace(before, url=url, project_id=None, webhook_configured=False)
    names = ("triggers", "webhook_secret_env", "setup")
    changed = {name: value for name in names if (value := getattr(entry, name)) is not None}
    return replace(before, name=entry.name, path=path, protected=entry.protected, **changed)


def check_triggers(connection: sa.Connection, organization: Organization, repository: Repository) -> None:
    """Check that the agents in a repository's rules exist, and accept its MCP servers."""
    has_servers = repository.setup is not None and repository.setup.mcp_servers
    for rule in repository.triggers:
        agent = agents.by_name(connection, organization.id, rule.agent)
        names = f"a trigger names the agent {rule.agent!r}"
        if agent is None:
            fault = f"{names}, which is not configured; list them with: runwarden service agent list"
            raise SetupError(f"repository {repository.name}: {fault}")
        if has_servers and invocation.preset_of(agent).servers is None:
            fault = f"it has mcp_servers, and {names}, but {programs.TAKES_NONE}"
            raise SetupError(f"repository {repository.name}: {fault}")


def check_fallbacks(connection: sa.Connection) -> None:
    """Check that the fallbacks of all agents exist, and lead back to none of them."""
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


def put_agent(connection: sa.Connection, entry: AgentEntry, now: Micros, data: Path | None = None) -> Agent:
    """Configure an agent. `data` is the data folder if it runs on this machine, otherwise None."""
    owner = None
    if entry.organization is not None:
        owner = find_organization(connection, entry.organization)
    agent = agent_of(entry, owner, data)
    agents.save(connection, agent, now)
    check_fallbacks(connection)
    return agent


def agent_of(entry: AgentEntry, owner: Organization | None, data: Path | None) -> Agent:
    options = AgentOptions.model_validate(entry.model_dump(include=set(AgentOptions.model_fields)))
    whose = None if owner is None else owner.id
    agent = Agent(entry.name, entry.argv, entry.timeout_s, entry.network, entry.environment, options, whose)
    faults = [*programs.contradictions(agent), *([] if data is None else programs.missing(agent, data))]
    if faults:
        raise SetupError(f"agent {entry.name}: {'; '.join(faults)}")
    return agent


def repository_key(repo: Repository) -> tuple[str, str]:
    """Return platform and path, by which an organization has a repository once."""
    return repo.platform, repo.path.lower()
