"""Runs an agent, after its repository's set-up: its task, its limits, and the end of the processes that it leaves."""

import contextlib
import errno
import os
import selectors
import shlex
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

from service import trees
from service.agents.options import AgentOptions
from service.clock import now_micros, rfc3339
from service.egress.model import ModelState
from service.egress.proxies import open_proxies
from service.execution import cgroup, processes
from service.execution.command import AgentCommand, AgentFailedError, PausedAgentError, StoppedAgentError
from service.execution.disk import shortage
from service.execution.processes import UsageWatch
from service.secrets import MaskedStream, Secrets
from service.store.messages import Message

_CHUNK: Final = 65_536
_POLL_S: Final = 0.25
_SUPERVISOR_TIMEOUT_S: Final = 15.0
_MAX_REPORT: Final = 4096
DONE_GRACE_S: Final = 5.0
"""How long a program may keep running after it has reported that it is done."""
GRACE_S: Final = 2.0
"""How long a program may take to exit after its input was closed, before it is killed."""
_MAX_WORDS: Final = 500
_MESSAGE: Final = "This message came while you worked:\n\n{}\n\nTake it into account, and continue the task."
_EXITED: Final = "exit 0"
"""The supervisor's report on a program that exits as it should."""
_WAITED_FOR: Final = frozenset({"model_unreachable", "rate_limited", "timed_out"})
_NOT_STARTED: Final = frozenset({126, 127})
"""A shell's exit codes for a command that cannot be executed, and for a missing one."""


def run(
    command: AgentCommand,
    log: IO[bytes],
    secrets: Secrets,
    check: Callable[[], None],
    unheard: Callable[[], Sequence[Message]] = tuple,
) -> None:
    """Run an agent until it exits; log its output without secrets. `unheard` returns messages that it has not taken.

    Raises:
        AgentFailedError: It could not start, failed, or passed a limit.
        PausedAgentError: Its model's provider is down.
        OSError: This machine lacks the room for it.
        Exception: Raised by `check`, which is called several times a second and stops the agent by raising.
    """
    command.prepare()
    _check_disk(command)
    limits = command.share.disk.limits
    agent_log = _AgentLog(log, limits.output_bytes, secrets)
    reader, groups = command.invocation.reader, command.sandbox.groups
    with (
        open_proxies(command.sockets, command.agent.options, limits, agent_log.add_line, command.meter) as model,
        contextlib.nullcontext()
        if groups is None
        else cgroup.group(groups, command.workspace.root.name, cgroup.limits_of(limits)) as group,
        _pausing(command, model),
    ):
        supervised = _SupervisedAgent(command, model, agent_log, "" if group is None else str(group))
        with contextlib.closing(supervised) as agent:
            report = agent.watch(check, unheard)
        if group is not None and cgroup.ran_out_of_memory(group):
            raise AgentFailedError(
                f"the agent was stopped because it used more than {limits.memory_bytes} bytes of memory, the cache of "
                "its files included; raise memory_bytes in [execution.agent]"
            )
        word, _, rest = report.removeprefix("left ").partition(" ")
        if word == "fault":
            raise AgentFailedError(f"the agent's command cannot be started: {rest}; correct its argv")
        if word != "exit":
            text = "the agent's supervisor was killed, and the agent with it; continue the run to try again"
            raise AgentFailedError(text)
        status = int(rest)
        if status in {-signal.SIGXFSZ, 128 + signal.SIGXFSZ}:
            raise AgentFailedError(f"the agent wrote a file of more than {limits.file_bytes} bytes (file_bytes)")
        # The proxy's reason comes first, then the program's own, then the exit status.
        is_preset = command.agent.options.preset is not None
        trouble = model.trouble if status or is_preset else None
        seen = None if command.invocation.preset.reports_endings else model.ending
        reported = reader.failure(status, seen, model.answered_by) if is_preset else None
        failure = model.end or model.overspent or trouble or reported
        if failure is not None:
            raise AgentFailedError(failure.text, failure.reason)
        if status:
            # The agent may have failed because others filled the disk.
            _check_disk(command)
            if status in _NOT_STARTED:
                reason = (
                    ": its command is missing or not executable; its last lines are in the log. "
                    "Correct its argv, or make the command visible in the sandbox"
                )
            else:
                reason = "; its last lines are in the log"
            raise AgentFailedError(f"the agent exited with status {status}{reason}")
    command.note_session(reader.report.session)
    if reader.report.summary:
        command.workspace.report(reader.report.summary)


