import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine

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
    done = CommandLine(at.home, at.base_url, at.token, at.more)(**asked, COMP_CWORD=str(len(words)))
    assert (done.code, done.err) == (0, "")
    return [line.partition(",")[2] for line in done.out.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], ["runs"]),
        (["runs", "sho"], ["show"]),
        (["runs", "list", "--act"], ["--active"]),
        (["runs", "list", "--status", "fai"], ["failed"]),
        (["--profile", ""], ["acme", "other"]),
        (["runs", "list", "--token-stdin", "--profile", "o"], ["other"]),
        (["automations", "pause", ""], ["night"]),
        (["--profile", "acme", "runs", "show", ""], []),
        (["service", "appl"], ["apply"]),
        (["service", "org", "li"], ["list"]),
    ],
)
def test_names_and_values_are_completed(lone: CommandLine, words: list[str], offered: list[str]) -> None:
    """Also those of the service's own command line, and never by asking a service."""
    config = lone.home / "config.toml"
    config.write_text(CONFIGURED)
    lone.more.update(RUNWARDEN_CONFIG=str(config), RUNWARDEN_BASE_URL="", RUNWARDEN_TOKEN="")

    assert completed(lone, *words) == offered


def test_a_broken_configuration_completes_nothing_and_says_nothing(lone: CommandLine) -> None:
    """The person is in the middle of a line."""
    (lone.home / "broken.toml").write_text("no toml")

    assert completed(lone, "--config", str(lone.home / "broken.toml"), "--profile", "a") == []


def test_runs_are_completed_from_the_cache(real: CommandLine) -> None:
    """Their ids, and what they are about."""
    assert real("runs", "start", "-R", "acme/api", "Complete me.", "--json").code == 0
    run_id = real("runs", "list", "--json").json()["runs"][0]["run_id"]

    assert run_id in completed(real, "runs", "show", run_id[:6])
    assert "acme/api" in completed(real, "runs", "list", "-R", "acme/")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_one_command_installs_it(lone: CommandLine, shell: str) -> None:
    """Where the shell looks; a second time changes nothing."""
    first, second = lone("completion", shell, "--install"), lone("completion", shell, "--install")

    path = Path(first.out.partition("Written to ")[2].partition(". It")[0])
    assert (first.code, second.code) == (0, 0)
    assert path.is_relative_to(lone.home)
    assert path.read_text() == lone("completion", shell).out
    if shell == "zsh":
        assert (lone.home / ".zshrc").read_text().count(str(path.parent)) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_read_their_scripts(lone: CommandLine, shell: str) -> None:
    """The shells themselves."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    (lone.home / "script").write_text(lone("completion", shell).out)
    commands = {
        "bash": "source ./script; COMP_WORDS=(runwarden ru); COMP_CWORD=1; _runwarden_completion runwarden; "
        'echo "${COMPREPLY[@]}"',
        "zsh": "autoload -Uz compinit; compinit -u; source ./script; echo $_comps[runwarden]",
        "fish": "source ./script; complete -C 'runwarden ru'",
    }
    program = lone.home / "runwarden"
    program.write_text(f'#!/bin/sh\nexec {" ".join(lone.argv())} "$@"\n')
    program.chmod(0o700)

    done = subprocess.run(
        [shell, "-c", commands[shell]],
        env={**lone.environment, "PATH": f"{lone.home}{os.pathsep}{os.environ['PATH']}"},
        cwd=lone.home,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "runs" in done.stdout or "_runwarden_completion" in done.stdout


def test_an_unknown_shell_is_told_which_there_are(lone: CommandLine) -> None:
    """Where $SHELL is another one."""
    result = lone("completion", SHELL="/bin/tcsh")

    assert result.code == 2
    assert "bash, zsh or fish" in result.err
