"""Programs that speak the Agent Client Protocol, in the sandbox: a stand-in over the protocol's own library."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.agents.options import AgentOptions
from service.agents.presets import ACP
from service.agents.steps import steps_of
from service.execution.command import AgentFailedError
from service.execution.rehearsal import Rehearsal, RehearsalResult
from service.store.agents import Agent
from service.store.messages import Message
from tests.lab import Hang
from tests.service.agents.model_server import ModelServer

# Its instructions hold a paragraph of Python, which is what it does in its turn.
PROGRAM = """
import asyncio, os, pathlib, sys, textwrap, time
from acp import *
from acp.helpers import *
from acp.schema import *

class Program:
    cancelled = asyncio.Event()
    async def cancel(self, session_id, **_):
        self.cancelled.set()
    def on_connect(self, connection):
        self.client = connection
    async def initialize(self, protocol_version, **_):
        can = AgentCapabilities(load_session=True)
        return InitializeResponse(protocol_version=protocol_version, agent_capabilities=can)
    async def new_session(self, cwd, mcp_servers=(), **_):
        pathlib.Path.home().joinpath("s-1").write_text(repr([one.name for one in mcp_servers]))
        return NewSessionResponse(session_id="s-1")
    async def load_session(self, cwd, session_id, **_):
        if not pathlib.Path.home().joinpath(session_id).exists():
            raise RequestError.invalid_params()
        await self.client.session_update(session_id, update_agent_message_text("what I said before"))
        return LoadSessionResponse()
    async def say(self, text):
        await self.client.session_update("s-1", update_agent_message_text(text))
    async def prompt(self, prompt, session_id, **_):
        words = textwrap.indent(prompt[0].text.partition("DO:\\n")[2].strip().partition("\\n\\n")[0], " ")
        space = {}
        exec(f"async def act(self, client, prompt):\\n{words}\\n return None", globals(), space)
        return PromptResponse(stop_reason=await space["act"](self, self.client, prompt) or "end_turn")

asyncio.run(run_agent(Program()))
"""
Turn = Callable[..., RehearsalResult]


@pytest.fixture
def turn(rehearse: Callable[..., Rehearsal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Turn:
    """`turn(words)` lets the program do something, in one run of a kept session."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, "utf-8")
    options = AgentOptions.model_validate({"preset": "acp", "session": True, "egress": []})
    agent = Agent("acp", ("{python}", str(file)), 300, environment=("OPENAI_API_KEY",), options=options)
    stage = rehearse()

    def act(words: str, number: int = 1, **more: Any) -> RehearsalResult:
        return stage.turn(agent, f"DO:\n{words}", number=number, **more)

    return act


WORK = """
await self.say("Let me ")
await self.say("look.")
file, act = pathlib.Path("/workspace/src/app.py"), client.session_update
old = "    return 42\\n"
edit = tool_diff_content(str(file), old.replace("42", "43"), old)
await act("s-1", start_tool_call("t1", "Edit app.py", kind="edit", content=[edit]))
file.write_text(file.read_text().replace("42", "43"))
offered = [PermissionOption(option_id=one, name=one, kind=one) for one in ("reject_once", "allow_once")]
allowed = await client.request_permission("s-1", ToolCallUpdate(tool_call_id="t2", title="cat"), offered)
await act("s-1", start_tool_call("t2", "cat", kind="execute", raw_input={"command": "cat src/app.py"}))
result = tool_content(text_block(allowed.outcome.option_id))
await act("s-1", update_tool_call("t2", status="completed", content=[result]))
await act("s-1", start_tool_call("t3", "bash", kind="execute", status="pending", raw_input={"cwd": "/"}))
for output in ("", "a"):
    given, so_far = {"command": "ls"}, [tool_content(text_block(output))]
    await act("s-1", update_tool_call("t3", status="in_progress", raw_input=given, content=so_far))
await act("s-1", update_tool_call("t3", status="completed", raw_output={"metadata": {"exit": 1}}))
await act("s-1", start_tool_call("t4", "Writing to app.py", kind="edit", status="in_progress"))
await act("s-1", update_tool_call("t4", status="completed", content=[edit]))
await act("s-1", update_tool_call("t4", status="failed"))
await self.say("It says 43.")
"""


def test_a_program_works_through_its_client_and_goes_on_with_its_session(turn: Turn) -> None:
    """All it asks for is allowed; its reports are steps; what a loaded session repeats is none.

    A call of a tool that it describes bit by bit is one step, with its result as another.
    """
    done = turn(WORK)

    assert (done.failure, done.result.summary) == (None, "It says 43."), done.log
    assert "+    return 43" in done.diff
    steps = [(step.kind, step.text) for step in steps_of("acp", done.log.encode()) if step.kind != "log"]
    assert steps == [
        ("said", "Let me look."),
        ("edited", "src/app.py\n-     return 42\n+     return 43"),
        ("ran", "cat src/app.py"),
        ("result", "allow_once"),
        ("ran", "ls"),
        ("result", "a"),
        ("edited", "src/app.py\n-     return 42\n+     return 43"),
        ("result", ""),
        ("said", "It says 43."),
        ("ended", ""),
    ]

    again = turn("await self.say('And now this.')", number=2)

    assert (again.failure, again.result.summary) == (None, "And now this."), again.log
    assert ("what I said before" in again.log, '"lost"' in again.log) == (False, False)
    turn("pathlib.Path.home().joinpath('s-1').unlink()", number=3)
    lost = turn("await self.say(prompt[0].text[:13])", number=4)

    assert (lost.failure, lost.result.summary, '"lost"' in lost.log) == (None, "Earlier turns", True), lost.log


