"""Options of an agent's configuration beyond its command; every key has a default that grants nothing."""

import re
from dataclasses import dataclass, replace
from datetime import date
from math import inf
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from service.agents.allowlist import Entry
from service.agents.inputs import AgentInput, InputName
from service.agents.prices import Price, price_of
from service.clock import SECOND_MICROS, Duration, parse_duration
from service.findings import Severity
from service.network import LOOPBACK, Host

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
PresetName = Literal["claude-code", "codex", "opencode", "gemini", "aider", "goose", "acp"]
ProviderName = Literal["anthropic", "openai", "gemini", "vertex", "bedrock"]
_IDLE_S: Final = 300.0
CI_FILES: Final = (
    *(".github/workflows/", ".github/actions/", ".gitlab-ci.yml", ".gitlab/ci/", ".forgejo/workflows/"),
    *(".gitea/workflows/", ".circleci/", ".buildkite/", ".woodpecker/", ".woodpecker.yml", ".drone.yml"),
    *("Jenkinsfile", "azure-pipelines.yml", "bitbucket-pipelines.yml", ".travis.yml", ".cirrus.yml"),
    *("CODEOWNERS", ".github/CODEOWNERS", ".gitlab/CODEOWNERS", "docs/CODEOWNERS"),
)
"""Files that a code host executes with its secrets as soon as they are pushed, or that say who must approve."""
_PROVIDERS: Final = {"anthropic": "Anthropic", "openai": "OpenAI", "gemini": "Gemini"}
"""Providers with one public address."""
_ADDRESSES: Final = {
    "vertex": "https://us-east5-aiplatform.googleapis.com/v1/projects/PROJECT/locations/us-east5",
    "bedrock": "https://bedrock-runtime.us-east-1.amazonaws.com",
}
"""Examples of addresses of the others."""
_OWN_HEADERS: Final = frozenset(
    (
        *("authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"),
        *("host", "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
        *("expect", "content-length", "content-type", "content-encoding", "accept-encoding"),
    )
)
"""Headers that carry a key, or that say how a request is sent."""


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class SpendingLimits(_Options):
    """How much an agent may spend before it is stopped; None: no limit of this kind."""

    run_usd: Annotated[float, Field(gt=0)] | None = None
    day_usd: Annotated[float, Field(gt=0)] | None = None
    """The most dollars for all runs of the agent in one day (UTC)."""
    run_tokens: Annotated[int, Field(gt=0)] | None = None


class ModelAccess(_Options):
    """A model that the agent reaches through the service, which alone holds the key."""

    provider: ProviderName
    key_env: VariableName | None = None
    """The service's variable with the key; None: `key_command` prints it."""
    key_command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """A command of the operator's, run by the service outside of the sandbox, which prints a key of short life."""
    key_ends: date | None = None
    """The day on which the key expires; None: not known."""
    # Not {0,199} of \w, which each process would compile for a tenth of a second.
    name: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9][\w./:@-]*$")] | None = None
    """The model that a preset asks for; None: the program's own choice."""
    models: tuple[Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9*][\w./:@*-]*$")], ...] = ()
    """The only models that the agent may ask, `*` standing for any text; empty: `name` and its program's small ones."""
    base_url: str | None = None
    """The provider's address; None: its public one."""
    headers: dict[
        Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9-]+$")],
        Annotated[str, Field(max_length=1000, pattern=r"^[!-~]([ -~]*[!-~])?$")],
    ] = {}
    """Further headers of each request; no place for a secret."""
    budget: SpendingLimits = SpendingLimits()
    prices: dict[str, Price] = {}
    """Prices by prefix of the model's name; the longest matching prefix decides, and without one the list price."""

    @property
    def shown(self) -> str:
        """The recipient of the key, in words: the provider, or the host of a custom address."""
        if self.base_url:
            return urlsplit(self.base_url).netloc
        return _PROVIDERS[self.provider]

    @property
    def source(self) -> str:
        """Identifies everything that fails together: the provider, its address and the key."""
        return f"{self.provider} {self.base_url or ''} {self.key_env or ' '.join(self.key_command)}"

    @field_validator("base_url")
    @classmethod
    def check_address(cls, url: str | None) -> str | None:
        parts = urlsplit(url or "https://none.example")
        if parts.scheme not in {"http", "https"} or parts.username or parts.query:
            raise ValueError("write an address, such as https://llm.acme.example/v1")
        Host.parse(parts.hostname or "")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise ValueError("use https: the key would travel in clear")
        return url

    @field_validator("headers")
    @classmethod
    def check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        lowered: dict[str, str] = {}
        for name, value in headers.items():
            if (key := name.lower()) in _OWN_HEADERS:
                raise ValueError(f"{name} is the service's own to set: remove it; a key belongs into key_env")
            if key in lowered:
                raise ValueError(f"{name} is there twice")
            lowered[key] = value
        return lowered

    @model_validator(mode="after")
    def check_model(self) -> Self:
        if (self.key_env is None) == (not self.key_command):
            text = "it needs key_env, the variable with its key, or key_command, which prints one, and not both"
            raise ValueError(text)
        if self.key_ends is not None and self.key_env is None:
            raise ValueError("key_ends is about the key in key_env: remove it")
        if self.base_url is None and self.provider in _ADDRESSES:
            raise ValueError(f"{self.provider} needs base_url, such as {_ADDRESSES[self.provider]}")
        is_limited = self.budget.run_usd or self.budget.day_usd
        if is_limited and self.name and price_of(self.name, self.prices) is None:
            fix = f'add prices = {{ "{self.name}" = {{ input = 3, output = 15 }} }}, with its own'
            raise ValueError(f"{self.name} has no known price, which a budget in dollars needs: {fix}")
        return self


