import stat
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine


def test_the_path_is_told_whether_or_not_the_file_is_there(lone: CommandLine) -> None:
    """Where to put it is what the command is asked for."""
    result = lone("config", "path", "--json")

    assert result.json() == {"path": str(lone.home / ".config/runwarden/config.toml"), "exists": False}
    assert lone("config", "path").out.strip() == result.json()["path"]


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


def test_a_mistake_names_file_line_and_key(lone: CommandLine) -> None:
    """As JSON and as a sentence."""
    file = lone.home / "bad.toml"
    file.write_text("[poll]\nruns_seconds = 3\n")

    result = lone("--config", str(file), "config", "check", "--json")

    error = result.json()["error"]
    assert (result.code, error["kind"], error["file"], error["line"]) == (2, "config", str(file), 2)
    assert "runs_seconds" in lone("--config", str(file), "config", "check").err


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
    """Each with its line, and none that only follows from another: the default profile is there, if mistaken."""
    file = lone.home / "bad.toml"
    file.write_text(MISTAKEN)

    error = lone("--config", str(file), "config", "check", "--json").json()["error"]
    said = lone("--config", str(file), "config", "check").err

    assert sorted(problem["line"] for problem in error["problems"]) == [3, 5, 8, 10, 11, 16, 18]
    for line, words in ((3, "runs_seconds"), (5, "base_url"), (8, "cannot be read"), (10, "Did you mean runwarden?")):
        (sentence,) = (each for each in said.splitlines() if f"bad.toml:{line}: " in each)
        assert words in sentence


@pytest.mark.parametrize(
    ("theme", "said"), [("runwardn", "Did you mean runwarden?"), ("zzz", "There are: "), ("nord", "")]
)
def test_a_theme_that_does_not_exist_is_refused(lone: CommandLine, theme: str, said: str) -> None:
    """By the check, which names the one that was meant; the console falls back to its own."""
    file = lone.home / "themed.toml"
    file.write_text(f'[console]\ntheme = "{theme}"\n[profiles.a]\nbase_url = "https://a.example/v1"\n')

    result = lone("--config", str(file), "config", "check")

    assert (result.code, said in result.err) == (2 if said else 0, True)


def test_profiles_are_listed_without_their_tokens(lone: CommandLine) -> None:
    """Where a token comes from, not what it is."""
    file = lone.home / "two.toml"
    file.write_text(
        'default_profile = "b"\n'
        '[profiles.a]\nbase_url = "https://a.example/v1"\ntoken_env = "TOKEN_A"\n'
        '[profiles.b]\nbase_url = "https://b.example/v1"\ntoken_command = ["pass", "b"]\nread_only = true\n'
    )

    result = lone("--config", str(file), "profiles", "list", "--json", RUNWARDEN_BASE_URL="", RUNWARDEN_TOKEN="")

    a, b = result.json()["profiles"]
    assert (a["name"], a["default"], a["token_from"]) == ("a", False, "environment variable TOKEN_A")
    assert (b["name"], b["default"], b["read_only"]) == ("b", True, True)


def test_a_profile_that_is_not_configured_is_named_in_the_error(lone: CommandLine) -> None:
    """Exit code 2, with those that there are."""
    result = lone("--profile", "nope", "runs", "list", "--json")

    assert (result.code, result.json()["error"]["kind"]) == (2, "config")
    assert "environment" in result.json()["error"]["message"]


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


@pytest.mark.parametrize(
    "arguments",
    [
        ["poll.runs_s", "soon"],
        ["pol.runs_s", "3"],
        ["poll.runs_s"],
        ["poll.runs_s.x", "3"],
        ["profiles.acme", "--unset", "1"],
    ],
)
def test_what_would_not_be_valid_is_not_set(lone: CommandLine, arguments: list[str]) -> None:
    """The file stays as it was."""
    file = lone.home / "own.toml"
    file.write_text(COMMENTED)

    result = lone("--config", str(file), "config", "set", *arguments)
    assert (result.code, file.read_text()) == (2, COMMENTED)
    assert result.err


def test_set_makes_the_file_where_there_is_none(lone: CommandLine) -> None:
    """From the commented example, readable by its owner alone."""
    assert lone("config", "set", "poll.runs_s", "30", "--json").json()["value"] == "30"

    path = Path(lone("config", "path").out.strip())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "runs_s = 30" in path.read_text()


def test_an_edit_is_kept_only_if_it_is_valid_and_never_lost(lone: CommandLine) -> None:
    """An editor of one line: it replaces a number."""
    file, editor = lone.home / "own.toml", lone.home / "editor"
    file.write_text(COMMENTED)
    editor.chmod(0o700) if editor.exists() else editor.touch(0o700)
    editor.write_text('#!/bin/sh\nsed -i "s/runs_s = .*/runs_s = $NEXT/" "$1"\n')

    good = lone("--config", str(file), "config", "edit", EDITOR=str(editor), NEXT="20")
    assert (good.code, file.read_text()) == (0, COMMENTED.replace("10", "20"))
    bad = lone("--config", str(file), "config", "edit", EDITOR=str(editor), NEXT="never")
    assert (bad.code, file.read_text()) == (2, COMMENTED.replace("10", "20"))
    assert "runs_s = never" in (lone.home / "own.toml.rejected").read_text()
    assert "own.toml.rejected" in bad.err
