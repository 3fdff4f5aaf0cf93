"""One attempt at a turn: fetch, check out, run the agent, commit and push, at most once."""

import errno
import logging
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from service.agents import check as check_agent
from service.agents.invocation import preset_of
from service.agents.outcome import REFUSED
from service.clock import DAY_MICROS, SECOND_MICROS, Clock, rfc3339
from service.errors import ServiceError
from service.execution import agent as agent_process
from service.execution import trees
from service.execution.change import Patches, TurnChange, oversize, refusal
from service.execution.command import AgentCommand, AgentFailedError, PausedAgentError, cache_of, session_of
from service.execution.disk import DiskShare, SharedDisk, shortage, usage_of
from service.execution.git import GitCommandError, GitRunner, identity_of, login
from service.execution.mirror import RepositoryMirror, RepositorySnapshot
from service.execution.preparation import preparation_of
from service.execution.sandbox import Sandbox
from service.execution.secrets import Secrets, of_environment, of_url
from service.execution.starting_point import StartingPoint, begin, gone
from service.execution.workspace import TurnCommit, Workspace, Workspaces
from service.findings.collect import collect
from service.findings.document import packed
from service.findings.question import asked, in_words
from service.hosts.http import token_for
from service.observability.traces import Tracer
from service.reference import without_login
from service.settings import DataFolder, ExecutionSettings
from service.store import agents, hosts, postings, repositories, runs, turn_files, turns
from service.store.agents import Agent
from service.store.database import AWAY, Database
from service.store.outages import clock_time
from service.store.runs import Run
from service.store.turn_files import Key
from service.store.turns import Turn, TurnOutcome, TurnPause
from service.store.usage import TurnMeter
from service.text import plural, storable

TRAILER: Final = "Runwarden-Run"
# git allows blanks around a key, and looks for no trailer below a scissors line.
_FORGED: Final = re.compile(rf"\s*{TRAILER}\s*:|.*-{{24}} >8 -{{24}}", re.IGNORECASE)
_SEARCHED_COMMITS: Final = 500
_SUBJECT_LENGTH: Final = 60
DIFFS: Final = ("diff", "run.diff")
"""The names of the stored patches of a turn and of the whole run."""
T = TypeVar("T")
_MOST_ATTEMPTS: Final = 20
_NEXT_S: Final = 5.0
"""For so long other turns of a provider that is away come before the one that asked it last."""
_SHORTAGES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
"""What the system answers where the disk is full, or where files, processes or memory run out."""
OWN_FAULT: Final = "the service itself failed; its log says why. Continue the run to try again"
_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class TurnAtWork:
    """An attempt at a turn that this process works on."""

    key: Key
    attempt: int
    log_file: Path
    ended: threading.Event = field(default_factory=threading.Event)
    """Set once a caller or an operator has ended the turn."""
    begun: tuple[RepositorySnapshot, str | None] | None = None
    """The repository, and the commit that the checkout was filled from; None: the agent did not begin yet."""
    made: tuple[TurnCommit, TurnChange] | None = None
    """What the agent changed, once that is committed here and its patch is kept."""
    _shared: int = field(init=False)
    """The offset up to which the log is shared; an earlier attempt's part comes before it."""
    _sharing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Start sharing at the present end of the file."""
        self._shared = self.log_file.stat().st_size if self.log_file.exists() else 0

    def share(self, database: Database) -> None:
        """Store what was added to the log since the last call; SQLite needs none of this, having one machine."""
        if database.is_sqlite:
            return
        with self._sharing:
            with self.log_file.open("rb") as file:
                file.seek(self._shared)
                added = file.read(turn_files.LARGEST_FILE)
            if added:
                with database.write() as connection:
                    turn_files.append_log(connection, self.key, self.attempt, added)
                self._shared += len(added)

    def share_all(self, database: Database, diffs: dict[str, Path]) -> None:
        """Store the rest of the log, and the patches."""
        if database.is_sqlite:
            return
        self.share(database)
        kept = {kind: file.read_bytes() for kind, file in diffs.items() if file.exists()}
        with database.write() as connection:
            turn_files.pack_log(connection, self.key)
            for kind, content in kept.items():
                turn_files.put(connection, self.key, self.attempt, kind, content)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A claimed turn with the data of its steps."""

    run: Run
    turn: Turn
    agent: Agent
    conversation: list[Turn]
    workspace: Workspace
    git: GitRunner
    log: IO[bytes]
    secrets: Secrets
    """The values that are masked in everything stored about the attempt."""
    at_work: TurnAtWork
    share: DiskShare

    @property
    def trailer(self) -> str:
        """The line that marks this turn's commit, so that a second attempt recognizes it."""
        return f"{self.run.id} turn {self.turn.number}"

    @property
    def fields(self) -> dict[str, str | int]:
        """The attributes of its trace span."""
        run = self.run
        named = {"agent": run.agent, "organization_id": run.organization_id, "repository": f"{run.platform}:{run.path}"}
        return {"run_id": run.id, "turn": self.turn.number, "attempt": self.turn.attempt, **named}

    def completed(self, commit: str | None, summary: str | None, change: TurnChange | None = None) -> TurnOutcome:
        """Return the outcome of an attempt that came to its end."""
        changed: dict[str, Any] = {} if change is None else asdict(change)
        return TurnOutcome("completed", commit_sha=commit, summary=summary, attempt=self.turn.attempt, **changed)

    def log_line(self, text: str, clock: Clock) -> None:
        """Write a line into the turn's log."""
        self.log.write(f"{rfc3339(clock())} {self.secrets.mask(text)}\n".encode("utf-8", "replace"))
        self.log.flush()


