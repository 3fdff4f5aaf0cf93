"""The configuration: what it says, what is said when it is wrong, its example, and writing it."""

import json
import os
import re
import tomllib
from collections.abc import Iterator
from datetime import time
from functools import reduce
from hashlib import sha256
from operator import getitem
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from msgspec.structs import replace

from app.profiles import (
    ConfigError,
    ConsoleSettings,
    HistorySettings,
    NotifySettings,
    PollSettings,
    Profile,
    Settings,
    Template,
    UserCommand,
    ViewSettings,
    config_path,
    data_folder,
    example_text,
    load,
)
from app.profiles.token import CommandToken, EnvToken, FileToken, KeyringToken, Token, TokenSource
from app.profiles.values import QuietHours, base_address
from app.profiles.write import add_profile, keep_token, name_problem, schema
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


def test_a_mistake_is_said_with_file_line_key_and_cure(tmp_path: Path) -> None:
    """The message says where to go and what to write."""
    for text, line, key, said in (
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
    ):
        error = mistake(tmp_path, text)
        assert (error.file, error.line, error.key) == (tmp_path / "config.toml", line, key), text
        assert said in str(error), text
        assert str(error).startswith(f"{tmp_path / 'config.toml'}:{line}: "), text


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


ROOT = Path(__file__).parents[2]


