"""Entries: what an operator writes down, in a document or on the command line, checked key by key."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.store import agents

Platform = Literal["github", "gitlab"]
Name = Annotated[str, Field(min_length=1, max_length=200)]
AgentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class TokenEntry(_Entry):
    """A token; made once for each alias, its value shown only then."""

    alias: Name
    scopes: tuple[Literal["admin", "organizations:create"], ...] = ("admin",)
    duration: str = "30d"


class HostEntry(_Entry):
    """A connected code host."""

    platform: Platform
    host: Name | None = None
    group: Name | None = None
    probe: Literal["api", "git"] = "api"
    api_url: str | None = None
    clone_url: str | None = None
    token_env: VariableName | None = None


class RepositoryEntry(_Entry):
    """A configured repository."""

    name: Name
    platform: Platform
    path: Name
    url: Name | None = None
    """A URL, or a folder (relative to the document); None: the clone URL of the platform's connected host."""


class OrganizationEntry(_Entry):
    """An organization with what belongs to it."""

    name: Name
    slug: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")] | None = None
    active: bool = True
    entitlements: tuple[Literal["ServiceAPI", "CreateOrganizations"], ...] = ("ServiceAPI",)
    tokens: tuple[TokenEntry, ...] = ()
    hosts: tuple[HostEntry, ...] = ()
    repositories: tuple[RepositoryEntry, ...] = ()


class OfferEntry(_Entry):
    """An offer code."""

    code: Name
    kind: Literal["partner", "public"]
    retired: bool = False
    price: Name | None = None
    """In the operator's words; changing it after a signup gives that organization the standard trial."""


class AgentEntry(_Entry):
    """An agent; without an organization it serves all of them."""

    name: AgentName
    argv: Annotated[tuple[Name, ...], Field(min_length=1)]
    organization: str | None = None
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = agents.DEFAULT_TIMEOUT_S
    network: bool = False
    environment: tuple[VariableName, ...] = ()


class Setup(_Entry):
    """The whole document."""

    organizations: tuple[OrganizationEntry, ...] = ()
    offers: tuple[OfferEntry, ...] = ()
    agents: tuple[AgentEntry, ...] = ()