def task_of(attempt: Attempt, snapshot: RepositorySnapshot, begun: StartingPoint | None) -> dict[str, object]:
    """Return the document for the agent's standard input, as docs/service.md describes it."""
    return {
        "run_id": attempt.run.id,
        "turn": attempt.turn.number,
        "agent": attempt.run.agent,
        "repository": attempt.run.reference.body,
        "branch": attempt.run.branch,
        "default_branch": snapshot.default_branch,
        "instructions": attempt.turn.instructions,
        "inputs": attempt.turn.inputs,
        "conversation": [
            {
                "turn": past.number,
                "instructions": past.instructions,
                "status": past.status,
                "commit": past.commit_sha,
                "summary": past.summary,
                "finished_at": None if past.finished_at is None else rfc3339(past.finished_at),
                **(past.question or {}),
            }
            for past in attempt.conversation
        ],
        **({} if begun is None else {"starting_point": begun.document()}),
    }


def own_commit(attempt: Attempt, snapshot: RepositorySnapshot) -> tuple[str, str] | None:
    """Return the commit and subject that an earlier attempt at this turn pushed before it could report it."""
    head = snapshot.branches.get(attempt.run.branch)
    if head is None:
        return None
    form = f"--format=%H%x09%s%x09%(trailers:key={TRAILER},valueonly,separator=%x2C)"
    listed = attempt.git("log", f"--max-count={_SEARCHED_COMMITS}", form, head, "--", git_dir=snapshot.git_dir)
    for line in listed.splitlines():
        commit, _, rest = line.partition("\t")
        subject, _, marks = rest.rpartition("\t")
        if attempt.trailer in marks.split(","):
            # Others can push a commit with this trailer, and its message need not be valid text.
            return commit, subject.encode("utf-8", "replace").decode()
    return None


def commit_message(attempt: Attempt, given: str | None) -> str:
    """Return the commit's message, the agent's own if it gave one, with the service's trailer."""
    first_line = " ".join(attempt.turn.instructions.split())[:_SUBJECT_LENGTH]
    lines = (given or f"{attempt.run.agent}: {first_line}".rstrip(": ")).splitlines()
    # Only the service may write the trailer: with one, an agent could make a later turn look done.
    text = "\n".join(line for line in lines if not _FORGED.match(line)).strip()
    return f"{text or attempt.run.agent}\n\n{TRAILER}: {attempt.trailer}\n"


class InterruptedTurnError(Exception):
    """The service stops; the next worker recovers the turn."""


class ShortageError(Exception):
    """This machine has no room for the turn now; the text says of what. It is put back."""


class PausedTurnError(Exception):
    """The turn waits for its model's provider, and gave its place back."""


class SupersededError(Exception):
    """Another attempt took over the turn, or it was ended; this one must store and push nothing."""


