import stat
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.lab import Lab


def test_the_path_is_told_whether_or_not_the_file_is_there(lone: CommandLine) -> None:
    """`set` makes it from the commented example, readable by its owner only."""
    result = lone("config", "path", "--json")
    path = Path(result.json()["path"])

    assert result.json() == {"path": str(lone.home / ".config/runwarden/config.toml"), "exists": False}
    assert lone("config", "path").out.strip() == str(path)
    assert lone("config", "set", "poll.runs_s", "30", "--json").json()["value"] == "30"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "runs_s = 30" in path.read_text()


def test_init_writes_a_file_that_is_ones_own_and_never_over_another(lone: CommandLine) -> None:
    """0600, and only --force replaces."""
    first = lone("config", "init", "--json")
    path = Path(first.json()["path"])
    path.write_text("# mine\n")
    second = lone("config", "init", "--json")

    assert first.code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (second.code, second.json()["error"]["kind"], path.read_text()) == (2, "config", "# mine\n")
    assert lone("config", "init", "--force").code == 0
    assert path.read_text() != "# mine\n"


def test_check_says_what_it_comes_to(lone: CommandLine) -> None:
    """Which profile, which address, which folder; the token is not among it."""
    result = lone("config", "check", "--json")

    assert result.code == 0
    assert result.json()["profile"] == "environment"
    assert result.json()["base_url"] == lone.base_url
    assert lone.token not in result.out + result.err


MISTAKEN = """default_profile = "acme"
[poll]
runs_seconds = 3
[profiles.acme]
base_url = "ftp://acme.example/v1"
[profiles.globex]
base_url = "https://globex.example/v1"
token_file = "not-there"
[console]
theme = "runwardn"
[[views]]
query = "is:active"
[[views]]
name = "Mine"
query = "is:active"
colour = "red"
[keys]
run.continue = "nonsense"
"""


def test_the_check_reports_all_mistakes_at_once(lone: CommandLine) -> None:
    """Each with its file and line, and none that only follows from another, such as a mistaken default profile."""
    file = lone.home / "bad.toml"
    file.write_text(MISTAKEN)

    result = lone("--config", str(file), "config", "check", "--json")
    said = lone("--config", str(file), "config", "check").err

    error = result.json()["error"]
    assert (result.code, error["kind"], error["file"], error["line"]) == (2, "config", str(file), 3)
    assert sorted(problem["line"] for problem in error["problems"]) == [3, 5, 8, 10, 11, 16, 18]
    for line, words in ((3, "runs_seconds"), (5, "base_url"), (8, "cannot be read"), (10, "Did you mean runwarden?")):
        (sentence,) = (each for each in said.splitlines() if f"bad.toml:{line}: " in each)
        assert words in sentence


def test_a_key_of_an_action_that_does_not_exist_is_a_warning(lone: CommandLine) -> None:
    """The check names the action and its line, and passes: the console works without it."""
    file = lone.home / "keys.toml"
    file.write_text('[profiles.a]\nbase_url = "https://a.example/v1"\n[keys]\napp.quit = "Q"\nrun.raw = "f6"\n')

    result = lone("--config", str(file), "config", "check", "--json")
    (warning,) = result.json()["warnings"]

    assert result.code == 0
    assert f"{file}:5: keys.run.raw: there is no such action" in warning
    assert warning in result.err


def test_a_theme_that_does_not_exist_is_refused(lone: CommandLine) -> None:
    """The check names those that exist, which are not Textual's."""
    file = lone.home / "themed.toml"
    for theme, code in (("zzz", 2), ("nord", 2), ("runwarden-light", 0)):
        file.write_text(f'[console]\ntheme = "{theme}"\n[profiles.a]\nbase_url = "https://a.example/v1"\n')
        result = lone("--config", str(file), "config", "check")
        assert (result.code, "There are: " in result.err) == (code, code == 2)


def test_profiles_are_listed_without_their_tokens(lone: CommandLine) -> None:
    """Where a token comes from, not what it is. A profile that does not exist is an error that lists the others."""
    file = lone.home / "two.toml"
    file.write_text(
        'default_profile = "b"\n'
        '[profiles.a]\nbase_url = "https://a.example/v1"\ntoken_env = "TOKEN_A"\n'
        '[profiles.b]\nbase_url = "https://b.example/v1"\ntoken_command = ["pass", "b"]\nread_only = true\n'
    )

    result = lone("--config", str(file), "profiles", "list", "--json", RUNWARDEN_BASE_URL="", RUNWARDEN_TOKEN="")
    unknown = lone("--profile", "nope", "runs", "list", "--json")

    a, b = result.json()["profiles"]
    assert (a["name"], a["default"], a["token_from"]) == ("a", False, "environment variable TOKEN_A")
    assert (b["name"], b["default"], b["read_only"]) == ("b", True, True)
    assert (unknown.code, unknown.json()["error"]["kind"]) == (2, "config")
    assert "environment" in unknown.json()["error"]["message"]


