"""One attempt at a turn: fetch, check out, run the agent, commit and push, at most once."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from service.clock import Clock
from service.errors import ServiceError
from service.execution import agent as agent_process
from service.execution.attempt import Attempt, TurnAtWork, commit_message, completed, masked, own_commit, task_of
from service.execution.change import Patches, oversize, refusal
from service.execution.command import AgentCommand, AgentFailedError, cache_of, session_of
from service.execution.git import GitCommandError, GitRunner, login
from service.execution.mirror import RepositoryMirror, RepositorySnapshot
from service.execution.sandbox import Sandbox
from service.execution.secrets import Secrets, of_environment, of_url
from service.execution.workspace import Workspace, Workspaces
from service.findings.collect import collect
from service.findings.document import packed
from service.hosts.http import token_for
from service.observability.traces import Tracer
from service.reference import without_login
from service.settings import DataFolder, ExecutionSettings
from service.store import agents, hosts, postings, repositories, runs, turn_files, turns
from service.store.database import Database
from service.store.turns import TurnOutcome
from service.store.usage import TurnMeter

DIFFS: Final = ("diff", "run.diff")
"""The names of the stored patches of a turn and of the whole run."""
T = TypeVar("T")
_DATABASE_PAUSE_S: Final = 2.0
_MOST_ATTEMPTS: Final = 20
OWN_FAULT: Final = "the service itself failed; its log says why. Continue the run to try again"
_logger = logging.getLogger(__name__)


class InterruptedTurnError(Exception):
    """The service stops; the next worker recovers the turn."""


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
        self._at_work: dict[tuple[str, int], TurnAtWork] = {}
        self.sandbox = sandbox
        """The sandbox of every agent in this process."""
        self._clock = clock

    def execute(self, run_id: str, number: int, workspaces: Workspaces) -> None:
        """Execute a turn and record its end; while the database is away, wait for it.

        Raises:
            InterruptedTurnError: The service is going down.
            SupersededError: Another attempt has the turn now.
        """
        try:
            outcome = self._patiently(lambda: self.perform(run_id, number, workspaces))
        except (InterruptedTurnError, SupersededError):
            raise
        except Exception:  # One guard at the boundary of a turn: it must come to an end.
            _logger.exception("%s turn %d failed in the service itself", run_id, number)
            outcome = TurnOutcome("failed", failure=OWN_FAULT)
        self._patiently(lambda: self.settle(run_id, number, outcome))

    def perform(self, run_id: str, number: int, workspaces: Workspaces) -> TurnOutcome:
        """Execute a turn and return how it ended.

        Raises:
            InterruptedTurnError: The service is going down.
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
        if turn.attempt > _MOST_ATTEMPTS:
            text = "its workers were lost, one after the other; continue the run to try again"
            return TurnOutcome("failed", failure=text, attempt=turn.attempt)
        workspace = Workspace(workspaces.path_of(f"{run_id}-{number}-{turn.attempt}"))
        # From here on, a deletion of the run waits for the end of this attempt.
        workspace.root.mkdir(mode=0o700, parents=True)
        log_file = self._folder.turn_log(run_id, number)
        log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with log_file.open("ab") as log:
            names = [*self._secret_names, *agent.secret_names, *(host.token_env for host in connected)]
            secrets = Secrets(of_environment(names) | of_url(run.url))
            author = {"NAME": self._settings.author_name, "EMAIL": self._settings.author_email}
            identity = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in author.items()}
            git = GitRunner(workspace.git_home, self._settings.git_timeout_s, identity | login(run.url, token))
            attempt = Attempt(run, turn, agent, conversation, workspace, git, log, secrets)
            at_work = self._at_work[run_id, number] = TurnAtWork((run_id, number), turn.attempt, log_file)
            try:
                with self._tracer.turn(turn.trace_parent, attempt.fields):
                    return self._carry_out(attempt)
            finally:
                del self._at_work[run_id, number]
                workspace.remove()
                diffs = dict(zip(DIFFS, self._diffs(attempt), strict=True))
                self._patiently(lambda: at_work.share_all(self._database, diffs))

    def _patiently(self, act: Callable[[], T]) -> T:
        """Call, and call again while the database is away; the agent's work is not lost to that."""
        while True:
            try:
                return act()
            except (OperationalError, PoolTimeout) as error:
                _logger.warning("a turn waits for the database: %s", getattr(error, "orig", None) or error)
                if self.stopping.wait(_DATABASE_PAUSE_S):
                    raise InterruptedTurnError from error

    def attend(self) -> None:
        """Interrupt work on turns that have been ended, and share the logs of the others."""
        at_work = list(self._at_work.values())
        if not at_work:
            return
        with self._database.read() as connection:
            ended = turns.ended_among(connection, [one.key for one in at_work])
        for one in at_work:
            if one.key in ended:
                one.ended.set()
            one.share(self._database)

    def settle(self, run_id: str, number: int, outcome: TurnOutcome) -> None:
        """Record the end of a turn, once."""
        with self._database.write() as connection:
            if not turns.end(connection, run_id, number, outcome, self._clock()) and outcome.commit_sha:
                turns.note_pushed(connection, run_id, number, outcome)
        _logger.info(
            "%s turn %d %s%s", run_id, number, outcome.status, f": {outcome.failure}" if outcome.failure else ""
        )

    def _diffs(self, attempt: Attempt) -> tuple[Path, Path]:
        """Return the files for the patches of the turn and of the whole run."""
        key = (attempt.run.id, attempt.turn.number)
        return self._folder.turn_diff(*key), self._folder.run_diff(*key)

    def _carry_out(self, attempt: Attempt) -> TurnOutcome:
        attempt.say(
            f"attempt {attempt.turn.attempt}: {attempt.run.agent} on {without_login(attempt.run.url)}", self._clock
        )
        try:
            outcome = self._work(attempt)
        except (ServiceError, OSError) as error:
            # Callers read this text, and need not know where the data folder is.
            text = str(error).replace(f"{self._folder.root}/", "")
            outcome = TurnOutcome("failed", failure=text, attempt=attempt.turn.attempt)
        except (InterruptedTurnError, SupersededError, SQLAlchemyError):
            raise
        except Exception:  # One guard at the boundary of an attempt: it must come to its own end.
            _logger.exception("%s failed in the service itself", attempt.trailer)
            outcome = TurnOutcome("failed", failure=OWN_FAULT, attempt=attempt.turn.attempt)
        self._tracer.ended(outcome.status)
        outcome = replace(outcome, failure=masked(attempt, outcome.failure), summary=masked(attempt, outcome.summary))
        attempt.say(f"{outcome.status}{f': {outcome.failure}' if outcome.failure else ''}", self._clock)
        return outcome

    def _work(self, attempt: Attempt) -> TurnOutcome:
        snapshot = self._fetch(attempt)
        self._check_branch(attempt, snapshot)
        done = own_commit(attempt, snapshot) if not attempt.run.head_ref else None
        if done is not None:
            attempt.say(f"an earlier attempt has already pushed {done[0]}", self._clock)
            patches = Patches(attempt.git, attempt.secrets.mask, snapshot.default)
            change = patches.keep_pushed(snapshot.git_dir, done[0], *self._diffs(attempt))
            return completed(attempt, done[0], done[1], change)
        task = task_of(attempt, snapshot)
        attempt.workspace.create(task)
        with self._tracer.step("check out"):
            base = attempt.workspace.check_out(attempt.git, snapshot, attempt.run.branch)
        attempt.say(f"branch {attempt.run.branch} at {base or 'nothing: the repository is empty'}", self._clock)
        attempt.say(f"sandbox: {self.sandbox}", self._clock)
        commit = snapshot.branches.get(attempt.run.branch)
        if commit is not None and attempt.agent.options.on_completion.status:
            with self._database.write() as connection:
                postings.at_work(connection, attempt.run, attempt.turn.number, commit, self._clock())
        command = AgentCommand(
            attempt.agent,
            attempt.workspace,
            snapshot.git_dir / "objects",
            self.sandbox,
            task,
            session_of(self._folder, attempt.run.id, attempt.agent),
            cache_of(self._folder, attempt.run.organization_id, attempt.agent),
            TurnMeter(self._database, attempt.turn, attempt.agent, self._clock),
        )
        with self._tracer.step("agent"):
            agent_process.run(command, attempt.log, self._settings.agent, attempt.secrets, lambda: self._check(attempt))
        return self._publish(attempt, snapshot, base)

    def _fetch(self, attempt: Attempt) -> RepositorySnapshot:
        with self._tracer.step("fetch"):
            return RepositoryMirror(self._folder.mirrors, attempt.run.url, attempt.git).fetch(
                attempt.run.branch, attempt.run
            )

    def _check_branch(self, attempt: Attempt, snapshot: RepositorySnapshot) -> None:
        """Refuse a protected branch, now that the fetch has shown which branch is the default one.

        Raises:
            GitCommandError: It is protected.
        """
        run = attempt.run
        with self._database.write() as connection:
            if snapshot.default_branch is not None:
                repositories.note_default_branch(connection, run.url, snapshot.default_branch)
            configured = repositories.by_path(connection, run.organization_id, run.platform, run.path)
        patterns = None if configured is None else configured.protected
        if not run.head_ref and repositories.is_protected(run.branch, snapshot.default_branch, patterns):
            raise GitCommandError(
                f"the branch {run.branch} is protected; start a run on another branch, or without one"
            )

    def _check(self, attempt: Attempt) -> None:
        if self.stopping.is_set():
            raise InterruptedTurnError
        if self._at_work[attempt.run.id, attempt.turn.number].ended.is_set():
            attempt.say("interrupted: the turn was ended", self._clock)
            raise SupersededError(f"{attempt.trailer} was ended while it was at work")

    def _publish(self, attempt: Attempt, snapshot: RepositorySnapshot, base: str | None) -> TurnOutcome:
        result = attempt.workspace.result()
        found = collect(attempt.workspace.tree, self.sandbox.tree_of(attempt.workspace), attempt.secrets.mask)
        for remark in found.remarks:
            attempt.say(remark, self._clock)
        if found.findings is not None:
            key, content = (attempt.run.id, attempt.turn.number), packed(base, found.findings)

            def store() -> None:
                with self._database.write() as connection:
                    turn_files.put(connection, key, attempt.turn.attempt, turn_files.FINDINGS, content)

            self._patiently(store)
        message = attempt.secrets.mask(commit_message(attempt, result.commit_message))
        with self._tracer.step("commit"):
            commit = attempt.workspace.commit(attempt.git, snapshot, base, message)
        if commit is None:
            attempt.say(f"{turns.NOTHING_CHANGED}: no commit", self._clock)
            return completed(attempt, None, result.summary)
        if attempt.run.head_ref is not None:
            return replace(completed(attempt, None, result.summary), failure=turns.NOT_PUSHED)
        if name := attempt.secrets.named_in(attempt.workspace.contents(commit.files.names)):
            raise AgentFailedError(f"the change holds the value of {name}, and was not pushed; keep the agent from it")
        patches = Patches(attempt.git, attempt.secrets.mask, snapshot.default)
        if why := oversize(attempt.agent.options.change, patches.content_bytes(attempt.workspace.ours, commit.files)):
            raise AgentFailedError(why)
        change = patches.keep(attempt.workspace.ours, base, commit.sha, *self._diffs(attempt))
        if why := refusal(attempt.agent.options.change, commit.files.names, self._diffs(attempt)[0].stat().st_size):
            raise AgentFailedError(why.replace("RUN_ID", attempt.run.id))
        if not self._patiently(lambda: self._may_push(attempt, commit.sha)):
            raise SupersededError(f"{attempt.trailer}: another attempt has it, or it was ended")
        pushed = self._push(attempt, snapshot, commit.sha)
        if pushed != commit.sha:
            change = patches.keep_pushed(snapshot.git_dir, pushed, *self._diffs(attempt))
        attempt.say(f"pushed {pushed} to {attempt.run.branch}", self._clock)
        return completed(attempt, pushed, result.summary or message.partition("\n")[0], change)

    def _may_push(self, attempt: Attempt, commit: str) -> bool:
        with self._database.write() as connection:
            return turns.begin_push(connection, attempt.turn, commit)

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