class OnCompletion(_Options):
    """How a run appears on the code host, in addition to the commit on its branch."""

    pull_request: Literal["off", "draft", "ready"] = "off"
    """Whether a pull request (GitLab: merge request) is opened for the branch, or brought up to date."""
    review: bool = False
    """Whether the agent's findings are posted as a review of that pull request."""
    status: bool | Severity = False
    """Whether commits say that a run works on them, and how it ended.

    A severity, such as `blocker`: a completed run with a finding of it, or a graver one, counts as failed.
    """


class ChangeLimits(_Options):
    """The largest change of one turn: a larger one is not pushed, and the turn fails."""

    files: Annotated[int, Field(ge=1)] = 500
    bytes: Annotated[int, Field(ge=1)] = 10 << 20
    """The largest size of the patch."""
    protected: tuple[Annotated[str, Field(min_length=1)], ...] = CI_FILES
    """Files that a turn may not change: patterns, or folders, which end with a slash."""


class McpServer(_Options):
    """A server of tools for agents that work in a repository: a command in the sandbox, or an address."""

    command: tuple[Annotated[str, Field(min_length=1, max_length=2000, pattern=r"^[^\x00]*$")], ...] = ()
    url: Annotated[str, Field(max_length=2000)] | None = None

    @model_validator(mode="after")
    def check_server(self) -> Self:
        if (self.url is None) == (not self.command):
            raise ValueError('write command = ["node_modules/.bin/docs-mcp"], or url = "https://docs.example/mcp"')
        parts = urlsplit(self.url or "https://none.example")
        if parts.scheme != "https" or parts.username:
            raise ValueError("write an https address, such as https://docs.example/mcp, and allow its host in egress")
        Host.parse(parts.hostname or "")
        return self