def fields(kind: type) -> set[str]:
    return {*kind.__struct_fields__}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The example with every key on, as a file; `##` marks alternatives of the key before them."""
    path = tmp_path / "config.toml"
    path.write_text(re.sub(r"(?m)^#(?=[\w\[\"])", "", example_text()))
    return path


def test_the_example_as_it_stands_changes_nothing(tmp_path: Path) -> None:
    """`config init` writes it: it must load, and pin no default. It is the file at the top of the source."""
    path = tmp_path / "config.toml"
    path.write_text(example_text())

    assert load(path, {}) == Settings(file=path)
    assert example_text() == (ROOT / "config.example.toml").read_text()


def test_every_value_of_the_example_is_the_default(file: Path) -> None:
    """What the example shows is what the program does without it. A setting that is missing here does not exist."""
    settings, values = load(file, {}), tomllib.loads(file.read_text())

    assert settings.poll == PollSettings()
    assert settings.history == HistorySettings()
    assert settings.console == ConsoleSettings()
    assert replace(settings.notify, routes=(), rules=()) == NotifySettings()
    assert settings.data_dir == data_folder(Settings(), settings.profile()).parent
    assert settings.profile() == Profile("acme", "https://api.example.com/v1", EnvToken())
    assert set(values) == fields(Settings) - {"file", "unused", "command_line"}
    of_no_default = {"ca_file", "client_cert"}
    assert set(values["profiles"]["acme"]) | of_no_default == fields(Profile) - {"name", "token"} | {"token_env"}
    assert all(f"##{name} = " in file.read_text() for name in of_no_default)
    sections = {"poll": PollSettings, "history": HistorySettings, "console": ConsoleSettings, "notify": NotifySettings}
    assert {name: set(values[name]) for name in sections} == {name: fields(kind) for name, kind in sections.items()}


def keys_of(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of each key in a document, those of tables within included."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        if isinstance(key, str):
            yield (*path, key)
        yield from keys_of(inner, (*path, key))


def test_an_editor_finds_misspelt_keys_and_wrong_values_by_the_schema(file: Path) -> None:
    """It accepts the example with every key on, and refuses each key with another letter, unless users choose it."""
    validator = Draft7Validator(schema())
    text = file.read_text().replace("token_env =", "#token_env =")
    accepted = [text, *(text.replace(f"##{key}", key) for key in ("token_file", "token_command", "ca_file", "repeat"))]
    values = tomllib.loads(file.read_text())
    chosen = {"repositories", "profiles", "routes", "inputs", "metadata"}
    unnoticed = []
    for *above, last in [*keys_of(values)]:
        holder = reduce(getitem, above, values)
        holder[f"{last}x"] = holder.pop(last)
        if validator.is_valid(values) and chosen.isdisjoint(above[-1:]) and above[:1] != ["keys"]:
            unnoticed.append((*above, last))
        holder[last] = holder.pop(f"{last}x")
    wrong = ["poll.runs_s = 0", "poll.page_size = 1.5", 'history.days = "x"', '[[views]]\nquery = "is:active"']
    wrong += ['[[automations]]\nname = "x"\non = { run = "failed" }\ndo = { retry = false }', "notify.on = 3"]
    wrong += ['notify.group_wait = "soon"', 'notify.quiet = "at night"', 'notify.heartbeat_every = "10"']
    rule = 'name = "x"\non = { every = "1h30M" }\ndo = { notify = "y" }'
    accepted += [f'[[automations]]\n{rule}\ncatch_up = "1.5h"']
    wrong += [f'[[automations]]\n{rule}\ncatch_up = "-1h"', f"[[automations]]\n{rule.replace('1h30M', 'h')}"]

    assert [list(validator.iter_errors(tomllib.loads(each))) for each in accepted] == [[]] * len(accepted)
    assert unnoticed == []
    assert [each for each in wrong if validator.is_valid(tomllib.loads(each))] == []
    assert "fetches" in validator.schema["properties"]["poll"]["properties"]["first_runs"]["description"]


def test_every_alternative_of_the_token_works(file: Path) -> None:
    """Each of the four ways is shown so that it can be switched on."""
    text = file.read_text().replace("token_env =", "#token_env =")
    for key, kind in (("token_file", FileToken), ("token_command", CommandToken), ("token_keyring", KeyringToken)):
        file.write_text(text.replace(f"##{key}", key))
        assert isinstance(load(file, {}).profile().token, kind)


ADDRESS = "https://api.example.com/v1"
line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), min_size=1, max_size=30)
sources = st.one_of(
    st.builds(EnvToken, line.filter(str.strip)),
    st.builds(KeyringToken, line.filter(str.strip)),
    st.builds(CommandToken, st.lists(line, min_size=1, max_size=3).map(tuple)),
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_first_profile_comes_after_the_commented_example(tmp_path: Path) -> None:
    """One file, its folder made on the way, with every key still explained in it."""
    file = tmp_path / "new" / "config.toml"
    add_profile(file, Profile("acme", ADDRESS, FileToken(Path("acme.token")), read_only=True))
    profile = load(file, {}).profile()

    assert (profile.name, profile.base_url, profile.read_only) == ("acme", ADDRESS, True)
    assert profile.token == FileToken(file.parent / "acme.token")
    assert "#default_profile" in file.read_text()
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    # The schema that the first line names.
    beside = file.parent / file.read_text().splitlines()[0].removeprefix("#:schema ")
    assert (sorted(file.parent.iterdir()), json.loads(beside.read_text())) == ([beside, file], schema())


def test_what_was_there_stays(tmp_path: Path) -> None:
    """Comments, order and values; through a link to where the file really is."""
    file, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    before = '# mine\n[console]\ntheme = "runwarden-light" # soft\n'
    file.write_text(before)
    link.symlink_to(file)
    add_profile(link, Profile("acme", ADDRESS, EnvToken("ACME")))

    assert link.is_symlink()
    assert file.read_text().startswith(before.rstrip())
    assert load(link, {}).console.theme == "runwarden-light"
    assert mode(file) == 0o600


@settings(max_examples=5)
@given(
    name=line.map(str.strip).filter(lambda name: name_problem(name) is None), source=sources, read_only=st.booleans()
)
def test_any_profile_is_read_back_as_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, *, name: str, source: TokenSource, read_only: bool
) -> None:
    """Whatever is in its name, its variable or its command."""
    file = tmp_path_factory.mktemp("config") / "config.toml"
    add_profile(file, Profile(name, ADDRESS, source, read_only))
    profile = load(file, {}).profile(name)

    assert (profile.name, profile.token, profile.read_only) == (name, source, read_only)


def test_a_file_that_would_not_be_read_back_is_left_alone(tmp_path: Path) -> None:
    """A mistake that was there, or the same profile twice: said with the file's own name, and nothing is changed."""
    for before in (
        "this is no TOML",
        f'[profiles.acme]\nbase_url = "{ADDRESS}"\n',
        "[poll]\nruns_s = 0\n",
        "profiles = 1\n",
    ):
        file = tmp_path / "config.toml"
        file.write_text(before)
        with pytest.raises(ConfigError) as refused:
            add_profile(file, Profile("acme", ADDRESS, EnvToken()))
        assert refused.value.file == file, before
        assert file.read_text() == before, before
        assert list(tmp_path.iterdir()) == [file], before


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """A file where a folder should be; the same for the token's own file."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be read"):
        add_profile(tmp_path / "file" / "config.toml", Profile("acme", ADDRESS, EnvToken()))
    with pytest.raises(ConfigError, match="cannot be written"):
        keep_token(tmp_path / "file", "acme", Token("secret"))


def test_a_token_is_kept_in_a_new_file_of_its_own(tmp_path: Path) -> None:
    """Readable by its owner alone; an existing file of that name is another token and is left alone."""
    assert [name for name in ("", "  ", "environment", "x" * 41, " acme", "a\nb") if not name_problem(name)] == []
    old = os.umask(0)
    try:
        first = keep_token(tmp_path / "here", "Acme & Söhne", Token("secret-1"))
        second = keep_token(tmp_path / "here", "acme s hne", Token("secret-2"))
    finally:
        os.umask(old)

    assert (first.name, second.name) == ("acme-s-hne.token", "acme-s-hne-2.token")
    assert (first.read_text(), second.read_text()) == ("secret-1\n", "secret-2\n")
    assert (mode(first), mode(second), mode(first.parent)) == (0o600, 0o600, 0o700)


def test_an_address_has_one_normal_form() -> None:
    """Case, blanks and a trailing slash make no difference, and the normal form is its own."""
    for written, normal in {
        "https://API.Example.com/v1/": "https://api.example.com/v1",
        " https://api.example.com:8443/a/v1 ": "https://api.example.com:8443/a/v1",
        "HTTPS://api.example.com": "https://api.example.com",
        "http://localhost:8400/v1": "http://localhost:8400/v1",
        "http://[::1]:80/v1": "http://[::1]:80/v1",
    }.items():
        assert base_address(written) == base_address(normal) == normal


def test_an_address_that_could_lead_the_token_astray_is_refused() -> None:
    """The message says which rule it breaks, and never repeats a password."""
    for written, reason in (
        ("http://api.example.com/v1", "in the clear"),
        ("http://0.0.0.0/v1", "in the clear"),
        ("http://2130706433/v1", "in the clear"),
        ("ftp://api.example.com", "https://"),
        ("", "https://"),
        ("https://ada:secret@api.example.com/v1", "no user"),
        ("https://@api.example.com/v1", "no user"),
        ("https://api.example.com/v1?x=1", "no query"),
        ("https://api.example.com/a/../v1", "segment"),
        ("https://api.example.com/a//v1", "segment"),
        ("https://api.example.com:99999/v1", "not a valid address"),
        ("https://[::1/v1", "not a valid address"),
        ("https://exa\nmple.com/v1", "blanks"),
        ("https://bücher.example/v1", "xn--"),
        ("https://" + "a" * 70 + ".example/v1", "host name"),
        ("https://a..b/v1", "host name"),
    ):
        with pytest.raises(ValueError, match=reason) as caught:
            base_address(written)
        assert "secret" not in str(caught.value), written
