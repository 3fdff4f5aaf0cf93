"""The data folder and its settings.

The settings are one frozen value from `service.toml`, in which every key has a default.
"""

import errno
import os
import tomllib
from email.utils import parseaddr
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from service.errors import ServiceError, first_fault
from service.network import LOOPBACK
from service.reference import PLATFORMS
from service.text import shown_in_one_line

Sandboxing = Literal["require", "none"]
Role = Literal["viewer", "developer", "admin"]
LogFormat = Literal["text", "json"]
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def _identity(text: str) -> str:
    """An author's name or address, as git takes it."""
    if not shown_in_one_line(text).strip(" .,:;<>\"'\\") or set(text) & set("<>"):
        raise ValueError("git takes no such name or address of an author; write one without < and >")
    return text


class SettingsError(ServiceError):
    """`service.toml` cannot be used; the text names the file and the key, and says how to fix it."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Limits(_Section):
    """Limits of a caller's requests."""

    requests_per_minute: Annotated[int, Field(ge=1)] = 6000
    """Requests per organization (spec 8); they may all come at once."""
    body_bytes: Annotated[int, Field(ge=1024)] = 1 << 20
    metadata_bytes: Annotated[int, Field(ge=1024)] = 64 << 10
    """The largest metadata of a run, as JSON."""
    active_runs: Annotated[int, Field(ge=1)] = 1000
    """The most queued and working runs of one organization; more are refused until some of them end."""
    request_s: Annotated[float, Field(gt=0, le=3600)] = 30
    """How long a request may take to arrive, head and body together, and how long a connection may be idle."""


class AgentLimits(_Section):
    """Limits of one turn's agent, for all its processes together."""

    cpu_s: Annotated[float, Field(gt=0)] = 3600
    memory_bytes: Annotated[int, Field(ge=16 << 20)] = 4 << 30
    """Resident memory that no file backs. Not address space: Go, Java and node reserve far more than they use."""
    processes: Annotated[int, Field(ge=1)] = 4096
    """Processes and threads at the same time."""
    open_files: Annotated[int, Field(ge=64)] = 4096
    """Files and sockets that one process may have open; the kernel refuses more."""
    sockets: Annotated[int, Field(ge=16)] = 1024
    """Open sockets and pipes of all processes together: no other limit counts the memory of their buffers."""
    workspace_bytes: Annotated[int, Field(ge=1 << 20)] = 8 << 30
    """Disk space of the checkout, the agent's other files, and deleted files that it still has open."""
    workspace_files: Annotated[int, Field(ge=1000)] = 1_000_000
    """Files, folders and links of the checkout and the agent's other files."""
    file_bytes: Annotated[int, Field(ge=1 << 20)] = 1 << 30
    """The largest file; the kernel refuses to write more."""
    disk_reserve_bytes: Annotated[int, Field(ge=0)] = 256 << 20
    """Disk space to keep free: with less than this, no agent starts, and the agent that used too much is stopped."""
    disk_reserve_files: Annotated[int, Field(ge=0)] = 20_000
    """The number of files that must still be possible to create; with fewer, the same happens."""
    output_bytes: Annotated[int, Field(ge=4096)] = 4 << 20
    """How much of its output is stored: half of it from the beginning and half from the end."""
    model_patience_s: Annotated[float, Field(gt=0)] = 600
    """How long its requests are held while its model's provider is down."""
    model_pause_s: Annotated[float, Field(gt=0)] = 30
    """The longest pause before a held request is repeated; pauses start at a second and double each time."""
    model_silent_s: Annotated[float, Field(gt=0)] = 600
    """How long a model's answer may take if it is not streamed."""
    model_stream_silent_s: Annotated[float, Field(gt=0)] = 300


class ArtifactLimits(_Section):
    """Limits of the files that agents leave in `.runwarden/artifacts`."""

    files: Annotated[int, Field(ge=0, le=1000)] = 100
    """The most artifacts of one turn; 0 to keep none."""
    file_bytes: Annotated[int, Field(ge=1, le=256 << 20)] = 10 << 20
    turn_bytes: Annotated[int, Field(ge=1)] = 50 << 20
    organization_bytes: Annotated[int, Field(ge=1)] = 1 << 30


