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
from typing import IO, Final

from service.agents.outcome import OutcomeReader
from service.egress.outside import Outside
from service.execution import processes, supervisor
from service.execution.cgroup import TurnGroup, limits_of
from service.execution.command import AgentCommand, AgentFailedError
from service.execution.processes import IdleWatch, UsageWatch, free_bytes
from service.execution.secrets import Secrets
from service.execution.workspace import Workspace
from service.settings import AgentLimits
from service.store.agents import Agent

_CHUNK: Final = 65_536
_POLL_S: Final = 0.25
_SUPERVISOR_TIMEOUT_S: Final = 15.0
_LONGEST_REPORT: Final = 4096
_NOT_STARTED: Final = frozenset({126, 127})
"""A shell's exit codes for a command that cannot be executed, and for a missing one."""


def run(
    command: AgentCommand, log: IO[bytes], limits: AgentLimits, secrets: Secrets, check: Callable[[], None]
) -> None:
    """Run an agent to its end, with its output in the log, without the secrets.

    Raises:
        AgentFailedError: It could not start, failed, or passed a limit.
        Exception: Raised by `check`, which is called several times a second and ends the agent by raising.
    """
    command.prepare()

    def say(text: str) -> None:
        # A proxy may report something after the log is closed.
        with contextlib.suppress(ValueError):
            log.write(f"{secrets.mask(text)}\n".encode("utf-8", "replace"))
            log.flush()

    reader = command.invocation.reader or OutcomeReader()
    with (
        Outside(command.doors, command.agent.options, say, command.meter) as outside,
        _group(command, limits) as group,
    ):
        watched = _AgentWatch(outside, check, reader)
        report = _run(command, log, limits, group, secrets, watched)
        if group is not None and group.ran_out_of_memory:
            raise AgentFailedError(
                f"the agent was ended for passing its limit of memory: {limits.memory_bytes} bytes are allowed, "
                "files that it cached included (memory_bytes) in [execution.agent]"
            )
        _judge(_status(report, limits), command, reader, outside)
    command.note(reader.report)


@dataclass(frozen=True, slots=True)
class _AgentWatch:
    """The callbacks while an agent runs."""

    outside: Outside
    check: Callable[[], None]
    reader: OutcomeReader

    def may_go_on(self) -> None:
        """Raise the reason to end the agent, if there is one."""
        self.check()
        if (end := self.outside.end) is not None:
            raise AgentFailedError(end.text, end.reason)


def _judge(status: int, command: AgentCommand, reader: OutcomeReader, outside: Outside) -> None:
    """Raise the reason why a turn failed, if it did: the proxy's, or else the program's, or else the exit status."""
    is_preset = command.invocation.reader is not None
    trouble = outside.trouble if status or is_preset else None
    failure = outside.end or trouble or (reader.failure(status) if is_preset else None)
    if failure is not None:
        raise AgentFailedError(failure.text, failure.reason)
    if status in _NOT_STARTED:
        raise AgentFailedError(
            f"the agent exited with status {status}, as where a command is missing or may not be executed: "
            "its last lines are in the log; correct its argv, or make the command visible in the sandbox"
        )
    if status:
        raise AgentFailedError(f"the agent exited with status {status}; its last lines are in the log")


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
    watched: _AgentWatch,
) -> str:
    """Run an agent in its group, and return the supervisor's report."""
    free, reserve = free_bytes(command.workspace.root), limits.disk_reserve_bytes
    if free < reserve:
        raise AgentFailedError(f"the disk is nearly full: {free} bytes are left, {reserve} are kept free; make room")
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, command.stdin().open("rb") as given:
            process = _spawn(command, given, theirs, limits, group)
        output = secrets.masked_stream(_CappedLog(log, limits.output_bytes).write)
        supervised = _SupervisedAgent(process, ours, output.write, watched)
        report = ""
        try:
            report = supervised.watch(_usage(process, command, limits), command.agent)
        finally:
            _end(process, report or supervised.end(), command.workspace)
            output.end()
    return report


