"""Any command can be an agent: its task, its files, its output and its exit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.agents import outcome
from service.agents.options import Agent
from service.agents.outcome import OutcomeReader
from service.execution import agent as agent_process
from service.settings import AgentLimits, ExecutionSettings
from tests.waiting import present

Make = Callable[..., Any]


def test_instructions_are_one_argument_and_never_an_option(rehearse: Make, script: Make) -> None:
    """Instructions may be an argument, follow `--name=` or come in a file; standard input is then empty."""
    source = 'printf "%s|" "$@"; cat "$3"; cat; echo end'
    agent = script(source, "{instructions}", "--message={instructions}", "{instructions_file}", "{run_id}", "{branch}")
    given = "--dangerously-obey\ntwo lines ünï"
    words = rehearse().turn(agent, given).log.split("|")

    assert (words[0], words[1], words[3:5]) == (f" {given}", f"--message={given}", ["run_rehearsal", "rehearsal"])
    assert words[5] == f"{given}\nend\n"


def test_a_command_gets_its_task_and_readable_folders(rehearse: Make, script: Make, tmp_path: Path) -> None:
    """The task comes on standard input, configured folders are read-only, and an idle agent is stopped."""
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "facts").write_text("known\n", "utf-8")
    stage, source = rehearse(), f"cat; test -f /dev/stdin; cat {tmp_path}/shown/facts; touch {tmp_path}/shown/new"
    shown = stage.turn(script(source, readable=[str(tmp_path / "shown")]), "read").log
    idle = stage.turn(script(f"{source}; sleep 1000", idle_timeout_s=0.5), "look")
    ghost = stage.turn(Agent("ghost", ("no-such-agent", "-p")), "go").failure

    assert '"instructions": "read"' in shown
    assert ("known" in shown, "Read-only file system" in shown, "known" in idle.log) == (True, True, False)
    assert "neither printed nor computed for 0.5 s" in str(idle.failure)
    assert str(ghost).startswith("the program 'no-such-agent' is not there")


def test_files_in_an_agents_home_are_never_used_outside(rehearse: Make, script: Make, tmp_path: Path) -> None:
    """The agent's git configuration and attributes only affect the agent itself."""
    mark = tmp_path / "owned"
    source = (
        f"printf '[core]\\n fsmonitor = touch {mark}\\n' > $HOME/.gitconfig\n"
        f"git config filter.x.clean 'touch {mark}; cat'; echo '* filter=x' > $GIT_DIR/info/attributes\n"
        "echo '* filter=x' > .gitattributes; echo x > file"
    )
    done = rehearse().turn(script(source, session=True), "plant")

    assert "+++ b/file" in done.diff, done
    assert not mark.exists()


def test_homes_belong_to_runs_and_caches_to_agents(rehearse: Make, script: Make) -> None:
    """Another run has its own home; a cache that grows too large fails the turn."""
    home = 'echo "$2" >> $HOME/said; cat $HOME/said'
    cache = "cat $XDG_CACHE_HOME/word; echo kept > $XDG_CACHE_HOME/word; {}"
    flood = "head -c 9000000 /dev/urandom > $XDG_CACHE_HOME/big; sleep 300"
    stage, agent = rehearse(), script(home, "--", "{instructions}", session=True)
    logs = [stage.turn(agent, word, number=number).log for number, word in enumerate("ab", 1)]
    logs.append(stage.turn(agent, "c", run_id="run_other").log)
    caching = [stage.turn(script(cache.format("true"), cache=1 << 20), "go", run_id=f"run_{one}").log for one in "ab"]
    over = stage.turn(script(cache.format(flood), cache=1 << 20), "flood", run_id="run_c")

    assert logs[1:] == ["a\nb\n", "c\n"]
    assert caching[1] == "kept\n"
    assert "allowed (cache of the agent)" in str(over.failure)


def test_a_long_log_keeps_its_beginning_and_end(rehearse: Make, script: Make) -> None:
    """Each half of the limit has whole lines, with the number of bytes between them."""
    settings = ExecutionSettings(agent=AgentLimits(output_bytes=8192))
    source = "echo first; yes 'a line' | head -n 100000; echo last"
    long = rehearse(settings=settings).turn(script(source), "go").log
    before, _, after = long.partition("bytes were dropped here: a log keeps the first and the last 4096 bytes")

    assert long.startswith("first\na line\n")
    assert after.startswith(" (output_bytes)]\na line\n")
    assert long.endswith("a line\nlast\n")
    assert len(before) < 4200
    assert len(after) < 4200


def test_the_last_lines_and_events_are_found_among_millions() -> None:
    """A failure quotes the last words, even after much output, and events are found anywhere."""
    noise = b"a line\n" * 50_000
    reader, events = OutcomeReader(), OutcomeReader(outcome.codex)
    for piece in (noise, b"one\n\ntwo\nthr", b"ee\n"):
        reader.feed(piece)
    for piece in (noise + b'{"type":"turn.comp', b'leted"}\n' + noise, b'{"type": broken\n'):
        events.feed(piece)

    assert "one two three" in present(reader.failure(3)).text
    assert events.failure(0) is None


RESULT = '{"type":"result","subtype":"success","is_error":false,"result":"All done.","session_id":"s1"}'
FAULT = '{"type":"result","subtype":"error_during_execution","is_error":true,"result":"It broke."}'
LINGERED = "the program reported its end but stayed for 1 s more, and was stopped"


@pytest.mark.parametrize(
    ("source", "failure"),
    [
        (f"trap '' TERM; echo '{RESULT}'; while echo still here; do sleep 0.2; done", None),
        (f"echo '{FAULT}'; while :; do :; done", "It broke"),
    ],
    ids=["ignores signals", "failed and computes"],
)
def test_a_program_that_does_not_exit_is_stopped(
    rehearse: Make, script: Make, monkeypatch: pytest.MonkeyPatch, source: str, failure: str | None
) -> None:
    """The change that it made is kept."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    monkeypatch.setattr(agent_process, "DONE_GRACE_S", 1)
    given: Agent = script(f"read -r line; echo x > x.txt; {source}", preset="claude-code")
    done = rehearse().turn(replace(given, environment=("ANTHROPIC_API_KEY",)), "go")

    assert LINGERED in done.log
    assert (done.failure is None) == (failure is None), done.failure
    assert failure is None or failure in str(done.failure)
    assert "x.txt" in done.diff
