"""The data folder and its settings: one frozen value from `service.toml`, in which every key has a default."""

import tomllib
from email.utils import parseaddr
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from service.errors import ServiceError, first_fault

_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
Sandboxing = Literal["require", "none"]
LogFormat = Literal["text", "json"]


class SettingsError(ServiceError):
    """`service.toml` cannot be used; the text names the file, the key and the cure."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(_Section):
    """Limits of a caller's requests."""

    requests_per_minute: Annotated[int, Field(ge=1)] = 6000
    """Requests per organization (spec 8); all of them may come at once."""
    body_bytes: Annotated[int, Field(ge=1024)] = 1 << 20
    metadata_bytes: Annotated[int, Field(ge=1024)] = 64 << 10
    """The largest metadata of a run, as JSON."""
    active_runs: Annotated[int, Field(ge=1)] = 1000
    """Runs of one organization that are queued or working: more are refused until some of them have ended."""
    request_s: Annotated[float, Field(gt=0, le=3600)] = 30
    """How long a request may take to arrive, head and body together; also how long a connection may send nothing."""


class AgentLimits(_Section):
    """Limits of one turn's agent, all its processes together."""

    cpu_s: Annotated[float, Field(gt=0)] = 3600
    """CPU time of all processes together."""
    memory_bytes: Annotated[int, Field(ge=16 << 20)] = 4 << 30
    """Resident memory that no file backs. Not address space: Go, Java and node reserve far more than they use."""
    processes: Annotated[int, Field(ge=1)] = 4096
    """Processes at the same time; each of their threads counts."""
    open_files: Annotated[int, Field(ge=64)] = 4096
    """Files and sockets that one process may hold open; the kernel refuses more."""
    sockets: Annotated[int, Field(ge=16)] = 1024
    """Open sockets and pipes of all processes together: their buffers are memory that no other limit counts."""
    workspace_bytes: Annotated[int, Field(ge=1 << 20)] = 8 << 30
    """Disk space of the checkout, the agent's other files, and deleted files that it holds open."""
    workspace_files: Annotated[int, Field(ge=1000)] = 1_000_000
    """Files, folders and links of the checkout and the agent's other files."""
    file_bytes: Annotated[int, Field(ge=1 << 20)] = 1 << 30
    """The largest file; the kernel refuses to write beyond it."""
    disk_reserve_bytes: Annotated[int, Field(ge=0)] = 256 << 20
    """Disk space that is kept free: with less than this, no agent starts, and the one that took too much is ended."""
    disk_reserve_files: Annotated[int, Field(ge=0)] = 20_000
    """Files that can still be made: with fewer, as above."""
    output_bytes: Annotated[int, Field(ge=4096)] = 4 << 20
    """The stored part of its output; the rest is dropped, and the log says so."""
    model_patience_s: Annotated[float, Field(gt=0)] = 600
    """How long its requests are held while its model's provider is down."""
    model_pause_s: Annotated[float, Field(gt=0)] = 30
    """The longest pause before a held request is repeated: the first lasts a second, and each is twice as long."""
    model_silent_s: Annotated[float, Field(gt=0)] = 600
    """How long an answer of a model that arrives in one piece may take."""
    model_stream_silent_s: Annotated[float, Field(gt=0)] = 300
    """How long a model's stream may be silent."""


class ExecutionSettings(_Section):
    """How turns are executed."""

    concurrency: Annotated[int, Field(ge=1, le=64)] = 2
    """Turns at work at the same time in one process."""
    organization_places: Annotated[int, Field(ge=1)] | None = None
    """Turns of one organization at work at the same time, on all workers; None: all but one if there are others."""
    sandbox: Sandboxing = "require"
    """`require`: runs wait while bubblewrap does not work here; `none`: agents have the rights of the service."""
    agent_network: Literal["private", "host"] = "private"
    """The sandboxed network of an agent with `network = true`: the outside without this machine's loopback, or all."""
    git_timeout_s: Annotated[float, Field(gt=0)] = 120
    drain_s: Annotated[float, Field(ge=0)] = 10
    """How long agents may run on after SIGTERM; unfinished turns are recovered at the next start."""
    worker_ttl_s: Annotated[float, Field(gt=0)] = 10
    """A worker whose heartbeat is older counts as dead, and its turns go to another."""
    look_s: Annotated[float, Field(gt=0)] = 2
    """How often a worker looks for work that nothing told it of; accepted turns are told at once."""
    put_back_s: Annotated[float, Field(ge=0)] = 10
    """How long a turn that its machine had no room for keeps its slot: other turns would fare no better."""
    author_name: str = "Runwarden reviewer"
    author_email: str = "reviewer@runwarden.invalid"
    agent: AgentLimits = AgentLimits()


