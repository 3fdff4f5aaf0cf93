"""A repository's set-up: its steps in the sandbox before the agent, and folders that stay from turn to turn.

A cached folder is moved into the workspace, so that the turn's limits count it, and back once the turn succeeded. No
two turns have it at a time, and a failed turn leaves none.
"""

import contextlib
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

from service import trees
from service.agents.options import AgentOptions
from service.execution import agent as agent_process
from service.execution.command import AgentCommand, AgentFailedError, StoppedAgentError
from service.secrets import Secrets


def set_up(
    command: AgentCommand, cache: Path | None, log: IO[bytes], secrets: Secrets, check: Callable[[], None]
) -> int | None:
    """Move the cached folders into the workspace, and run the steps with the agent's egress, variables and home.

    `command` is the agent's. `cache` is where the repository's cached folders are between turns, each organization's
    apart; None: the turn gets none. Return when the steps began, in nanoseconds as files have it; None: there are none.

    Raises:
        AgentFailedError: A step failed, or they took too long.
    """
    for folder in command.cached_folders:
        folder.mkdir(mode=0o700, parents=True)
        # No folder yet, another turn has it, or it is on another disk.
        with contextlib.suppress(OSError):
            if cache is not None:
                (cache / folder.name).rename(folder)
    setup, workspace, options = command.setup, command.workspace, command.agent.options
    if not setup.run:
        return None
    script = workspace.root / "setup.sh"
    steps = [f"echo {shlex.quote(f'set-up: {step}')}\n{step}" for step in setup.run]
    script.write_text("\n".join(["set -e", *steps, ""]), "utf-8")
    options = AgentOptions(egress=options.egress, readable=options.readable, cache=options.cache)
    agent = replace(command.agent, argv=("/bin/sh", str(script)), timeout_s=setup.timeout_s, options=options)
    try:
        agent_process.run(replace(command, agent=agent), log, secrets, check)
    except StoppedAgentError:
        raise
    except AgentFailedError as error:
        why = str(error).replace("the agent", "it", 1)
        raise AgentFailedError(f"the repository's set-up failed: {why}", "setup_failed") from error
    finally:
        # The agent gets new ones.
        trees.remove(workspace.sockets)
    return script.stat().st_ctime_ns


def give_back(command: AgentCommand, cache: Path | None) -> None:
    """Keep the cached folders for the next turn, and replace those that another turn left in the meantime."""
    if cache is None or not command.cached_folders:
        return
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in command.cached_folders:
        with contextlib.suppress(OSError):
            if trees.remove(cache / folder.name):
                folder.rename(cache / folder.name)
