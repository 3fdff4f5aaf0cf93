"""Turns: each is claimed, executed, and given an outcome, however the work went."""

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, NoReturn

from sqlalchemy.exc import SQLAlchemyError

from service.agents.options import NO_OPTIONS
from service.clock import DAY_MICROS, SECOND_MICROS
from service.errors import ServiceError
from service.execution.command import AgentFailedError, PausedAgentError
from service.execution.disk import SharedDisk, shortage, usage_of
from service.execution.record import InterruptedTurnError, SupersededError, TurnAtWork, TurnRecorder, stop_reason
from service.execution.sandbox import Sandbox
from service.execution.work import Attempt
from service.execution.workspace import Workspace, Workspaces
from service.git import GitCommandError, GitRunner, identity_of
from service.hosts.api_commits import ApiCommits
from service.hosts.tokens import HostTokens
from service.observability.traces import Tracer
from service.reference import location, without_login
from service.secrets import Secrets, of_environment, of_proxies, of_url
from service.settings import DataFolder, Settings
from service.store import agents, hosts, messages, outages, turns
from service.store.hosts import Host
from service.store.outages import clock_time
from service.store.runs import Run
from service.store.turns import Turn, TurnOutcome, TurnPause

_MAX_ATTEMPTS: Final = 20
_NEXT_S: Final = 5.0
"""How long a paused turn lets other turns ask its provider first, if the provider does not say when it is back."""
_PROGRESS_S: Final = 15.0
"""How often the log shows the progress of a fetch or push."""
_MAX_RETRY_S: Final = 120.0
_SHORTAGES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
"""The system's errors for a full disk, and for a lack of files, processes or memory."""
OWN_FAULT: Final = "the service itself failed; its log says why. Continue the run to try again"
_logger = logging.getLogger(__name__)


class ShortageError(Exception):
    """This machine lacks room for the turn; the text names the scarce resource. The turn is put back."""


class PausedTurnError(Exception):
    """The turn waits for its model's provider or its code host, and gave its slot back."""