class SmtpSettings(_Section):
    """The mail server that takes invitations; certificates are checked against the system's (or SSL_CERT_FILE's)."""

    host: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """None: the usual port, which is 587 (starttls), 465 (tls) or 25 (none)."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """`starttls` begins in clear and must be offered by the server, `tls` is encrypted from the first byte."""
    username: str | None = None
    """None: no login."""
    password_env: str = "RUNWARDEN_SMTP_PASSWORD"  # noqa: S105 — a variable's name, not a password
    """The environment variable that holds the password."""
    timeout_s: Annotated[float, Field(gt=0, le=300)] = 10
    """The time limit of one delivery, connecting included."""

    @model_validator(mode="after")
    def _protects_the_password(self) -> Self:
        if self.username is not None and self.security == "none" and self.host not in _THIS_MACHINE:
            raise ValueError('a login needs security = "starttls" or "tls": the password would travel in clear')
        return self


class MailSettings(_Section):
    """How invitations are sent."""

    sender: str = "Runwarden <no-reply@runwarden.invalid>"
    smtp: SmtpSettings | None = None
    """None: each invitation becomes a file in the outbox folder."""
    retry_s: Annotated[float, Field(gt=0)] = 60
    """The wait before a failed delivery is retried; doubled each time, up to an hour."""

    @field_validator("sender")
    @classmethod
    def _names_an_address(cls, sender: str) -> str:
        address = parseaddr(sender)[1]
        if "@" not in address or not address.isascii() or not sender.isprintable():
            raise ValueError("write an address, such as 'Acme <no-reply@acme.example>'")
        return sender


class ProbingSettings(_Section):
    """How code hosts are asked for their health."""

    timeout_s: Annotated[float, Field(gt=0)] = 5
    slow_s: Annotated[float, Field(gt=0)] = 3
    """An answer that takes longer counts as degraded."""
    cache_s: Annotated[float, Field(ge=0)] = 5


class GitLabSettings(_Section):
    """The settings of onboarded GitLab projects."""

    webhook_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = None
    """The address that receives the project's events; None: no webhook is set."""
    webhook_secret_env: str | None = None
    """The environment variable whose value GitLab sends along as X-Gitlab-Token; None: no secret."""
    webhook_events: Annotated[tuple[Annotated[str, Field(pattern="^[a-z_]+_events$")], ...], Field(min_length=1)] = (
        "push_events",
        "merge_requests_events",
    )
    """GitLab's names of the events that the webhook receives."""


class ForgeSettings(_Section):
    """How results are posted to code hosts."""

    run_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+.*\{run_id\}")] | None = None
    """The address of a run, such as `https://runs.acme.example/{run_id}`; None: only its id is named."""
    timeout_s: Annotated[float, Field(gt=0, le=300)] = 20
    """The time limit of one request."""
    retry_s: Annotated[float, Field(gt=0)] = 5
    """The wait before a failed posting is retried; doubled each time, up to a quarter of an hour."""
    give_up_s: Annotated[float, Field(gt=0)] = 86_400
    """How long a posting is retried."""