COMMENTED = """# mine
[poll]  # how often
runs_s = 10

[profiles.acme]
base_url = "https://acme.example/v1"
"""


@pytest.mark.parametrize(
    ("arguments", "was", "becomes"),
    [
        (["poll.runs_s", "30"], "runs_s = 10", "runs_s = 30"),
        (["profiles.acme.read_only", "true"], 'v1"\n', 'v1"\nread_only = true\n'),
        (["profiles.acme.base_url", "https://b.example/v1"], "https://acme.example/v1", "https://b.example/v1"),
        (["poll.runs_s", "--unset"], "runs_s = 10\n", ""),
        (["console.health_ok", '["fine"]'], 'v1"\n', 'v1"\n\n[console]\nhealth_ok = ["fine"]\n'),
    ],
)
def test_one_key_is_set_and_the_rest_of_the_file_stays(
    lone: CommandLine, arguments: list[str], was: str, becomes: str
) -> None:
    """Comments, order and all."""
    file = lone.home / "own.toml"
    file.write_text(COMMENTED)

    assert lone("--config", str(file), "config", "set", *arguments).code == 0
    assert file.read_text() == COMMENTED.replace(was, becomes)


def test_what_would_not_be_valid_is_not_set(lone: CommandLine) -> None:
    """The file stays as it was."""
    file = lone.home / "own.toml"
    file.write_text(COMMENTED)
    mistakes = ("poll.runs_s soon", "pol.runs_s 3", "poll.runs_s", "poll.runs_s.x 3", "profiles.acme --unset 1")

    for mistake in mistakes:
        result = lone("--config", str(file), "config", "set", *mistake.split())
        assert (result.code, file.read_text(), bool(result.err)) == (2, COMMENTED, True), mistake


def test_an_edit_is_kept_only_if_it_is_valid_and_never_lost(lone: CommandLine) -> None:
    """An editor of one line: it replaces a number."""
    file, editor = lone.home / "own.toml", lone.home / "editor"
    file.write_text(COMMENTED)
    editor.touch(0o700)
    editor.write_text('#!/bin/sh\nsed -i "s/runs_s = .*/runs_s = $NEXT/" "$1"\n')

    good = lone("--config", str(file), "config", "edit", EDITOR=str(editor), NEXT="20")
    assert (good.code, file.read_text()) == (0, COMMENTED.replace("10", "20"))
    bad = lone("--config", str(file), "config", "edit", EDITOR=str(editor), NEXT="never")
    assert (bad.code, file.read_text()) == (2, COMMENTED.replace("10", "20"))
    assert "runs_s = never" in (lone.home / "own.toml.rejected").read_text()
    assert "own.toml.rejected" in bad.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[automations]]\nname = "r"\non = { run = "faild" }\ndo = { notify = "default" }', "Did you mean failed?"),
        ('[[automations]]\nname = "r"\non = { run = "odd" }\ndo = { notify = "default" }', "no run has had the status"),
        ('[notify]\non = ["complete"]', "Did you mean completed?"),
        ('[[automations]]\nname = "[x]"\non = { run = "failed" }\ndo = { notify = "default" }', "are reserved"),
    ],
)
def test_what_would_never_match_is_refused(lone: CommandLine, text: str, said: str) -> None:
    """A status that no run has had, and a name that the program uses itself."""
    file = lone.home / "own.toml"
    file.write_text(f'{text}\n[profiles.a]\nbase_url = "https://acme.example/v1"\n')

    result = lone("--config", str(file), "config", "check", RUNWARDEN_BASE_URL="", RUNWARDEN_TOKEN="")

    assert (result.code, said in result.err) == (2, True), result.err


def test_a_status_that_a_run_has_had_may_be_named(boarded: CommandLine, board: Lab) -> None:
    """The specification does not name all that a service uses."""
    board.put("run_1", "paused", created=0)
    file = boarded.home / "own.toml"
    file.write_text('[[automations]]\nname = "r"\non = { run = "paused" }\ndo = { notify = "default" }\n')
    file.write_text(f'{file.read_text()}[profiles.a]\nbase_url = "{board.base_url}"\ntoken_env = "RUNWARDEN_TOKEN"\n')
    options = ("--config", str(file))

    before = boarded(*options, "config", "check", RUNWARDEN_BASE_URL="")
    boarded(*options, "runs", "list", RUNWARDEN_BASE_URL="")

    assert (before.code, boarded(*options, "config", "check", RUNWARDEN_BASE_URL="").code) == (2, 0), before
