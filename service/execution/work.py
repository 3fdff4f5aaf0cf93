"""The work of one attempt at a turn: fetch, check out, run the agent, commit and push, at most once."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, Literal

import sqlalchemy as sa

from service import ids, trees
from service.agents import programs
from service.agents.options import Agent, RepositorySetup
from service.agents.outcome import REFUSED
from service.clock import Clock, rfc3339, rfc3339_or_none
from service.errors import ServiceError
from service.execution import agent as agent_process
from service.execution import artifacts
from service.execution.command import AgentCommand, AgentFailedError, StoppedAgentError, cache_of, session_of
from service.execution.commits import (
    KEPT,
    TRAILER,
    Patches,
    TurnChange,
    TurnCommit,
    check_signing,
    commit_of,
    moved,
    oversize,
    refusal,
)
from service.execution.disk import DiskShare
from service.execution.large_files import LargeFiles
from service.execution.mirror import RepositoryMirror, RepositorySnapshot
from service.execution.preparation import Preparation
from service.execution.record import InterruptedTurnError, SupersededError, TurnAtWork, TurnRecorder
from service.execution.sandbox import Sandbox
from service.execution.submodules import Submodules
from service.execution.workspace import Workspace
from service.findings import packed
from service.findings.collect import ARTIFACTS, FOLDER, collect
from service.findings.question import asked
from service.git import GitCommandError, GitRunner
from service.hosts.api_commits import ApiCommits
from service.observability.traces import Tracer
from service.secrets import MASK, Secrets
from service.settings import DataFolder, ExecutionSettings
from service.store import hosts, messages, postings, repositories, turn_files, turns
from service.store.messages import Message, with_messages
from service.store.runs import Run
from service.store.turns import Turn, TurnOutcome
from service.store.usage import TurnMeter
from service.text import not_closing, plural, storable

# git allows blanks around a key, and looks for no trailer below a scissors line.
_FORGED: Final = re.compile(rf"\s*{TRAILER}\s*:|.*-{{24}} >8 -{{24}}", re.IGNORECASE)
_SEARCHED_COMMITS: Final = 500
_SUBJECT_LENGTH: Final = 60
_MOST_PUSHES: Final = 5
"""How often a commit is put on top of a branch that moves."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A claimed turn, with everything that its steps need."""

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
    api: ApiCommits | None
    """What makes the commits at the code host; None: git pushes them."""
    diffs: Mapping[str, Path]
    """The files for the patches of the turn (`diff`) and of the whole run (`run.diff`)."""

    @property
    def trailer(self) -> str:
        """The line that marks this turn's commit, so that a second attempt recognizes it."""
        return f"{self.run.id} turn {self.turn.number}"

    @property
    def fields(self) -> dict[str, str | int]:
        """The attributes of its trace span."""
        run = self.run
        named = {"agent": self.agent.name, "organization_id": run.organization_id}
        named |= {"repository": f"{run.platform}:{run.path}"}
        return {"run_id": run.id, "turn": self.turn.number, "attempt": self.turn.attempt, **named}

    def completed(self, commit: str | None, summary: str | None, change: TurnChange | None = None) -> TurnOutcome:
        """Return the outcome of an attempt whose agent finished."""
        changed: dict[str, Any] = {} if change is None else asdict(change)
        return TurnOutcome("completed", commit_sha=commit, summary=summary, attempt=self.turn.attempt, **changed)

    def log_line(self, text: str, clock: Clock) -> None:
        """Write a line into the turn's log."""
        self.log.write(f"{rfc3339(clock())} {self.secrets.mask(text)}\n".encode("utf-8", "replace"))
        self.log.flush()


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """What happened to an earlier turn's changes that were not pushed."""

    source: Literal["patch", "branch"]
    turn: int
    """The earlier turn."""
    text: str
    """A sentence for the agent and the log."""