class EventSettings(_Section):
    """How events are delivered to the endpoints of organizations."""

    allow_private: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks and addresses that endpoints may be at though they are not public, also without TLS."""
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 15
    """The time limit of one attempt, after the look-up of the name."""
    retry_s: Annotated[float, Field(gt=0)] = 5
    """The wait before a failed delivery is retried; doubled each time, up to an hour."""
    give_up_s: Annotated[float, Field(gt=0)] = 259_200
    """How long an event is retried."""


class TriggerSettings(_Section):
    """Deliveries to `/hooks/github` and `/hooks/gitlab`, and the runs they may start."""

    github_secret_env: str | None = None
    """The environment variable with the secret that GitHub signs with; GitLab's is `gitlab.webhook_secret_env`."""
    mention: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] = "runwarden"
    """The name, without `@`, with which a comment to this service begins."""
    own_accounts: tuple[str, ...] = ()
    """Further accounts of the service, beside those of the tokens: their actions start nothing."""
    pull_request_runs_a_day: Annotated[int, Field(ge=1)] = 20
    """Runs that are started for one pull request within a day."""
    repository_runs_an_hour: Annotated[int, Field(ge=1)] = 60
    body_bytes: Annotated[int, Field(ge=1024)] = 8 << 20
    """The largest delivery that is read."""


class RetentionSettings(_Section):
    """How long workers keep old data; runs and their turns are kept for good."""

    logs_days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    """Logs and diffs of turns that ended; None: they stay until `runwarden service prune` is called."""
    queue_days: Annotated[float, Field(gt=0, le=36_500)] = 30
    """The queue's entries of ended turns, of use only for debugging the queue."""
    sessions_days: Annotated[float, Field(gt=0, le=36_500)] = 30
    """The home folders that agents keep for a run, after its last turn."""
    audit_days: Annotated[float, Field(ge=1, le=36_500)] | None = None
    """Entries of the audit trail; None: they stay for good."""
    deliveries_days: Annotated[float, Field(ge=7, le=36_500)] = 90
    """Decisions on deliveries; an older change starts nothing."""
    events_days: Annotated[float, Field(gt=0, le=36_500)] = 30
    """Events for the endpoints of organizations, whatever became of them."""
    branches_days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    """Branches made for runs that ended, unless they are protected or hold commits of others; None: they stay."""


class LogSettings(_Section):
    """The log on standard error."""

    format: LogFormat = "text"
    """`json`: one object a line, for programs that collect logs."""


class MetricsSettings(_Section):
    """Who may read `/metrics`."""

    token_env: str = "RUNWARDEN_METRICS_TOKEN"  # noqa: S105 — a variable's name, not a token
    """The environment variable that holds the token for scraping; while it is not set, `/metrics` is not offered."""


class TraceSettings(_Section):
    """The receiver of spans (OpenTelemetry)."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = None
    """The collector's address for OTLP/HTTP; None: as the standard variable OTEL_EXPORTER_OTLP_ENDPOINT says."""
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Which share of the requests is traced, unless the caller's own trace decides."""


class OidcSettings(_Section):
    """An identity provider whose people may sign in on the page."""

    issuer: Annotated[str, Field(pattern=r"^https?://[^\s/]+")]
    """Its name, an address, as its own configuration has it."""
    client_id: Annotated[str, Field(min_length=1)]
    client_secret_env: str = "RUNWARDEN_OIDC_SECRET"  # noqa: S105 — a variable's name, not a secret
    name: Annotated[str, Field(min_length=1, max_length=60)] = "your organization's account"
    """What the page calls it."""
    domains: dict[str, str] = {}
    """Domains of addresses, each with the slug of the organization that all of its people belong to."""


class PageSettings(_Section):
    """The page for people, in a browser."""

    enabled: bool = True
    url: Annotated[str, Field(pattern=r"^https?://[^\s/?#]+$")] | None = None
    """Its public address, such as `https://runs.acme.example`: invitations lead there; None: they hold a code alone."""
    operator_token_env: str = "RUNWARDEN_OPERATOR_TOKEN"  # noqa: S105 — a variable's name, not a token
    """The environment variable with the operator's token; while it is not set, no one sees the operator's view."""
    oidc: OidcSettings | None = None

    @model_validator(mode="after")
    def _is_found_again(self) -> Self:
        if self.oidc is not None and self.url is None:
            raise ValueError("page.oidc needs page.url: the provider sends people back there")
        return self


