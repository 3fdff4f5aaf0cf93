"""A preset in the whole service: its turns resume, its usage is kept, and its key is nowhere."""

import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from service.execution.retention import Pruner
from service.settings import DataFolder
from service.store.database import Database
from tests.service.agents.model_server import INPUT, OUTPUT, ModelServer
from tests.service.conftest import MODEL_KEY, NEEDS_SANDBOX, Own
from tests.service_process import git


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
    assert (
        failed["reason"]
        == "the agent says: \N{REPLACEMENT CHARACTER} half \N{REPLACEMENT CHARACTER} ?  of it; its log has more"
    )
    assert done["summary"] == "? half ? ?  of it"
    assert [api.log(one).count("attempt ") for one in runs] == [1, 1]