def set_up(
    command: AgentCommand, cache: Path | None, log: IO[bytes], secrets: Secrets, check: Callable[[], None]
) -> int | None:
    """Set a repository up before its agent runs: move its cached folders into the workspace, and run its steps.

    `command` is the agent's, with whose egress, variables and home the steps run. `cache` is where the repository's
    cached folders are between turns, each organization's apart; None: the turn gets none. In the workspace, the turn's
    limits count them; no two turns have one at a time, and a failed turn leaves none.
    Return when the steps began, in nanoseconds as files have it; None: there are none.

    Raises:
        AgentFailedError: A step failed, or they took too long.
    """
    for folder in command.cached_folders:
        folder.mkdir(mode=0o700, parents=True)
        # No folder yet, another turn has it, or it is on another disk.
        with contextlib.suppress(OSError):
            if cache is not None:
                (cache / folder.name).rename(folder)
    setup = command.setup
    workspace = command.workspace
    options = command.agent.options
    if not setup.run:
        return None
    script = workspace.root / "setup.sh"
    steps = [f"echo {shlex.quote(f'set-up: {step}')}\n{step}" for step in setup.run]
    script.write_text("\n".join(["set -e", *steps, ""]), "utf-8")
    options = AgentOptions(egress=options.egress, readable=options.readable, cache=options.cache)
    agent = replace(command.agent, argv=("/bin/sh", str(script)), timeout_s=setup.timeout_s, options=options)
    try:
        run(replace(command, agent=agent), log, secrets, check)
    except StoppedAgentError:
        raise
    except AgentFailedError as error:
        reason = str(error).replace("the agent", "it", 1)
        raise AgentFailedError(f"the repository's set-up failed: {reason}", "setup_failed") from error
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


def _check_disk(command: AgentCommand) -> None:
    if (short := shortage(command.workspace.root, command.share.disk.limits)) is not None:
        raise OSError(errno.ENOSPC, f"the disk is nearly full: {short.text}")


@contextlib.contextmanager
def _pausing(command: AgentCommand, model: ModelState) -> Iterator[None]:
    """Pause the turn, instead of failing it, if the agent failed because its model's provider is down."""
    try:
        yield
    except AgentFailedError as error:
        if error.reason in _WAITED_FOR:
            # An agent may work for its whole time limit, but a single answer may not take half of it.
            model.record_stop(command.agent.timeout_s / 2)
        if error.reason not in _WAITED_FOR or (pause := model.pause) is None:
            raise
        # Without an answer there may be no session to resume.
        if model.has_answered:
            command.note_session(command.invocation.reader.report.session)
        raise PausedAgentError(pause, has_begun=model.has_answered) from error