class Settings(_Section):
    """The whole of `service.toml`."""

    limits: Limits = Limits()
    execution: ExecutionSettings = ExecutionSettings()
    mail: MailSettings = MailSettings()
    probing: ProbingSettings = ProbingSettings()
    gitlab: GitLabSettings = GitLabSettings()
    forge: ForgeSettings = ForgeSettings()
    events: EventSettings = EventSettings()
    triggers: TriggerSettings = TriggerSettings()
    retention: RetentionSettings = RetentionSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    traces: TraceSettings = TraceSettings()
    page: PageSettings = PageSettings()

    @property
    def page_url(self) -> str | None:
        """The page's public address; None: there is no page, or its address is not known."""
        return self.page.url if self.page.enabled else None

    @property
    def run_url(self) -> str | None:
        """The address of a run for people, with `{run_id}`; None: only its id is named."""
        return self.forge.run_url or (f"{self.page_url}/runs/{{run_id}}" if self.page_url else None)

    def secret_of_webhooks(self, platform: str) -> str | None:
        """Return the variable that holds the secret of a platform's webhooks; None: only repositories name any."""
        return self.gitlab.webhook_secret_env if platform == "gitlab" else self.triggers.github_secret_env

    @property
    def secret_names(self) -> tuple[str | None, ...]:
        """The environment variables that hold the service's own secrets; None for each that is not configured."""
        smtp = None if self.mail.smtp is None else self.mail.smtp.password_env
        oidc = None if self.page.oidc is None else self.page.oidc.client_secret_env
        hooks = (self.gitlab.webhook_secret_env, self.triggers.github_secret_env)
        return smtp, *hooks, self.metrics.token_env, self.page.operator_token_env, oidc


class DataFolder:
    """The folder with everything that the service keeps, readable by its owner alone."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.settings_file = self.root / "service.toml"
        self.database_file = self.root / "service.sqlite"
        self.lock_file = self.root / "serve.lock"
        self.worker_lock_file = self.root / "worker.lock"
        self.outbox = self.root / "outbox"
        self.mirrors = self.root / "mirrors"
        self.runs = self.root / "runs"
        self.work = self.root / "work"
        self.sessions = self.root / "sessions"
        """The home folders of runs whose agents resume their session in the next turn."""
        self.caches = self.root / "caches"
        self.workers = self.root / "workers"
        """A lock file for each live worker process on this folder."""
        self.restoring_file = self.root / "restoring"
        """Marks that a back-up is being put in place."""

    @property
    def database_url(self) -> str:
        """The SQLAlchemy URL of the folder's database."""
        return f"sqlite:///{self.database_file}"

    def exists(self) -> bool:
        """Whether a service keeps its database here."""
        return self.database_file.exists()

    def create(self, *, restoring: bool = False) -> None:
        """Make the folders that are missing, closed to other users.

        Raises:
            SettingsError: A restore was cut off here, and `restoring` is False.
        """
        if self.restoring_file.exists() and not restoring:
            raise SettingsError(
                f"{self.root} is being restored, or its restore was cut off: run `runwarden service restore` again, "
                "with --force"
            )
        agents = (self.runs, self.work, self.sessions, self.caches)
        for folder in (self.root, self.outbox, self.mirrors, *agents, self.workers):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def turn_log(self, run_id: str, turn: int) -> Path:
        """Return the file of a turn's log."""
        return self.runs / run_id / f"turn-{turn}.log"

    def turn_diff(self, run_id: str, turn: int) -> Path:
        """Return the file of the change that a turn committed."""
        return self.runs / run_id / f"turn-{turn}.diff"

    def run_diff(self, run_id: str, turn: int) -> Path:
        """Return the file of the whole run's change up to a turn, if it differs from that turn's own."""
        return self.runs / run_id / f"turn-{turn}.run.diff"

    def settings(self) -> Settings:
        """Read `service.toml`; without one, every default holds.

        Raises:
            SettingsError: The file is not TOML, or holds an unknown key or value.
        """
        try:
            text = self.settings_file.read_text("utf-8")
        except FileNotFoundError:
            return Settings()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{self.settings_file}: {error}; make it a readable UTF-8 file") from error
        try:
            return Settings.model_validate(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{self.settings_file}: {error}; correct the TOML there") from error
        except ValidationError as error:
            raise SettingsError(f"{self.settings_file}: {first_fault(error)}; correct or remove the key") from error
