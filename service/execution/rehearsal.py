"""A rehearsal: one turn of an agent on a given repository, without a run and without a push."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.agents import invocation
from service.agents.options import Agent
from service.egress.budget import MemoryMeter
from service.egress.usage import Usage
from service.execution import agent as agent_process
from service.execution.checkout import Checkout
from service.execution.command import AgentCommand, AgentFailedError, kept_folders
from service.execution.disk import SharedDisk
from service.execution.mirror import RepositoryMirror
from service.execution.sandbox import NoSandboxError, Sandbox
from service.execution.workspace import Result, Workspace
from service.git import GitRunner, identity_of
from service.secrets import Secrets, of_environment
from service.settings import DataFolder, ExecutionSettings
from service.store.messages import Message

_BRANCH = "rehearsal"


@dataclass(frozen=True, slots=True)
class RehearsalResult:
    """The result of a rehearsal."""

    log: str
    failure: str | None
    result: Result
    diff: str
    """The change that would have been committed."""
    reason: str | None = None
    used: Sequence[tuple[str, Usage, int | None]] = ()
    """For each request to a model: the model's name, its tokens, and its cost in millionths of a dollar, if known."""


def scratch_repository(folder: Path, settings: ExecutionSettings) -> str:
    """Make a bare repository with one file, and return its address."""
    git = GitRunner(folder.parent, settings.git_timeout_s, identity_of(settings.author_name, settings.author_email))
    git("init", "--quiet", "--bare", "--initial-branch=main", "--", str(folder))
    git = git.inside(folder)
    blob = git.feed("# A scratch repository\n", "hash-object", "-w", "--stdin").strip()
    tree = git.feed(f"100644 blob {blob}\tREADME.md\n", "mktree").strip()
    git("update-ref", "refs/heads/main", git("commit-tree", tree, "-m", "First commit"))
    return str(folder)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Rehearses agents in a folder, on the repository of an address."""

    folder: DataFolder
    settings: ExecutionSettings
    sandbox: Sandbox
    url: str

    def turn(
        self,
        agent: Agent,
        instructions: str,
        run_id: str = "run_rehearsal",
        number: int = 1,
        check: Callable[[], None] = lambda: None,
        unheard: Callable[[], Sequence[Message]] = tuple,
    ) -> RehearsalResult:
        """Let an agent do one turn; a later turn of the same run continues the session of the first.

        `check` is called several times a second, as is `unheard`, which returns messages for the agent.
        """
        workspace = Workspace(self.folder.work / f"rehearsal.{run_id}-{number}-1")
        identity = identity_of(self.settings.author_name, self.settings.author_email)
        git = GitRunner(workspace.git_home, self.settings.git_timeout_s, identity, url=self.url)
        log = io.BytesIO()
        secrets = Secrets(of_environment(agent.secret_names))
        failure, reason, meter = None, None, MemoryMeter()
        diff, result = "", Result()
        try:
            mirror = RepositoryMirror(self.folder.mirrors, git)
            snapshot = mirror.fetch(_BRANCH)
            task = {
                "run_id": run_id,
                "turn": number,
                "agent": agent.name,
                "branch": _BRANCH,
                "instructions": instructions,
                "inputs": {},
                "conversation": [],
            }
            workspace.create()
            left_behind = invocation.preset_of(agent).left_behind
            checkout = Checkout(workspace, mirror, snapshot, left_behind=left_behind)
            checkout.fill(_BRANCH)
            places = kept_folders(self.folder, "rehearsal", run_id, agent)
            share = SharedDisk(self.settings.agent, 1).join(workspace.root)
            objects = mirror.git_dir / "objects"
            command = AgentCommand(agent, workspace, objects, self.sandbox, share, task, *places, meter)
            try:
                agent_process.run(command, log, secrets, check, unheard)
            except (AgentFailedError, NoSandboxError) as error:
                failure = str(error)
                reason = getattr(error, "reason", None)
            result = workspace.result()
            commit = checkout.commit("rehearsal")
            if commit is not None:
                options = ("--root", "-p", "--no-ext-diff", "--no-textconv")
                diff = checkout.own_git("diff-tree", *options, commit.sha)
        finally:
            workspace.remove()
        return RehearsalResult(log.getvalue().decode("utf-8", "replace"), failure, result, diff, reason, meter.used)
