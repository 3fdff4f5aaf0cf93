"""One attempt at a turn: fetch, check out, run the agent, commit and push, at most once."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import IO, Any, Final, Literal, TypedDict

import sqlalchemy as sa

from service import ids, trees
from service.agents import invocation, programs
from service.agents.options import Agent, RepositorySetup
from service.agents.outcome import REFUSED
from service.clock import rfc3339, rfc3339_or_none
from service.errors import ServiceError
from service.execution import agent as agent_process
from service.execution import artifacts, commits
from service.execution.checkout import Checkout
from service.execution.command import AgentCommand, AgentFailedError, StoppedAgentError, kept_folders
from service.execution.commits import TurnChange, TurnCommit
from service.execution.disk import DiskShare
from service.execution.large_files import LargeFiles
from service.execution.mirror import RepositoryMirror, RepositorySnapshot
from service.execution.record import InterruptedTurnError, SupersededError, TurnAtWork, TurnRecorder, stop_reason
from service.execution.sandbox import Sandbox
from service.execution.submodules import Submodules
from service.execution.workspace import Workspace
from service.findings import pack_findings
from service.findings.collect import ARTIFACTS, FOLDER, collect
from service.findings.question import read_question
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
from service.text import plural, storable

_MAX_PUSHES: Final = 5
"""How often a commit is put on top of a branch that moves."""
StartingPoint = TypedDict("StartingPoint", {"from": Literal["patch", "branch"], "turn": int, "text": str})
"""What happened to an earlier turn's changes that were not pushed, with a sentence for the agent and the log."""