class SigningSettings(_Section):
    """The key that signs commits; the code host must know its public half as a signing key of the committer."""

    ssh_key: Path
    """A private key without passphrase."""


class ExecutionSettings(_Section):
    """How turns are executed."""

    concurrency: Annotated[int, Field(ge=1, le=64)] = 2
    """Turns executed at the same time in one process."""
    organization_slots: Annotated[int, Field(ge=1)] | None = None
    """Turns of one organization executed at the same time, on all workers; None for all slots but one if there are
    other organizations."""
    sandbox: Sandboxing = "require"
    """`require`: runs wait while bubblewrap does not work here; `none`: agents have the service's permissions."""
    agent_network: Literal["private", "host"] = "private"
    """What an agent with `network = true` can reach: the outside without this machine's loopback, or everything."""
    git_timeout_s: Annotated[float, Field(gt=0)] = 120
    drain_s: Annotated[float, Field(ge=0)] = 10
    """How long agents may continue after SIGTERM; unfinished turns are recovered at the next start."""
    worker_ttl_s: Annotated[float, Field(gt=0)] = 10
    """A worker whose heartbeat is older counts as dead, and another one takes over its turns."""
    look_s: Annotated[float, Field(gt=0)] = 2
    """How often a worker polls for work; it is notified of accepted turns immediately."""
    put_back_s: Annotated[float, Field(ge=0)] = 10
    """How long a turn keeps its slot if its machine has no room for it: other turns would not fit either."""
    author_name: Annotated[str, AfterValidator(_identity)] = "Runwarden reviewer"
    author_email: Annotated[str, AfterValidator(_identity)] = "reviewer@runwarden.invalid"
    signing: SigningSettings | None = None
    agent: AgentLimits = AgentLimits()
    artifacts: ArtifactLimits = ArtifactLimits()


class SmtpSettings(_Section):
    """The mail server for invitations; its certificate must be trusted by the system (or SSL_CERT_FILE)."""

    host: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """The mail server's port; None for the usual one: 587 (starttls), 465 (tls) or 25 (none)."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """`starttls` starts unencrypted and needs the server's support, `tls` is encrypted from the first byte."""
    username: str | None = None
    """The name for the login; None for no login."""
    password_env: str = "RUNWARDEN_SMTP_PASSWORD"  # noqa: S105 — a variable's name, not a password
    timeout_s: Annotated[float, Field(gt=0, le=300)] = 10
    """The time limit of one delivery, including connecting."""
    proxy: bool = False
    """Whether the mail server is reached through the proxy in HTTPS_PROXY, which must allow its port."""

    @model_validator(mode="after")
    def check_security(self) -> Self:
        if self.username is not None and self.security == "none" and self.host not in LOOPBACK:
            raise ValueError('a login needs security = "starttls" or "tls": the password would travel in clear')
        return self


class MailSettings(_Section):
    """How invitations are sent."""

    sender: str = "Runwarden <no-reply@runwarden.invalid>"
    smtp: SmtpSettings | None = None
    """The mail server; None to write each invitation into a file in the outbox folder."""
    retry_s: Annotated[float, Field(gt=0)] = 60
    """The wait before a failed delivery is retried; doubled each time, up to an hour."""

    @field_validator("sender")
    @classmethod
    def check_sender(cls, sender: str) -> str:
        address = parseaddr(sender)[1]
        if "@" not in address or not address.isascii() or not sender.isprintable():
            raise ValueError("write an address, such as 'Acme <no-reply@acme.example>'")
        return sender


class ProbingSettings(_Section):
    """How the health of code hosts is checked."""

    timeout_s: Annotated[float, Field(gt=0)] = 5
    slow_s: Annotated[float, Field(gt=0)] = 3
    """An answer that takes longer counts as degraded."""
    cache_s: Annotated[float, Field(ge=0)] = 5


class GitLabSettings(_Section):
    """The settings of onboarded GitLab projects."""

    webhook_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = None
    """The address that receives the project's events; None to set no webhook."""
    webhook_secret_env: str | None = None
    """The environment variable with the secret that GitLab sends as X-Gitlab-Token; None for no secret."""
    webhook_events: Annotated[tuple[Annotated[str, Field(pattern="^[a-z_]+_events$")], ...], Field(min_length=1)] = (
        "push_events",
        "merge_requests_events",
    )
    """GitLab's names of the events that the webhook receives."""