class RepositorySetup(_Options):
    """How to prepare a repository for agents."""

    lfs: bool = False
    """Whether agents see the contents of files in Git LFS, and may change them."""
    submodules: bool = False
    """Whether agents see the files of submodules on the same code host; their changes there are not committed."""
    partial: bool = False
    """Whether only the contents that a turn needs are fetched, not those of the history."""
    sparse: tuple[Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f]+$")], ...] = ()
    """The files and folders that agents get, and that turns may change; implies `partial`."""

    run: tuple[Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"^[^\x00]*\S[^\x00]*$")], ...] = ()
    """Commands for one shell, which ends at the first that fails."""
    cache: tuple[Annotated[str, Field(max_length=500)], ...] = ()
    """Folders of the checkout, or of the home (`~/`), that stay from turn to turn and are never committed."""
    variables: dict[VariableName, Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")]] = {}
    """Variables for the commands and for the agent."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 900
    mcp_servers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")], McpServer] = {}
    """Servers of tools for the agent, if its program takes any."""

    @property
    def part(self) -> tuple[str, ...] | None:
        """The files and folders whose contents are fetched; empty: all of the branch. None: with its history."""
        if self.sparse or self.partial:
            return tuple(name.removesuffix("/") for name in self.sparse)
        return None

    @model_validator(mode="after")
    def check_paths(self) -> Self:
        if wrong := [name for name in self.part or () if {"", ".", ".."} & {*name.split("/")}]:
            raise ValueError(f"write paths in the repository, such as 'services/api/', not {wrong[0]!r}")
        if self.sparse and (self.lfs or self.submodules):
            raise ValueError("sparse cannot be combined with lfs or submodules: remove one of them")
        return self

    @field_validator("cache")
    @classmethod
    def check_folders(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            parts = name.removeprefix("~/").split("/")
            is_safe = all(re.fullmatch(r"[A-Za-z0-9_.@+-]{1,100}", part) for part in parts)
            if not is_safe or {"..", "."} & {*parts} or parts[0].lower() in {".git", ".runwarden"}:
                raise ValueError(f"write a folder such as 'node_modules' or '~/.cache/pip', not {name!r}")
            if any(other != name and f"{name}/".startswith(f"{other}/") for other in names):
                raise ValueError(f"{name!r} lies in another one of them: leave it out")
        return names


class AgentOptions(_Options):
    """The optional keys of an agent."""

    description: Annotated[str, Field(max_length=300)] = ""
    prompt: Annotated[str, Field(min_length=1, max_length=50_000)] | None = None
    """Its instructions, with `{inputs.NAME}` in place of values; None: the caller's words alone."""
    inputs: dict[InputName, AgentInput] = {}
    """The inputs that it takes from a caller; empty: any."""

    preset: PresetName | None = None
    """A program that the service knows how to call; None: `argv` is the whole command."""
    readable: tuple[Annotated[str, Field(pattern=r"^/")], ...] = ()
    """Files and folders of the machine that the sandbox shows, read-only."""
    cache: Annotated[int, Field(ge=1 << 20)] | None = None
    """Bytes that a folder of the agent may hold from turn to turn; None: it has none."""
    session: bool | None = None
    """Whether the home folder stays for the run's later turns; None: with a preset."""
    idle_timeout_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """How long an agent may neither print nor compute; None: 300 with a preset, otherwise no limit."""
    egress: tuple[str, ...] | None = None
    """Hosts that the agent may reach over TLS, at public addresses or at the one that is given; None: none."""
    model: ModelAccess | None = None
    trust_repository: bool = False
    """Whether a preset lets the program obey configuration that the repository holds."""
    on_completion: OnCompletion = OnCompletion()
    change: ChangeLimits = ChangeLimits()
    commits: Literal["one", "keep"] = "one"
    """Whether a turn is one commit, or the commits that the agent made stay."""
    fallback: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = ()
    """The agents that continue a turn while its own agent's model is unavailable, each tried once, in this order."""
    fallback_after: Duration = "15m"
    """How long a limit, or an outage before the turn began, is waited for instead."""

    @property
    def keeps_session(self) -> bool:
        return self.preset is not None if self.session is None else self.session

    @property
    def waits_s(self) -> float:
        """How long to wait for a limit or an outage before a fallback continues."""
        if self.fallback:
            return parse_duration(self.fallback_after) / SECOND_MICROS
        return inf

    @property
    def idle_s(self) -> float | None:
        """How long the agent may neither print nor compute; None: no limit."""
        if self.preset:
            return self.idle_timeout_s or _IDLE_S
        return self.idle_timeout_s

    @model_validator(mode="after")
    def check_fallback(self) -> Self:
        if len({*self.fallback}) < len(self.fallback):
            raise ValueError("fallback: an agent is there twice: remove it once")
        if not self.fallback and self.fallback_after != AgentOptions.model_fields["fallback_after"].default:
            fix = 'add one, such as fallback = ["other"], or remove it'
            raise ValueError(f"fallback_after: there is no fallback: {fix}")
        return self

    @field_validator("egress")
    @classmethod
    def check_hosts(cls, hosts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for entry in hosts or ():
            try:
                Entry.parse(entry)
            except ValueError as error:
                raise ValueError(
                    "write a host such as 'api.example.com' or '*.example.com:8443', or an internal one with its port "
                    f"and address, such as 'registry.corp:8443=10.1.2.3' or '10.1.2.3:8443', not {entry!r} ({error})"
                ) from error
        return hosts


DEFAULT_TIMEOUT_S: Final = 600.0
DEFAULT_NAME: Final = "reviewer"
NO_OPTIONS: Final = AgentOptions()


@dataclass(frozen=True, slots=True)
class Agent:
    """A configured agent: its command, limits and permissions."""

    name: str
    argv: tuple[str, ...]
    """The command; `{python}` is replaced with the interpreter that runs the service."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    network: bool = False
    environment: tuple[str, ...] = ()
    """Names of the service's environment variables that the agent may see; it sees no others."""
    options: AgentOptions = NO_OPTIONS
    organization_id: str | None = None
    """The organization that owns it; None if it serves all organizations."""

    @property
    def secret_names(self) -> tuple[str, ...]:
        """The variables whose values must be masked in everything that is stored."""
        key = None if self.options.model is None else self.options.model.key_env
        return self.environment if key is None else (*self.environment, key)

    @property
    def key(self) -> str:
        """Owner and name, which stay the same when the agent is configured again."""
        return f"{self.organization_id or ''}/{self.name}"

    def restrict(self) -> "Agent":
        """Return the agent without secrets, network access, or rights to files that outlive the run."""
        restrictions = {"readable": (), "cache": None, "egress": None, "model": None, "trust_repository": False}
        return replace(self, network=False, environment=(), options=self.options.model_copy(update=restrictions))


# -P: the agent starts inside a checkout, and must not import modules from it.
REVIEWER: Final = Agent(DEFAULT_NAME, ("{python}", "-P", "-m", "service.reviewer"))
