import stat
from pathlib import Path

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


def test_a_profile_nobody_configured_is_named_in_the_error(lone: CommandLine) -> None:
    """Exit code 2, with those that there are."""
    result = lone("--profile", "nope", "runs", "list", "--json")

    assert (result.code, result.json()["error"]["kind"]) == (2, "config")
    assert "environment" in result.json()["error"]["message"]