def _spawn(
    command: AgentCommand, given: IO[bytes], control: socket.socket, limits: AgentLimits, group: TurnGroup | None
) -> subprocess.Popen[bytes]:
    python = [sys.executable, "-I", "-S", supervisor.__file__]
    return subprocess.Popen(
        [*python, *map(str, (control.fileno(), limits.file_bytes, group.folder if group else "")), *command.argv()],
        stdin=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=command.workspace.tree,
        env=command.environment(),
        start_new_session=True,
        pass_fds=[control.fileno()],
    )


def _usage(process: subprocess.Popen[bytes], command: AgentCommand, limits: AgentLimits) -> UsageWatch:
    bytes_cached = command.agent.options.cache
    return UsageWatch(
        process.pid,
        command.workspace.root,
        limits,
        sandboxed=command.sandbox.program is not None,
        session=command.session,
        cache=None if command.cache is None or bytes_cached is None else (command.cache, bytes_cached),
    )


class _SupervisedAgent:
    """An agent under its supervisor: its output, and the supervisor's report."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        write: Callable[[bytes], None],
        watched: _AgentWatch,
    ) -> None:
        self._watched = watched
        self._answers = 0
        self._process = process
        self._control = control
        self._write = write
        self._printed = False
        """Whether the agent printed since the last check."""
        if process.stdout is not None:
            os.set_blocking(process.stdout.fileno(), False)

    def watch(self, usage: UsageWatch, agent: Agent) -> str:
        """Wait for the end and return the supervisor's report, empty when the supervisor was killed."""
        deadline = time.monotonic() + agent.timeout_s
        measure_due = 0.0
        idle = IdleWatch(agent.options.idle_s)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            if self._process.stdout is not None:
                selector.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                now = time.monotonic()
                self._watched.may_go_on()
                if now > deadline:
                    text = f"the agent passed its time limit of {agent.timeout_s:g} s and was ended"
                    raise AgentFailedError(text, "timed_out")
                if now >= measure_due:
                    measure_due = now + _POLL_S
                    self._check_limits(usage, idle, agent)
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

    def _check_limits(self, usage: UsageWatch, idle: IdleWatch, agent: Agent) -> None:
        if passed := usage.passed():
            raise AgentFailedError(f"the agent was ended for passing its limit of {passed} in [execution.agent]")
        if idle.passed(usage.cpu_s, is_active=self._was_active()):
            raise AgentFailedError(
                f"the agent neither printed nor computed for {agent.options.idle_s:g} s and was ended "
                "(idle_timeout_s): does it wait for a host that it cannot reach, or for an answer?",
                "idle",
            )

    def _was_active(self) -> bool:
        """Whether it printed or got an answer since this was last asked."""
        answers = self._watched.outside.answers
        was_active = self._printed or answers != self._answers
        self._printed, self._answers = False, answers
        return was_active

    def _forward_output(self) -> bool:
        """Pass the agent's output on; False at its end."""
        chunk = self._process.stdout.read(_CHUNK) if self._process.stdout is not None else b""
        if chunk:
            self._printed = True
            self._watched.reader.feed(chunk)
            self._write(chunk)
        return chunk != b""

    def _read_report(self) -> str:
        self._control.settimeout(_SUPERVISOR_TIMEOUT_S)
        try:
            report = self._control.recv(_LONGEST_REPORT).decode("utf-8", "replace")
        except OSError:
            report = ""
        while (output := self._process.stdout) is not None and (chunk := output.read(_CHUNK)):
            self._watched.reader.feed(chunk)
            self._write(chunk)
        return report


def _end(process: subprocess.Popen[bytes], report: str, workspace: Workspace) -> None:
    """Wait for the supervisor; kill what it did not clean up."""
    if not report or report.startswith("left "):
        processes.kill_group(process.pid)
        processes.kill_marked(f"RUNWARDEN_RESULT={workspace.result_file}")
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _status(report: str, limits: AgentLimits) -> int:
    """Return the exit status that the supervisor reports."""
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
    return status


class _CappedLog:
    """A log that drops all output beyond a limit, and says so once."""

    def __init__(self, log: IO[bytes], limit: int) -> None:
        self._log = log
        self._limit = limit
        self._left = limit

    def write(self, chunk: bytes) -> None:
        if self._left <= 0:
            return
        self._log.write(chunk[: self._left])
        self._left -= len(chunk)
        if self._left <= 0:
            self._log.write(f"\n[output beyond {self._limit} bytes was dropped]\n".encode())
        self._log.flush()