def task_of(
    attempt: Attempt, snapshot: RepositorySnapshot, begun: StartingPoint | None, said: Mapping[int, Sequence[Message]]
) -> dict[str, object]:
    """Return the document for the agent's standard input, as docs/run/agent-contract.md describes it.

    `said`: the run's messages by turn.
    """
    task: dict[str, object] = {
        "run_id": attempt.run.id,
        "turn": attempt.turn.number,
        "agent": attempt.agent.name,
        "repository": attempt.run.reference.body,
        "branch": attempt.run.branch,
        "default_branch": snapshot.default_branch,
        "instructions": with_messages(attempt.turn.instructions, said[attempt.turn.number]),
        "inputs": attempt.turn.inputs,
        "conversation": [
            {
                "turn": past.number,
                "instructions": with_messages(past.instructions, said[past.number]),
                "status": past.status,
                "commit": past.commit_sha,
                "summary": past.summary,
                "finished_at": rfc3339_or_none(past.finished_at),
                **(past.question or {}),
            }
            for past in attempt.conversation
        ],
    }
    if begun is not None:
        task["starting_point"] = {"from": begun.source, "turn": begun.turn, "text": begun.text}
    return task


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
    """Return the commit's message, the agent's own if it gave one, with the service's trailer; it closes no issue."""
    first_line = " ".join(attempt.turn.own_instructions.split())[:_SUBJECT_LENGTH]
    lines = (given or f"{attempt.agent.name}: {first_line}".rstrip(": ")).splitlines()
    # Only the service may write the trailer: with one, an agent could make a later turn look done.
    text = "\n".join(line for line in lines if not _FORGED.match(line)).strip()
    return f"{not_closing(text) or attempt.agent.name}\n\n{TRAILER}: {attempt.trailer}\n"


