"""A preset in the whole service: its turns resume, its usage is kept, and its key is nowhere."""

import json
import shlex
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from service.execution.retention import Pruner
from service.settings import DataFolder
from service.store.database import Database
from tests.service.agents.model_server import INPUT, OUTPUT, ModelServer
from tests.service.conftest import MODEL_KEY, NEEDS_SANDBOX, Api, Own
from tests.service.test_traces import QUICK, Collector
from tests.service_process import demo_setup, git


@NEEDS_SANDBOX
def test_a_preset_s_run_is_a_conversation_whose_cost_is_kept(
    own: Own, equipped: Any, server: ModelServer, stand_in: Callable[[str], Path]
) -> None:
    """Two turns, one session; usage by turn; the key in nothing that is kept; removed with what is pruned."""
    prices = {"claude-": {"input": 100, "output": 100}}
    model = {"provider": "anthropic", "key_env": "MODEL_KEY", "base_url": server.origin, "prices": prices}
    frugal = model | {"budget": {"run_usd": 0.01}, "prices": {"": prices["claude-"]}}
    preset = {"preset": "claude-code", "argv": [str(stand_in("claude"))]}
    agents = [preset | {"name": "helper", "model": model}, preset | {"name": "frugal", "model": frugal}]
    api, repository = own(on=equipped, agents=agents)
    run_id = api.begin("helper", instructions="Remember alfa.")
    first = api.ended(run_id)
    api.follow(run_id, "And bravo.")
    second = api.ended(run_id)
    told = [turn["usage"] for turn in api.turns(run_id)]
    notes = git("show", f"{first['branch_name']}:notes.txt", cwd=repository)
    folder = DataFolder(api.service.data_dir)
    held = subprocess.run(["grep", "-rlF", MODEL_KEY, str(folder.root)], capture_output=True, check=False).stdout
    kept = (folder.sessions / run_id).exists()
    with closing(Database(folder.database_url)) as database:
        Pruner(database, folder).sessions(before=1 << 62)
    pruned = not (folder.sessions / run_id).exists()
    words = ("say nothing", "ask me", "ask in a file, say nothing")
    quiet = [api.begin("helper", instructions=each) for each in words]
    odd = [api.turns(api.ended(one)["run_id"])[0] for one in quiet]
    dear = api.begin("frugal", instructions="Remember charlie.")
    ended = api.ended(dear)
    spent = api.turns(dear)[0]
    server.status = 401
    refused = api.begin("helper", instructions="go")
    api.ended(refused)
    turn = api.turns(refused)[0]

    assert (first["status"], second["status"]) == ("completed", "completed"), api.log(run_id)
    assert notes.startswith("Nobody answers while you work."), "the rules come before the task"
    assert "\nRemember alfa." in notes
    assert "And bravo." in notes
    assert [(one["requests"], one["input_tokens"], one["output_tokens"]) for one in told] == [(1, INPUT, OUTPUT)] * 2
    assert (held, kept, pruned) == (b"", True, True)
    assert all((folder.sessions / one).exists() for one in (*quiet, dear, refused))
    assert turn["reason"].endswith(" answered 401 for m: no; set MODEL_KEY to a valid key"), "not an exit status"
    assert turn["failure_kind"] == "no_key"
    assert [(one["failure_kind"], one["outcome"], one["question"], one.get("offer")) for one in odd] == [
        ("refused", "failed", None, None),
        (None, "completed", None, "Which one?"),
        ("needs_answer", "needs_answer", "This one?", None),
    ]
    assert (ended["status"], spent["failure_kind"], spent["commit"]) == ("failed", "out_of_budget", None)
    assert spent["reason"].endswith("is spent (budget.run_usd); the agent's last answer passed it")
    assert spent["files"] == 2, "what it changed is kept"


