"""The configuration: what it says, and what is said when it is wrong."""

from datetime import time
from hashlib import sha256
from pathlib import Path

import pytest

from app.profiles import (
    ConfigError,
    NotifySettings,
    PollSettings,
    Profile,
    Settings,
    Template,
    UserCommand,
    ViewSettings,
    config_path,
    data_folder,
    load,
)
from app.profiles.token import EnvToken, FileToken
from app.profiles.values import QuietHours
from storage.records import RunSort

REVIEW = '[[templates]]\nname = "Review"\ninstructions = "Look."\n'
COMMAND = '[[commands]]\nname = "Log"\n'
ACME = '[profiles.acme]\nbase_url = "https://api.example.com/v1/"\n'


def loaded(folder: Path, text: str, **env: str) -> Settings:
    """Settings from a file with that text."""
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return load(file, env)


def mistake(folder: Path, text: str, **env: str) -> ConfigError:
    """The error of a file with that text."""
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, **env).profile()
    return caught.value


def test_the_users_own_file_is_found_and_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under XDG_CONFIG_HOME on Linux. Base address and token in the environment are enough."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "runwarden" / "config.toml"
    bare = load(None, {"RUNWARDEN_BASE_URL": "http://127.0.0.1:8400/v1/", "RUNWARDEN_TOKEN": "t"})

    assert bare.file is None
    assert bare.profile() == Profile("environment", "http://127.0.0.1:8400/v1", EnvToken("RUNWARDEN_TOKEN"))
    assert config_path(None, {}) == file
    assert load(file, {}) == Settings()
    file.parent.mkdir()
    file.write_text(ACME)
    assert load(None, {}).profile().name == "acme"


def test_a_full_profile_is_read(tmp_path: Path) -> None:
    """[poll] counts for all, a profile's own poll table on top of it."""
    settings = loaded(
        tmp_path,
        'default_profile = "acme"\n[poll]\nruns_s = 5\npage_size = 50\n'
        + REVIEW
        + ACME
        + 'token_file = "acme.token"\nread_only = true\n[profiles.acme.poll]\npage_size = 20\n'
        '[profiles.other]\nbase_url = "http://[::1]/v1"\n',
    )

    assert settings.poll == PollSettings(runs_s=5, page_size=50)
    assert settings.templates == (Template("Review", "Look."),)
    assert settings.profile() == Profile(
        "acme",
        "https://api.example.com/v1",
        FileToken(tmp_path / "acme.token"),
        read_only=True,
        poll=PollSettings(runs_s=5, page_size=20),
    )
    assert settings.profile("other").poll == settings.poll
    assert settings.profile("other").token == EnvToken()


def test_each_profile_has_a_colour(tmp_path: Path) -> None:
    """Production is red, the others take the other colours in their order; one alone has none unless it is given."""
    colors = {"acme-staging": "green", "acme-prod": "red", "product": "red", "demo": "blue", "reprod": "yellow"}
    named = "".join(f'[profiles.{name}]\nbase_url = "https://{name}.example"\n' for name in (*colors, "lab"))
    several = loaded(tmp_path, named + 'color = "red"\n')
    alone = loaded(tmp_path, '[profiles.prod]\nbase_url = "https://a.example"\n')
    chosen = loaded(tmp_path, '[profiles.prod]\nbase_url = "https://a.example"\ncolor = "purple"\n')

    assert {one.name: several.color_of(one.name) for one in several.profiles} == {**colors, "lab": "red"}
    assert (alone.color_of("prod"), chosen.color_of("prod"), several.color_of("gone")) == ("", "purple", "")


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    """An address for one command means that address; a name means that profile; never a token for another address."""
    text = 'default_profile = "acme"\ndata_dir = "here"\n' + ACME

    assert loaded(tmp_path, text).data_dir == tmp_path / "here"
    assert loaded(tmp_path, text, RUNWARDEN_DATA_DIR="/d").data_dir == Path("/d")
    by_address = loaded(tmp_path, text, RUNWARDEN_BASE_URL="https://b.example/v1")
    assert (by_address.profile().base_url, by_address.profile().token) == ("https://b.example/v1", EnvToken())
    assert by_address.profile("acme").base_url == "https://api.example.com/v1"
    by_name = loaded(tmp_path, text, RUNWARDEN_BASE_URL="https://b.example/v1", RUNWARDEN_PROFILE="acme")
    assert by_name.profile().name == "acme"


