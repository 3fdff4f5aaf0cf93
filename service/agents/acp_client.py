"""The client of a program that speaks the Agent Client Protocol (ACP); both run in the same sandbox.

Called as `acp_client.py SESSION CONVERSATION COMMAND…`; CONVERSATION is the file with the earlier turns. It starts the
program, resumes the session if one is named, prints each of the program's reports as a line of JSON (`outcome.acp` and
`steps` read them), and exits when the program has answered.

Each line of standard input is `{"text", "name"}`: first the instructions, then any messages. A message cancels the
program's answer, and the program is asked again, with the message. The end of the input only cancels the answer.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from asyncio.subprocess import Process
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from acp import PROTOCOL_VERSION, RequestError, schema, spawn_stdio_transport, text_block
from acp._transport import NdjsonTransport
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from acp.task import MessageSender, TaskSupervisor
from pydantic import ValidationError

SERVERS: Final = "RUNWARDEN_MCP_SERVERS"
"""The variable with the MCP servers of the repository, as `presets.py` writes it."""
MODEL: Final = "RUNWARDEN_MODEL"
"""The variable with the name of the model; empty: the program chooses."""
_GREETING_S: Final = 240
"""How long a program may take to answer in ACP."""
_EXIT_GRACE_S: Final = 1.0
"""How long it may keep running after its answer; it is killed after twice that time."""
_BUFFER: Final = 32 << 20
_MAX_REPORT: Final = 1 << 20
"""The largest report in bytes, as long as a line that `outcome` and `steps` read."""
_TEXTS: Final = ("agent_message_chunk", "agent_thought_chunk", "plan")
_AUTH_REQUIRED: Final = -32000


def report(kind: str, **facts: object) -> None:
    """Print a report: `kind` is the value of `acp`."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = json.dumps({"acp": kind, "at": now, **facts}, ensure_ascii=False)
    if len(line) > _MAX_REPORT:
        line = json.dumps({"acp": "left_out", "at": now, "characters": len(line)})
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def without_traceback(remark: logging.LogRecord) -> bool:
    """Shorten the library's remark about a line that is not a message."""
    remark.exc_info = None
    return True


class Messages(NdjsonTransport):
    """The program's messages; other JSON in its output, such as log records, is shown and ignored."""

    def __init__(self, lines: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(lines, MessageSender(writer, TaskSupervisor(source="runwarden")))
        self._lines = lines

    async def receive(self) -> dict[str, Any] | None:
        while not isinstance(message := await super().receive(), dict) or "jsonrpc" not in message:
            if message is None and self._lines.at_eof():
                return None
            logging.getLogger(__name__).warning("no message of the protocol: %.1000s", json.dumps(message))
        return message


class SandboxClient:
    """Answers the program's requests: everything is allowed, because the sandbox sets the limits.

    It offers no access to files and terminals: the program's own has the same limits, and works best.
    """

    async def session_update(self, update: object, **_: object) -> None:
        """Do nothing: `printed` prints the reports as they arrive."""

    async def request_permission(
        self, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption], **_: object
    ) -> schema.RequestPermissionResponse:
        """Allow a tool call, once if that is offered."""
        ranked = (option for kind in ("allow_once", "allow_always") for option in options if option.kind == kind)
        chosen = next(ranked, None)
        report("permission", title=tool_call.title, allowed=chosen is not None)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        allowed = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=allowed)

    async def create_terminal(self, **_: object) -> None:
        """Refuse: the library itself refuses other methods that are missing here, but not those of terminals."""
        raise RequestError.method_not_found("terminal")

    terminal_output = release_terminal = wait_for_terminal_exit = kill_terminal = create_terminal