class ForgeSettings(_Section):
    """How results are posted to code hosts."""

    run_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+.*\{run_id\}")] | None = None
    """The address of a run, such as `https://runs.acme.example/{run_id}`; None to show only its id."""
    timeout_s: Annotated[float, Field(gt=0, le=300)] = 20
    retry_s: Annotated[float, Field(gt=0)] = 5
    """The wait before a failed posting is retried; doubled each time, up to a quarter of an hour."""
    give_up_s: Annotated[float, Field(gt=0)] = 86_400


class EventSettings(_Section):
    """How events are delivered to the endpoints of organizations."""

    allow_private: tuple[IPv4Network | IPv6Network, ...] = ()
    """Private networks and addresses in which endpoints are allowed, even without TLS."""
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 15
    """The time limit of one attempt, not counting the name look-up."""
    retry_s: Annotated[float, Field(gt=0)] = 5
    """The wait before a failed delivery is retried; doubled each time, up to an hour."""
    give_up_s: Annotated[float, Field(gt=0)] = 259_200


class TriggerSettings(_Section):
    """Deliveries to `/hooks/github`, `/hooks/gitlab` and `/hooks/forgejo`, and the runs they may start."""

    github_secret_env: str | None = None
    """The environment variable with the secret that signs GitHub's deliveries; see `gitlab.webhook_secret_env`."""
    forgejo_secret_env: str | None = None
    mention: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] = "runwarden"
    """The name, without `@`, with which comments to this service begin."""
    own_accounts: tuple[str, ...] = ()
    """More accounts of the service, in addition to those of its tokens: their actions start nothing."""
    pull_request_runs_a_day: Annotated[int, Field(ge=1)] = 20
    repository_runs_an_hour: Annotated[int, Field(ge=1)] = 60
    body_bytes: Annotated[int, Field(ge=1024)] = 8 << 20


class RetentionSettings(_Section):
    """How long workers keep old data; runs and their turns are never deleted."""

    logs_days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    """How long logs and diffs of ended turns are kept; None to keep them until `runwarden service prune` is called."""
    artifacts_days: Annotated[float, Field(gt=0, le=36_500)] | None = 90
    queue_days: Annotated[float, Field(gt=0, le=36_500)] = 30
    """The queue's entries of ended turns, useful only for debugging the queue."""
    sessions_days: Annotated[float, Field(gt=0, le=36_500)] = 30
    """The home folders that agents keep for a run, counted from its last turn."""
    audit_days: Annotated[float, Field(ge=1, le=36_500)] | None = None
    """Entries of the audit trail; None to keep them forever."""
    deliveries_days: Annotated[float, Field(ge=7, le=36_500)] = 90
    """Decisions on deliveries; an older change starts nothing."""
    events_days: Annotated[float, Field(gt=0, le=36_500)] = 30
    """Events for the endpoints of organizations, in any state."""
    branches_days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    """Generated branches of ended runs, unless protected or with commits of others; None to keep them."""


class LogSettings(_Section):
    """The log on standard error."""

    format: LogFormat = "text"
    """`json` writes one object per line, for log collectors."""


class MetricsSettings(_Section):
    """Who may read `/metrics`."""

    token_env: str = "RUNWARDEN_METRICS_TOKEN"  # noqa: S105 — a variable's name, not a token
    """The environment variable with the token for scraping; without it, `/metrics` is not offered."""


class TraceSettings(_Section):
    """The receiver of spans (OpenTelemetry)."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = None
    """The collector's address for OTLP/HTTP; None to use the standard variable OTEL_EXPORTER_OTLP_ENDPOINT."""
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of requests that is traced, unless the caller's trace decides."""


class OidcSettings(_Section):
    """An identity provider whose users may sign in on the page."""

    issuer: Annotated[str, Field(pattern=r"^https?://[^\s/]+")]
    """Its issuer URL, exactly as in its configuration."""
    client_id: Annotated[str, Field(min_length=1)]
    client_secret_env: str = "RUNWARDEN_OIDC_SECRET"  # noqa: S105 — a variable's name, not a secret
    name: Annotated[str, Field(min_length=1, max_length=60)] = "your organization's account"
    """Its name on the page."""
    domains: dict[str, str] = {}
    """E-mail domains, each with the slug of the organization to which all of its users belong."""
    role: Role = "admin"
    """The role of users who become members by their domain."""