class _SupervisedAgent:
    """An agent under its supervisor: its output, and the supervisor's report."""

    def __init__(self, command: AgentCommand, model: ModelState, log: "_AgentLog", group: str) -> None:
        self._command = command
        self._model = model
        self._reader = command.invocation.reader
        self._log = log
        self._report = ""
        self._printed = False
        self._lingered = False
        """Whether it was stopped because it kept running after it had reported that it was done."""
        self._sent: set[str] = set()
        self._untaken: dict[str, Message] = {}
        """The messages that it has not taken yet."""
        self._unsent = b""
        """The bytes for which its pipe had no room yet."""
        self._is_hurried = False
        """Whether it is killed at once, without time to exit by itself."""
        limits, options = command.share.disk.limits, command.agent.options
        self._control, theirs = socket.socketpair()
        (reading, output), file = os.pipe(), command.stdin()
        given, writing = os.pipe() if file is None else (os.open(file, os.O_RDONLY), None)
        self._stdout = os.fdopen(reading, "rb")
        self._stdin = None if writing is None else os.fdopen(writing, "wb")
        with theirs, os.fdopen(given, "rb"), os.fdopen(output, "wb"):
            self._pid = command.sandbox.launcher.start(
                *(theirs.fileno(), given, output),
                argv=command.argv(),
                environment=command.environment(),
                folder=str(command.workspace.tree),
                file_bytes=limits.file_bytes,
                open_files=limits.open_files,
                group=group,
            )
        os.set_blocking(reading, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._stdout, selectors.EVENT_READ)
        if writing is not None:
            os.set_blocking(writing, False)
            self._send(command.spoken(command.workspace.instructions_file.read_text("utf-8")))
        cache = None if command.cache is None or options.cache is None else (command.cache, options.cache)
        self._usage = UsageWatch(self._pid, command.share, command.sandbox.is_boxed, command.session, cache)

    def _send(self, line: bytes = b"") -> None:
        """Send as much as the agent's pipe accepts, and the rest later."""
        self._unsent += line
        if self._unsent and self._stdin is not None:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent) :]

    def _end_input(self) -> bool:
        """Close the program's input, so that it exits; False: it was closed before, or there is no pipe."""
        stdin, self._stdin = self._stdin, None
        if stdin is not None:
            stdin.close()
        return stdin is not None

    def watch(self, check: Callable[[], None], unheard: Callable[[], Sequence[Message]]) -> str:
        """Wait until the agent exits; return the supervisor's report, empty if the supervisor was killed.

        `check`, and `unheard`, which returns messages for it, are called several times a second.
        """
        deadline = time.monotonic() + self._command.agent.timeout_s
        measure_due = 0.0
        over_since: float | None = None
        options = self._command.agent.options
        while True:
            now = time.monotonic()
            check()
            for message in unheard():
                if self._stdin is not None and message.id not in self._sent:
                    self._sent.add(message.id)
                    self._untaken[message.id] = message
                    self._send(self._command.spoken(_MESSAGE.format(message.text), message.id))
            self._send()
            if (end := self._model.end) is not None:
                raise AgentFailedError(end.text, end.reason)
            over_since = (over_since or now) if self._reader.is_over and not self._model.waiting else None
            if self._reader.is_over:
                self._end_input()
            if over_since is not None and now > over_since + DONE_GRACE_S:
                self._lingered = True
                return _EXITED
            if now > deadline:
                text = f"the agent passed its time limit of {self._command.agent.timeout_s:g} s and was stopped"
                if (trouble := self._model.trouble) is not None:
                    text += f"; before that, {trouble.text}"
                raise AgentFailedError(text, "timed_out")
            if now >= measure_due:
                measure_due = now + _POLL_S
                if passed := self._usage.first_passed_limit():
                    self._is_hurried = True
                    text = f"the agent was stopped for passing its limit of {passed} in [execution.agent]"
                    raise AgentFailedError(text)
                # The proxy has a time limit for the model: an agent that waits for it is not idle.
                was_active = self._printed or self._model.waiting > 0
                self._printed = False
                if options.idle_s is not None and self._usage.is_idle(options.idle_s, is_active=was_active):
                    text = (
                        f"the agent neither printed nor computed for {options.idle_s:g} s and was stopped "
                        "(idle_timeout_s): does it wait for a host that it cannot reach, or for an answer?"
                    )
                    raise AgentFailedError(text, "idle")
            if self._follow(min(_POLL_S, max(0.0, deadline - now))):
                return self._report

    def close(self) -> None:
        """Kill everything that still runs, with the supervisor's help or without it, and complete the log."""
        may_finish = self._end_input() and not (self._report or self._is_hurried or self._lingered)
        with self._control, self._stdout, self._selector:
            until = time.monotonic() + GRACE_S
            while may_finish and (left := until - time.monotonic()) > 0 and not self._follow(left):
                pass
            if not self._report:
                with contextlib.suppress(OSError):
                    self._control.shutdown(socket.SHUT_WR)
                self._report = self._read_report()
            if not self._report or self._report.startswith("left "):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._pid, signal.SIGKILL)
                processes.kill_marked(f"RUNWARDEN_RESULT={self._command.workspace.result_file}")
            # The supervisor has the other end as long as it lives.
            with contextlib.suppress(OSError):
                self._control.recv(1)
        stayed = f"the program reported its end but stayed for {DONE_GRACE_S:g} s more, and was stopped"
        self._log.end(stayed if self._lingered else None)

    def _follow(self, timeout_s: float) -> bool:
        """Wait for output, and pass it on; return whether the supervisor has reported."""
        ready = {key.fileobj for key, _ in self._selector.select(timeout_s)}
        if self._control in ready:
            self._report = self._read_report()
        elif ready and not self._forward(self._stdout.read(_CHUNK)):
            self._selector.unregister(self._stdout)
        return self._control in ready

    def _forward(self, chunk: bytes | None) -> bool:
        """Pass a piece of the agent's output on; False: there is no more."""
        if chunk:
            self._printed = True
            # Line by line, so that the log shows a message at the point where the agent took it.
            for piece in chunk.splitlines(keepends=True) if self._untaken else [chunk]:
                self._reader.feed(piece)
                self._log.output.write(piece)
                for name in self._reader.report.heard:
                    if name in self._untaken:
                        message = self._untaken.pop(name)
                        words = " ".join(message.text.split())[:_MAX_WORDS]
                        who = message.caller or "a caller"
                        self._log.add_line(f"{rfc3339(now_micros())} {who} says: {words}")
        return chunk != b""

    def _read_report(self) -> str:
        self._control.settimeout(_SUPERVISOR_TIMEOUT_S)
        try:
            report = self._control.recv(_MAX_REPORT).decode("utf-8", "replace")
        except OSError:
            report = ""
        while chunk := self._stdout.read(_CHUNK):
            self._forward(chunk)
        return report