class TurnExecution:
    """Executes turns in this process."""

    def __init__(
        self,
        database: Database,
        folder: DataFolder,
        settings: ExecutionSettings,
        sandbox: Sandbox,
        clock: Clock,
        secret_names: Sequence[str | None] = (),
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer or Tracer()
        self._secret_names = secret_names
        """Variables that hold secrets other than those of agents and code hosts."""
        self.stopping = threading.Event()
        """Set when the service goes down: agents at work are interrupted."""
        self._database = database
        self._folder = folder
        self._settings = settings
        self._disk = SharedDisk(settings.agent, settings.concurrency)
        self._at_work: list[TurnAtWork] = []
        """A turn may occur twice: a worker that was taken for dead can be given its own turn again."""
        self.sandbox = sandbox
        """The sandbox of every agent in this process."""
        self._clock = clock

    def execute(self, run_id: str, number: int, workspaces: Workspaces) -> None:
        """Execute a turn and record its end; while the database is away, wait for it.

        Raises:
            InterruptedTurnError: The service is going down.
            PausedTurnError: Its model's provider is away.
            ShortageError: This machine has no room for it now.
            SupersededError: Another attempt has the turn now.
        """
        try:
            outcome = self._retried(lambda: self.perform(run_id, number, workspaces))
        except (InterruptedTurnError, PausedTurnError, SupersededError):
            raise
        except Exception as error:  # One guard at the boundary of a turn: it must come to an end.
            if self._is_shortage(error):
                raise ShortageError(str(error)) from error
            _logger.exception("%s turn %d failed in the service itself", run_id, number)
            outcome = TurnOutcome("failed", failure=OWN_FAULT)
        self._retried(lambda: self.record_end(run_id, number, outcome))

    def perform(self, run_id: str, number: int, workspaces: Workspaces) -> TurnOutcome:
        """Execute a turn and return how it ended.

        Raises:
            InterruptedTurnError: The service is going down.
            PausedTurnError: Its model's provider is away.
            SupersededError: Another attempt has the turn now.
        """
        with self._database.write() as connection:
            turn = turns.claim(connection, run_id, number, workspaces.executor, self._clock())
            run = runs.by_id(connection, run_id)
            conversation = [past for past in turns.of(connection, run_id) if past.number < number]
            agent = agents.of_run(connection, run)
            connected = [] if run is None else hosts.of(connection, run.organization_id)
            token = None if run is None else token_for(connection, run.organization_id, run.platform, run.url)
        if turn is None or run is None:
            raise SupersededError(f"{run_id} turn {number} has ended already")
        if agent is None:
            text = f"the agent {run.agent!r} is no longer configured; add it again and continue the run"
            return TurnOutcome("failed", failure=text, attempt=turn.attempt)
        if turn.attempt - turn.pauses > _MOST_ATTEMPTS:
            text = (
                "it was begun too often: its workers were lost or had no room, or its model was away; continue the run"
            )
            return TurnOutcome("failed", failure=text, attempt=turn.attempt)
        workspace = Workspace(workspaces.path_of(f"{run_id}-{number}-{turn.attempt}"))
        # From here on, a deletion of the run waits for the end of this attempt.
        workspace.root.mkdir(mode=0o700, parents=True)
        log_file = self._folder.turn_log(run_id, number)
        log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with log_file.open("ab") as log:
            names = [*self._secret_names, *agent.secret_names, *(host.token_env for host in connected)]
            secrets = Secrets(of_environment(names) | of_url(run.url))
            identity = identity_of(self._settings.author_name, self._settings.author_email)
            git = GitRunner(workspace.git_home, self._settings.git_timeout_s, identity | login(run.url, token))
            at_work = TurnAtWork((run_id, number), turn.attempt, log_file)
            share = self._disk.join(workspace.root)
            attempt = Attempt(run, turn, agent, conversation, workspace, git, log, secrets, at_work, share)
            self._at_work.append(at_work)
            try:
                with self._tracer.turn(turn.trace_parent, attempt.fields):
                    return self._carry_out(attempt)
            finally:
                self._at_work.remove(at_work)
                self._disk.leave(share)
                workspace.remove()
                diffs = dict(zip(DIFFS, self._diffs(attempt), strict=True))
                self._retried(lambda: at_work.share_all(self._database, diffs))

    def _retried(self, act: Callable[[], T]) -> T:
        """Call, and call again while the database is away; the agent's work is not lost to that."""
        try:
            return self._database.retried(act, self.stopping)
        except AWAY as error:
            raise InterruptedTurnError from error

    def _write(self, act: Callable[[sa.Connection], T]) -> T:
        """Write in a transaction, which is tried again while the database is away."""

        def write() -> T:
            with self._database.write() as connection:
                return act(connection)

        return self._retried(write)

    def watch_over(self) -> None:
        """Interrupt work on turns that have been ended, and share the logs of the others."""
        at_work = list(self._at_work)
        if not at_work:
            return
        with self._database.read() as connection:
            ended = turns.ended_among(connection, [one.key for one in at_work])
        for one in at_work:
            if one.key in ended:
                one.ended.set()
            one.share(self._database)

    def record_end(self, run_id: str, number: int, outcome: TurnOutcome) -> None:
        """Record the end of a turn, once."""
        with self._database.write() as connection:
            if not turns.end(connection, run_id, number, outcome, self._clock()) and outcome.commit_sha:
                turns.note_pushed(connection, run_id, number, outcome)
        _logger.info(
            "%s turn %d %s%s", run_id, number, outcome.status, f": {outcome.failure}" if outcome.failure else ""
        )

    def _is_shortage(self, error: Exception) -> bool:
        """Whether an attempt failed because this machine is short of something, which is no fault of the turn."""
        if any(isinstance(one, OSError) and one.errno in _SHORTAGES for one in (error, error.__cause__)):
            return True
        # git says in words of its own that the disk is full.
        return isinstance(error, GitCommandError) and shortage(self._folder.root, self._settings.agent) is not None

    def _diffs(self, attempt: Attempt) -> tuple[Path, Path]:
        """Return the files for the patches of the turn and of the whole run."""
        key = (attempt.run.id, attempt.turn.number)
        return self._folder.turn_diff(*key), self._folder.run_diff(*key)

    def _carry_out(self, attempt: Attempt) -> TurnOutcome:
        share = attempt.share
        attempt.log_line(
            f"attempt {attempt.turn.attempt}: {attempt.run.agent} on {without_login(attempt.run.url)}", self._clock
        )
        try:
            outcome = self._work(attempt)
        except PausedAgentError as error:
            outcome = self._pause(attempt, error)
        except (ServiceError, OSError) as error:
            if self._is_shortage(error):
                share.note(usage_of([attempt.workspace.root]))
                if (fault := share.fault()) is None:
                    raise
                error = AgentFailedError(f"the agent was ended for passing its limit of {fault} in [execution.agent]")
            # Callers read this text, and need not know where the data folder is.
            text = str(error).replace(f"{self._folder.root}/", "")
            kind = error.reason if isinstance(error, AgentFailedError) and error.reason != "failed" else None
            outcome = TurnOutcome("failed", failure=text, failure_kind=kind, attempt=attempt.turn.attempt)
        except SupersededError:
            self._keep_of_cancelled(attempt)
            raise
        except (InterruptedTurnError, SQLAlchemyError):
            raise
        except Exception:  # One guard at the boundary of an attempt: it must come to its own end.
            _logger.exception("%s failed in the service itself", attempt.trailer)
            outcome = TurnOutcome("failed", failure=OWN_FAULT, attempt=attempt.turn.attempt)
        # A patch of what filled the disk would fill it further.
        is_kept = outcome.status == "failed" and share.fault() is None
        if is_kept and (change := self._keep(attempt)) is not None:
            outcome = replace(outcome, **asdict(change))
        self._tracer.ended(outcome.status)

        def mask(text: str | None) -> str | None:
            return None if text is None else storable(attempt.secrets.mask(text))

        outcome = replace(outcome, failure=mask(outcome.failure), summary=mask(outcome.summary))
        attempt.log_line(f"{outcome.status}{f': {outcome.failure}' if outcome.failure else ''}", self._clock)
        return outcome

    def _pause(self, attempt: Attempt, error: PausedAgentError) -> TurnOutcome:
        """Give the turn's place back until its model can be asked again; return its failure if that takes too long."""
        now, turn, failure = self._clock(), attempt.turn, error.pause.failure
        until = now + int((error.pause.limit_s or _NEXT_S) * SECOND_MICROS)
        if until > (turn.started_at or now) + DAY_MICROS:
            text = f"{failure.text}; a turn waits for its model for a day, and not longer"
            return TurnOutcome("failed", failure=text, failure_kind=failure.reason, attempt=turn.attempt)
        what = storable(attempt.secrets.mask(failure.text))
        why = None if error.pause.limit_s is None else f"resumes {clock_time(until)}: {what}"
        change = self._keep(attempt)
        first = turn.from_turn if change is None else turn.number if change.files else None
        known = {} if change is None else asdict(change)
        paused = TurnPause(until, why, from_turn=first, is_counted=error.has_begun, change=known)
        if not self._write(lambda connection: turns.pause(connection, turn, paused, now)):
            raise SupersededError(f"{attempt.trailer}: another attempt has it, or it was ended")
        attempt.log_line(f"waits for its model, without a place: {why or what}", self._clock)
        raise PausedTurnError(f"{attempt.trailer} waits for its model, without a place: {what}")

    def _work(self, attempt: Attempt) -> TurnOutcome:
        snapshot = self._fetch(attempt)
        run = attempt.run

        # Only the fetch has shown which branch is the default one.
        def note(connection: sa.Connection) -> repositories.Repository | None:
            if snapshot.default_branch is not None:
                repositories.note_default_branch(connection, run.url, snapshot.default_branch)
            return repositories.by_path(connection, run.organization_id, run.platform, run.path)

        configured = self._write(note)
        patterns = None if configured is None else configured.protected
        if not run.head_ref and repositories.is_protected(run.branch, snapshot.default_branch, patterns):
            text = f"the branch {run.branch} is protected; start a run on another branch, or without one"
            raise GitCommandError(text)
        done = own_commit(attempt, snapshot) if not attempt.run.head_ref else None
        if done is not None:
            attempt.log_line(f"an earlier attempt has already pushed {done[0]}", self._clock)
            patches = Patches(attempt.git, attempt.secrets.mask, snapshot.default)
            change = patches.write_pushed(snapshot.git_dir, done[0], *self._diffs(attempt))
            return attempt.completed(done[0], done[1], change)
        self._check_delivered(attempt, snapshot)
        attempt.workspace.create()
        with self._tracer.step("check out"):
            base = attempt.workspace.check_out(attempt.git, snapshot, attempt.run.branch)
        attempt.log_line(f"branch {attempt.run.branch} at {base or 'nothing: the repository is empty'}", self._clock)
        task = task_of(attempt, snapshot, self._begin(attempt, snapshot))
        attempt.workspace.give(task)
        attempt.log_line(f"sandbox: {self.sandbox}", self._clock)
        commit = snapshot.branches.get(attempt.run.branch)
        if commit is not None and attempt.agent.options.on_completion.status:
            at_work = (attempt.run, attempt.turn.number, commit, self._clock())
            self._write(lambda connection: postings.at_work(connection, *at_work))
        setup = None if configured is None else configured.setup
        preparation = preparation_of(self._folder, run, setup, attempt.workspace)
        if preparation.setup.mcp_servers and not check_agent.takes_servers(attempt.agent.options):
            attempt.log_line(f"the repository's MCP servers are left out: {check_agent.TAKES_NONE}", self._clock)
        meter = TurnMeter(self._database, attempt.turn, attempt.agent, self._clock)
        command = AgentCommand(
            attempt.agent,
            attempt.workspace,
            snapshot.git_dir / "objects",
            self.sandbox,
            attempt.share,
            task,
            session_of(self._folder, attempt.run.id, attempt.agent),
            cache_of(self._folder, attempt.run.organization_id, attempt.agent),
            meter,
            preparation.setup,
            preparation.kept,
        )

        def check() -> None:
            if self.stopping.is_set():
                raise InterruptedTurnError
            if attempt.at_work.ended.is_set():
                attempt.log_line("interrupted: the turn was ended", self._clock)
                raise SupersededError(f"{attempt.trailer} was ended while it was at work")

        with self._tracer.step("set up"):
            preparation.run(command, attempt.log, self._settings.agent, attempt.secrets, check)
        attempt.at_work.begun = snapshot, base
        failed = None
        try:
            with self._tracer.agent(attempt.agent, attempt.run, meter, attempt.at_work.log_file):
                agent_process.run(command, attempt.log, self._settings.agent, attempt.secrets, check)
        except AgentFailedError as error:
            failed = error
        outcome = self._publish(attempt, snapshot, base, failed)
        if failed is None:
            preparation.give_back()
        return outcome

    def _fetch(self, attempt: Attempt) -> RepositorySnapshot:
        with self._tracer.step("fetch"):
            return RepositoryMirror(self._folder.mirrors, attempt.run.url, attempt.git).fetch(
                attempt.run.branch, attempt.run
            )

    def _check_delivered(self, attempt: Attempt, snapshot: RepositorySnapshot) -> None:
        """Refuse a delivery's turn whose branch is at another commit by now, unless the service itself pushed it."""
        about = attempt.turn.inputs.get("pull_request") if attempt.turn.caller == turns.WEBHOOK else None
        wanted = about.get("commit") if isinstance(about, dict) else None
        head = snapshot.branches.get(attempt.run.branch)
        if wanted in {None, head}:
            return
        with self._database.read() as connection:
            if head is not None and turns.is_own_commit(connection, head):
                return
        there = "gone" if head is None else f"at {head}"
        raise GitCommandError(f"the branch {attempt.run.branch} is {there}; the run was started for {wanted}")

    def _publish(
        self, attempt: Attempt, snapshot: RepositorySnapshot, base: str | None, failed: AgentFailedError | None
    ) -> TurnOutcome:
        """Push what the agent changed, or ask what it asks, which it may do although it failed."""
        result = attempt.workspace.result()
        attempt.workspace.unlock_report()
        remarks: list[str] = []
        question = asked(attempt.workspace.tree, attempt.secrets.mask, remarks)
        if failed is not None and question is None:
            raise failed
        found = collect(attempt.workspace.tree, self.sandbox.tree_of(attempt.workspace), attempt.secrets.mask)
        for remark in (*found.remarks, *remarks):
            attempt.log_line(remark, self._clock)
        if found.findings is not None:
            key = (attempt.run.id, attempt.turn.number)
            kept = (key, attempt.turn.attempt, turn_files.FINDINGS, packed(base, found.findings))
            self._write(lambda connection: turn_files.put(connection, *kept))
        message = attempt.secrets.mask(commit_message(attempt, result.commit_message))
        try:
            with self._tracer.step("commit"):
                made = self._commit(attempt, snapshot, base, message)
        except AgentFailedError:
            if question is None:
                raise
            made = None
        preset = preset_of(attempt.agent)
        if made is None and found.findings is None and question is None and preset is not None:
            if result.summary is None:
                raise AgentFailedError(f"the agent changed nothing and said nothing: {REFUSED.text}", REFUSED.reason)
            question = in_words(result.summary, attempt.secrets.mask)
        if question is not None:
            asks: dict[str, Any] = {"failure": question.text, "question": question.document()}
            asks |= {"failure": f"{question.text}; after that, {failed}"} if failed is not None else {}
            asks |= {"status": "failed", "failure_kind": turns.NEEDS_ANSWER}
            return replace(attempt.completed(None, result.summary), **asks)
        if made is None:
            attempt.log_line(f"{turns.NOTHING_CHANGED}: no commit", self._clock)
            return attempt.completed(None, result.summary)
        commit, change = made
        if attempt.run.head_ref is not None:
            return replace(attempt.completed(None, result.summary, change), failure=turns.NOT_PUSHED)
        if commit.left_out is not None:
            rest = f"see the rest of its change with: runwarden service run {attempt.run.id} --diff"
            text = f"the agent left files that git cannot store: {commit.left_out}; nothing was pushed; {rest}"
            raise AgentFailedError(text)
        if why := refusal(attempt.agent.options.change, commit.files.names, self._diffs(attempt)[0].stat().st_size):
            raise AgentFailedError(why.replace("RUN_ID", attempt.run.id))

        if not self._write(lambda connection: turns.begin_push(connection, attempt.turn, commit.sha)):
            raise SupersededError(f"{attempt.trailer}: another attempt has it, or it was ended")
        pushed = self._push(attempt, snapshot, commit.sha)
        if pushed != commit.sha:
            patches = Patches(attempt.git, attempt.secrets.mask, snapshot.default)
            change = patches.write_pushed(snapshot.git_dir, pushed, *self._diffs(attempt))
        attempt.log_line(f"pushed {pushed} to {attempt.run.branch}", self._clock)
        return attempt.completed(pushed, result.summary or message.partition("\n")[0], change)

    def _begin(self, attempt: Attempt, snapshot: RepositorySnapshot) -> StartingPoint | None:
        """Begin with the kept patch of an earlier turn, or of an earlier attempt, if the turn is to."""
        turn, patch = attempt.turn, None
        if turn.from_turn is not None:
            key = (turn.run_id, turn.from_turn)
            with self._database.read() as connection:
                patch = turn_files.diff(connection, self._folder, key, "diff")
        begun = begin(attempt.workspace, attempt.git, turn, turns.last_begun(attempt.conversation), patch)
        pushed = [past.number for past in attempt.conversation if past.commit_sha]
        if pushed and attempt.run.branch not in snapshot.branches:
            begun = gone(attempt.run.branch, snapshot.default_branch, pushed[-1], begun)
        if begun is not None:
            attempt.log_line(begun.text, self._clock)
        return begun

    def _commit(
        self, attempt: Attempt, snapshot: RepositorySnapshot, base: str | None, message: str
    ) -> tuple[TurnCommit, TurnChange] | None:
        """Commit in the workspace what the agent changed, and keep its patch; None: it changed nothing.

        Raises:
            AgentFailedError: It may be neither pushed nor kept.
        """
        workspace, at_work = attempt.workspace, attempt.at_work
        if at_work.made is None:
            trees.remove(workspace.ours)
            commit = workspace.commit(attempt.git, snapshot, base, message)
            if commit is None:
                return None
            if name := attempt.secrets.named_in(workspace.contents(commit.files.names)):
                text = f"the change holds the value of {name}, and was not pushed; keep the agent from it"
                raise AgentFailedError(text)
            patches = Patches(attempt.git, attempt.secrets.mask, snapshot.default)
            size = patches.content_bytes(workspace.ours, commit.files)
            if (large := oversize(attempt.agent.options.change, size)) is not None:
                raise AgentFailedError(large)
            at_work.made = commit, patches.write(workspace.ours, base, commit.sha, commit.tree, *self._diffs(attempt))
        return at_work.made

    def _keep(self, attempt: Attempt) -> TurnChange | None:
        """Keep the patch of a turn that pushes nothing; None: the agent never began, or it may not be kept."""
        if attempt.at_work.begun is None:
            return None
        snapshot, base = attempt.at_work.begun
        try:
            made = self._commit(attempt, snapshot, base, attempt.trailer)
        except (ServiceError, OSError) as error:
            attempt.log_line(f"what the agent changed is not kept: {error}", self._clock)
            return None
        if made is None:
            return TurnChange(base, None, 0, 0, 0, None)
        change = made[1]
        attempt.log_line(f"the change of {plural(change.files, 'file')} is kept as a patch, not pushed", self._clock)
        return change

    def _keep_of_cancelled(self, attempt: Attempt) -> None:
        with self._database.read() as connection:
            if not turns.is_cancelled(connection, attempt.turn):
                return
        if (change := self._keep(attempt)) is not None:
            self._write(lambda connection: turns.note_kept(connection, attempt.turn, asdict(change), self._clock()))

    def _push(self, attempt: Attempt, snapshot: RepositorySnapshot, commit: str) -> str:
        """Push, and return this turn's commit on its branch."""
        expected = snapshot.branches.get(attempt.run.branch)
        try:
            with self._tracer.step("push"):
                attempt.workspace.push(attempt.git, attempt.run.url, attempt.run.branch, commit, expected)
        except GitCommandError as error:
            # The push may have landed without its answer, or a killed attempt's push may have arrived since the fetch.
            done = own_commit(attempt, self._fetch(attempt))
            if done is None:
                raise GitCommandError(f"the push was refused: {error}") from error
            return done[0]
        return commit