def test_a_message_reaches_the_program_at_work(turn: Turn, tmp_path: Path) -> None:
    """Its answer is cancelled, and it goes on in its session with the message; all that it did stays."""
    first = "open('first.txt', 'w').write('1')\nawait self.cancelled.wait()\nreturn 'cancelled'"
    then = Message("run_1", "msg_1", 1, "DO:\nawait self.say('The new API.')", "now", "waiting", "ann", 0)
    done = turn(first, said=lambda: [then] if list(tmp_path.glob("data/work/*/tree/first.txt")) else [])

    assert (done.failure, done.result.summary) == (None, "The new API."), done.log
    assert "first.txt" in done.diff
    assert [step.text for step in steps_of("acp", done.log.encode()) if "ann says" in step.text]
    assert done.log.count('"msg_1"') == 1


@pytest.mark.parametrize(("does", "is_told"), [("await self.cancelled.wait()", True), ("time.sleep(600)", False)])
def test_a_stopped_program_is_told_before_it_is_killed(turn: Turn, tmp_path: Path, does: str, *, is_told: bool) -> None:
    """One that does not answer is killed a moment later; what it did is kept."""

    def check() -> None:
        if list(tmp_path.glob("data/work/*/tree/begun.txt")):
            raise AgentFailedError("stopped by the test")

    done = turn(f"open('begun.txt', 'w')\n{does}\nopen('told.txt', 'w')\nreturn 'cancelled'", check=check)

    assert (done.failure, "begun.txt" in done.diff, "told.txt" in done.diff) == ("stopped by the test", True, is_told)


UNKNOWN_REASON = """
first = PromptResponse.__init__
def made(self, **_):
    first(self, stop_reason="end_turn")
    self.__dict__["stop_reason"] = "tired"
PromptResponse.__init__ = made
"""


def test_a_request_that_the_client_does_not_offer_is_refused(turn: Turn) -> None:
    done = turn(UNOFFERED)

    assert done.result.summary == "{(-32601, 'Method not found')}", done.log


def test_a_program_of_another_version_of_the_protocol_fails_the_turn(turn: Turn, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("protocol_version=protocol_version", "protocol_version=2"), "utf-8")
    done = turn("pass")

    assert "the program speaks version 2 of ACP, and Runwarden version 1: install" in str(done.failure)


def test_an_error_and_a_sudden_end_fail_the_turn(turn: Turn) -> None:
    error = turn("raise RequestError(-32603, 'insufficient quota')")
    ended = turn("print('out of paper', file=sys.stderr, flush=True); os._exit(3)")
    unknown = turn(UNKNOWN_REASON)

    assert (error.reason, "insufficient quota" in str(error.failure)) == ("out_of_budget", True), error.log
    assert (ended.reason, "exited with status 3 before it had" in str(ended.failure)) == ("failed", True), ended.log
    assert (unknown.reason, "stopReason: 'tired' is not known" in str(unknown.failure)) == ("failed", True), unknown.log
    assert "out of paper" in ended.log


@pytest.mark.parametrize(
    ("stop", "reason", "text"),
    [
        ("end_turn", None, ""),
        ("refusal", "refused", "refused the task"),
        ("max_tokens", "cut_short", "was cut at its limit of tokens"),
        ("max_turn_requests", "failed", "stopped before its answer (max_turn_requests)"),
        ("cancelled", "failed", "stopped before its answer (cancelled)"),
    ],
)
def test_each_stop_reason_is_an_outcome(stop: str, reason: str | None, text: str) -> None:
    reader = ACP.reader()
    reader.feed(json.dumps({"acp": "end", "stop_reason": stop}).encode() + b"\n")
    found = reader.failure(0)

    assert (found and found.reason, text in (found.text if found else "")) == (reason, True)


def test_what_is_no_report_is_left_out_and_a_flood_of_reports_is_cut(turn: Turn) -> None:
    """A long line that is no message, reports without an end, and the end of the turn."""
    done = turn("os.write(1, b'x' * (4 << 20) + b'\\n')\nfor n in range(2000): await self.say(f'{n} ' * 3000)")

    assert done.failure is None, (done.failure, done.log[-2000:])
    assert (len(done.log) < 18 << 20, "bytes were dropped here" in done.log) == (True, True)


