"""The agent's process: its task on standard input, limits enforced, no process left at the end."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from service.execution import processes, supervisor
from service.execution.cgroup import TurnGroup, limits_of
from service.execution.processes import UsageWatch, free_bytes
from service.execution.sandbox import PACKAGE_ROOT, Sandbox
from service.execution.secrets import Secrets
from service.execution.workspace import Workspace
from service.settings import AgentLimits
from service.store.agents import Agent

_CHUNK: Final = 65_536
_POLL_S: Final = 0.25
_SUPERVISOR_TIMEOUT_S: Final = 15.0
_LONGEST_REPORT: Final = 4096
_NOT_STARTED: Final = frozenset({126, 127})
"""What a shell answers when a command cannot be executed, and when there is none."""
_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TZ")


class AgentFailedError(Exception):
    """The agent could not be started, failed, or passed a limit; the text says which."""


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """An agent with everything it needs to start."""

    agent: Agent
    workspace: Workspace
    objects: Path
    sandbox: Sandbox

    def argv(self) -> list[str]:
        """Return the command, inside its sandbox."""
        argv = [sys.executable if part == "{python}" else part for part in self.agent.argv]
        return self.sandbox.wrap(argv, self.workspace, self.objects, network=self.agent.network)

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the agent: the allow-list and what the contract adds."""
        allowed = (*_PASSED_ON, *self.agent.environment)
        given = {name: os.environ[name] for name in allowed if name in os.environ}
        home = str(self.workspace.home)
        if self.agent.argv[0] == "{python}":
            # Safe path: the checkout is the working folder, and its modules must never be imported for ours.
            given |= {"PYTHONPATH": str(PACKAGE_ROOT), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return given | {
            "HOME": home,
            "TMPDIR": home,
            "PYTHONUNBUFFERED": "1",
            "GIT_DIR": str(self.workspace.history),
            "GIT_WORK_TREE": str(self.workspace.tree),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "RUNWARDEN_RESULT": str(self.workspace.result_file),
        }


def run(
    command: AgentCommand, log: IO[bytes], limits: AgentLimits, secrets: Secrets, check: Callable[[], None]
) -> None:
    """Run an agent to its end, its output into the log, without the secrets.

    Raises:
        AgentFailedError: It could not start, exited with another status than 0, or passed a limit.
        Exception: What `check` raised, which is asked several times a second whether the agent may run on.
    """
    with _group(command, limits) as group:
        report = _run(command, log, limits, group, secrets, check)
        if group is not None and group.ran_out_of_memory:
            raise AgentFailedError(
                f"the agent was ended for passing its limit of memory: {limits.memory_bytes} bytes are allowed, "
                "files that it cached included (memory_bytes) in [execution.agent]"
            )
    _check_report(report, limits)


def _group(
    command: AgentCommand, limits: AgentLimits
) -> contextlib.AbstractContextManager[TurnGroup] | contextlib.nullcontext[None]:
    groups = command.sandbox.groups
    return contextlib.nullcontext() if groups is None else groups.group(command.workspace.root.name, limits_of(limits))


def _run(
    command: AgentCommand,
    log: IO[bytes],
    limits: AgentLimits,
    group: TurnGroup | None,
    secrets: Secrets,
    check: Callable[[], None],
) -> str:
    """Run an agent in its group, and return the supervisor's report."""
    free, reserve = free_bytes(command.workspace.root), limits.disk_reserve_bytes
    if free < reserve:
        raise AgentFailedError(f"the disk is nearly full: {free} bytes are left, {reserve} are kept free; make room")
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, command.workspace.task_file.open("rb") as task:
            process = _spawn(command, task, theirs, limits, group)
        write, end_output = secrets.masking(_capped(log, limits.output_bytes))
        supervised = _SupervisedAgent(process, ours, write)
        report = ""
        try:
            report = supervised.watch(_usage(process, command, limits), command.agent, check)
        finally:
            _end(process, report or supervised.end(), command.workspace)
            end_output()
    return report


def _spawn(
    command: AgentCommand, task: IO[bytes], control: socket.socket, limits: AgentLimits, group: TurnGroup | None
) -> subprocess.Popen[bytes]:
    python = [sys.executable, "-I", "-S", supervisor.__file__]
    return subprocess.Popen(
        [*python, *map(str, (control.fileno(), limits.file_bytes, group.folder if group else "")), *command.argv()],
        stdin=task,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=command.workspace.tree,
        env=command.environment(),
        start_new_session=True,
        pass_fds=[control.fileno()],
    )


def _usage(process: subprocess.Popen[bytes], command: AgentCommand, limits: AgentLimits) -> UsageWatch:
    return UsageWatch(process.pid, command.workspace.root, limits, sandboxed=command.sandbox.program is not None)


class _SupervisedAgent:
    """An agent under its supervisor: its output, and the supervisor's report."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, write: Callable[[bytes], None]
    ) -> None:
        self._process = process
        self._control = control
        self._write = write
        if process.stdout is not None:
            os.set_blocking(process.stdout.fileno(), False)

    def watch(self, usage: UsageWatch, agent: Agent, check: Callable[[], None]) -> str:
        """Wait for the end and return the supervisor's report, empty when the supervisor was killed."""
        deadline = time.monotonic() + agent.timeout_s
        measure_due = 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            if self._process.stdout is not None:
                selector.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                now = time.monotonic()
                check()
                if now > deadline:
                    raise AgentFailedError(f"the agent passed its time limit of {agent.timeout_s:g} s and was ended")
                if now >= measure_due:
                    measure_due = now + _POLL_S
                    if passed := usage.passed():
                        raise AgentFailedError(
                            f"the agent was ended for passing its limit of {passed} in [execution.agent]"
                        )
                ready = {key.fileobj for key, _ in selector.select(min(_POLL_S, max(0.0, deadline - now)))}
                if self._control in ready:
                    return self._read_report()
                if ready and not self._forward_output():
                    selector.unregister(self._process.stdout)  # type: ignore[arg-type]  # registered, so it is there

    def end(self) -> str:
        """Tell the supervisor to end everything, and return its report."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        return self._read_report()

    def _forward_output(self) -> bool:
        """Pass on what the agent printed; False at the end of its output."""
        chunk = self._process.stdout.read(_CHUNK) if self._process.stdout is not None else b""
        if chunk:
            self._write(chunk)
        return chunk != b""

    def _read_report(self) -> str:
        self._control.settimeout(_SUPERVISOR_TIMEOUT_S)
        try:
            report = self._control.recv(_LONGEST_REPORT).decode("utf-8", "replace")
        except OSError:
            report = ""
        while (output := self._process.stdout) is not None and (chunk := output.read(_CHUNK)):
            self._write(chunk)
        return report


def _end(process: subprocess.Popen[bytes], report: str, workspace: Workspace) -> None:
    """Wait for the supervisor; where it did not clean up, kill what is left."""
    if not report or report.startswith("left "):
        processes.kill_group(process.pid)
        processes.kill_marked(f"RUNWARDEN_RESULT={workspace.result_file}")
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _check_report(report: str, limits: AgentLimits) -> None:
    """Read how the agent ended; anything but exit status 0 is a failure."""
    word, _, rest = report.removeprefix("left ").partition(" ")
    if word == "fault":
        raise AgentFailedError(f"the agent's command cannot be started: {rest}; correct its argv")
    if word != "exit":
        raise AgentFailedError(
            "the agent's supervisor was killed, and the agent with it; continue the run to try again"
        )
    status = int(rest)
    if status in {-signal.SIGXFSZ, 128 + signal.SIGXFSZ}:
        raise AgentFailedError(f"the agent wrote a file of more than {limits.file_bytes} bytes (file_bytes)")
    if status in _NOT_STARTED:
        raise AgentFailedError(
            f"the agent exited with status {status}, as where a command is missing or may not be executed: "
            "its last lines are in the log; correct its argv, or make the command visible in the sandbox"
        )
    if status:
        raise AgentFailedError(f"the agent exited with status {status}; its last lines are in the log")


def _capped(log: IO[bytes], limit: int) -> Callable[[bytes], None]:
    left = limit

    def write(chunk: bytes) -> None:
        nonlocal left
        if left <= 0:
            return
        log.write(chunk[:left])
        left -= len(chunk)
        if left <= 0:
            log.write(f"\n[output beyond {limit} bytes was dropped]\n".encode())
        log.flush()

    return write
