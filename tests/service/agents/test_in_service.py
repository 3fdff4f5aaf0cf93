"""A preset in the whole service: turns resume, usage is recorded, the key leaks nowhere, and calls are traced."""

import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from service.execution.retention import prune_sessions
from service.settings import DataFolder
from service.store.database import Database
from tests.lab import Received, Respond, Server
from tests.service.agents.model_server import INPUT, OUTPUT, ModelServer
from tests.service.conftest import MODEL_KEY, NEEDS_SANDBOX, Api, Own
from tests.service_process import demo_setup, git


@NEEDS_SANDBOX
def test_a_preset_s_run_is_a_conversation_whose_cost_is_kept(
    own: Own, equipped: Any, server: ModelServer, stand_in: Callable[[str], Path]
) -> None:
    """Two turns share a session, usage is recorded per turn, and the key is stored nowhere.

    Pruning removes the session.
    """
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
        prune_sessions(database, folder, before=1 << 62)
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
def test_a_programs_invalid_text_is_stored_safely(own: Own, equipped: Any, tmp_path: Path) -> None:
    """JSON may have lone surrogates and NUL, which no database stores; the turn still ends once."""
    model, program = {"provider": "anthropic", "key_env": "MODEL_KEY"}, tmp_path / "failing"
    event = {"type": "result", "is_error": True, "result": "\udc00 half \ud800 \udcff \0 of it", "subtype": "success"}
    program.write_text(f"#!/bin/sh\nhead -n 1 > told.txt\ncat <<'EOF'\n{json.dumps(event)}\nEOF\n", "utf-8")
    program.chmod(0o755)
    agent = {"name": "failing", "preset": "claude-code", "argv": [str(program)], "model": model}
    api, _ = own(on=equipped, agents=[agent])
    run_id = api.begin("failing", instructions="go")
    api.ended(run_id)
    (failed,) = api.turns(run_id)

    assert failed["outcome"] == "failed"
    assert failed["reason"] == "the agent says: \ufffd half \ufffd ?  of it; its log has more"
    assert api.log(run_id).count("attempt ") == 1


class Collector(Server):
    """Receives spans, like a collector."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[Span] = []

    def answer(self, request: Received) -> Respond:
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return Respond(200, b"")

    def of(self, start: str) -> Span:
        return next(one for one in self.spans if one.name.startswith(start))


@NEEDS_SANDBOX
def test_a_turn_and_its_calls_are_traced(
    start: Callable[..., Api], server: ModelServer, stand_in: Callable[[str], Path], tmp_path: Path
) -> None:
    """No span has a token or any of the run's words."""
    model = {"provider": "anthropic", "key_env": "MODEL_KEY", "base_url": server.origin, "name": "claude-sonnet-4-5"}
    model |= {"models": ["m"]}  # The stand-in requests this model, whatever its name.
    helper = {"name": "helper", "preset": "claude-code", "argv": [str(stand_in("claude"))], "model": model}
    setup = demo_setup(tmp_path)
    setup["agents"].append(helper)
    with Collector() as collector:
        traces = f'[traces]\nendpoint = "{collector.origin}"\n'
        api = start(setup=setup, settings=traces, environment={"MODEL_KEY": MODEL_KEY})
        run_id = api.begin("helper", instructions="Remember alfa.")
        assert api.ended(run_id)["status"] == "completed", api.log(run_id)
        assert api.service.stop() == 0
    turn, agent, call = collector.of("turn"), collector.of("invoke_agent helper"), collector.of("chat ")
    counted = {one.key: one.value.int_value for one in call.attributes if "usage" in one.key}

    assert collector.of("POST /v1/external/agents/{name}/runs").span_id == turn.parent_span_id
    assert (agent.parent_span_id, call.parent_span_id) == (turn.span_id, agent.span_id)
    assert counted["gen_ai.usage.output_tokens"] == OUTPUT
    assert counted["gen_ai.usage.input_tokens"] == INPUT + counted["gen_ai.usage.cache_read.input_tokens"]
    assert [one for one in (api.token, MODEL_KEY, "Remember") if one in str(collector.spans)] == []