@dataclass(eq=False)
class Attempt:
    """A claimed turn with everything that its steps need, and the steps, in the order of the methods."""

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
    recorder: TurnRecorder
    folder: DataFolder
    settings: ExecutionSettings
    sandbox: Sandbox
    tracer: Tracer
    has_begun: bool = False
    """Whether the agent has been started: before that there is no change to keep."""
    _setup: RepositorySetup = field(default_factory=RepositorySetup)
    """The repository's, once it is read."""
    _mirror: RepositoryMirror = field(init=False)
    _checkout: Checkout = field(init=False)
    _committed: tuple[TurnCommit, TurnChange] | None = None
    """The agent's change, once it is committed here and its patch is kept."""
    _undelivered: tuple[str, str | None] | None = None
    """The commit that is not known to be on its branch, and the turn's summary."""

    @property
    def trailer(self) -> str:
        """The line that marks this turn's commit, so that a second attempt recognizes it."""
        return f"{self.run.id} turn {self.turn.number}"

    def note(self, text: str) -> None:
        line = f"{rfc3339(self.recorder.clock())} {self.secrets.mask(text)}\n"
        self.log.write(line.encode("utf-8", "replace"))
        self.log.flush()

    def mask(self, text: str) -> str:
        return storable(self.secrets.mask(text))

    def keep_commit(self) -> dict[str, str | None]:
        """Store the commit that is still to be pushed; return the turn's fields about it."""
        if self._undelivered is None:
            return {}
        sha, summary = self._undelivered
        self._store(turn_files.COMMIT, self._checkout.pack(sha))
        return {"summary": summary and self.mask(summary)}

    def keep(self) -> TurnChange | None:
        """Keep the patch of a turn that pushes nothing; None: the agent never started, or it may not be kept."""
        if not self.has_begun:
            return None
        try:
            committed = self._commit(self.trailer)
        except (ServiceError, OSError) as error:
            self.note(f"what the agent changed is not kept: {error}")
            return None
        if committed is None:
            return TurnChange(self._checkout.base, None, 0, 0, 0, None)
        self.note(f"the change of {plural(committed[1].files, 'file')} is kept as a patch, not pushed")
        return committed[1]

    def work(self) -> TurnOutcome:
        """Do the turn; return that it completed, or that its agent asks a question.

        Raises:
            PausedAgentError: Its model's provider is down.
            ServiceError: It failed; the text says why.
            OSError: The machine failed, or is short of something.
            SupersededError: Another attempt took over the turn, or it was cancelled.
            InterruptedTurnError: The service stops.
        """
        run, workspace, git = self.run, self.workspace, self.git
        with self.recorder.database.read() as connection:
            configured = repositories.by_path(connection, run.organization_id, run.platform, run.path)
            self._setup = setup = (configured and configured.setup) or RepositorySetup()
            host = None
            if setup.submodules:
                host = hosts.at(connection, run.organization_id, run.platform, run.url)
            default = repositories.default_branch(connection, run.url)
            pack = turn_files.content(connection, self.at_work.key, turn_files.COMMIT)
        self._mirror = RepositoryMirror(self.folder.mirrors, git, setup.part)
        snapshot = self._fetch()
        left_behind = invocation.preset_of(self.agent).left_behind
        self._checkout = checkout = Checkout(workspace, self._mirror, snapshot, left_behind, self.note)
        if snapshot.default_branch not in {None, default}:
            # Only the fetch has shown which branch is the default one.
            self.recorder.write(repositories.note_default_branch, run.url, str(snapshot.default_branch))
        head = snapshot.branches.get(run.branch)
        done = None if run.head_ref else commits.own_commit(self._mirror.git, head, self.trailer)
        if done is not None:
            self.note(f"an earlier attempt has already pushed {done[0]}")
            return self._completed_outcome(done[0], done[1], self._read(self._mirror.git, done[0])[1])
        self._check_branch(None if configured is None else configured.protected)
        if setup.lfs:
            checkout.large_files = LargeFiles(self._mirror)
        if setup.submodules:
            may_use = (lambda _: True) if host is None else host.owns
            checkout.submodules = Submodules(may_use, self.note)
        if pack is not None and self.turn.pushing_sha is not None:
            self.note("the agent is done: only its commit is still to be pushed")
            checkout.unpack(pack)
            return self._deliver(*self._read(checkout.own_git, self.turn.pushing_sha), self.turn.summary)
        self._check_webhook_commit(head)
        workspace.create()
        with self.tracer.step("check out"):
            checkout.fill(run.branch)
        if git.signing_key is not None:
            # Check now, before the agent does useless work.
            commits.check_signing(git.signing_key)
        self.note(f"branch {run.branch} at {checkout.base or 'nothing: the repository is empty'}")
        begun = self._apply_kept()
        pushed = [past.number for past in self.conversation if past.commit_sha]
        if pushed and head is None:
            start = snapshot.default_branch or "nothing"
            text = f"The branch {run.branch} was deleted, so it was created again from {start}: what earlier turns "
            text += "pushed is there only if it was merged."
            if begun is None:
                begun = {"from": "branch", "turn": pushed[-1], "text": text}
            else:
                begun["text"] = f"{text} {begun['text']}"
        if begun is not None:
            self.note(begun["text"])
        task = self._task(begun)
        self.note(f"sandbox: {self.sandbox}")
        if head is not None and self.agent.options.on_completion.status:
            self.recorder.write(postings.at_work, run, self.turn.number, head, self.recorder.clock())
        return self._run_agent(task)

    def _fetch(self, *bases: str | None) -> RepositorySnapshot:
        """Fetch the branch, with the contents that differ from commits on which changes were made."""
        applied = {past.base_sha for past in self.conversation if past.number == self.turn.from_turn}
        with self.tracer.step("fetch"):
            snapshot = self._mirror.fetch(self.run.branch, self.run)
            self._mirror.fill(snapshot, self.run.branch, applied | {*bases, self.turn.base_sha})
        return snapshot

    def _check_branch(self, patterns: tuple[str, ...] | None) -> None:
        """Refuse a branch that git cannot make, or that these patterns protect; None: the default one is."""
        run, snapshot = self.run, self._checkout.snapshot
        if snapshot.beside is not None:
            text = f"the branch {run.branch} cannot be made next to the branch {snapshot.beside}"
            raise GitCommandError(f"{text}: git keeps them as a file and a folder of one name; choose another name")
        # A host makes the first branch of an empty repository its default one.
        is_first = any(past.commit_sha and past.base_sha is None for past in self.conversation)
        if run.head_ref or (is_first and patterns is None):
            return
        if repositories.is_protected(run.branch, snapshot.default_branch, patterns):
            text = f"the branch {run.branch} is protected; start a run on another branch, or without one"
            raise GitCommandError(text)

    def _check_webhook_commit(self, head: str | None) -> None:
        """Refuse a webhook's turn if its branch is at another commit by now, unless the service itself pushed it."""
        about = self.turn.inputs.get("pull_request") if self.turn.caller == turns.WEBHOOK else None
        commit = about.get("commit") if isinstance(about, dict) else None
        if commit in {None, head}:
            return
        with self.recorder.database.read() as connection:
            is_own = head is not None and turns.is_own_commit(connection, head)
        if not is_own:
            state = "gone" if head is None else f"at {head}"
            raise GitCommandError(f"the branch {self.run.branch} is {state}; the run was started for {commit}")

    def _apply_kept(self) -> StartingPoint | None:
        """Apply the patch that is kept of an earlier turn, or of an earlier attempt."""
        number = self.turn.from_turn
        if number is None:
            before = turns.last_begun(self.conversation)
            if before is None or not before.is_unfinished:
                return None
            return _without_change(before.number, f"Turn {before.number} was not finished")
        with self.recorder.database.read() as connection:
            patch = turn_files.diff(connection, self.folder, (self.run.id, number), "diff")
        if patch is None:
            return _without_change(number, f"The changes of turn {number} are no longer kept")
        text = patch.decode("utf-8", "surrogateescape")
        conflicts = self._checkout.apply(text)
        if conflicts is None:
            is_masked = any(line.startswith("-") and MASK in line for line in text.splitlines())
            reason = "does not fit the branch any longer"
            if is_masked:
                reason = "takes out a secret, which its patch masks"
            return _without_change(number, f"What turn {number} changed {reason}")
        whose = "An earlier attempt at this turn" if number == self.turn.number else f"Turn {number}"
        text = f"{whose} was not finished: what it changed is in the checkout, and not committed yet."
        if conflicts:
            files = ", ".join(conflicts)
            text += f" The branch has changed in the same places: resolve the conflicts marked in {files}."
        return {"from": "patch", "turn": number, "text": text}

    def _task(self, begun: StartingPoint | None) -> dict[str, object]:
        """Return the document for the agent's standard input, as docs/run/agent-contract.md describes it."""
        sent = self._deliver_messages()
        task: dict[str, object] = {
            "run_id": self.run.id,
            "turn": self.turn.number,
            "agent": self.agent.name,
            "repository": self.run.body["repository"],
            "branch": self.run.branch,
            "default_branch": self._checkout.snapshot.default_branch,
            "instructions": with_messages(self.turn.instructions, sent[self.turn.number]),
            "inputs": self.turn.inputs,
            "conversation": [
                {
                    "turn": past.number,
                    "instructions": with_messages(past.instructions, sent[past.number]),
                    "status": past.status,
                    "commit": past.commit_sha,
                    "summary": past.summary,
                    "finished_at": rfc3339_or_none(past.finished_at),
                    **(past.question or {}),
                }
                for past in self.conversation
            ],
        }
        if begun is not None:
            task["starting_point"] = begun
        return task

    def _deliver_messages(self) -> Mapping[int, Sequence[Message]]:
        """Deliver the messages for the agent at work, with which it begins; return all of the run by turn."""
        run_id, number = self.at_work.key

        def deliver(connection: sa.Connection) -> Mapping[int, Sequence[Message]]:
            sent = messages.by_turn(connection, run_id)[number]
            messages.mark(connection, [message for message in sent if message.timing == "now"], "delivered")
            return messages.by_turn(connection, run_id)

        with self.recorder.database.read() as connection:
            by_turn: Mapping[int, Sequence[Message]] = messages.by_turn(connection, run_id)
        if by_turn[number]:
            by_turn = self.recorder.write(deliver)
        self.at_work.heard += [message.id for message in by_turn[number] if message.state == "delivered"]
        return by_turn

    def _run_agent(self, task: Mapping[str, Any]) -> TurnOutcome:
        """Set the repository up, run the agent, and publish its change."""
        run = self.run
        agent = self.agent
        folder = self.folder
        at_work = self.at_work
        if agent.options.keeps_session and self.conversation and not (folder.sessions / run.id).exists():
            self.note("this worker does not have the session of earlier turns: the agent's program gets them as text")
        if self.turn.agent is not None:
            # The session of the run's own agent does not include this turn.
            trees.remove(folder.sessions / run.id)
        if self._setup.mcp_servers and invocation.preset_of(agent).servers is None:
            self.note(f"the repository's MCP servers are left out: {programs.TAKES_NONE}")
        meter = TurnMeter(self.recorder.database, self.turn, agent, self.recorder.clock)
        command = AgentCommand(
            agent,
            self.workspace,
            self._mirror.git_dir / "objects",
            self.sandbox,
            self.share,
            task,
            *kept_folders(folder, run.organization_id, run.id, agent),
            meter,
            self._setup,
        )
        # A fork's head neither uses nor fills the cached folders.
        cache = None
        if not run.head_ref:
            cache = folder.caches / run.organization_id / ids.address_key(f"setup {run.url}")
        with self.tracer.step("set up"):
            since_ns = agent_process.set_up(command, cache, self.log, self.secrets, self._check)
            if since_ns is not None:
                self._checkout.note_prepared(since_ns)
        self.has_begun = True
        command.invocation.reader.report.heard = at_work.heard
        failed = None
        try:
            with self.tracer.agent(agent, run, meter, at_work.log_file):
                agent_process.run(command, self.log, self.secrets, self._check, at_work.unheard)
        except AgentFailedError as error:
            failed = error
        finally:
            has_artifacts = self._keep_artifacts()
        self.recorder.retry(lambda: self.recorder.note_heard(at_work))
        outcome = self._publish(failed, command.inside.tree, has_artifacts=has_artifacts)
        if failed is None:
            agent_process.give_back(command, cache)
        return outcome

    def _check(self) -> None:
        """Raise the reason to stop the agent, if there is one."""
        if self.recorder.stopping.is_set():
            raise InterruptedTurnError
        if self.at_work.stopped.is_set():
            self.note("interrupted: the turn was cancelled")
            raise SupersededError(f"{self.trailer} was cancelled while it was at work")
        if (reason := stop_reason(self.at_work.waiting)) is not None:
            raise StoppedAgentError(reason)

    def _keep_artifacts(self) -> bool:
        """Store the files that the agent left for its callers; return whether the turn has any. None can fail it."""
        key = self.at_work.key
        tree = self.workspace.tree
        number = self.turn.attempt
        # The service's user must be able to read them, and the findings.
        for folder in (tree, tree / FOLDER):
            trees.unlock(folder)
        if not os.path.lexists(tree / ARTIFACTS):
            return False
        sizes, others = self.recorder.write(turn_files.artifacts_held, self.run.organization_id, key)

        def put_artifact(name: str, content: bytes) -> None:
            self.recorder.write(turn_files.put_artifact, key, number, name, len(content), content)

        try:
            for line in artifacts.keep(tree, self.settings.artifacts, sizes, others, self.secrets, put_artifact):
                self.note(line)
        except OSError as error:
            self.note(f"{ARTIFACTS} is not read: {error.strerror}")
        return bool(sizes)

    def _publish(self, failed: AgentFailedError | None, inside: str, *, has_artifacts: bool) -> TurnOutcome:
        """Push the agent's change, or report its question, which an agent may also leave when it fails.

        `inside`: the path at which the agent saw its checkout.
        """
        workspace = self.workspace
        options = self.agent.options
        mask = self.secrets.mask
        result = workspace.result()
        remarks: list[str] = []
        question = read_question(workspace.tree, mask, remarks)
        if failed is not None and question is None:
            raise failed
        unread: list[str] = []
        findings = collect(workspace.tree, inside, mask, unread)
        for remark in (*unread, *remarks):
            self.note(remark)
        if unread:
            self._store(turn_files.UNREAD, "; ".join(unread).encode())
        if findings is not None:
            self._store(turn_files.FINDINGS, pack_findings(self._checkout.base, findings))
        message = self._message(result.commit_message)
        try:
            with self.tracer.step("commit"):
                committed = self._commit(message)
        except AgentFailedError:
            if question is None:
                raise
            committed = None
        has_result = has_artifacts or any(part is not None for part in (committed, findings, question, result.summary))
        if not has_result and options.preset is not None:
            raise AgentFailedError(f"the agent changed nothing and said nothing: {REFUSED.text}", REFUSED.reason)
        if question is not None:
            text = question.text if failed is None else f"{question.text}; after that, {failed}"
            asking = replace(self._completed_outcome(None, result.summary), status="failed", failure=text)
            return replace(asking, failure_kind=turns.NEEDS_ANSWER, question=asdict(question))
        if committed is None:
            self.note(f"{turns.NOTHING_CHANGED}: no commit")
            return self._completed_outcome(None, result.summary)
        commit, change = committed
        if self.run.head_ref is not None:
            return replace(self._completed_outcome(None, result.summary, change), failure=turns.NOT_PUSHED)
        if commit.fault is not None:
            hint = f"nothing was pushed; see the change with: runwarden runs diff {self.run.id}"
            raise AgentFailedError(f"{commit.fault}; {hint}")
        patch_bytes = self.at_work.diffs["diff"].stat().st_size
        if reason := commits.refusal(options.change, commit.files.names, patch_bytes):
            raise AgentFailedError(reason.replace("RUN_ID", self.run.id))
        return self._deliver(commit, change, result.summary or message.partition("\n")[0])

    def _commit(self, message: str) -> tuple[TurnCommit, TurnChange] | None:
        """Commit the agent's change in the workspace, and keep its patch; None: it changed nothing.

        Raises:
            AgentFailedError: It may be neither pushed nor kept.
        """
        if self._committed is None:
            checkout, options = self._checkout, self.agent.options
            commit = checkout.commit(message, self._message if options.commits == "keep" else None)
            if commit is None:
                return None
            size = commits.content_bytes(checkout.own_git, commit.files)
            if (large := commits.oversize(options.change, size)) is not None:
                raise AgentFailedError(large)
            pieces: Iterator[bytes] = trees.contents(self.workspace.tree, commit.files.names)
            if not commit.is_plain:
                blobs = "".join(f"{blob}\n" for blob in commit.files.new if blob.strip("0"))
                stored = checkout.own_git.feed(blobs, "cat-file", "--batch")
                pieces = chain(pieces, (stored.encode("utf-8", "surrogateescape"),))
            if name := self.secrets.named_in(pieces):
                text = f"the change holds the value of {name}, and was not pushed; keep the agent from it"
                raise AgentFailedError(text)
            self._committed = commit, self._write_patches(checkout.own_git, commit)
        return self._committed

    def _store(self, kind: str, content: bytes) -> None:
        self.recorder.write(turn_files.save, self.at_work.key, self.turn.attempt, kind, content)

    def _message(self, agent_message: str | None) -> str:
        message = commits.commit_message(agent_message, self.agent.name, self.turn.own_instructions, self.trailer)
        return self.secrets.mask(message)

    def _read(self, git: GitRunner, sha: str) -> tuple[TurnCommit, TurnChange]:
        """Read a commit of this turn, and write its patches."""
        self._mirror.fill(self._checkout.snapshot, self.run.branch, (sha, f"{sha}^"))
        commit = commits.commit_of(git, sha, self.trailer)
        return commit, self._write_patches(git, commit)

    def _write_patches(self, git: GitRunner, commit: TurnCommit) -> TurnChange:
        default = self._checkout.snapshot.default
        return commits.write_patches(git, commit, default, self.secrets.mask, self.at_work.diffs)

    def _deliver(self, commit: TurnCommit, change: TurnChange, summary: str | None) -> TurnOutcome:
        """Push a commit; if others pushed to the branch in the meantime, on top of theirs."""
        checkout, branch = self._checkout, self.run.branch
        for _ in range(_MAX_PUSHES):
            head = checkout.snapshot.branches.get(branch)
            if head is not None and head != commit.base:
                commit = commits.move_commit(checkout.own_git, commit, head, branch)
                change = self._write_patches(checkout.own_git, commit)
                self._committed = commit, change
                self.note(f"{branch} has moved to {head}: the change is put on top of it")
            self._undelivered = commit.sha, summary
            sha = commit.sha
            # Recorded before it leaves the machine.
            self.recorder.write_for(turns.begin_push, self.turn, sha)
            try:
                with self.tracer.step("push"):
                    if checkout.large_files is not None:
                        checkout.large_files.upload(checkout.own_git, commit.files.blobs)
                    if self.api is None:
                        checkout.push(branch, sha, head)
                    else:
                        sha = self.api.make(checkout.own_git, sha, checkout.snapshot.branches.values())
                        self.recorder.write_for(turns.begin_push, self.turn, sha)
                        self.api.publish(branch, sha, head)
                break
            except GitCommandError as error:
                if error.is_passing:
                    # The commit that is kept for the next attempt, and not the one that was made of it.
                    self.recorder.write_for(turns.begin_push, self.turn, commit.sha)
                    raise
                refused = GitCommandError(f"the push was refused: {error}")
            try:
                checkout.snapshot = self._fetch(checkout.base)
            except GitCommandError as again:
                raise (again if again.is_passing else refused) from again
            # The push may have landed without its answer, or a killed attempt's push may have arrived since the fetch.
            now_at = checkout.snapshot.branches.get(branch)
            if (done := commits.own_commit(self._mirror.git, now_at, self.trailer)) is not None:
                return self._completed_outcome(done[0], summary, self._read(self._mirror.git, done[0])[1])
            if now_at == head:
                raise refused
            if now_at is None:
                raise GitCommandError(
                    f"the branch {branch} was deleted while the agent worked; {commits.KEPT_AS_PATCH}"
                )
        else:
            raise GitCommandError(f"{branch} moved at each of {_MAX_PUSHES} pushes; continue the run to try again")
        self.note(f"pushed {sha} to {branch}")
        return self._completed_outcome(sha, summary, change)

    def _completed_outcome(
        self, commit: str | None, summary: str | None, change: TurnChange | None = None
    ) -> TurnOutcome:
        """Return the outcome of an attempt whose agent finished."""
        changed: dict[str, Any] = {} if change is None else asdict(change)
        return TurnOutcome("completed", commit_sha=commit, summary=summary, attempt=self.turn.attempt, **changed)


def _without_change(number: int, reason: str) -> StartingPoint:
    text = f"{reason}, and its changes were dropped: the checkout is as the branch is."
    return {"from": "branch", "turn": number, "text": text}