class TurnWork:
    """The steps of one attempt, in the order of its methods."""

    def __init__(
        self,
        attempt: Attempt,
        recorder: TurnRecorder,
        folder: DataFolder,
        settings: ExecutionSettings,
        sandbox: Sandbox,
        tracer: Tracer,
    ) -> None:
        self._attempt = attempt
        self._recorder = recorder
        self._folder = folder
        self._limits, self._artifacts = settings.agent, settings.artifacts
        self._sandbox = sandbox
        self._tracer = tracer
        self._snapshot: RepositorySnapshot
        self._setup = RepositorySetup()
        """The repository's, once it is read."""
        self._base: str | None = None
        """The commit that the checkout was filled from; None: the repository is empty."""
        self.has_begun = False
        """Whether the agent has been started: before that there is no change to keep."""
        self._made: tuple[TurnCommit, TurnChange] | None = None
        """The agent's change, once it is committed here and its patch is kept."""
        self._undelivered: tuple[str, str | None] | None = None
        """The commit that is not known to be on its branch, and the turn's summary."""

    def run(self) -> TurnOutcome:
        """Do the turn; return that it completed, or that its agent asks a question.

        Raises:
            PausedAgentError: Its model's provider is down.
            ServiceError: It failed; the text says why.
            OSError: The machine failed, or is short of something.
            SupersededError: Another attempt took over the turn, or it was cancelled.
            InterruptedTurnError: The service stops.
        """
        try:
            return self._run()
        except SupersededError:
            with self._recorder.database.read() as connection:
                is_cancelled = turns.is_cancelled(connection, self._attempt.turn)
            if is_cancelled and (change := self.keep()) is not None:
                turn, now = self._attempt.turn, self._recorder.clock()
                self._recorder.write(lambda connection: turns.note_kept(connection, turn, asdict(change), now))
            raise

    def keep_commit(self) -> dict[str, str | None]:
        """Store the commit that is still to be pushed; return the turn's fields about it."""
        if self._undelivered is None:
            return {}
        attempt, (sha, summary) = self._attempt, self._undelivered
        self._store(turn_files.COMMIT, attempt.workspace.pack(attempt.git, self._snapshot, sha))
        return {"summary": None if summary is None else storable(attempt.secrets.mask(summary))}

    def keep(self) -> TurnChange | None:
        """Keep the patch of a turn that pushes nothing; None: the agent never started, or it may not be kept."""
        if not self.has_begun:
            return None
        try:
            made = self._commit(self._attempt.trailer)
        except (ServiceError, OSError) as error:
            self._log(f"what the agent changed is not kept: {error}")
            return None
        if made is None:
            return TurnChange(self._base, None, 0, 0, 0, None)
        self._log(f"the change of {plural(made[1].files, 'file')} is kept as a patch, not pushed")
        return made[1]

    def _log(self, text: str) -> None:
        self._attempt.log_line(text, self._recorder.clock)

    def _log_remarks(self) -> None:
        while self._attempt.workspace.remarks:
            self._log(self._attempt.workspace.remarks.pop(0))

    def _run(self) -> TurnOutcome:
        attempt, run, workspace = self._attempt, self._attempt.run, self._attempt.workspace
        with self._recorder.database.read() as connection:
            configured = repositories.by_path(connection, run.organization_id, run.platform, run.path)
            self._setup = setup = (configured and configured.setup) or RepositorySetup()
            host = hosts.at(connection, run.organization_id, run.platform, run.url) if setup.submodules else None
            default = repositories.default_branch(connection, run.url)
            packed = turn_files.content(connection, attempt.at_work.key, turn_files.COMMIT)
        self._snapshot = snapshot = self._fetch()
        if snapshot.default_branch not in {None, default}:
            # Only the fetch has shown which branch is the default one.
            fetched = run.url, str(snapshot.default_branch)
            self._recorder.write(lambda connection: repositories.note_default_branch(connection, *fetched))
        done = own_commit(attempt, snapshot) if not run.head_ref else None
        if done is not None:
            self._log(f"an earlier attempt has already pushed {done[0]}")
            return attempt.completed(done[0], done[1], self._written(snapshot.git_dir, done[0]))
        self._check_branch(None if configured is None else configured.protected)
        workspace.part = setup.part
        if setup.lfs:
            workspace.large_files = LargeFiles(attempt.git, run.url, snapshot.git_dir)
        if setup.submodules:
            may_use = (lambda _: True) if host is None else host.owns
            workspace.submodules = Submodules(self._folder.mirrors, attempt.git, may_use)
            workspace.url = run.url
        if packed is not None and attempt.turn.pushing_sha is not None:
            self._log("the agent is done: only its commit is still to be pushed")
            workspace.unpack(attempt.git, snapshot, packed)
            commit = commit_of(attempt.git, workspace.ours, attempt.turn.pushing_sha, attempt.trailer)
            return self._deliver(commit, self._written(workspace.ours, commit.sha), attempt.turn.summary)
        head = snapshot.branches.get(run.branch)
        self._check_webhook_commit(head)
        workspace.create()
        with self._tracer.step("check out"):
            self._base = workspace.check_out(attempt.git, snapshot, run.branch)
        if attempt.git.signing_key is not None:
            # Before the agent works in vain.
            check_signing(attempt.git.signing_key)
        self._log_remarks()
        self._log(f"branch {run.branch} at {self._base or 'nothing: the repository is empty'}")
        begun = self._apply_kept()
        pushed = [past.number for past in attempt.conversation if past.commit_sha]
        if pushed and head is None:
            text = f"The branch {run.branch} is gone, and was made again from {snapshot.default_branch or 'nothing'}: "
            text += "what earlier turns pushed is there only if it was merged."
            alone = StartingPoint("branch", pushed[-1], text)
            begun = alone if begun is None else replace(begun, text=f"{text} {begun.text}")
        if begun is not None:
            self._log(begun.text)
        task = task_of(attempt, snapshot, begun, self._deliver_messages())
        workspace.give(task)
        self._log(f"sandbox: {self._sandbox}")
        if head is not None and attempt.agent.options.on_completion.status:
            at_work = (run, attempt.turn.number, head, self._recorder.clock())
            self._recorder.write(lambda connection: postings.at_work(connection, *at_work))
        return self._run_agent(task)

    def _check_branch(self, patterns: tuple[str, ...] | None) -> None:
        """Refuse a branch that git cannot make, or that these patterns protect; None: the default one is."""
        run, snapshot = self._attempt.run, self._snapshot
        if snapshot.beside is not None:
            text = f"the branch {run.branch} cannot be made next to the branch {snapshot.beside}"
            raise GitCommandError(f"{text}: git keeps them as a file and a folder of one name; choose another name")
        # A host makes the first branch of an empty repository its default one.
        is_first = any(past.commit_sha and past.base_sha is None for past in self._attempt.conversation)
        if run.head_ref or (is_first and patterns is None):
            return
        if repositories.is_protected(run.branch, snapshot.default_branch, patterns):
            text = f"the branch {run.branch} is protected; start a run on another branch, or without one"
            raise GitCommandError(text)

    def _check_webhook_commit(self, head: str | None) -> None:
        """Refuse a webhook's turn if its branch is at another commit by now, unless the service itself pushed it."""
        run, turn = self._attempt.run, self._attempt.turn
        about = turn.inputs.get("pull_request") if turn.caller == turns.WEBHOOK else None
        wanted = about.get("commit") if isinstance(about, dict) else None
        if wanted in {None, head}:
            return
        with self._recorder.database.read() as connection:
            is_own = head is not None and turns.is_own_commit(connection, head)
        if not is_own:
            there = "gone" if head is None else f"at {head}"
            raise GitCommandError(f"the branch {run.branch} is {there}; the run was started for {wanted}")

    def _deliver_messages(self) -> Mapping[int, Sequence[Message]]:
        """Deliver the messages for the agent at work, with which it begins; return all of the run by turn."""
        run_id, number = self._attempt.at_work.key

        def deliver(connection: sa.Connection) -> Mapping[int, Sequence[Message]]:
            sent = messages.by_turn(connection, run_id)[number]
            messages.mark(connection, [message for message in sent if message.timing == "now"], "delivered")
            return messages.by_turn(connection, run_id)

        with self._recorder.database.read() as connection:
            by_turn: Mapping[int, Sequence[Message]] = messages.by_turn(connection, run_id)
        if by_turn[number]:
            by_turn = self._recorder.write(deliver)
        self._attempt.at_work.heard += [message.id for message in by_turn[number] if message.state == "delivered"]
        return by_turn

    def _fetch(self) -> RepositorySnapshot:
        attempt, turn = self._attempt, self._attempt.turn
        bases = {past.base_sha for past in attempt.conversation if past.number == turn.from_turn}
        with self._tracer.step("fetch"):
            snapshot = self._mirror.fetch(attempt.run.branch, attempt.run)
            self._mirror.fill(snapshot, attempt.run.branch, bases | {self._base, turn.base_sha})
            return snapshot

    @property
    def _mirror(self) -> RepositoryMirror:
        return RepositoryMirror(self._folder.mirrors, self._attempt.run.url, self._attempt.git, self._setup.part)

    def _written(self, git_dir: Path, sha: str) -> TurnChange:
        """Write the patches of a commit of this turn, and return its change."""
        self._mirror.fill(self._snapshot, self._attempt.run.branch, (sha, f"{sha}^"))
        return self._patches().write(
            git_dir, commit_of(self._attempt.git, git_dir, sha, self._attempt.trailer), *self._attempt.diffs.values()
        )

    def _patches(self) -> Patches:
        return Patches(self._attempt.git, self._attempt.secrets.mask, self._snapshot.default)

    def _apply_kept(self) -> StartingPoint | None:
        """Apply the patch that is kept of an earlier turn, or of an earlier attempt."""
        workspace, git = self._attempt.workspace, self._attempt.git
        turn, number = self._attempt.turn, self._attempt.turn.from_turn
        if number is None:
            before = turns.last_begun(self._attempt.conversation)
            if before is None or not before.is_unfinished:
                return None
            return _dropped(before.number, f"Turn {before.number} was not finished")
        with self._recorder.database.read() as connection:
            patch = turn_files.diff(connection, self._folder, (turn.run_id, number), "diff")
        if patch is None:
            return _dropped(number, f"What turn {number} changed is not kept any longer")
        text = patch.decode("utf-8", "surrogateescape")
        folders = {"git_dir": workspace.history, "work_tree": workspace.tree}
        conflicts: list[str] = []
        try:
            git.feed(text, "apply", "--3way", "--whitespace=nowarn", "-", **folders)
        except GitCommandError:
            conflicts = git("diff", "--name-only", "--diff-filter=U", "-z", **folders).split("\0")[:-1]
            if not conflicts:
                is_masked = any(line.startswith("-") and MASK in line for line in text.splitlines())
                why = "takes out a secret, which its patch masks" if is_masked else "does not fit the branch any longer"
                return _dropped(number, f"What turn {number} changed {why}")
            # For the agent's git they are ordinary changes.
            git("reset", "--quiet", "--", *conflicts, **folders)
        listed = git.feed(text, "apply", "--numstat", "-z", "-").split("\0")[:-1]
        workspace.begun_with = frozenset(one.split("\t", 2)[2] for one in listed)
        whose = "An earlier attempt at this turn" if number == turn.number else f"Turn {number}"
        text = f"{whose} was not finished: what it changed is in the checkout, and not committed yet."
        if conflicts:
            files = ", ".join(conflicts)
            text += f" The branch has changed in the same places: resolve the conflicts marked in {files}."
        return StartingPoint("patch", number, text)

    def _run_agent(self, task: Mapping[str, Any]) -> TurnOutcome:
        """Set the repository up, run the agent, and publish its change."""
        attempt, run, agent = self._attempt, self._attempt.run, self._attempt.agent
        if agent.options.keeps_session and attempt.conversation and not (self._folder.sessions / run.id).exists():
            self._log("this worker does not have the session of earlier turns: the agent's program gets them as text")
        if attempt.turn.agent is not None:
            # The session of the run's agent will know nothing of this turn.
            trees.remove(self._folder.sessions / run.id)
        cached = self._folder.caches / run.organization_id / ids.address_key(f"setup {run.url}")
        preparation = Preparation(self._setup, attempt.workspace, cached, is_restricted=bool(run.head_ref))
        if preparation.setup.mcp_servers and not programs.takes_servers(agent):
            self._log(f"the repository's MCP servers are left out: {programs.TAKES_NONE}")
        meter = TurnMeter(self._recorder.database, attempt.turn, agent, self._recorder.clock)
        command = AgentCommand(
            agent,
            attempt.workspace,
            self._snapshot.git_dir / "objects",
            self._sandbox,
            attempt.share,
            task,
            session_of(self._folder, run.id, agent),
            cache_of(self._folder, run.organization_id, agent),
            meter,
            preparation.setup,
            preparation.kept,
        )

        def check() -> None:
            if self._recorder.stopping.is_set():
                raise InterruptedTurnError
            if attempt.at_work.stopped.is_set():
                self._log("interrupted: the turn was cancelled")
                raise SupersededError(f"{attempt.trailer} was cancelled while it was at work")
            if stopping := [one for one in attempt.at_work.waiting if one.timing == "stop"]:
                raise StoppedAgentError(f"{turns.STOPPED} {stopping[0].caller or 'a caller'}")

        def said() -> list[Message]:
            at_work = attempt.at_work
            return [one for one in at_work.waiting if one.timing == "now" and one.id not in at_work.heard]

        with self._tracer.step("set up"):
            preparation.run(command, attempt.log, self._limits, attempt.secrets, check)
        self.has_begun = True
        command.invocation.reader.report.heard = attempt.at_work.heard
        failed = None
        try:
            with self._tracer.agent(agent, run, meter, attempt.at_work.log_file):
                agent_process.run(command, attempt.log, self._limits, attempt.secrets, check, said)
        except AgentFailedError as error:
            failed = error
        finally:
            has_artifacts = self._keep_artifacts()
        self._recorder.retried(lambda: self._recorder.note_heard(attempt.at_work))
        outcome = self._publish(failed, has_artifacts=has_artifacts)
        if failed is None:
            preparation.give_back()
        return outcome

    def _publish(self, failed: AgentFailedError | None, *, has_artifacts: bool) -> TurnOutcome:
        """Push the agent's change, or report its question, which an agent may also leave when it fails."""
        attempt, mask = self._attempt, self._attempt.secrets.mask
        result = attempt.workspace.result()
        remarks: list[str] = []
        question = asked(attempt.workspace.tree, mask, remarks)
        if failed is not None and question is None:
            raise failed
        unread: list[str] = []
        found = collect(attempt.workspace.tree, self._sandbox.tree_of(attempt.workspace), mask, unread)
        for remark in (*unread, *remarks):
            self._log(remark)
        if unread:
            self._store(turn_files.UNREAD, "; ".join(unread).encode())
        if found is not None:
            self._store(turn_files.FINDINGS, packed(self._base, found))
        message = mask(commit_message(attempt, result.commit_message))
        try:
            with self._tracer.step("commit"):
                made = self._commit(message)
        except AgentFailedError:
            if question is None:
                raise
            made = None
        is_silent = made is None and found is None and not has_artifacts and question is None and result.summary is None
        if is_silent and attempt.agent.options.preset is not None:
            raise AgentFailedError(f"the agent changed nothing and said nothing: {REFUSED.text}", REFUSED.reason)
        if question is not None:
            text = question.text if failed is None else f"{question.text}; after that, {failed}"
            asking = replace(attempt.completed(None, result.summary), status="failed", failure=text)
            return replace(asking, failure_kind=turns.NEEDS_ANSWER, question=question.document())
        if made is None:
            self._log(f"{turns.NOTHING_CHANGED}: no commit")
            return attempt.completed(None, result.summary)
        commit, change = made
        if attempt.run.head_ref is not None:
            return replace(attempt.completed(None, result.summary, change), failure=turns.NOT_PUSHED)
        if commit.fault is not None:
            rest = f"nothing was pushed; see the change with: runwarden runs diff {attempt.run.id}"
            raise AgentFailedError(f"{commit.fault}; {rest}")
        patch_bytes = attempt.diffs["diff"].stat().st_size
        if why := refusal(attempt.agent.options.change, commit.files.names, patch_bytes):
            raise AgentFailedError(why.replace("RUN_ID", attempt.run.id))
        return self._deliver(commit, change, result.summary or message.partition("\n")[0])

    def _keep_artifacts(self) -> bool:
        """Store the files that the agent left for its callers; return whether the turn has any. None can fail it."""
        attempt, key, tree = self._attempt, self._attempt.at_work.key, self._attempt.workspace.tree
        # The service's user must be able to read them, and the findings.
        for folder in (tree, tree / FOLDER):
            trees.unlock(folder)
        if not os.path.lexists(tree / ARTIFACTS):
            return False
        owner = attempt.run.organization_id
        held = self._recorder.write(lambda connection: turn_files.artifacts_held(connection, owner, key))

        def put(name: str, content: bytes) -> None:
            number, size = attempt.turn.attempt, len(content)
            self._recorder.write(
                lambda connection: turn_files.put_artifact(connection, key, number, name, size, content)
            )

        try:
            for line in artifacts.keep(tree, self._artifacts, *held, attempt.secrets, put):
                self._log(line)
        except OSError as error:
            self._log(f"{ARTIFACTS} is not read: {error.strerror}")
        return bool(held[0])

    def _store(self, kind: str, content: bytes) -> None:
        kept = (self._attempt.at_work.key, self._attempt.turn.attempt, kind, content)
        self._recorder.write(lambda connection: turn_files.put(connection, *kept))

    def _commit(self, message: str) -> tuple[TurnCommit, TurnChange] | None:
        """Commit the agent's change in the workspace, and keep its patch; None: it changed nothing.

        Raises:
            AgentFailedError: It may be neither pushed nor kept.
        """
        attempt, workspace = self._attempt, self._attempt.workspace
        if self._made is None:
            keeps = attempt.agent.options.commits == "keep"
            trees.remove(workspace.ours)
            keep = (lambda given: attempt.secrets.mask(commit_message(attempt, given))) if keeps else None
            commit = workspace.commit(attempt.git, self._snapshot, self._base, message, keep)
            self._log_remarks()
            if commit is None:
                return None
            patches = self._patches()
            size = patches.content_bytes(workspace.ours, commit.files)
            if (large := oversize(attempt.agent.options.change, size)) is not None:
                raise AgentFailedError(large)
            pieces = workspace.contents(commit.files.names)
            if not commit.is_plain:
                pieces = chain(pieces, (workspace.stored(attempt.git, commit.files.new),))
            if name := attempt.secrets.named_in(pieces):
                text = f"the change holds the value of {name}, and was not pushed; keep the agent from it"
                raise AgentFailedError(text)
            diffs = attempt.diffs.values()
            self._made = commit, patches.write(workspace.ours, commit, *diffs)
        return self._made

    def _deliver(self, commit: TurnCommit, change: TurnChange, summary: str | None) -> TurnOutcome:
        """Push a commit; if others pushed to the branch in the meantime, on top of theirs."""
        attempt, workspace, branch = self._attempt, self._attempt.workspace, self._attempt.run.branch
        for _ in range(_MOST_PUSHES):
            head = self._snapshot.branches.get(branch)
            if head is not None and head != commit.base:
                commit = moved(attempt.git, workspace.ours, commit, head, branch)
                change = self._patches().write(workspace.ours, commit, *attempt.diffs.values())
                self._made = commit, change
                self._log(f"{branch} has moved to {head}: the change is put on top of it")
            self._undelivered = commit.sha, summary
            sha = commit.sha
            self._recorder.begin_push(attempt.turn, sha)
            try:
                with self._tracer.step("push"):
                    if attempt.api is None:
                        workspace.push(attempt.git, attempt.run.url, branch, commit, head)
                    else:
                        workspace.upload(commit)
                        sha = attempt.api.make(workspace.ours, sha, self._snapshot.branches.values())
                        self._recorder.begin_push(attempt.turn, sha)
                        attempt.api.publish(branch, sha, head)
                break
            except GitCommandError as error:
                if error.is_passing:
                    # The commit that is kept for the next attempt, and not the one that was made of it.
                    self._recorder.begin_push(attempt.turn, commit.sha)
                    raise
                refused = GitCommandError(f"the push was refused: {error}")
            try:
                self._snapshot = snapshot = self._fetch()
            except GitCommandError as again:
                raise (again if again.is_passing else refused) from again
            # The push may have landed without its answer, or a killed attempt's push may have arrived since the fetch.
            if (done := own_commit(attempt, snapshot)) is not None:
                return attempt.completed(done[0], summary, self._written(snapshot.git_dir, done[0]))
            if snapshot.branches.get(branch) == head:
                raise refused
            if branch not in snapshot.branches:
                raise GitCommandError(f"the branch {branch} was deleted while the agent worked; {KEPT}")
        else:
            raise GitCommandError(f"{branch} moved at each of {_MOST_PUSHES} pushes; continue the run to try again")
        self._log(f"pushed {sha} to {branch}")
        return attempt.completed(sha, summary, change)


def _dropped(number: int, why: str) -> StartingPoint:
    return StartingPoint("branch", number, f"{why}, and its changes were dropped: the checkout is as the branch is.")
