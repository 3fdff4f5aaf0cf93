"""Programs that speak the Agent Client Protocol, in the sandbox, with a stand-in."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.agents.options import Agent, AgentOptions
from service.agents.outcome import OutcomeReader
from service.agents.presets import ACP
from service.agents.steps import steps_of
from service.execution.rehearsal import Rehearsal, RehearsalResult

# Its instructions contain Python code, which it executes in its turn. It does not import the protocol's library, which
# takes most of a second; the client validates these messages.
PROGRAM = """
import asyncio, json, os, pathlib, sys, textwrap, time

class RequestError(Exception):
    pass

class Program:
    cancelled, asked, tasks = asyncio.Event(), [], []
    def send(self, **message):
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
    async def ask(self, method, **params):
        self.asked.append(asyncio.Future())
        self.send(id=len(self.asked) - 1, method=method, params={"sessionId": "s-1", **params})
        answer = await self.asked[-1]
        if "error" in answer: raise RequestError(answer["error"])
        return answer["result"]
    async def update(self, name, **fields):
        update = {"sessionUpdate": name, **fields}
        self.send(method="session/update", params={"sessionId": "s-1", "update": update})
    async def say(self, text):
        await self.update("agent_message_chunk", content={"type": "text", "text": text})
    async def do(self, method, params):
        known = pathlib.Path.home().joinpath(params.get("sessionId", "s-1"))
        if method == "initialize":
            return {"protocolVersion": params["protocolVersion"], "agentCapabilities": {"loadSession": True}}
        if method == "session/new":
            known.touch()
            return {"sessionId": known.name}
        if method == "session/load":
            if not known.exists(): raise RequestError({"code": -32602, "message": "Invalid params"})
            await self.say("what I said before")
            return {}
        prompt, space = params["prompt"][0]["text"], {}
        words = textwrap.indent(prompt.partition("DO:\\n")[2].strip().partition("\\n\\n")[0], " ")
        exec(f"async def act(self, prompt):\\n{words}\\n return None", globals(), space)
        return {"stopReason": await space["act"](self, prompt) or "end_turn"}
    async def answer(self, asked):
        try: self.send(id=asked["id"], result=await self.do(asked["method"], asked["params"]))
        except RequestError as refusal: self.send(id=asked["id"], error=refusal.args[0])
        except Exception as error: self.send(id=asked["id"], error={"code": -32603, "message": repr(error)})
    async def serve(self):
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            message = json.loads(line)
            if "method" not in message: self.asked[message["id"]].set_result(message)
            elif "id" in message: self.tasks.append(asyncio.create_task(self.answer(message)))
            else: self.cancelled.set()

asyncio.run(Program().serve())
"""
Turn = Callable[..., RehearsalResult]


@pytest.fixture
def turn(rehearse: Callable[..., Rehearsal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Turn:
    """`turn(words)` makes the program do something, in one run with a kept session."""
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
file, old = pathlib.Path("/workspace/src/app.py"), "    return 42\\n"
edit = {"type": "diff", "path": str(file), "oldText": old, "newText": old.replace("42", "43")}
text = lambda text: [{"type": "content", "content": {"type": "text", "text": text}}]
async def call(key, title, kind, **more):
    await self.update("tool_call", toolCallId=key, title=title, kind=kind, **more)
async def told(key, **more):
    await self.update("tool_call_update", toolCallId=key, **more)
await call("t1", "Edit app.py", "edit", content=[edit])
file.write_text(file.read_text().replace("42", "43"))
offered = [{"optionId": one, "name": one, "kind": one} for one in ("reject_once", "allow_once")]
asked = {"toolCallId": "t2", "title": "cat"}
allowed = await self.ask("session/request_permission", toolCall=asked, options=offered)
await call("t2", "cat", "execute", rawInput={"command": "cat src/app.py"})
await told("t2", status="completed", content=text(allowed["outcome"]["optionId"]))
await self.say("It says 43.")
"""


def test_an_acp_program_works_and_resumes_its_session(turn: Turn) -> None:
    """All its permission requests are granted, and its reports are steps; a loaded session's repeats are not."""
    done = turn(WORK)

    assert (done.failure, done.result.summary) == (None, "It says 43."), done.log
    assert "+    return 43" in done.diff
    steps = [(step.kind, step.text) for step in steps_of("acp", done.log.encode()) if step.kind != "log"]
    assert steps == [
        ("said", "Let me look."),
        ("edited", "src/app.py\n-     return 42\n+     return 43"),
        ("ran", "cat src/app.py"),
        ("result", "allow_once"),
        ("said", "It says 43."),
        ("ended", ""),
    ]

    again = turn("await self.say('And now this.')\npathlib.Path.home().joinpath('s-1').unlink()", number=2)

    assert (again.failure, again.result.summary) == (None, "And now this."), again.log
    assert ("what I said before" in again.log, '"lost"' in again.log) == (False, False)
    lost = turn("await self.say(prompt[:13])", number=3)

    assert (lost.failure, lost.result.summary, '"lost"' in lost.log) == (None, "Earlier turns", True), lost.log


def test_each_way_a_turn_ends_has_an_outcome(turn: Turn) -> None:
    """An error, a sudden exit and each reason to stop have their outcome."""
    error = turn("raise RequestError({'code': -32603, 'message': 'insufficient quota'})")
    ended = turn("print('out of paper', file=sys.stderr, flush=True); os._exit(3)")

    assert (error.reason, "insufficient quota" in str(error.failure)) == ("out_of_budget", True), error.log
    assert (ended.reason, "exited with status 3 before it had" in str(ended.failure)) == ("failed", True), ended.log
    assert "out of paper" in ended.log
    for stop, reason, text in (
        ("end_turn", None, ""),
        ("refusal", "refused", "refused the task"),
        ("max_tokens", "cut_short", "was cut at its limit of tokens"),
        ("cancelled", "failed", "stopped before its answer (cancelled)"),
    ):
        reader = OutcomeReader(ACP.listener)
        reader.feed(json.dumps({"acp": "end", "stop_reason": stop}).encode() + b"\n")
        found = reader.failure(0)

        assert (found and found.reason, text in (found.text if found else "")) == (reason, True)


TWICE = """await self.say("Once.")
answer = b'{"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "%s"}}\\n'
os.write(1, answer % b"end_turn" + answer % b"refusal")
await asyncio.sleep(600)"""
STRAY = """update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Elsewhere."}}
self.send(method="session/update", params={"sessionId": "s-2", "update": update})
os.write(1, b'[]\\nnull\\n7\\n"a"\\n{"id": 2}\\n')
await self.say("x" * (40 << 20))
await self.say("Still here.")"""
HOSTILE = {
    "stray messages and 40 MB in a line": (STRAY, None, "Still here."),
    "the client's files": ("await self.ask('fs/read_text_file', path='/etc/passwd')", "Method not found", None),
    "two answers": (TWICE, None, "Once."),
}


@pytest.mark.parametrize(("does", "failure", "summary"), HOSTILE.values(), ids=HOSTILE)
def test_a_misbehaving_program_fails_with_a_clear_reason(
    turn: Turn, does: str, failure: str | None, summary: str | None
) -> None:
    """The files that it changed are kept."""
    done = turn(f"open('kept.txt', 'w')\n{does}")

    assert (done.result.summary, "kept.txt" in done.diff) == (summary, True), done.log[-3000:]
    assert (failure is None) == (done.failure is None), done.failure
    assert failure is None or failure in str(done.failure)
    assert (len(done.log) < 100_000, '"left_out"' in done.log) == (True, does is STRAY)
    assert does is not STRAY or "no message of the protocol: 7\n" in done.log
