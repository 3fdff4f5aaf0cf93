"""The configuration: reading it, its errors, its example, and writing it."""

import os
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
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
    data_folder,
    example_text,
    load,
)
from app.profiles.token import CommandToken, EnvToken, FileToken, Token
from app.profiles.values import base_address
from app.profiles.write import add_profile, keep_token, name_problem

REVIEW = '[[templates]]\nname = "Review"\ninstructions = "Look."\n'
COMMAND = '[[commands]]\nname = "Log"\n'
ACME = '[profiles.acme]\nbase_url = "https://api.example.com/v1/"\n'


def loaded(folder: Path, text: str, **env: str) -> Settings:
    """Settings from a file with this text."""
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return load(file, env)


def mistake(folder: Path, text: str, **env: str) -> ConfigError:
    """The error of a file with this text."""
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, **env).profile()
    return caught.value


def test_a_full_profile_is_read(tmp_path: Path) -> None:
    """[poll] applies to all profiles, and a profile's own poll table overrides it."""
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


def test_a_mistake_is_reported_with_line_key_and_fix(tmp_path: Path) -> None:
    """The message says where the error is and what to write."""
    for text, line, key, said in (
        ("[poll\n", 1, None, "not TOML"),
        ("# one\n[poll]\nrun_s = 5\n", 3, "poll.run_s", "Did you mean runs_s?"),
        ("[poll]\nruns_s = 0\n", 2, "poll.runs_s", "Use 1 to 86400."),
        ('[console]\nrun_url = "file:///{run_id}"\n', 2, "console.run_url", "web address"),
        ("[profiles.acme]\nread_only = true\n", 1, "profiles.acme.base_url", "missing"),
        ('[profiles.acme]\n\nbase_url = "http://api.example.com"\n', 3, "profiles.acme.base_url", "Use https"),
        (ACME + 'token_env = "A"\ntoken_file = "b"\n', 4, "profiles.acme.token_file", "two sources"),
        ('default_profile = "acne"\n' + ACME, 1, "default_profile", "There are: acme."),
        ('[notify]\ncommand = ["tell", "{token}"]\n', 2, "notify.command", "no placeholder {token}"),
        (COMMAND + 'argv = ["ls"]\n[[commands]]\nname = "log"\nargv = ["x"]\n', 5, "commands[2].name", "has this name"),
        ('[notify]\nheartbeat_every = "1s"\n', 2, "notify.heartbeat_every", "1s is out of range. Use 10s to 7d."),
        ('[[views]]\nname = "A"\ngroup = "x"\n', 3, "views[1].group", "are not grouped by 'x'. Write repository"),
        ('[[views]]\nname = "A"\nquery = "stauts:x"\n', 3, "views[1].query", "at character 1: There is no stauts:"),
    ):
        error = mistake(tmp_path, text)
        assert (error.file, error.line, error.key) == (tmp_path / "config.toml", line, key), text
        assert said in str(error), text
        assert str(error).startswith(f"{tmp_path / 'config.toml'}:{line}: "), text


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    """A typo in --config or RUNWARDEN_CONFIG is an error; a wrong variable is reported without a file."""
    missing = tmp_path / "x.toml"
    for path, env, said in (
        (missing, {}, r"x\.toml: there is no such file"),
        (None, {"RUNWARDEN_CONFIG": str(missing)}, r"x\.toml: there is no such file"),
        (tmp_path, {}, r": this cannot be read: Is a directory\. Name a file\.$"),
    ):
        with pytest.raises(ConfigError, match=said):
            load(path, env)
    error = mistake(tmp_path, "", RUNWARDEN_BASE_URL="http://api.example.com")
    assert (error.file, error.key) == (None, "RUNWARDEN_BASE_URL")


def test_each_service_and_profile_has_its_own_folder(tmp_path: Path) -> None:
    """Another address or profile has another folder, and odd names give safe paths."""
    settings = Settings(data_dir=tmp_path)
    profiles = [
        Profile("acme", "https://a.example/v1", EnvToken()),
        Profile("acme", "https://b.example/v1", EnvToken()),
        Profile("Acme", "https://a.example/v1", EnvToken()),
        Profile("other", "https://a.example/v1", EnvToken()),
        Profile("../..", "https://a.example/v1", EnvToken()),
    ]

    folders = [data_folder(settings, profile) for profile in profiles]

    assert len(set(folders)) == len(profiles)
    assert {folder.parent for folder in folders} == {tmp_path}
    assert folders[0].name == f"acme-{sha256(b'https://a.example/v1').hexdigest()[:8]}"
    assert data_folder(Settings(), profiles[0]).parent.name == "runwarden"


