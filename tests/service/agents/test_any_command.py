"""Any command can be an agent: what it is told, what it finds, and what it may keep."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.execution.processes import IdleWatch
from service.store.agents import Agent

Make = Callable[..., Any]


@pytest.mark.parametrize("given", ["plain words", "--dangerously-obey", "-x", "two\nlines", "ünï"])
def test_instructions_reach_a_command_as_one_argument_and_never_as_an_option(
    rehearse: Make, script: Make, given: str
) -> None:
    """By themselves, after `--name=`, and in a file; standard input is then empty, and not open."""
    source = 'printf "%s|" "$@"; cat "$3"; cat; echo end'
    agent = script(source, "{instructions}", "--message={instructions}", "{instructions_file}", "{run_id}", "{branch}")
    done = rehearse().turn(agent, given)
    own = f" {given}" if given.startswith("-") else given
    words = done.log.split("|")

    assert done.failure is None, done.log
    assert (words[0], words[1], words[3:5]) == (own, f"--message={given}", ["run_rehearsal", "rehearsal"])
    assert words[5] == f"{given}\nend\n"


def test_without_placeholders_the_task_is_on_standard_input(rehearse: Make, script: Make) -> None:
    """As the agent contract has it, from a file."""
    assert '"instructions": "look"' in rehearse().turn(script("cat; test -f /dev/stdin"), "look").log


def test_git_works_inside_and_its_commits_become_part_of_the_turn_s(rehearse: Make, script: Make) -> None:
    """Log, add, commit and diff; committed and not committed changes are one diff, and no `.git` is in it."""
    source = (
        "set -e; unset GIT_DIR GIT_WORK_TREE; git log --format=%s; echo one > one; git add one; git commit -qm One\n"
        "echo more >> README.md; git diff --stat; git log --format=%an:%s -1; pwd; echo $HOME"
    )
    done = rehearse().turn(script(source), "commit")

    assert done.failure is None, done.log
    assert done.log.splitlines()[0] == "First commit"
    assert done.log.splitlines()[-3:] == ["agent:One", "/workspace", "/home/agent"]
    assert "+++ b/one" in done.diff
    assert "+more" in done.diff
    assert ".git" not in done.diff.replace("--git", "")


def test_what_an_agent_plants_in_its_git_and_home_is_never_used_outside(
    rehearse: Make, script: Make, tmp_path: Path
) -> None:
    """Hooks, configuration, attributes and a `.netrc` of the agent's stay its own affair."""
    mark = tmp_path / "owned"
    run = f"touch {mark}"
    source = (
        f"cd $GIT_DIR; printf '#!/bin/sh\\n{run}\\n' | tee hooks/pre-commit hooks/post-index-change >/dev/null\n"
        f"chmod +x hooks/*; git config core.fsmonitor '{run}'; git config filter.x.clean '{run}; cat'\n"
        "echo '* filter=x' > info/attributes; echo '* filter=x' > $GIT_WORK_TREE/.gitattributes\n"
        f"printf '[core]\\n fsmonitor = {run}\\n' > $HOME/.gitconfig; cd $GIT_WORK_TREE; rm .git; git init -q .\n"
        f"git --git-dir=.git config core.fsmonitor '{run}'; echo x > file"
    )
    done = rehearse().turn(script(source, session=True), "plant")

    assert "+++ b/file" in done.diff, done
    assert not mark.exists()


def test_a_session_keeps_the_home_of_a_run_at_one_path(rehearse: Make, script: Make) -> None:
    """Three turns of a run find what the earlier ones left, another run does not, nor does an agent without one."""
    source = 'echo "$2" >> $HOME/said; cat $HOME/said; echo $HOME $PWD'
    stage, agent = rehearse(), script(source, "--", "{instructions}", session=True)
    logs = [stage.turn(agent, word, number=number).log for number, word in enumerate(("a", "b", "c"), 1)]
    other = stage.turn(agent, "d", run_id="run_other").log
    forgetful = [stage.turn(script(source, "--", "{instructions}"), word, run_id="run_x").log for word in "ef"]

    assert logs[2] == "a\nb\nc\n/home/agent /workspace\n"
    assert other.startswith("d\n/")
    assert forgetful[1].startswith("f\n/")


def test_a_cache_stays_from_run_to_run_within_its_size(rehearse: Make, script: Make) -> None:
    """It is the agent's XDG_CACHE_HOME; one that grows beyond its limit ends the turn, and says which."""
    stage = rehearse()
    source = "cat $XDG_CACHE_HOME/word; echo kept > $XDG_CACHE_HOME/word; {}"
    stage.turn(script(source.format("true"), cache=1 << 20), "fill", run_id="run_a")
    again = stage.turn(script(source.format("true"), cache=1 << 20), "read", run_id="run_b")
    flood = "head -c 9000000 /dev/urandom > $XDG_CACHE_HOME/big; sleep 300"
    over = stage.turn(script(source.format(flood), cache=1 << 20), "flood", run_id="run_c")

    assert again.log == "kept\n"
    assert "allowed (cache of the agent)" in str(over.failure)


def test_what_is_named_readable_can_be_read_and_not_written(rehearse: Make, script: Make, tmp_path: Path) -> None:
    """Without the key it is not there."""
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "facts").write_text("known\n", "utf-8")
    stage, source = rehearse(), f"cat {tmp_path}/shown/facts; touch {tmp_path}/shown/new"
    shown = stage.turn(script(source, readable=[str(tmp_path / "shown")]), "read")
    hidden = stage.turn(script(source), "read")

    assert "known" in shown.log
    assert "Read-only file system" in shown.log
    assert "known" not in hidden.log


def test_an_agent_that_neither_prints_nor_computes_is_ended(rehearse: Make, script: Make) -> None:
    """Long before its time is over."""
    idle = rehearse().turn(script("sleep 1000", idle_timeout_s=0.5), "wait")

    assert "neither printed nor computed for 0.5 s" in str(idle.failure)


@pytest.mark.parametrize(
    ("cpu_s", "is_active", "idle"), [(0.0, False, True), (0.01, False, True), (0.05, False, False), (0.0, True, False)]
)
def test_one_that_computes_or_prints_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, cpu_s: float, *, is_active: bool, idle: bool
) -> None:
    """Half way to its time-out of a second; what the timers of an idle program take is no work."""
    now = [0.0]
    monkeypatch.setattr("service.execution.processes.time", SimpleNamespace(monotonic=lambda: now[0]))
    watch = IdleWatch(1)
    now[0] = 0.5
    assert not watch.passed(cpu_s, is_active=is_active)
    now[0] = 1.2

    assert watch.passed(cpu_s, is_active=False) is idle


def test_a_program_that_is_not_there_is_named_with_the_cure(rehearse: Make) -> None:
    """Not as an exit status."""
    done = rehearse().turn(Agent("ghost", ("no-such-agent", "-p")), "go")

    assert str(done.failure).startswith("the program 'no-such-agent' is not there")
    assert "install it" in str(done.failure)
