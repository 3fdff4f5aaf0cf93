"""The example is the reference: it loads, and it says what the code does."""

import re
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.profiles import (
    ConsoleSettings,
    HistorySettings,
    NotifySettings,
    PollSettings,
    Profile,
    Settings,
    data_folder,
    example_text,
    load,
)
from app.profiles.token import EnvToken, FileToken, KeyringToken

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


@pytest.mark.parametrize(
    ("key", "kind"), [("token_file", FileToken), ("token_command", object), ("token_keyring", KeyringToken)]
)
def test_every_alternative_of_the_token_works(file: Path, key: str, kind: type) -> None:
    """Each of the four ways is shown so that it can be switched on."""
    text = file.read_text().replace("token_env =", "#token_env =").replace(f"##{key}", key)
    file.write_text(text)

    token = load(file, {}).profile().token

    assert isinstance(token, kind)
    assert token != EnvToken()