class PageSettings(_Section):
    """The web page."""

    enabled: bool = True
    url: Annotated[str, Field(pattern=r"^https?://[^\s/?#]+$")] | None = None
    """Its public address, such as `https://runs.acme.example`; without it, invitations have a code but no link."""
    operator_token_env: str = "RUNWARDEN_OPERATOR_TOKEN"  # noqa: S105 — a variable's name, not a token
    """The environment variable with the operator's token; without it, there is no operator's view."""
    oidc: OidcSettings | None = None

    @model_validator(mode="after")
    def check_oidc(self) -> Self:
        if self.oidc is not None and self.url is None:
            raise ValueError("page.oidc needs page.url: the provider sends users back there")
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
        """The page's public address; None if there is no page, or its address is not known."""
        return self.page.url if self.page.enabled else None

    @property
    def run_url(self) -> str | None:
        """The address of a run's page, with `{run_id}`; None if there is none."""
        return self.forge.run_url or (f"{self.page_url}/runs/{{run_id}}" if self.page_url else None)

    def secret_of_webhooks(self, platform: str) -> str | None:
        """Return the variable with the secret of all webhooks of a platform; None if only repositories have secrets."""
        names = {"gitlab": self.gitlab.webhook_secret_env, "forgejo": self.triggers.forgejo_secret_env}
        return names.get(platform, self.triggers.github_secret_env)

    @property
    def secret_names(self) -> tuple[str | None, ...]:
        """The environment variables with the service's own secrets; None for each that is not configured."""
        smtp = None if self.mail.smtp is None else self.mail.smtp.password_env
        oidc = None if self.page.oidc is None else self.page.oidc.client_secret_env
        hooks = map(self.secret_of_webhooks, PLATFORMS)
        return smtp, *hooks, self.metrics.token_env, self.page.operator_token_env, oidc


class DataFolder:
    """The folder with all of the service's data, which only its owner can read."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.settings_file = self.root / "service.toml"
        self.database_file = self.root / "service.sqlite"
        self.database_url = f"sqlite:///{self.database_file}"
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
        self._database_note = self.root / "database"
        self.restoring_file = self.root / "restoring"
        """Exists while a back-up is being restored."""

    @property
    def noted_database(self) -> str | None:
        """The database, without its password, that the last service process here used instead of the folder's."""
        if self._database_note.exists():
            return self._database_note.read_text("utf-8")
        return None

    def note_database(self, shown: str | None) -> None:
        """Note for administration commands which database the service uses; None: the folder's own."""
        if shown is None:
            self._database_note.unlink(missing_ok=True)
        elif shown != self.noted_database:
            self._database_note.write_text(shown, "utf-8")

    def create(self, *, restoring: bool = False) -> None:
        """Create the missing folders, closed to others (`SettingsError`: we may not, or a restore was interrupted)."""
        if self.restoring_file.exists() and not restoring:
            fix = "run `runwarden service restore` again, with --force"
            raise SettingsError(f"{self.root} is being restored, or its restore was interrupted: {fix}")
        agents = (self.runs, self.work, self.sessions, self.caches)
        folders = (self.root, self.outbox, self.mirrors, *agents, self.workers)
        try:
            for folder in folders:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for needed in (*folders, *filter(Path.exists, (self.database_file,))):
                if not os.access(needed, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(needed))
        except OSError as error:
            fix = "let this user write there, or choose" if error.errno in _DENIED else "choose"
            raise SettingsError(f"{error.filename}: {error.strerror}; {fix} another --data-dir") from error

    def turn_file(self, run_id: str, turn: int, kind: Literal["log", "diff", "run.diff"]) -> Path:
        """Return the file of a turn's log or change, or of the run's change up to it, if that differs from its own."""
        return self.runs / run_id / f"turn-{turn}.{kind}"

    def settings(self) -> Settings:
        """Read `service.toml` (or raise a `SettingsError`); without the file, all settings have their defaults."""
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