@NEEDS_SANDBOX
def test_what_a_program_says_of_itself_is_only_text(own: Own, equipped: Any, tmp_path: Path) -> None:
    """JSON can hold halves of characters and NUL, which no database takes: the turn ends as it did, once."""
    model, agents = {"provider": "anthropic", "key_env": "MODEL_KEY"}, []
    for name, is_error in (("failing", True), ("done", False)):
        result = "\udc00 half \ud800 \udcff \0 of it"
        event = {"type": "result", "is_error": is_error, "result": result, "subtype": "success"}
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ncat > told.txt\ncat <<'EOF'\n{json.dumps(event)}\nEOF\n", "utf-8")
        program.chmod(0o755)
        agents.append({"name": name, "preset": "claude-code", "argv": [str(program)], "model": model})
    api, _ = own(on=equipped, agents=agents)
    runs = [api.begin(name, instructions="go") for name in ("failing", "done")]
    failed, done = (api.turns(api.ended(one)["run_id"])[0] for one in runs)

    assert [one["outcome"] for one in (failed, done)] == ["failed", "completed"], (failed, done)
    assert failed["reason"] == "the agent says: \ufffd half \ufffd ?  of it; its log has more"
    assert done["summary"] == "? half ? ?  of it"
    assert [api.log(one).count("attempt ") for one in runs] == [1, 1]


@NEEDS_SANDBOX
def test_calls_of_models_and_tools_are_traced_below_their_agent(
    start: Callable[..., Api], server: ModelServer, stand_in: Callable[[str], Path], tmp_path: Path
) -> None:
    """As OpenTelemetry's conventions for generative AI say, with tokens and times, and without a word of the run."""
    program, real = tmp_path / "claude", stand_in("claude")
    used = {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": "echo secret-words"}}
    done = {"type": "tool_result", "tool_use_id": "call_1", "content": "secret-words", "is_error": True}
    events = [
        {"type": "assistant", "message": {"content": [used]}, "timestamp": "2026-01-31T08:00:00Z"},
        {"type": "user", "message": {"content": [done]}, "timestamp": "2026-01-31T08:00:02Z"},
    ]
    lines = "".join(f"echo {shlex.quote(json.dumps(one))}\n" for one in events)
    program.write_text(f'#!/bin/sh\n{lines}exec {real} "$@"\n')
    program.chmod(0o755)
    model = {"provider": "anthropic", "key_env": "MODEL_KEY", "base_url": server.origin, "name": "claude-sonnet-4-5"}
    model |= {"models": ["m"]}  # which the stand-in asks for, whatever its name
    setup = demo_setup(tmp_path)
    agent = {"name": "helper", "preset": "claude-code", "argv": [str(program)], "model": model}
    setup["agents"].append(agent | {"readable": [str(tmp_path / "npm")]})
    with Collector() as collector:
        settings = f'[traces]\nendpoint = "{collector.origin}"\n'
        api = start(setup=setup, settings=settings, environment=QUICK | {"MODEL_KEY": MODEL_KEY})
        run_id = api.begin("helper", instructions="Remember alfa.")
        assert api.ended(run_id)["status"] == "completed", api.log(run_id)
        assert api.service.stop() == 0
    (agent,), (tool,) = collector.named("invoke_agent helper"), collector.named("execute_tool ran")
    (call,) = (one for one in collector.spans.values() if one.name.startswith("chat "))
    told = {one.key: one.value.string_value or one.value.int_value for one in call.attributes}

    assert {call.parent_span_id, tool.parent_span_id} == {agent.span_id}
    assert collector.spans[agent.parent_span_id.hex()].name == "turn"
    assert told["gen_ai.provider.name"] == "anthropic"
    assert told["gen_ai.usage.output_tokens"] == OUTPUT
    assert told["gen_ai.usage.input_tokens"] == INPUT + told["gen_ai.usage.cache_read.input_tokens"]
    assert agent.start_time_unix_nano <= call.start_time_unix_nano <= call.end_time_unix_nano
    assert tool.end_time_unix_nano - tool.start_time_unix_nano == 2_000_000_000
    assert tool.status.code == 2
    assert "secret-words" not in str(collector.spans)
    assert "Remember" not in str([one for one in collector.spans.values() if "gen_ai" in str(one)])
