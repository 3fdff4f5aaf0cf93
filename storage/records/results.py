"""The results of a run: its turns, its change, its review and its log, from git or from the service."""

from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

ResultSource = Literal["git", "service"]
"""The source of a fact: the repository, or the results that the service keeps (docs/dev/api.md)."""
ChangeKind = Literal["added", "modified", "deleted", "renamed", "copied", "mode", "submodule"]
"""`mode`: only the permissions, or the type, differ."""
SUBMODULE_MODE: Final = "160000"
LINK_MODE: Final = "120000"
Severity = Literal["blocker", "major", "minor", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = ("blocker", "major", "minor", "note")
"""The heaviest first."""


class FindingCounts(Struct, frozen=True, omit_defaults=True):
    """How many findings a run's last turn reported, by severity."""

    blocker: int = 0
    major: int = 0
    minor: int = 0
    note: int = 0
    finding: int = 0
    """The number of findings without a severity."""

    @property
    def by_severity(self) -> tuple[tuple[str, int], ...]:
        """Each severity and its number, the heaviest first."""
        return tuple((name, getattr(self, name)) for name in self.__struct_fields__)

    def __str__(self) -> str:
        counted = (f"{count:,} {name}{'s' * (count != 1)}" for name, count in self.by_severity if count)
        return ", ".join(counted) or "no findings"


class ModelUsage(Struct, frozen=True):
    """A turn's use of its agent's models."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    """Read from the provider's cache; not among `input_tokens`."""
    output_tokens: int = 0
    cost_usd: float | None = None
    """None: no price is known."""
    unpriced_requests: int = 0
    """Requests to models without a known price, which `cost_usd` leaves out."""
    list_prices_of: str | None = None
    """The day of the list prices that were used (`2026-01-31`); None: only configured ones were."""

    def __str__(self) -> str:
        """Return it in a few words: `1,203 tokens  $1.35, list prices of 2026-01-31`."""
        tokens = f"{self.input_tokens + self.cached_tokens + self.output_tokens:,} tokens  "
        if self.cost_usd is None:
            return f"{tokens}cost unknown"
        least = "at least " if self.unpriced_requests else ""
        price_note = ""
        if self.list_prices_of:
            price_note = f", list prices of {self.list_prices_of}"
        return f"{tokens}{least}${self.cost_usd:.{2 if self.cost_usd >= 1 else 4}f}{price_note}"


class ReportedFinding(Struct, frozen=True):
    """A finding that an agent reported to the service."""

    path: str
    line: int | None = None
    """Counted from 1; None: the whole file."""
    title: str = ""
    severity: Severity | None = None
    rule: str = ""
    message: str = ""
    suggestion: str = ""
    """A replacement for the lines."""


class Artifact(Struct, frozen=True):
    """A file that an agent left for its callers."""

    name: str
    """Its path, as the service gives it."""
    bytes: int


class RunMessage(Struct, frozen=True):
    """A message to a run during one of its turns."""

    message_id: str = ""
    text: str = ""
    state: str = ""
    """`waiting`, `delivered`, `continued` (it started the next turn) or `dropped`; others as the service names them."""
    caller: str | None = None


class Turn(Struct, frozen=True):
    """One turn of a run: one instruction and its outcome. None: not known from this source."""

    number: int
    """Counted from 1."""
    state: str
    """The state, named like a run's status; of a turn known from git alone, `completed`."""
    instructions: str | None = None
    caller: str | None = None
    """The alias of the token that asked for it."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str | None = None
    reason: str | None = None
    """Why it failed."""
    failure_kind: str | None = None
    """Why it failed, as the service names such failures: `timed_out`, `out_of_budget` and the like."""
    commit: str | None = None
    """Its last commit."""
    summary: str | None = None
    question: str | None = None
    """Its agent's question; its outcome is then `needs_answer`."""
    choices: tuple[str, ...] = ()
    offer: str | None = None
    """The question or offer with which the last message of a completed turn ends."""
    files: int | None = None
    additions: int | None = None
    deletions: int | None = None
    from_turn: int | None = None
    """The turn with whose unpushed change it began."""
    agent: str | None = None
    """Who did it: the run's agent, or a fallback."""
    usage: ModelUsage | None = None
    usage_by_agent: dict[str, ModelUsage] = {}
    findings: tuple[ReportedFinding, ...] | None = None
    """None: its agent reported none; its review may hold some."""
    artifacts: tuple[Artifact, ...] = ()
    inputs_json: str | None = None
    """The named inputs of its agent, as a JSON object; None: it had none, or the service does not report them."""
    messages: tuple[RunMessage, ...] = ()

    @property
    def is_unpushed(self) -> bool:
        """Whether the service keeps its change as a patch alone."""
        return self.outcome is not None and self.commit is None and bool(self.files)


class OpenQuestion(Struct, frozen=True):
    """The question of a run's agent; the run is continued with the answer."""

    run_id: str
    question: str
    choices: tuple[str, ...] = ()
    """Empty: any answer."""


class FailureFacts(Struct, frozen=True):
    """Runs that the service reports as `failed` but that asked a question or were cancelled."""

    questions: tuple[OpenQuestion, ...] = ()
    """The open questions of their agents, newest first."""
    cancelled: tuple[str, ...] = ()


class PostingStatus(Struct, frozen=True):
    """A result that was posted on the run's code host, or will be."""

    kind: str = ""
    """`pull_request`, `review`, `status` or `comment`; others as the service names them."""
    state: str = ""
    """`waiting`, `posted` or `refused`; others as the service names them."""
    url: str | None = None
    reason: str | None = None
    """Why it is not posted; of a posted one, a remark."""

    def __str__(self) -> str:
        kind = self.kind.replace("_", " ")
        state = {"waiting": "not posted yet", "posted": "", "refused": "not posted"}.get(self.state, self.state)
        text = " · ".join(filter(None, (state, self.url, self.reason)))
        return f"{kind}: {text}" if text else kind


class RunTurns(Struct, frozen=True):
    """The turns of a run, oldest first."""

    run_id: str
    turns: tuple[Turn, ...]
    source: ResultSource = "service"
    note: str = ""
    """How the turns were distinguished, if that is doubtful."""
    agent: str | None = None
    """The name of the agent that works on it; None: not known."""
    postings: tuple[PostingStatus, ...] = ()
    budget_used: float | None = None
    """The share of the run's budget that its turns used; None: it has none, or the service does not report it."""
    url: str | None = None
    """The address of the run's page at the service; None: it has none, or reports none."""

    @property
    def notable_postings(self) -> tuple[PostingStatus, ...]:
        """The postings worth a line: the pull request, and any that is missing."""
        return tuple(item for item in self.postings if item.kind == "pull_request" or item.state != "posted")


class LogStep(Struct, frozen=True):
    """A step of a turn's conversation, as the service reads its log. None: not known."""

    kind: str
    """`said`, `thought`, `ran`, `edited`, `used`, `result`, `answered`, `ended`, `error`, `printed` or `log`; others as
    the service names them."""
    text: str = ""
    at: datetime | None = None
    call: str | None = None
    """An id that a result shares with its step."""
    seconds: float | None = None
    tokens: int | None = None
    failed: bool = False


class LogChunk(Struct, frozen=True):
    """A piece of a turn's log."""

    offset: int
    """Where it begins, in bytes."""
    next_offset: int
    size: int
    """The size of the whole log so far; smaller than `offset`: it was replaced."""
    ended: bool
    """Nothing more will be added."""
    data: bytes
    """Empty where there are steps instead."""
    steps: tuple[LogStep, ...] | None = None
    """None: the service gives the bytes alone."""


class LogTail(Struct, frozen=True):
    """The last lines of a failed run's log, safe to print."""

    lines: tuple[str, ...] = ()
    why: str = ""
    """The last line of the last step that failed; if none is known to have failed, the last line."""
    missing: str = ""
    """Why there are no lines."""


class ChangedFile(Struct, frozen=True):
    """A file that a change touches. Names are bytes to git: anything but UTF-8 in them is a lone surrogate here."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    additions: int | None = None
    """None: a binary file, or not counted yet."""
    deletions: int | None = None
    is_binary: bool = False
    old_blob: str | None = None
    """Full or abbreviated; None if that side has no file, or the source does not name it."""
    new_blob: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None


class Change(Struct, frozen=True):
    """The difference between two commits, as git writes it."""

    base: str | None
    """None: the empty tree, or the source lacks it."""
    head: str | None
    base_name: str
    """How the base was chosen, for the user: `merge base with main`."""
    files: tuple[ChangedFile, ...]
    patch: bytes
    source: ResultSource = "git"
    note: str = ""
    """A remark: it is cut short, or commits were matched only by time."""
    is_whole: bool = True
    """False: the patch is only the beginning of the change."""
    is_pushed: bool = True
    """False: no branch has it; the service keeps the patch."""

    @property
    def lines(self) -> tuple[int, int]:
        """How many lines it adds and removes."""
        return sum(file.additions or 0 for file in self.files), sum(file.deletions or 0 for file in self.files)


class Finding(Struct, frozen=True):
    """A remark of a review on a place in the code."""

    path: str
    line: int | None
    """Counted from 1; None: the whole file."""
    text: str
    severity: Severity | None
    at: int
    """Its line in the review, counted from 0."""


class Review(Struct, frozen=True):
    """A Markdown file that a run wrote, or the findings that its agent reported."""

    path: str
    text: str
    findings: tuple[Finding, ...]
    source: ResultSource = "git"
    note: str = ""
    """Its gaps."""


class Unavailable(Struct, frozen=True):
    """Something that is missing, with the reason and a way to provide it."""

    reason: str