TWICE = """await self.say("Once.")
answer = b'{"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "%s"}}\\n'
os.write(1, answer % b"end_turn" + answer % b"refusal")
await asyncio.sleep(600)"""
ELSEWHERE = """await client.session_update("s-2", update_agent_message_text("Elsewhere."))
await self.say("Still here.")"""
STRAY = """os.write(1, b'[]\\nnull\\n7\\n"a"\\n{"id": 2}\\n')
await self.say("Still here.")"""
UNOFFERED = """
asked = [
    client.read_text_file("/etc/passwd", "s-1"),
    client.write_text_file("a", "/etc/passwd", "s-1"),
    client.create_terminal("ls", "s-1"),
    client.terminal_output("s-1", "t-1"),
    client.release_terminal("s-1", "t-1"),
    client.wait_for_terminal_exit("s-1", "t-1"),
    client.kill_terminal("s-1", "t-1"),
    client.ext_method("made/up", {}),
]
answers = await asyncio.gather(*asked, return_exceptions=True)
await self.say(f"{ {(one.code, str(one)) for one in answers} }")
"""
HOSTILE = {
    "100 MB in a line": ("await self.say('x' * (100 << 20))\nawait self.say('Still here.')", None, "Still here."),
    "a path outside": ("open('../outside.txt', 'w')", "agent says", None),
    "the client's files": ("await client.read_text_file('/etc/passwd', 's-1')", "Method not found", None),
    "two answers": (TWICE, None, "Once."),
    "another session": (ELSEWHERE, None, "Still here."),
    "no messages": (STRAY, None, "Still here."),
}


@pytest.mark.parametrize(("does", "failure", "summary"), HOSTILE.values(), ids=HOSTILE)
def test_a_program_that_misbehaves_ends_its_turn_clearly(
    turn: Turn, does: str, failure: str | None, summary: str | None
) -> None:
    """What it changed is kept, and nothing is outside."""
    done = turn(f"open('kept.txt', 'w')\n{does}")

    assert (done.result.summary, "kept.txt" in done.diff) == (summary, True), done.log[-3000:]
    assert (failure is None) == (done.failure is None), done.failure
    assert failure is None or failure in str(done.failure)
    assert (len(done.log) < 100_000, '"left_out"' in done.log) == (True, "100 <<" in does)
    assert does is not STRAY or "no message of the protocol: 7\n" in done.log


REAL = os.environ.get("RUNWARDEN_TEST_AGENTS", "")
PROGRAMS = {
    "gemini": (("gemini", "--acp", "--model", "{model}"), "gemini", "gemini-2.5-pro"),
    "opencode": (("opencode", "acp"), "anthropic", "claude-sonnet-4-5"),
    "claude": (("claude-agent-acp",), "anthropic", "claude-sonnet-4-5"),
    "codex": (("codex-acp",), "openai", "gpt-4o"),
    "copilot": (("copilot", "--acp"), "openai", "gpt-4o"),
    "qwen": (("qwen", "--acp", "--auth-type=openai", "--model={model}"), "openai", "gpt-4o"),
}


@pytest.fixture
def real(
    rehearse: Callable[..., Rehearsal], server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[Rehearsal, Agent]]:
    """`real(program)` returns a rehearsal and the agent, where RUNWARDEN_TEST_AGENTS names the folder of programs."""

    def make(program: str) -> tuple[Rehearsal, Agent]:
        argv, provider, name = PROGRAMS[program]
        if shutil.which(argv[0], path=REAL) is None:
            pytest.skip(f"RUNWARDEN_TEST_AGENTS names no folder with {argv[0]}")
        monkeypatch.setenv("PATH", f"{REAL}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("MODEL_KEY", "sk-the-real-key")
        model = {"provider": provider, "key_env": "MODEL_KEY", "name": name, "base_url": server.origin, "models": ["*"]}
        options = AgentOptions.model_validate({"preset": "acp", "session": True, "model": model})
        return rehearse(), Agent("acp", argv, 280, options=options)

    return make


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_real_program_writes_a_file_and_goes_on(
    real: Callable[[str], tuple[Rehearsal, Agent]], server: ModelServer, program: str
) -> None:
    stage, agent = real(program)
    # The stand-in of the model has no tools for it.
    server.writes = program not in {"copilot", "qwen"}
    first = stage.turn(agent, "Write zebras into written.txt.")

    assert (first.failure, first.result.summary) == (None, "All done."), first.log[-6000:]
    assert ("+zebras" in first.diff) is server.writes
    second = stage.turn(agent, "And now?", number=2)
    assert (second.failure, '"lost"' in second.log) == (None, False), second.log[-6000:]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_message_reaches_a_real_program_at_work(
    real: Callable[[str], tuple[Rehearsal, Agent]], server: ModelServer, program: str
) -> None:
    """It breaks its request off; the next one has the message after the instructions."""
    stage, agent = real(program)
    server.script(Hang())
    then = Message("run_1", "msg_1", 1, "Use zebras instead.", "now", "waiting", "ann", 0)
    done = stage.turn(agent, "Count the horses.", said=lambda: [then] if server.questions else [])
    last = server.questions[-1].body

    assert (done.failure, str(done.result.summary)[-9:]) == (None, "All done."), done.log[-6000:]
    assert last.find(b"Count the horses.") < last.find(b"Use zebras instead.")
    assert last.count(b"Use zebras instead.") == 1
