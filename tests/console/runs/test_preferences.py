"""Preferences survive, are private, and never keep the console from starting."""

import json
import shutil
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from app.profiles import ViewSettings
from app.profiles.load import parse
from app.runs.screen_views import (
    LastQuery,
    Preferences,
    PreferencesError,
    PreferencesFile,
    PreferencesWriter,
    first_query,
    this_terminal,
)
from storage.records import RunSort
from widgets.runs.columns import ColumnChoice

FULL = Preferences(
    views=(ViewSettings("Mine", "repo:acme/* \x1b", RunSort("took")), ViewSettings("Plain", "")),
    view="Mine",
    sort=RunSort("branch", descending=False),
    columns=ColumnChoice(("status", "took", "updated")).sized("took", 12),
    detail=False,
)


def test_everything_is_read_back(tmp_path: Path) -> None:
    """Views, order, columns and their widths; the file is its owner's alone, and no half file is left beside it."""
    file = PreferencesFile(tmp_path / "profile" / "console.json")

    assert file.read() == Preferences()
    assert file.change(lambda _: FULL) == FULL
    assert file.read() == FULL
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == ["console.json"]


def test_what_another_console_saved_stays(tmp_path: Path) -> None:
    """Each change is made to what the file says at that time."""
    one, other = PreferencesFile(tmp_path / "console.json"), PreferencesFile(tmp_path / "console.json")
    one.change(lambda known: known.with_view(ViewSettings("A", "a")))
    other.change(lambda known: known.with_view(ViewSettings("B", "b")))
    one.change(lambda known: replace(known, detail=False).with_view(ViewSettings("a", "again")))

    assert [view.query for view in other.read().views] == ["b", "again"]
    assert other.change(lambda known: known.without_view("b")).views == (ViewSettings("a", "again"),)


def test_each_terminal_opens_what_it_showed_last(tmp_path: Path) -> None:
    """A terminal that showed nothing yet opens what was shown last anywhere; the oldest ones are forgotten."""
    file = PreferencesFile(tmp_path / "console.json")
    settings = parse(tmp_path / "config.toml", "")
    panes = {name: this_terminal({"TMUX_PANE": name}) for name in ("%1", "%2")}
    panes |= {f"screen {n}": this_terminal({"STY": "12.pts-0.host", "WINDOW": n}) for n in ("0", "1")}
    for name, view in (("%1", "Failed 24h"), ("screen 0", "Failed 24h"), ("%2", "Active")):
        file.change(lambda known, name=name, view=view: known.shown(panes[name], LastQuery(view)))

    shown = {name: first_query(settings, file.read(), terminal).view.name for name, terminal in panes.items()}
    many = reduce(lambda known, number: known.shown(f"{number}", LastQuery()), range(100), file.read())

    assert shown == {"%1": "Failed 24h", "%2": "Active", "screen 0": "Failed 24h", "screen 1": "Active"}
    assert len(many.last) == 20


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    """Comfort is lost, nothing else."""
    path = tmp_path / "console.json"
    for text in ("", "nonsense", "[]", '{"version": 1, "views": [{}]}', '{"version": 7}', "\ud800"):
        path.write_bytes(text.encode("utf-8", "surrogatepass"))

        assert PreferencesFile(path).read() == Preferences()


def test_columns_of_another_version_are_those_of_today(tmp_path: Path) -> None:
    """Unknown ones are left out; those that were never changed become today's, and widths are kept."""
    file = PreferencesFile(tmp_path / "console.json")
    file.change(lambda _: FULL)
    document = json.loads(file.path.read_text())
    document["columns"] = {"shown": ["status", "mood", "took", "took"], "widths": {"mood": 3, "took": 9999}}
    file.path.write_text(json.dumps(document))
    assert file.read().columns == ColumnChoice(("status", "took"), {"took": 200})

    earlier = ColumnChoice(("status", "repository", "branch", "started", "took", "run"), {"branch": 40})
    file.change(lambda known: replace(known, columns=earlier))
    assert file.read().columns == ColumnChoice(widths={"branch": 40})

    file.path.write_text('{"version": 2}')
    with pytest.raises(PreferencesError, match="upgrade, or move it away"):
        file.change(lambda _: FULL)
    assert file.path.read_text() == '{"version": 2}'


async def test_changes_are_known_at_once_and_written_together(tmp_path: Path) -> None:
    """Each is made to the file as it is then; a change that changes nothing writes nothing.

    Each save that was asked for says why it failed, or that it succeeded.
    """
    folder, begun, said = tmp_path / "profile", list[Any](), list[str]()
    session = SimpleNamespace(notify=lambda text, **_: said.append(text))
    file = PreferencesFile(folder / "console.json")
    writer = PreferencesWriter(file, cast("Any", SimpleNamespace(run_worker=begun.append, session=session)))
    writer.change(lambda known: known)
    assert not begun
    writer.change(lambda known: replace(known, detail=False))
    writer.change(lambda known: replace(known, view="x"))
    file.change(lambda known: replace(known, sort=RunSort("took")))
    await begun.pop()()
    assert (begun, said) == ([], [])
    assert writer.now == Preferences(view="x", detail=False)
    assert file.read() == Preferences(view="x", detail=False, sort=RunSort("took"))

    shutil.rmtree(folder)
    folder.touch()
    view = ViewSettings("Mine", "is:active")
    for change, saved in (
        (lambda known: replace(known, view="y"), ""),
        (lambda known: known.with_view(view), "Saved."),
    ):
        writer.change(change, saved)
        await begun.pop()()
    assert [text.partition(" (")[0] for text in said] == ["Views and columns cannot be saved"] * 2
    assert str(file.path) in said[0]

    folder.unlink()
    writer.change(lambda known: known.with_view(view), "Saved.")
    await begun.pop()()
    assert said[2:] == ["Saved."]
    assert file.read().views == (view,)