@dataclass
class Turn:
    """One turn of the program: its session and its reports."""

    wanted: str
    """The session to resume; may be empty."""
    conversation: str
    _is_lost: bool = False
    _options: list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean] = field(default_factory=list)
    _shown: str = ""
    """The session whose reports are this turn's; empty while it is loaded, and repeats those of earlier turns."""
    _queued: list[dict[str, str]] = field(default_factory=list)
    """Messages that were not passed to the program yet."""
    _is_stopped: bool = False
    _session: str = ""
    """The session in which the program has a prompt to answer."""
    _calls: "dict[object, Call]" = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)

    async def listen(self, connection: ClientSideConnection, lines: asyncio.StreamReader) -> None:
        """Read the messages, and cancel the program's answer for each."""
        while not self._is_stopped:
            if line := await lines.readline():
                self._queued.append(json.loads(line))
            else:
                self._is_stopped = True
            if self._session:
                await connection.cancel(self._session)

    async def run(self, connection: ClientSideConnection, instructions: str) -> None:
        """Run one prompt of the program, and print why it stopped.

        Raises:
            RequestError: The program answered with an error.
            TimeoutError: It does not speak ACP.
            ConnectionError: It exited.
        """
        client = schema.Implementation(name="runwarden", version="1")
        about = await asyncio.wait_for(connection.initialize(PROTOCOL_VERSION, client_info=client), _GREETING_S)
        if (version := about.protocol_version) != PROTOCOL_VERSION:
            text = f"the program speaks version {version} of ACP, and Runwarden version {PROTOCOL_VERSION}"
            raise RequestError(0, f"{text}: install a version of the program that speaks this one")
        session = await self._open(connection, about)
        model = os.environ.get(MODEL)
        for option in self._options if model else ():
            # The configured model is chosen if the program offers it by that name or as `PROVIDER/NAME`.
            if option.category != "model" or not isinstance(option, schema.SessionConfigOptionSelect):
                continue
            names = []
            for row in option.options:
                choices = row.options if isinstance(row, schema.SessionConfigSelectGroup) else [row]
                names += [choice.value for choice in choices if f"/{choice.value}".endswith(f"/{model}")]
            if names and option.current_value not in names:
                await connection.set_config_option(option.id, session, names[0])
        self._shown = session
        if self._is_lost:
            # The instructions rely on the session, which has the earlier turns.
            instructions = f"Earlier turns of this task, as JSON:\n{self.conversation}\n\nNow:\n\n{instructions}"
        texts = [instructions, *self._messages()]
        stop_reason = "cancelled"
        usage = None
        while texts and not self._is_stopped:
            self._session = session
            answer = await connection.prompt(session, [text_block("\n\n".join(texts))])
            self._session = ""
            # opencode's own `usage` is that of its last answer alone.
            stop_reason = answer.stop_reason
            usage = (answer.field_meta or {}).get("quota")
            texts = self._messages()
        report("end", stop_reason=stop_reason, usage=usage, seconds=round(time.monotonic() - self._begun, 3))

    def _messages(self) -> list[str]:
        """Return the messages since the last call, which the program now gets; none once it is stopped."""
        messages, self._queued = [] if self._is_stopped else self._queued, []
        if messages:
            report("heard", ids=[message["name"] for message in messages])
        return [message["text"] for message in messages]

    async def _open(self, connection: ClientSideConnection, about: schema.InitializeResponse) -> str:
        """Return the id of the session: the one that was asked for, if it is there, or a new one."""
        can = about.agent_capabilities
        can_load = can is not None and bool(can.load_session)
        has_http = can is not None and can.mcp_capabilities is not None and bool(can.mcp_capabilities.http)
        servers: list[Any] = []
        for name, server in json.loads(os.environ.get(SERVERS) or "{}").items():
            if not server.get("url"):
                values = {key: os.environ[key] for key in server["variables"] if key in os.environ}
                variables = [schema.EnvVariable(name=key, value=value) for key, value in values.items()]
                command, args = server["command"], server["args"]
                servers.append(schema.McpServerStdio(name=name, command=command, args=args, env=variables))
            elif has_http:
                servers.append(schema.HttpMcpServer(type="http", name=name, url=server["url"], headers=[]))
        if self.wanted and can_load:
            # Gemini CLI names a session's file after the minute, and would overwrite one of the current minute.
            for file in Path.home().glob(f".gemini/tmp/*/chats/session-2*-{self.wanted[:8]}.jsonl"):
                file.rename(file.with_name(f"session-kept-{file.name}"))
            with contextlib.suppress(RequestError):
                loaded = await connection.load_session(str(Path.cwd()), self.wanted, servers)
                self._options = loaded.config_options or []
                report("session", id=self.wanted)
                return self.wanted
        if self.wanted:
            self._is_lost = True
            report("new_session", lost=self.wanted)
        try:
            new = await connection.new_session(str(Path.cwd()), mcp_servers=servers)
        except RequestError as error:
            methods = [method.id for method in about.auth_methods or ()]
            if error.code != _AUTH_REQUIRED or not methods:
                raise
            # Its environment has a key: choose the method that uses one.
            await connection.authenticate(next((name for name in methods if "key" in name.lower()), methods[0]))
            new = await connection.new_session(str(Path.cwd()), mcp_servers=servers)
        self._options = new.config_options or []
        if can_load:
            report("session", id=new.session_id)
        return new.session_id

    def print_report(self, event: StreamEvent) -> None:
        """Print a report of the program, or hold it back until it is complete."""
        message = event.message
        kind = {"session/update": "update", "session/request_permission": "toolCall"}.get(str(message.get("method")))
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        update = params.get(kind) if params.get("sessionId") == self._shown else None
        if event.direction is not StreamDirection.INCOMING or not isinstance(update, dict):
            return
        if update.get("sessionUpdate") in _TEXTS:
            report("update", update=update)
        elif isinstance(name := update.get("toolCallId"), str):
            if name not in self._calls or update.get("sessionUpdate") == "tool_call":
                self._calls[name] = Call()
            self._calls[name].add(update)