class _AgentLog:
    """Keeps the beginning and the end of an agent's output, each half of a limit, with the service's lines in between.

    It masks secrets. Once the first half is full, the rest is written after the agent has exited.
    """

    def __init__(self, log: IO[bytes], limit: int, secrets: Secrets) -> None:
        self._log = log
        self._secrets = secrets
        self.output = MaskedStream(secrets, self._add)
        self._half = self._left = limit // 2
        self._tail = bytearray()
        self._dropped = 0
        self._is_in_line = False
        self._held: list[bytes] = []
        """The service's lines that wait for the agent to complete one."""
        self._writing = threading.Lock()

    def _add(self, chunk: bytes) -> None:
        with self._writing:
            first, rest = chunk[: self._left], chunk[self._left :]
            self._left -= len(first)
            self._write_piece(first)
            self._tail += rest
            # Rarely, since each cut copies the kept bytes.
            if len(self._tail) > 2 * self._half:
                self._cut()

    def _cut(self) -> None:
        """Drop everything before the last half of the limit."""
        more = len(self._tail) - self._half
        if more > 0:
            del self._tail[:more]
            self._dropped += more

    def _write_piece(self, piece: bytes) -> None:
        """Write a piece of the output; the service's lines follow the last line that it completes."""
        whole, newline, rest = piece.rpartition(b"\n")
        self._log.write(whole + newline)
        if newline or not self._is_in_line:
            self._log.writelines(self._held)
            self._held.clear()
            self._is_in_line = False
        self._log.write(rest)
        self._is_in_line |= bool(rest)
        self._log.flush()

    def add_line(self, text: str) -> None:
        # A proxy may report something after the log is closed.
        with contextlib.suppress(ValueError), self._writing:
            self._held.append(f"{self._secrets.mask(text)}\n".encode("utf-8", "replace"))
            self._write_piece(b"")

    def end(self, line: str | None) -> None:
        """Write the last part of the output, complete its last line, and add a line of the service."""
        self.output.end()
        if line is not None:
            self.add_line(line)
        with self._writing:
            self._cut()
            if self._dropped:
                # Start at the beginning of a line.
                skipped = self._tail.find(b"\n") + 1
                del self._tail[:skipped]
                self._write_piece(b"\n" if self._is_in_line else b"")
                text = f"{self._dropped + skipped} bytes were dropped here: a log keeps the first and the last"
                self._log.write(f"[{text} {self._half} bytes (output_bytes)]\n".encode())
            self._write_piece(bytes(self._tail))
            self._write_piece(b"\n" if self._is_in_line else b"")
