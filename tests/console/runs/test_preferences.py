"""Preferences survive a restart, are private, and never keep the console from starting."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from app.profiles import ViewSettings
from app.runs.screen_views import Preferences, PreferencesError, PreferencesFile
from storage.records import RunSort
from widgets.runs.columns import ColumnChoice

FULL = Preferences(
    views=(ViewSettings("Mine", "repo:acme/* \x1b", RunSort("took")), ViewSettings("Plain", "")),
    view="Mine",
    sort=RunSort("branch", descending=False),
    columns=ColumnChoice(("status", "took", "updated")).with_width("took", 12),
    detail=False,
)


def test_preferences_are_restored(tmp_path: Path) -> None:
    """Views, order, columns and widths are restored; the file is private and replaced as a whole."""
    file = PreferencesFile(tmp_path / "profile" / "console.json")

    assert file.read() == Preferences()
    assert file.change(lambda _: FULL) == FULL
    assert file.read() == FULL
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == ["console.json"]


def test_another_consoles_preferences_are_kept(tmp_path: Path) -> None:
    """Each change is applied to the file's content at that time."""
    one, other = PreferencesFile(tmp_path / "console.json"), PreferencesFile(tmp_path / "console.json")
    one.change(lambda known: known.with_view(ViewSettings("A", "a")))
    other.change(lambda known: known.with_view(ViewSettings("B", "b")))
    one.change(lambda known: replace(known, detail=False).with_view(ViewSettings("a", "again")))

    assert [view.query for view in other.read().views] == ["b", "again"]
    assert other.change(lambda known: known.without_view("b")).views == (ViewSettings("a", "again"),)


def test_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    """Preferences are lost, but nothing else is."""
    path = tmp_path / "console.json"
    for text in ("", "nonsense", "[]", '{"version": 1, "views": [{}]}', '{"version": 7}', "\ud800"):
        path.write_bytes(text.encode("utf-8", "surrogatepass"))

        assert PreferencesFile(path).read() == Preferences()


def test_a_newer_versions_file_is_left_alone(tmp_path: Path) -> None:
    """A newer version's file is not overwritten, and a message says what to do."""
    file = PreferencesFile(tmp_path / "console.json")
    file.path.write_text('{"version": 2}')
    with pytest.raises(PreferencesError, match="upgrade, or move it away"):
        file.change(lambda _: FULL)
    assert file.path.read_text() == '{"version": 2}'