@dataclass
class Call:
    """A call of a tool, which programs describe bit by bit: printed once when it is known, and once with its result."""

    _known: dict[str, Any] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)
    _is_shown: bool = False
    _has_ended: bool = False

    def add(self, update: dict[str, Any]) -> None:
        if self._has_ended:
            return
        self._known |= {key: value for key, value in update.items() if value is not None}
        call = self._known
        self._has_ended = call.get("status") in ("completed", "failed")
        # A pending call has only a part of its input. Gemini CLI describes an edit once it is done.
        is_full = call.get("status", "pending") != "pending" and (call.get("rawInput") or call.get("kind") != "edit")
        if not self._is_shown and (is_full or call.get("content") or self._has_ended):
            self._is_shown = True
            report("update", update={**call, "sessionUpdate": "tool_call"})
        if self._has_ended:
            result = {key: call.get(key) for key in ("toolCallId", "status", "content", "rawOutput")}
            seconds = round(time.monotonic() - self._begun, 3)
            report("update", update={**result, "sessionUpdate": "tool_call_update"}, seconds=seconds)


async def _forward(program: Process) -> None:
    while program.stderr is not None and (line := await program.stderr.readline()):
        sys.stdout.write(line.decode("utf-8", "replace"))
        sys.stdout.flush()


async def main(session: str, conversation: str, command: list[str]) -> int:
    lines = asyncio.StreamReader(_BUFFER)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    instructions = json.loads(await lines.readline())["text"]
    variables = {name: value for name, value in os.environ.items() if name not in {SERVERS, MODEL}}
    turn = Turn(session, conversation)
    client: Any = SandboxClient()  # without the protocol's optional parts
    status = 0
    try:
        async with (
            spawn_stdio_transport(
                *command, env=variables, cwd=Path.cwd(), limit=_BUFFER, shutdown_timeout=_EXIT_GRACE_S
            ) as (printed, writer, process),
            ClientSideConnection(client, Messages(printed, writer), observers=[turn.print_report]) as connection,
        ):
            # Not through our own pipe: the program may make it non-blocking, which would affect us too.
            forwarding = asyncio.create_task(_forward(process))
            listening = asyncio.create_task(turn.listen(connection, lines))
            try:
                await turn.run(connection, instructions)
            except (RequestError, OSError, ValueError) as error:
                if isinstance(error, ConnectionError):
                    # The program exited, and its last lines show why.
                    await asyncio.wait([forwarding], timeout=_EXIT_GRACE_S)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(process.wait(), _EXIT_GRACE_S)
                status = _report_error(error, process.returncode)
            forwarding.cancel()
            listening.cancel()
            # A server that the program started may outlive it, and keep the pipes open that the library waits for.
            asyncio.get_running_loop().call_later(3 * _EXIT_GRACE_S, os._exit, status)
    except (OSError, ValueError) as error:
        return _report_error(error)
    return status


def _report_error(error: Exception, exit_status: int | None = None) -> int:
    """Print an error; return the exit status. `exit_status`: the program's; None: it runs."""
    words = f"the connection to the program broke: {error}"
    if isinstance(error, ConnectionError) and exit_status is not None:
        words = f"the program exited with status {exit_status} before it had answered; its last lines are in the log"
    elif isinstance(error, ValidationError):
        fault = error.errors()[0]
        # Pydantic's text lists the valid values, which readers would take for the program's.
        problem = f"{fault['input']!r:.100} is not known" if fault["type"] == "literal_error" else fault["msg"]
        words = f"the program's answer breaks the protocol: {'.'.join(map(str, fault['loc']))}: {problem}"
    elif isinstance(error, RequestError):
        details = error.data or ""
        if not isinstance(details, str):
            details = json.dumps(details)
        words = f"{error} {details}".strip()
    elif isinstance(error, TimeoutError):
        words = "it does not speak ACP: does its argv lack the argument that makes it do so?"
    report("error", message=words)
    return 1


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    logging.root.handlers[0].addFilter(without_traceback)
    status = asyncio.run(main(sys.argv[1], Path(sys.argv[2]).read_text("utf-8"), sys.argv[3:]))
    # Skip the interpreter's own exit, which prints errors about a program that had to be killed.
    os._exit(status)
