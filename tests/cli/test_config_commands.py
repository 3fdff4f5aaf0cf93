import stat
from pathlib import Path

from tests.cli.conftest import CommandLine


def test_init_creates_a_private_file_and_replaces_none(lone: CommandLine) -> None:
    """`config init` creates the file with mode 0600, prints its path first, and replaces a file only with --force."""
    told = lone("config", "path", "--json").json()
    path = Path(told["path"])
    assert told == {"path": str(lone.home / ".config/runwarden/config.toml"), "exists": False}
    first = lone("config", "init", "--json")
    path.write_text("# mine\n")
    second = lone("config", "init", "--json")

    assert (first.code, first.json()["path"], stat.S_IMODE(path.stat().st_mode)) == (0, str(path), 0o600)
    assert (second.code, second.json()["error"]["kind"], path.read_text()) == (2, "config", "# mine\n")
    assert lone("config", "init", "--force").code == 0
    assert path.read_text() != "# mine\n"


MISTAKEN = """default_profile = "acme"
[poll]
runs_seconds = 3
[profiles.acme]
base_url = "ftp://acme.example/v1"
[profiles.globex]
base_url = "https://globex.example/v1"
token_file = "not-there"
proxy = "foo://"
[console]
theme = "runwardn"
[keys]
run.continue = "nonsense"
[[commands]]
name = "Lacks argv"
[[commands]]
name = "Deploy"
argv = ["true"]
key = "none"
"""


def test_the_check_reports_all_mistakes_at_once(lone: CommandLine) -> None:
    """Each mistake has its file and line; mistakes that only follow from another are not reported."""
    file = lone.home / "bad.toml"
    file.write_text(MISTAKEN)

    result = lone("--config", str(file), "config", "check", "--json")
    said = lone("--config", str(file), "config", "check").err

    error = result.json()["error"]
    assert (result.code, error["kind"], error["file"], error["line"]) == (2, "config", str(file), 3)
    assert sorted(problem["line"] for problem in error["problems"]) == [3, 5, 8, 9, 11, 13, 14, 19]
    (sentence,) = (each for each in said.splitlines() if "bad.toml:5: " in each)
    assert "base_url" in sentence


def test_the_check_warns_of_routes_that_reach_no_one(lone: CommandLine) -> None:
    """A route whose variable is unset gives a warning, since the variable may only be set where the bot runs."""
    file = lone.home / "routes.toml"
    file.write_text(
        '[profiles.a]\nbase_url = "https://a.example/v1"\ntoken_env = "TOKEN_A"\n'
        '[notify.routes.oncall]\ncommand = ["no-such-pager", "{title}"]\n'
        '[notify.routes.lead]\nurls_env = "LEAD_URLS"\n'
        '[notify.routes.works]\ncommand = ["true"]\n'
    )

    checked = lone("--config", str(file), "config", "check", "--json")
    program, variable = checked.json()["warnings"]

    assert checked.code == 0
    assert "'oncall' does not work from here: there is no program no-such-pager" in program
    assert "'lead' does not work from here: " in variable


def test_config_show_names_a_tokens_source_and_never_the_token(lone: CommandLine) -> None:
    """The output names where a token comes from, and never shows the token."""
    file = lone.home / "two.toml"
    file.write_text(
        'default_profile = "b"\n'
        '[profiles.a]\nbase_url = "https://a.example/v1"\ntoken_env = "TOKEN_A"\n'
        '[profiles.b]\nbase_url = "https://b.example/v1"\ntoken_command = ["pass", "b"]\nread_only = true\n'
    )
    bare = lone("config", "check", "--json")
    result = lone("--config", str(file), "profiles", "list", "--json", RUNWARDEN_BASE_URL="", RUNWARDEN_TOKEN="")

    assert (bare.code, bare.json()["profile"], bare.json()["base_url"]) == (0, "environment", lone.base_url)
    assert lone.token not in bare.out + bare.err
    a, b = result.json()["profiles"]
    assert (a["name"], a["default"], a["token_from"]) == ("a", False, "environment variable TOKEN_A")
    assert (b["name"], b["default"], b["read_only"]) == ("b", True, True)


COMMENTED = """# mine
[poll]  # how often
runs_s = 10

[profiles.acme]
base_url = "https://acme.example/v1"
"""


def test_setting_a_key_keeps_the_rest_of_the_file(lone: CommandLine) -> None:
    """Setting a key keeps comments and order; an invalid value is not written."""
    file = lone.home / "own.toml"
    for arguments, was, becomes in (
        (["poll.runs_s", "30"], "runs_s = 10", "runs_s = 30"),
        (["profiles.acme.read_only", "true"], 'v1"\n', 'v1"\nread_only = true\n'),
        (["poll.runs_s", "--unset"], "runs_s = 10\n", ""),
        (["console.health_ok", '["fine"]'], 'v1"\n', 'v1"\n\n[console]\nhealth_ok = ["fine"]\n'),
    ):
        file.write_text(COMMENTED)
        assert lone("--config", str(file), "config", "set", *arguments).code == 0
        assert file.read_text() == COMMENTED.replace(was, becomes)
    file.write_text(COMMENTED)
    for mistake in ("poll.runs_s soon", "pol.runs_s 3"):
        result = lone("--config", str(file), "config", "set", *mistake.split())
        assert (result.code, file.read_text(), bool(result.err)) == (2, COMMENTED, True), mistake


def edited(lone: CommandLine, content: bytes) -> tuple[int, str]:
    """The exit code and message of `config edit` with an editor that saves this."""
    (lone.home / "saved").write_bytes(content)
    editor = lone.home / "editor.sh"
    editor.write_text(f'#!/bin/sh\ncat "{lone.home / "saved"}" > "$1"\n')
    editor.chmod(0o700)
    result = lone("config", "edit", EDITOR=str(editor))
    return result.code, result.err


def test_an_edited_configuration_is_saved_only_if_it_is_valid(lone: CommandLine) -> None:
    """The text that is refused, for a mistake or another encoding than UTF-8, is kept beside the file."""
    lone("config", "init")
    file = lone.home / ".config/runwarden/config.toml"
    rejected = file.with_name("config.toml.rejected")

    assert edited(lone, b"[poll]\r\nruns_s = 7\r\n")[0] == 0
    assert file.read_text() == "[poll]\nruns_s = 7\n"
    code, message = edited(lone, b"[poll]\nruns_s = -1\n")
    assert (code, str(rejected) in message, rejected.read_text()) == (2, True, "[poll]\nruns_s = -1\n")
    code, message = edited(lone, b"# caf\xe9\n")
    assert (code, "UTF-8" in message, rejected.read_text("utf-8")) == (2, True, "# caf\u00e9\n")
    assert file.read_text() == "[poll]\nruns_s = 7\n"