@pytest.mark.parametrize(
    ("text", "line", "key", "said"),
    [
        ("[poll\n", 1, None, "not TOML"),
        ("# one\n[poll]\nrun_s = 5\n", 3, "poll.run_s", "Did you mean runs_s?"),
        ("[poll]\nruns_s = 0\n", 2, "poll.runs_s", "Use 1 to 86400."),
        ("[poll]\nruns_s = true\n", 2, "poll.runs_s", "this must be a number. It is true or false."),
        ('[poll]\npage_size = "100"\n', 2, "poll.page_size", "a whole number. It is a string."),
        ("[poll]\npage_size = 101\n", 2, "poll.page_size", "Use 1 to 100."),
        ("templates = [1]\n", 1, "templates", "[[templates]]"),
        ('[console]\nhealth_ok = ["ok", 1]\n', 2, "console.health_ok", "list of strings"),
        ('[console]\nrun_url = "file:///{run_id}"\n', 2, "console.run_url", "web address"),
        ('[console]\nrun_url = "https://x.example/{id}"\n', 2, "console.run_url", "{run_id}"),
        ("[profiles.acme]\nread_only = true\n", 1, "profiles.acme.base_url", "missing"),
        ('[profiles.acme]\n\nbase_url = "http://api.example.com"\n', 3, "profiles.acme.base_url", "use https"),
        ('[profiles.acme]\nbase_url = """\nhttps://ada@x\n"""\n', 2, "profiles.acme.base_url", "no user"),
        (ACME + 'token_env = "A"\ntoken_file = "b"\n', 4, "profiles.acme.token_file", "two sources"),
        (ACME + 'color = "pink"\n', 3, "profiles.acme.color", "Use one of: auto, red, green, blue"),
        (ACME + "token_command = []\n", 3, "profiles.acme.token_command", "list of strings"),
        ('[profiles.environment]\nbase_url = "https://x.example"\n', 1, "profiles.environment", "RUNWARDEN_BASE_URL"),
        ('default_profile = "acne"\n' + ACME, 1, "default_profile", "There are: acme."),
        ("[keys]\nrun.continue = 3\n", 2, "keys.run.continue", "must be a string"),
        ('[keys]\nrun.continue = ""\n', 2, "keys.run.continue", "this is empty"),
        ('[notify]\nquiet = "25:00-07:00"\n', 2, "notify.quiet", "not valid hours"),
        ('[notify]\ncommand = ["tell", "{token}"]\n', 2, "notify.command", "no placeholder {token}"),
        ('[keys]\nrun.continue = "ctrl + l"\n', 2, "keys.run.continue", "a key has no blanks"),
        (COMMAND + 'argv = ["less", "{run}"]\n', 3, "commands[1].argv", "no placeholder {run}. There are: {run_id}"),
        (COMMAND + 'argv = ["ls"]\nshell = true\n', 4, "commands[1].shell", "there is no such key"),
        (COMMAND + 'argv = ["ls"]\n[[commands]]\nname = "log"\nargv = ["x"]\n', 5, "commands[2].name", "has this name"),
        ('[[views]]\nname = "A"\nquery = "stauts:x"\n', 3, "views[1].query", "at character 1: There is no stauts:"),
        ('[[views]]\nname = "A"\nsort = "age"\n', 3, "views[1].sort", "no column 'age' to sort by: started"),
        ('[[views]]\nname = "A"\ngroup = "host"\n', 3, "views[1].group", "write repository or branch"),
    ],
)
def test_a_mistake_is_said_with_file_line_key_and_cure(
    tmp_path: Path, text: str, line: int, key: str | None, said: str
) -> None:
    """The message says where to go and what to write."""
    error = mistake(tmp_path, text)

    assert (error.file, error.line, error.key) == (tmp_path / "config.toml", line, key)
    assert said in str(error)
    assert str(error).startswith(f"{tmp_path / 'config.toml'}:{line}: ")


def test_a_profile_that_cannot_be_chosen_is_explained(tmp_path: Path) -> None:
    """The way on is in the message."""
    two = ACME + '[profiles.b]\nbase_url = "https://b.example"\n'
    for text, name, said in (
        ("", None, "runwarden demo"),
        ("", "acme", "no profile 'acme'"),
        (ACME, "acne", "There are: acme."),
        (two, None, "--profile or in default_profile: acme, b."),
    ):
        with pytest.raises(ConfigError) as caught:
            loaded(tmp_path, text).profile(name)
        assert said in str(caught.value)


