"""A repository's set-up: its steps in the sandbox before the agent, and folders that stay from turn to turn."""

import contextlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from service import ids, trees
from service.agents.options import AgentOptions, RepositorySetup
from service.execution import agent as agent_process
from service.execution.command import AgentCommand, AgentFailedError, StoppedAgentError
from service.execution.workspace import Workspace
from service.secrets import Secrets
from service.settings import AgentLimits


@dataclass(frozen=True, slots=True)
class Preparation:
    """The set-up of one turn.

    A cached folder is moved into the workspace, so that the turn's limits count it, and back once the turn succeeded.
    No two turns have it at a time, and a failed turn leaves none.
    """

    setup: RepositorySetup
    workspace: Workspace
    folder: Path
    """Where the repository's cached folders are between turns; no two organizations share one."""
    is_restricted: bool
    """Whether the turn is for a fork's head: it gets no cached folder and leaves none."""

    @property
    def kept(self) -> dict[Path, str]:
        """Folders of the workspace, with the path of each in the checkout, or after `~/` in the agent's home."""
        return {self.workspace.root / "kept" / ids.address_key(name): name for name in self.setup.cache}

    def run(
        self, command: AgentCommand, log: IO[bytes], limits: AgentLimits, secrets: Secrets, check: Callable[[], None]
    ) -> int | None:
        """Run the steps with the agent's egress, variables and home; `command` is the agent's.

        Return when they began, in nanoseconds as files have it; None: there are none.

        Raises:
            AgentFailedError: A step failed, or they took too long.
        """
        for folder in self.kept:
            folder.mkdir(mode=0o700, parents=True)
            # There is none at first, while another turn has it, or on another disk.
            with contextlib.suppress(OSError):
                if not self.is_restricted:
                    (self.folder / folder.name).rename(folder)
        if not self.setup.run:
            return None
        script = self.workspace.root / "setup.sh"
        steps = [f"echo {shlex.quote(f'set-up: {step}')}\n{step}" for step in self.setup.run]
        script.write_text("\n".join(["set -e", *steps, ""]), "utf-8")
        given = command.agent.options
        options = AgentOptions(egress=given.egress, readable=given.readable, cache=given.cache)
        argv = ("/bin/sh", str(script))
        agent = replace(command.agent, argv=argv, timeout_s=self.setup.timeout_s, options=options)
        try:
            agent_process.run(replace(command, agent=agent), log, limits, secrets, check)
        except StoppedAgentError:
            raise
        except AgentFailedError as error:
            why = str(error).replace("the agent", "it", 1)
            raise AgentFailedError(f"the repository's set-up failed: {why}", "setup_failed") from error
        finally:
            # The agent gets new ones.
            trees.remove(self.workspace.sockets)
        return script.stat().st_ctime_ns

    def give_back(self) -> None:
        """Keep the cached folders for the next turn, and replace those that another turn left in the meantime."""
        if self.is_restricted or not self.kept:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in self.kept:
            target = self.folder / folder.name
            with contextlib.suppress(OSError):
                if trees.remove(target):
                    folder.rename(target)
