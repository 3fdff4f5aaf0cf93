"""The example is the reference: it loads, and it says what the code does."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.config import (
    ConsoleSettings,
    HistorySettings,
    NotifySettings,
    PollSettings,
    Profile,
    Settings,
    config_path,
    data_folder,
    example_text,
    load,
)
from app.config.token import EnvToken, FileToken, KeyringToken

ROOT = Path(__file__).parents[2]


def uncommented(text: str) -> str:
    """The example with every key switched on; `##` marks alternatives of the key before them."""
    return re.sub(r"(?m)^#(?=[\w\[\"])", "", text)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The example with every key on, as a file."""
    path = tmp_path / "config.toml"
    path.write_text(uncommented(example_text()))
    return path


def test_the_example_as_it_stands_changes_nothing(tmp_path: Path) -> None:
    """`config init` writes it: it must load, and pin no default."""
    path = tmp_path / "config.toml"
    path.write_text(example_text())

    assert load(path, {}) == Settings(file=path)


def test_every_value_of_the_example_is_the_default(file: Path) -> None:
    """What the example shows is what the program does without it."""
    settings = load(file, {})

    assert settings.poll == PollSettings()
    assert settings.history == HistorySettings()
    assert settings.console == ConsoleSettings()
    assert replace(settings.notify, routes=(), rules=()) == NotifySettings()
    assert settings.data_dir == data_folder(Settings(), settings.profile()).parent
    assert settings.profile() == Profile("acme", "https://api.example.com/v1", EnvToken())
    assert settings.profile().poll == PollSettings()


def test_every_key_is_in_the_example(file: Path) -> None:
    """A setting that is not documented here does not exist."""
    values = tomllib.loads(file.read_text())
    profile = {name for name in _fields(Profile) if name not in {"name", "token"}} | {"token_env"}

    assert set(values) == _fields(Settings) - {"file", "unused", "command_line"}
    assert set(values["poll"]) == _fields(PollSettings)
    assert set(values["history"]) == _fields(HistorySettings)
    assert set(values["console"]) == _fields(ConsoleSettings)
    assert set(values["notify"]) == _fields(NotifySettings)
    assert set(values["profiles"]["acme"]) == profile


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


def test_every_key_says_why() -> None:
    """A comment stands above each key or its section."""
    lines = example_text().splitlines()
    for above, line in pairwise(lines):
        if re.match(r"#{1,2}[a-z_]+ = ", line):
            assert above.startswith(("# ", "#[", "#name")), line


def test_there_is_one_example() -> None:
    """The packaged text is the file that people find at the top of the source."""
    assert example_text() == (ROOT / "config.example.toml").read_text()
    assert config_path(None, {}).name == "config.toml"


def _fields(kind: type) -> set[str]:
    return {*kind.__struct_fields__}