ROOT = Path(__file__).parents[2]


def fields(kind: type) -> set[str]:
    return {*kind.__struct_fields__}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The example with every key active, as a file; `##` marks alternatives of the key before them."""
    path = tmp_path / "config.toml"
    path.write_text(re.sub(r"(?m)^#(?=[\w\[\"])", "", example_text()))
    return path


def test_every_value_of_the_example_is_the_default(file: Path) -> None:
    """The program behaves as the example shows, and every setting is in it.

    `config init` writes it with every key commented out.
    """
    settings, values = load(file, {}), tomllib.loads(file.read_text())
    bare = file.with_name("bare.toml")
    bare.write_text(example_text())

    assert load(bare, {}) == Settings(file=bare)
    assert example_text() == (ROOT / "config.example.toml").read_text()
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


ADDRESS = "https://api.example.com/v1"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_profiles_are_added_to_a_file(tmp_path: Path) -> None:
    """The first one goes below the commented example, another one through a link, whatever its name or command."""
    file = tmp_path / "new" / "config.toml"
    add_profile(file, Profile("acme", ADDRESS, FileToken(Path("acme.token")), read_only=True))
    profile = load(file, {}).profile()

    assert (profile.name, profile.base_url, profile.read_only) == ("acme", ADDRESS, True)
    assert profile.token == FileToken(file.parent / "acme.token")
    assert "#default_profile" in file.read_text()
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert list(file.parent.iterdir()) == [file]

    before, link = file.read_text(), tmp_path / "config.toml"
    link.symlink_to(file)
    name, source = 'x]"\\é', CommandToken(("pass", "\x1b\t'\"", "\u2028"))
    add_profile(link, Profile(name, ADDRESS, source))
    assert (link.is_symlink(), load(link, {}).profile(name).token) == (True, source)
    assert file.read_text().startswith(before.rstrip())


def test_an_invalid_file_is_not_changed(tmp_path: Path) -> None:
    """An existing error or a repeated profile is reported with the file's name, and nothing is changed."""
    for before in (
        "this is no TOML",
        f'[profiles.acme]\nbase_url = "{ADDRESS}"\n',
    ):
        file = tmp_path / "config.toml"
        file.write_text(before)
        with pytest.raises(ConfigError) as refused:
            add_profile(file, Profile("acme", ADDRESS, EnvToken()))
        assert refused.value.file == file, before
        assert file.read_text() == before, before
        assert list(tmp_path.iterdir()) == [file], before


def test_a_token_is_stored_in_its_own_file(tmp_path: Path) -> None:
    """The file is private; an existing file of that name has another token and is left alone."""
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


def test_tokens_stored_at_once_have_separate_files(tmp_path: Path) -> None:
    """Two consoles may set up a profile of the same name at once."""
    values = [f"secret-{number}" for number in range(100)]
    with ThreadPoolExecutor(8) as pool:
        files = list(pool.map(lambda value: keep_token(tmp_path, "acme", Token(value)), values))

    assert [file.read_text() for file in files] == [f"{value}\n" for value in values]


def test_an_address_that_could_leak_the_token_is_refused() -> None:
    """The message names the broken rule, and never repeats a password."""
    for written, reason in (
        ("http://api.example.com/v1", "in the clear"),
        ("http://0.0.0.0/v1", "in the clear"),
        ("ftp://api.example.com", "https://"),
        ("https://ada:secret@api.example.com/v1", "no user"),
        ("https://api.example.com/v1?x=1", "no query"),
        ("https://api.example.com/a/../v1", "segment"),
        ("https://[::1/v1", "not a valid address"),
        ("https://exa\nmple.com/v1", "blanks"),
        ("https://bücher.example/v1", "xn--"),
        ("https://a..b/v1", "host name"),
    ):
        with pytest.raises(ValueError, match=reason) as caught:
            base_address(written)
        assert "secret" not in str(caught.value), written