def test_a_file_that_is_missing_or_unreadable_is_named(tmp_path: Path) -> None:
    """A typing error in --config or RUNWARDEN_CONFIG is an error; for a wrong variable there is no file to blame."""
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    missing = tmp_path / "x.toml"
    for path, env, said in (
        (missing, {}, r"x\.toml: there is no such file"),
        (None, {"RUNWARDEN_CONFIG": str(missing)}, r"x\.toml: there is no such file"),
        (tmp_path / "config.toml", {}, "UTF-8"),
        (tmp_path, {}, "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=said):
            load(path, env)
    error = mistake(tmp_path, "", RUNWARDEN_BASE_URL="http://api.example.com")
    assert (error.file, error.key) == (None, "RUNWARDEN_BASE_URL")


def test_each_service_and_profile_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Another address is another folder, and so is another profile; odd names make no odd paths."""
    settings = Settings(data_dir=tmp_path)
    profiles = [
        Profile("acme", "https://a.example/v1", EnvToken()),
        Profile("acme", "https://b.example/v1", EnvToken()),
        Profile("Acme", "https://a.example/v1", EnvToken()),
        Profile("other", "https://a.example/v1", EnvToken()),
        Profile("../..", "https://a.example/v1", EnvToken()),
        Profile("ä" * 300, "https://a.example/v1", EnvToken()),
    ]

    folders = [data_folder(settings, profile) for profile in profiles]

    assert len(set(folders)) == len(profiles)
    assert {folder.parent for folder in folders} == {tmp_path}
    assert folders[0].name == f"acme-{sha256(b'https://a.example/v1').hexdigest()[:8]}"
    assert data_folder(Settings(), profiles[0]).parent.name == "runwarden"


def test_hours_may_reach_over_midnight() -> None:
    """The start is quiet, the end is not."""
    for hours, quiet, loud in (
        ("22:00-07:00", ["22:00", "23:59", "00:00", "06:59"], ["07:00", "21:59"]),
        ("12:30-13:00", ["12:30"], ["13:00", "12:29"]),
    ):
        parsed = QuietHours.parse(hours)
        assert all(parsed.cover(time.fromisoformat(at)) for at in quiet)
        assert not any(parsed.cover(time.fromisoformat(at)) for at in loud)


VIEWS = """
[[views]]
name = "Agents"
query = "branch:agent/*"
sort = "-took"
[[views]]
name = "M"
group = "branch"
"""
COMMANDS = """
[[commands]]
name = "Log"
argv = ["less", "{run_id}.log"]
[[commands]]
name = "Edit"
argv = ["vi"]
key = "ctrl+l"
confirm = true
terminal = true
"""
NOTIFY = """
[notify]
on = ["completed"]
bell = false
desktop = true
command = ["tell", "{title}"]
quiet = "22:00-7:30"
hold_s = 5
"""


def test_a_section_is_read_as_written(tmp_path: Path) -> None:
    """To TOML `run.continue` is a table; to people, and to us, a name. Empty lists are a choice."""
    keys = '[keys]\nrun.continue = "C,f7"\napp.quit = "ctrl+q"\n"table.down" = "n"\n'
    settings = loaded(tmp_path, VIEWS + COMMANDS + NOTIFY + keys)
    silent = loaded(tmp_path, "[notify]\non = []\ncommand = []")

    assert settings.views == (
        ViewSettings("Agents", "branch:agent/*", RunSort("took", descending=True)),
        ViewSettings("M", "", group="branch"),
    )
    assert settings.commands == (
        UserCommand("Log", ("less", "{run_id}.log")),
        UserCommand("Edit", ("vi",), "ctrl+l", confirm=True, terminal=True),
    )
    assert settings.notify == NotifySettings(
        on=("completed",), bell=False, desktop=True, command=("tell", "{title}"),
        quiet=QuietHours(time(22), time(7, 30)), hold_s=5.0,
    )  # fmt: skip
    assert settings.keys == {"run.continue": "C,f7", "app.quit": "ctrl+q", "table.down": "n"}
    assert silent.notify == NotifySettings(on=(), command=())
