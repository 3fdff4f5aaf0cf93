"""The table [notify]: what it says, and what is said when it is wrong."""

from datetime import time
from pathlib import Path

import pytest

from app.config import ConfigError, NotifySettings, load
from app.config.settings import QuietHours


def loaded(folder: Path, text: str) -> NotifySettings:
    file = folder / "config.toml"
    file.write_text(f"[notify]\n{text}\n")
    return load(file, {}).notify


def test_everything_can_be_chosen(tmp_path: Path) -> None:
    """Of what, how, and when not."""
    text = """
        on = ["completed"]
        bell = false
        desktop = true
        command = ["tell", "{title}"]
        quiet = "22:00-7:30"
        hold_s = 5
    """

    assert loaded(tmp_path, text) == NotifySettings(
        on=("completed",),
        bell=False,
        desktop=True,
        command=("tell", "{title}"),
        quiet=QuietHours(time(22), time(7, 30)),
        hold_s=5.0,
    )


def test_nothing_can_be_chosen(tmp_path: Path) -> None:
    """Empty lists are a choice."""
    assert loaded(tmp_path, "on = []\ncommand = []") == NotifySettings(on=(), command=())


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ('quiet = "late"', "notify.quiet", "22:00-07:00"),
        ('quiet = "25:00-07:00"', "notify.quiet", "not valid hours"),
        ('quiet = "07:00-07:00"', "notify.quiet", "not valid hours"),
        ('command = ["tell", "{token}"]', "notify.command", "no placeholder {token}"),
        ("command = [1]", "notify.command", "not a list of strings"),
        ("hold_s = -1", "notify.hold_s", "out of range"),
        ("bells = true", "notify.bells", "Did you mean bell?"),
    ],
)
def test_mistakes_name_the_key_and_the_cure(tmp_path: Path, text: str, key: str, words: str) -> None:
    """With the line."""
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)

    assert caught.value.key == key
    assert words in str(caught.value)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("hours", "quiet", "loud"),
    [
        ("22:00-07:00", ["22:00", "23:59", "00:00", "06:59"], ["07:00", "21:59"]),
        ("12:30-13:00", ["12:30"], ["13:00", "12:29"]),
    ],
)
def test_hours_may_reach_over_midnight(hours: str, quiet: list[str], loud: list[str]) -> None:
    """The start is quiet, the end is not."""
    parsed = QuietHours.parse(hours)

    assert all(parsed.cover(time.fromisoformat(at)) for at in quiet)
    assert not any(parsed.cover(time.fromisoformat(at)) for at in loud)
