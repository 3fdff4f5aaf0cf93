"""An agent's command: its arguments, its environment, and its view of the machine."""

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from service import ids, trees
from service.agents import invocation, programs
from service.agents.invocation import CommandTemplate, PlaceholderError
from service.agents.options import Agent, RepositorySetup
from service.agents.outcome import Reason
from service.agents.programs import NoProgramError, Program
from service.egress.budget import MemoryMeter, UsageMeter
from service.egress.model import Pause
from service.egress.proxies import MODEL_SOCKET, PROXY_SOCKET
from service.errors import ServiceError
from service.execution.disk import DiskShare
from service.execution.sandbox import INSIDE, PACKAGE_ROOT, Inside, NoSandboxError, Sandbox
from service.execution.workspace import Workspace
from service.findings.question import FILE
from service.settings import DataFolder

_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TZ")
PYTHON: Final = "{python}"
_MAX_GUIDANCE: Final = 64 << 10
_HOW_TO_ASK: Final = (
    "Nobody answers while you work. Only if you cannot go on without a decision, write it into "
    f'{FILE} as {{"question": "…", "choices": ["…", "…"]}} and stop; otherwise decide yourself and finish.'
)
_QUIET: Final = {
    "PYTHONUNBUFFERED": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


class AgentFailedError(ServiceError):
    """The agent could not be started, failed, or passed a limit; the text says which, and `reason` its kind."""

    def __init__(self, text: str, reason: Reason = "failed") -> None:
        super().__init__(text)
        self.reason = reason


class StoppedAgentError(AgentFailedError):
    """The agent was stopped for a message, with which its run continues."""


class PausedAgentError(AgentFailedError):
    """The agent was stopped while its model's provider was down or refused the key for a while; the turn waits."""

    def __init__(self, pause: Pause, *, has_begun: bool) -> None:
        super().__init__(pause.failure.text, pause.failure.reason)
        self.pause = pause
        self.has_begun = has_begun
        """Whether its model answered before."""


@dataclass(frozen=True)
class AgentCommand:
    """An agent with everything it needs to start."""

    agent: Agent
    workspace: Workspace
    objects: Path
    """The mirror's objects, from which the history borrows."""
    sandbox: Sandbox
    share: DiskShare
    task: Mapping[str, Any] = field(default_factory=dict)
    """The task document of the agent contract."""
    session: Path | None = None
    """The home folder of the run; None: it has one for this turn alone."""
    cache: Path | None = None
    meter: UsageMeter = field(default_factory=MemoryMeter)
    """The meter that stores its use of a model."""
    setup: RepositorySetup = field(default_factory=RepositorySetup)
    """The repository's; the service's variables come before its own."""

    @cached_property
    def program(self) -> Program | None:
        """The installed program; None: the service's Python, or a file of the checkout.

        Raises:
            NoProgramError: It is missing.
        """
        name = programs.program_name(self.agent)
        return None if name is None else programs.find(name)

    @cached_property
    def invocation(self) -> CommandTemplate:
        file = self._session_file
        tree = self.workspace.tree.resolve()
        guidance = os.devnull
        session = file.read_text("utf-8") if file is not None and file.exists() else None
        # The first file of the repository with guidance for models.
        for name in invocation.preset_of(self.agent).guidance:
            # RuntimeError: a link that leads to itself.
            with contextlib.suppress(OSError, RuntimeError):
                target = (tree / name).resolve(strict=True)
                if target.is_relative_to(tree) and target.is_file() and target.stat().st_size <= _MAX_GUIDANCE:
                    guidance = f"{self.inside.tree}/{name}"
                    break
        first = self.agent.argv[0] if self.program is None else str(self.program.path)
        home, hears = self.inside.home, programs.hears(self.agent)
        return invocation.of(self.agent, first, home, guidance, session, self.setup, hears=hears)

    @property
    def cached_folders(self) -> dict[Path, str]:
        """The repository's cached folders, with the path of each in the checkout, or after `~/` in the home."""
        return {self.workspace.root / "kept" / ids.address_key(name): name for name in self.setup.cache}

    @property
    def home(self) -> Path:
        """The home folder, as the service sees it."""
        return self.session or self.workspace.home

    @property
    def inside(self) -> Inside:
        workspace = self.workspace
        outside = Inside(str(workspace.tree), str(self.home), str(self.cache), str(workspace.temporary))
        return INSIDE if self.sandbox.is_boxed else outside

    @property
    def sockets(self) -> Path | None:
        """The folder of the sockets to the proxies; None: the agent has none, or has a network."""
        if self.sandbox.is_boxed and invocation.is_relayed(self.agent):
            return self.workspace.sockets
        return None

    def prepare(self) -> None:
        """Make the files that the agent needs.

        Raises:
            AgentFailedError: Its program or key is missing, its instructions are too long for an argument, or the
                repository holds configuration that it must not obey.
            NoSandboxError: Its restrictions need a sandbox.
        """
        try:
            self._bare()
        except (NoProgramError, PlaceholderError) as error:
            raise AgentFailedError(str(error)) from error
        options = self.agent.options
        if not self.sandbox.is_boxed and (options.model is not None or options.egress is not None):
            raise NoSandboxError("egress and model need the sandbox: install bubblewrap, or remove them from the agent")
        if (missing := programs.missing_key(self.agent)) is not None:
            raise AgentFailedError(missing, "no_key")
        for name in self.invocation.preset.folders:
            # A link in the last part of the path is not followed, and all parent folders are ours.
            with contextlib.suppress(FileExistsError):
                (self.home / name).mkdir(mode=0o700)
        for name, content in self.invocation.preset.settings.items():
            file = self.home / name
            if file.parent.is_symlink() or not trees.remove(file):
                problem = "its program's settings cannot be written"
                raise AgentFailedError(f"{problem}: an earlier turn left something else at {name}")
            file.write_text(content, "utf-8")
        if not self.task:
            return
        conversation: list[dict[str, Any]] = self.task["conversation"]
        self.workspace.task_file.write_text(json.dumps(self.task), "utf-8")
        self.workspace.conversation_file.write_text(json.dumps(conversation, indent=1), "utf-8")
        text = self._instructions
        if self.agent.options.preset is not None:
            is_fresh = self._session_file is None or not self._session_file.exists()
            if is_fresh and conversation:
                # For a program that does not remember earlier turns.
                lines = ["Earlier turns of this task; what those that completed changed is in the checkout:", ""]
                for past in conversation:
                    ending = past.get("question") or past["summary"] or "no summary"
                    lines.append(f"- {past['instructions']}\n  ({past['status']}: {ending})")
                text = "\n".join([*lines, "", "Now:", "", text])
            text = f"{_HOW_TO_ASK}\n\n{text}"
        self.workspace.instructions_file.write_bytes(f"{text}\n".encode("utf-8", "replace"))

    def argv(self) -> list[str]:
        """Return the command of a prepared agent, inside its sandbox.

        Raises:
            NoSandboxError: It needs a network, and there is none that it may have.
        """
        workspace, preset = self.workspace, self.invocation.preset
        libraries = () if self.program is None else self.program.trees
        ports = {} if self.sockets is None else {invocation.PROXY_PORT: PROXY_SOCKET}
        if ports and self.agent.options.model is not None:
            ports[invocation.MODEL_PORT] = MODEL_SOCKET
        # An earlier turn may have put a link into the home, and bubblewrap would make the folder at its target.
        sealed = [name for name in preset.sealed if not _leads_away(self.home, name)]
        covers = {f"{INSIDE.home}/{name}": workspace.sealed for name in sealed}
        # The repository's configuration that must not be obeyed. No mount can cover the target of a link.
        for name in preset.hidden:
            if _leads_away(workspace.tree, name):
                raise AgentFailedError(
                    f"the repository's {name} is a link, and the agent would execute its commands: make it a file, "
                    "or set trust_repository = true for this agent"
                )
        hidden = [name for name in preset.hidden if (workspace.tree / name).exists()]
        if hidden and not self.sandbox.is_boxed:
            raise NoSandboxError(
                f"the repository holds {hidden[0]}, which the agent would execute: install bubblewrap, or set "
                "trust_repository = true for this agent"
            )
        covers |= {f"{INSIDE.tree}/{name}": workspace.nothing_like(name) for name in hidden}
        writable = {self.home: INSIDE.home}
        if self.cache is not None:
            writable[self.cache] = INSIDE.cache
        for folder, name in self.cached_folders.items() if self.sandbox.is_boxed else ():
            root, inside = (self.home, INSIDE.home) if name.startswith("~/") else (workspace.tree, INSIDE.tree)
            within = name.removeprefix("~/")
            if _leads_away(root, within) or ((root / within).exists() and not (root / within).is_dir()):
                raise AgentFailedError(f"the cached folder {name} is a file or a link here", "setup_failed")
            writable[folder] = f"{inside}/{within}"
        return self.sandbox.wrap(
            self._bare(),
            workspace,
            (*libraries, *map(Path, self.agent.options.readable), self.objects),
            writable,
            covers,
            ports,
            network=self.agent.network,
        )

    def stdin(self) -> Path | None:
        """Return the file for its standard input: some programs would wait for the end of an open pipe.

        None: a pipe, over which it gets its instructions and messages, as `spoken` writes them.
        """
        if self.invocation.preset.hears is not None:
            return None
        if invocation.reads_document(self.agent):
            return self.workspace.task_file
        if self.invocation.preset.is_prompted:
            return self.workspace.instructions_file
        return Path(os.devnull)

    def spoken(self, text: str, name: str = "") -> bytes:
        """Return a line with instructions, or with the message of that name, for a program that hears messages."""
        hears = self.invocation.preset.hears
        assert hears is not None  # noqa: S101 — the caller has a pipe
        return f"{json.dumps(hears(text, name))}\n".encode()

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the agent: the allow-list and the contract's variables."""
        allowed = (*_PASSED_ON, *self.agent.environment)
        variables = {**self.setup.variables} | {name: os.environ[name] for name in allowed if name in os.environ}
        if self.program is not None:
            variables["PATH"] = os.pathsep.join([*map(str, self.program.search), variables.get("PATH", os.defpath)])
        if self.agent.argv[:1] == (PYTHON,):
            # Safe path: the checkout is the working folder, and its modules must never be imported for ours.
            variables |= {"PYTHONPATH": str(PACKAGE_ROOT), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        if self.cache is not None:
            variables["XDG_CACHE_HOME"] = self.inside.cache
        # Left out for presets: their programs find `.git` themselves, and must be able to use other repositories.
        if not self.agent.options.preset:
            variables["GIT_DIR"] = str(self.workspace.history)
            variables["GIT_WORK_TREE"] = self.inside.tree
        return {
            **variables,
            "HOME": self.inside.home,
            "TMPDIR": self.inside.temporary,
            **_QUIET,
            **self.invocation.environment,
            # The path of the result outside the sandbox, which identifies the processes of a dead worker.
            "RUNWARDEN_RESULT": str(self.workspace.result_file),
        }

    def note_session(self, session: str | None) -> None:
        """Store the name of the session that the next turn, or attempt, resumes."""
        if self._session_file is not None and session:
            self._session_file.write_text(session, "utf-8")

    @property
    def _instructions(self) -> str:
        """The task's instructions, after the sentence about an earlier turn's unpushed changes, if there is one."""
        text = str(self.task.get("instructions", ""))
        begun = self.task.get("starting_point")
        return f"{begun['text']}\n\n{text}" if begun else text

    @property
    def _session_file(self) -> Path | None:
        # Next to the home and not in it, so that the agent cannot write it.
        return None if self.session is None else self.session.parent / "name"

    def _bare(self) -> list[str]:
        values = {
            "instructions": self._instructions,
            "instructions_file": str(self.workspace.instructions_file),
            "conversation_file": str(self.workspace.conversation_file),
            "run_id": str(self.task.get("run_id", "")),
            "branch": str(self.task.get("branch", "")),
        }
        words = [sys.executable if word == PYTHON else word for word in self.invocation.words]
        return [words[0], *invocation.fill(words[1:], values)]


def kept_folders(
    folder: DataFolder, organization_id: str, run_id: str, agent: Agent
) -> tuple[Path | None, Path | None]:
    """Return the home that a run keeps for its next turns, and the cache of the agent; None: it has none.

    Each organization has its own cache: files of one tenant's code must not be executed for another.
    """
    home = folder.sessions / run_id / "home" if agent.options.keeps_session else None
    if home is not None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Retention removes it by this time once the run has ended.
        os.utime(home.parent)
    has_cache = agent.options.cache is not None
    cache = folder.caches / organization_id / ids.address_key(agent.key) if has_cache else None
    if cache is not None:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    return home, cache


def _leads_away(folder: Path, name: str) -> bool:
    """Whether a path in a folder is a link, or has a link among its folders."""
    path = folder / name
    return any(step.is_symlink() for step in (path, *path.parents[: len(Path(name).parts) - 1]))