class TurnExecution:
    """Executes turns in this process."""

    def __init__(
        self,
        recorder: TurnRecorder,
        tokens: HostTokens,
        folder: DataFolder,
        settings: Settings,
        sandbox: Sandbox,
        tracer: Tracer,
    ) -> None:
        self.recorder = recorder
        self._tokens = tokens
        self.sandbox = sandbox
        self.folder = folder
        self.settings = settings.execution
        self._secret_names = settings.secret_names
        self._forge = settings.forge
        self._disk = SharedDisk(self.settings.agent, self.settings.concurrency)
        self._tracer = tracer

    def execute(self, run_id: str, number: int, workspaces: Workspaces) -> None:
        """Execute a turn and record its outcome; while the database is down, wait for it.

        Raises:
            InterruptedTurnError: The service stops.
            PausedTurnError: The turn waits for its model's provider or its code host.
            ShortageError: This machine has no room for it now.
            SupersededError: Another attempt has the turn now.
        """
        try:
            outcome = self.recorder.retry(lambda: self.perform(run_id, number, workspaces))
        except (InterruptedTurnError, PausedTurnError, SupersededError):
            raise
        except Exception as error:  # One guard at the boundary of a turn: it must get an outcome.
            if self._is_shortage(error):
                raise ShortageError(str(error)) from error
            _logger.exception("%s turn %d failed in the service itself", run_id, number)
            outcome = TurnOutcome("failed", failure=OWN_FAULT)
        self.recorder.retry(lambda: self.record_end(run_id, number, outcome))

    def perform(self, run_id: str, number: int, workspaces: Workspaces) -> TurnOutcome:
        """Execute a turn and return its outcome; raises as `execute`."""
        database = self.recorder.database
        with database.write() as connection:
            claimed = turns.claim(connection, run_id, number, workspaces.executor, self.recorder.clock())
            if claimed is None:
                raise SupersededError(f"{run_id} turn {number} has ended already")
            run, turn = claimed
            # Unless an earlier attempt's agent has finished and only the push is left.
            if turn.agent is None and turn.pushing_sha is None and not run.is_restricted:
                sources = outages.ProviderOutages(connection)
                instead = sources.stand_in(run.organization_id, run.agent, self.recorder.clock())
                if instead is not None and sources.is_probed(connection, run):
                    turn = turns.fall_back(connection, turn, *instead)
            conversation = [past for past in turns.of(connection, run_id) if past.number < number]
            waiting = messages.of_runs(connection, [run_id], "waiting")
            agent = agents.of_run(connection, run, turn.agent)
            connected = hosts.of(connection, run.organization_id)
            host = hosts.at(connection, run.organization_id, run.platform, run.url)
        if (reason := stop_reason(waiting)) is not None:
            # For a worker that died before it could stop the turn.
            return _failed_turn(turn, reason)
        if agent is None:
            text = f"the agent {turn.agent or run.agent!r} is no longer configured; add it again and continue the run"
            return _failed_turn(turn, text)
        if turn.attempt - turn.pauses > _MAX_ATTEMPTS:
            advice = "workers died or ran out of resources, or the model was down; continue the run"
            return _failed_turn(turn, f"gave up after {_MAX_ATTEMPTS} attempts: {advice}")
        key = (run_id, number)
        workspace = Workspace(self.folder.work / f"{workspaces.executor}.{run_id}-{number}-{turn.attempt}")
        # From here on, a deletion of the run waits for the end of this attempt.
        workspace.root.mkdir(mode=0o700, parents=True)
        diffs = {"diff": self.folder.turn_file(*key, "diff"), "run.diff": self.folder.turn_file(*key, "run.diff")}
        at_work = TurnAtWork(key, turn.attempt, self.folder.turn_file(*key, "log"), diffs)
        at_work.log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with at_work.log_file.open("ab") as log:
            names = [*self._secret_names, *agent.secret_names, *(host.token_env for host in connected)]
            secrets = Secrets(
                of_environment(names) | self._tokens.rotated_tokens(connected) | of_proxies() | of_url(run.url)
            )
            git = self._git(run, host, workspace.git_home, lambda text: attempt.note(f"git: {text}"))
            api = None
            if host is not None and host.app is not None and host.app.sign:
                api = ApiCommits(self._tokens, host, run.path)
            share = self._disk.join(workspace.root)
            attempt = Attempt(
                run=run,
                turn=turn,
                agent=agent,
                conversation=conversation,
                workspace=workspace,
                git=git,
                log=log,
                secrets=secrets,
                at_work=at_work,
                share=share,
                api=api,
                recorder=self.recorder,
                folder=self.folder,
                settings=self.settings,
                sandbox=self.sandbox,
                tracer=self._tracer,
            )
            fields: dict[str, str | int] = {
                "run_id": run_id,
                "turn": number,
                "attempt": turn.attempt,
                "agent": agent.name,
                "organization_id": run.organization_id,
                "repository": f"{run.platform}:{run.path}",
            }
            self.recorder.at_work.append(at_work)
            try:
                with self._tracer.turn(turn.trace_parent, fields):
                    return self._carry_out(attempt)
            finally:
                self._disk.shares.discard(share)
                # Before the end is recorded: on a full disk the database needs the room.
                workspace.remove()
                self.recorder.finish(at_work)

    def _git(self, run: Run, host: Host | None, home: Path, note: Callable[[str], None]) -> GitRunner:
        """Return git for a turn: its identity, tokens and signing key; it notes its progress from time to time."""
        due = time.monotonic() + _PROGRESS_S

        def progress(text: str) -> None:
            nonlocal due
            if "%" in text and time.monotonic() >= due:
                due = time.monotonic() + _PROGRESS_S
                note(text)

        signing = self.settings.signing
        return GitRunner(
            home,
            self.settings.git_timeout_s,
            identity_of(*(self._tokens.author(host) or (self.settings.author_name, self.settings.author_email))),
            progress,
            url=run.url,
            token_of=partial(self._tokens.at, host),
            signing_key=None if signing is None else signing.ssh_key,
        )

    def record_end(self, run_id: str, number: int, outcome: TurnOutcome) -> None:
        """Record a turn's outcome, once, and the commit of one that was cancelled while it pushed."""
        with self.recorder.database.write() as connection:
            is_recorded = turns.end(connection, run_id, number, outcome, self.recorder.clock())
            if not is_recorded and outcome.commit_sha:
                turns.note_pushed(connection, run_id, number, outcome)
        reason = f": {outcome.failure}" if outcome.failure else ""
        _logger.info("%s turn %d %s%s", run_id, number, outcome.status, reason)

    def _carry_out(self, attempt: Attempt) -> TurnOutcome:
        """Work on a turn, and turn whatever happens into its outcome."""
        attempt.note(f"attempt {attempt.turn.attempt}: {attempt.agent.name} on {without_login(attempt.run.url)}")
        try:
            outcome = attempt.work()
        except SupersededError:
            with self.recorder.database.read() as connection:
                is_cancelled = turns.is_cancelled(connection, attempt.turn)
            if is_cancelled and (change := attempt.keep()) is not None:
                self.recorder.write(turns.note_kept, attempt.turn, asdict(change), self.recorder.clock())
            raise
        except (InterruptedTurnError, SQLAlchemyError):
            raise
        except PausedAgentError as error:
            outcome = self._pause_or_fail(attempt, error)
        except GitCommandError as error:
            is_waiting = error.is_passing and not self._is_shortage(error)
            outcome = self._waiting(attempt, error) if is_waiting else self._failed_outcome(attempt, error)
        except (ServiceError, OSError) as error:
            outcome = self._failed_outcome(attempt, error)
        except Exception:  # One guard at the boundary of an attempt: it must get an outcome.
            _logger.exception("%s failed in the service itself", attempt.trailer)
            outcome = _failed_turn(attempt.turn, OWN_FAULT)
        # A patch of the files that filled the disk would fill it further.
        is_kept = outcome.status == "failed" and attempt.share.fault() is None
        if is_kept and (change := attempt.keep()) is not None:
            outcome = replace(outcome, **asdict(change))
        self._tracer.ended(outcome.status)
        failure = outcome.failure and attempt.mask(outcome.failure)
        summary = outcome.summary and attempt.mask(outcome.summary)
        attempt.note(outcome.status if failure is None else f"{outcome.status}: {failure}")
        return replace(outcome, failure=failure, summary=summary)

    def _failed_outcome(self, attempt: Attempt, error: ServiceError | OSError) -> TurnOutcome:
        """Return the outcome of a failed attempt, or raise the error again if the machine is to blame for it."""
        if self._is_shortage(error):
            attempt.share.note(usage_of([attempt.workspace.root]))
            if (fault := attempt.share.fault()) is None:
                raise error
            error = AgentFailedError(f"the agent was stopped for passing its limit of {fault} in [execution.agent]")
        # Callers read this text, and need not know where the data folder is.
        text = str(error).replace(f"{self.folder.root}/", "")
        kind = None
        if isinstance(error, AgentFailedError) and error.reason != "failed":
            kind = error.reason
        return _failed_turn(attempt.turn, text, kind)

    def _pause_or_fail(self, attempt: Attempt, error: PausedAgentError) -> TurnOutcome:
        """Give the turn's slot back until its model can be asked again, or to the next fallback.

        Return its failure if there is no fallback left, or if waiting takes too long.
        """
        now = self.recorder.clock()
        run = attempt.run
        turn = attempt.turn
        failure = error.pause.failure
        with self.recorder.database.read() as connection:
            agent = agents.of_run(connection, run)
            providers = outages.ProviderOutages(connection)
        options = NO_OPTIONS if agent is None else agent.options
        if (error.pause.limit_s or inf) > options.waits_s:
            reason = attempt.mask(failure.what)
            unavailable = (turn.unavailable or {}) | {attempt.agent.name: reason}
            name = providers.fallback(run.organization_id, run.agent, unavailable)
            if name is None:
                fix = failure.fix if "continue the run" in failure.fix else f"{failure.fix}; continue the run"
                text = f"{turns.NO_AGENT}: {turns.unavailable_words(unavailable)}; {fix}"
                return _failed_turn(turn, text, failure.reason)
            change = {"agent": name, "unavailable": unavailable}
            paused = TurnPause(now, None, is_counted=error.has_begun, change=change)
            return self._pause(attempt, paused, f"{name} takes over from {attempt.agent.name}: {reason}")
        until = now + int((error.pause.limit_s or _NEXT_S) * SECOND_MICROS)
        if until > (turn.started_at or now) + DAY_MICROS:
            text = f"{failure.text}; a turn waits for its model for a day, and not longer"
            return _failed_turn(turn, text, failure.reason)
        what = attempt.mask(failure.text)
        resumes = None if error.pause.limit_s is None else f"resumes {clock_time(until)}: {what}"
        paused = TurnPause(until, resumes, is_counted=error.has_begun)
        return self._pause(attempt, paused, f"waits for its model, without a slot: {resumes or what}")

    def _waiting(self, attempt: Attempt, error: GitCommandError) -> TurnOutcome:
        """Give the turn's slot back until its code host can be asked again; return its failure after too long."""
        now = self.recorder.clock()
        turn = attempt.turn
        place = location(attempt.run.url)
        # Its agent ran in this attempt, so that the fetch succeeded.
        since = now if attempt.has_begun else turn.waiting_since or now
        waited_s = (now - since) / SECOND_MICROS
        host = (place and place.host) or "its repository"
        what = attempt.mask(str(error))
        if waited_s > self._forge.give_up_s:
            text = f"{host} has not answered since {clock_time(since)}: {what}; continue the run when it does"
            return _failed_turn(turn, text, "host_unreachable")
        # Twice as long each time.
        pause_s = min(max(waited_s, self._forge.retry_s), _MAX_RETRY_S)
        reason = f"waiting for {host} since {clock_time(since)}: {what}"
        paused = TurnPause(now + int(pause_s * SECOND_MICROS), reason, is_counted=False, since=since)
        return self._pause(attempt, paused, f"{reason}; the slot is free, and the next attempt is in {pause_s:.0f} s")

    def _pause(self, attempt: Attempt, paused: TurnPause, reason: str) -> NoReturn:
        """Keep the agent's work so far, and give the turn's slot back."""
        turn, change = attempt.turn, attempt.keep()
        first = turn.from_turn
        fields = dict(paused.change)
        if change is not None:
            first = turn.number if change.files else None
            fields.update(asdict(change))
        fields.update(attempt.keep_commit())
        paused = replace(paused, from_turn=first, change=fields)
        self.recorder.write_for(turns.pause, turn, paused, self.recorder.clock())
        attempt.note(reason)
        raise PausedTurnError(f"{attempt.trailer}: {reason}")

    def _is_shortage(self, error: Exception) -> bool:
        """Whether an attempt failed because this machine is short of something, which is not the turn's fault."""
        if any(isinstance(cause, OSError) and cause.errno in _SHORTAGES for cause in (error, error.__cause__)):
            return True
        # git words a full disk differently.
        return isinstance(error, GitCommandError) and shortage(self.folder.root, self.settings.agent) is not None


def _failed_turn(turn: Turn, text: str, kind: str | None = None) -> TurnOutcome:
    return TurnOutcome("failed", failure=text, failure_kind=kind, attempt=turn.attempt)
