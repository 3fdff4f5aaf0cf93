"""Completion of names and values, and its installation into shells."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.lab import Lab

CONFIGURED = """
[profiles.acme]
base_url = "http://127.0.0.1:9/v1"
token_env = "ACME"
[profiles.other]
base_url = "http://127.0.0.1:8/v1"
token_env = "OTHER"
[[automations]]
name = "night"
on = { every = "1d" }
do = { notify = "default" }
"""


def completed(at: CommandLine, *words: str) -> list[str]:
    """What bash would offer for the last word."""
    asked = {"_RUNWARDEN_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["runwarden", *words])}
    done = at(**asked, COMP_CWORD=str(len(words)))
    assert (done.code, done.err) == (0, "")
    return [line.partition(",")[2] for line in done.out.splitlines() if line]


def test_names_and_values_are_completed(lone: CommandLine) -> None:
    """Also those of the service's own command line, and never by asking a service; a broken file completes nothing."""
    config, broken = lone.home / "config.toml", lone.home / "broken.toml"
    config.write_text(CONFIGURED)
    broken.write_text("no toml")
    lone.more.update(RUNWARDEN_CONFIG=str(config), RUNWARDEN_BASE_URL="", RUNWARDEN_TOKEN="")
    assert "bash, zsh or fish" in lone("completion", SHELL="/bin/tcsh").err

    for line, offered in {
        "ru": ["runs"],
        "runs vi": ["view"],
        "runs list --act": ["--active"],
        "runs list --status fai": ["failed"],
        "--profile ": ["acme", "other"],
        "runs list --token-stdin --profile o": ["other"],
        "automations pause ": ["night"],
        "--profile acme runs show ": [],
        "service org li": ["list"],
        f"--config {broken} --profile a": [],
    }.items():
        assert completed(lone, *line.split(" ")) == offered, line


def test_what_others_named_is_completed_from_the_cache_and_quoted(boarded: CommandLine, board: Lab) -> None:
    """In bash's line a status is one word, and nothing that runs; bash replaces what follows a name's last colon."""
    data = {"platform": "gitlab", "data": {"group": "group", "project": "web"}}
    board.put("run_01", "completed", repository=data)
    for number, status in enumerate(("$(touch owned)", "a b", "x\nplain,y")):
        board.put(f"odd_{number}", status)
    assert boarded("runs", "list").code == 0

    assert completed(boarded, "runs", "show", "run") == ["run_01"]
    offered = completed(boarded, "runs", "list", "--status", "")
    assert {"'$(touch owned)'", "'a b'"} <= {*offered}
    assert not any("\n" in word or word in {"y", "x"} for word in offered)
    assert "acme/api" in completed(boarded, "runs", "list", "-R", "acme/")
    assert completed(boarded, "runs", "list", "-R", "git") == ["gitlab:group/web"]
    for words in (("gitlab", ":", "gro"), ("gitlab", ":")):
        assert completed(boarded, "runs", "list", "-R", *words) == ["group/web"]


@pytest.mark.parametrize(
    ("shell", "complete"),
    [
        ("bash", "COMP_WORDS=(runwarden ru); COMP_CWORD=1; _runwarden_completion runwarden; echo ${COMPREPLY[@]}"),
        ("zsh", "echo $_comps[runwarden]"),
        ("fish", "complete -C 'runwarden ru'"),
    ],
)
def test_one_command_installs_it_and_the_shell_reads_it(lone: CommandLine, shell: str, complete: str) -> None:
    """Where the shell looks; a second time changes nothing."""
    first, second = lone("completion", shell, "--install"), lone("completion", shell, "--install")

    path = Path(first.out.partition("Written to ")[2].partition(". It")[0])
    assert (first.code, second.code) == (0, 0)
    assert path.is_relative_to(lone.home)
    assert path.read_text() == lone("completion", shell).out
    if shell == "zsh":
        assert (lone.home / ".zshrc").read_text().count(str(path.parent)) == 1
    if shutil.which(shell) is None:
        return
    program = lone.home / "runwarden"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m app "$@"\n')
    program.chmod(0o700)
    before = "autoload -Uz compinit; compinit -u; " if shell == "zsh" else ""
    env = {**lone.environment, "PATH": f"{lone.home}{os.pathsep}{os.environ['PATH']}"}

    done = subprocess.run(
        [shell, "-c", f"{before}source {path}; {complete}"], env=env, capture_output=True, text=True, check=True
    )
    assert "runs" in done.stdout or "_runwarden_completion" in done.stdout
