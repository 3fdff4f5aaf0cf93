"""What the console remembers about a profile: saved views, the last view and order, the columns, the pane."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

from app.atomic_file import alone, replacing
from app.config import Profile, Settings, ViewSettings, data_folder
from app.console.session.coalesced_task import CoalescedTask, Start
from app.query import read_order, written_order
from storage.base_error import RunwardenError
from storage.records import RunSort
from widgets.runs.columns import COLUMN_KEYS, ColumnChoice

if TYPE_CHECKING:
    from app.console.session import Session

FILE: Final = "console.json"
VERSION: Final = 1
MOST_VIEWS: Final = 50


class PreferencesError(RunwardenError):
    """Preferences cannot be saved; the message names the file and the cure. The console works without."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """All preferences."""

    views: tuple[ViewSettings, ...] = ()
    """Saved from the screen."""
    view: str = ""
    """The last view. Empty, or the name of a deleted view: the first one."""
    sort: RunSort = field(default_factory=RunSort)
    group: str = ""
    """The grouping as written; empty: no groups."""
    columns: ColumnChoice = field(default_factory=ColumnChoice)
    detail: bool = True
    """Whether the run under the cursor is shown beside or below the table."""

    def with_view(self, view: ViewSettings, index: int = MOST_VIEWS) -> "Preferences":
        """Insert a saved view at this index or at the end, instead of one with the same name."""
        others = self.without_view(view.name).views
        return replace(self, views=(*others[:index], view, *others[index:])[-MOST_VIEWS:])

    def without_view(self, name: str) -> "Preferences":
        """Remove the saved view of that name."""
        return replace(self, views=tuple(other for other in self.views if other.name.casefold() != name.casefold()))


PreferenceChange = Callable[[Preferences], Preferences]


@dataclass(frozen=True, slots=True)
class PreferencesFile:
    """One file, readable by its owner only."""

    path: Path

    @classmethod
    def of(cls, settings: Settings, profile: Profile) -> "PreferencesFile":
        """The file of this profile."""
        return cls(data_folder(settings, profile) / FILE)

    def read(self) -> Preferences:
        """Read the preferences; the defaults if the file is missing, damaged, or written by a newer version."""
        try:
            return _parsed(self.path.read_text("utf-8"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # A console that starts with defaults is better than one that does not start.
            return Preferences()

    def change(self, change: PreferenceChange) -> Preferences:
        """Apply a change to the file's current content, so that another console's changes are kept.

        Raises:
            PreferencesError: The file cannot be written, or a newer version wrote it.
        """
        try:
            with alone(self.path.parent):
                self._refuse_newer()
                before = self.read()
                after = change(before)
                if after != before:
                    self._write(after)
                return after
        except OSError as error:
            raise PreferencesError(
                f"Views and columns cannot be saved ({error.strerror or error}) and last until you quit: "
                f"see that {self.path} can be written."
            ) from error

    def _refuse_newer(self) -> None:
        try:
            version = json.loads(self.path.read_text("utf-8"))["version"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        if isinstance(version, int) and version > VERSION:
            raise PreferencesError(f"A newer version wrote {self.path}: upgrade, or move it away.")

    def _write(self, preferences: Preferences) -> None:
        with replacing(self.path) as file:
            json.dump(_document(preferences), file, indent=1)


class PreferencesWriter:
    """The current preferences; changes are written in the background, one after the other."""

    def __init__(self, file: PreferencesFile, start: Start, failed: Callable[[str], None]) -> None:
        """Read the file; `failed` is called with the reason when saving fails, once until it succeeds."""
        self.now = file.read()
        self._file = file
        self._failed = failed
        self._has_failed = False
        self._pending: list[PreferenceChange] = []
        self._saved: list[Callable[[], object]] = []
        self._writer = CoalescedTask(self._write, start)

    @classmethod
    def of(cls, session: "Session", start: Start) -> Self:
        """The preferences of the session's profile."""
        from app.console.session import CURE_S  # not for the first picture, which reads the file alone

        file = PreferencesFile.of(session.settings, session.profile)
        return cls(file, start, partial(session.notify, severity="warning", timeout=CURE_S))

    def change(self, change: PreferenceChange, saved: Callable[[], object] | None = None) -> None:
        """Change the preferences at once and save them soon; `saved` is called then."""
        before, self.now = self.now, change(self.now)
        if saved is not None:
            self._saved.append(saved)
            self._has_failed = False
        if saved is not None or self.now != before:
            self._pending.append(change)
            self._writer.ask()

    async def _write(self) -> None:
        pending, self._pending, saved, self._saved = self._pending, [], self._saved, []

        def apply_all(preferences: Preferences) -> Preferences:
            for change in pending:
                preferences = change(preferences)
            return preferences

        try:
            await asyncio.to_thread(self._file.change, apply_all)
        except PreferencesError as error:
            # The next change saves these too: the file may be writable by then.
            self._pending = pending + self._pending
            if not self._has_failed:
                self._has_failed = True
                self._failed(str(error))
        else:
            self._has_failed = False
            for call in saved:
                call()


def _document(preferences: Preferences) -> dict[str, object]:
    return {
        "version": VERSION,
        "views": [
            {
                "name": view.name,
                "query": view.query,
                "sort": written_order(view.sort) if view.sort else None,
                "group": view.group,
            }
            for view in preferences.views
        ],
        "view": preferences.view,
        "sort": written_order(preferences.sort),
        "group": preferences.group,
        "columns": list(preferences.columns.shown),
        "widths": preferences.columns.widths,
        "detail": preferences.detail,
    }


def _parsed(text: str) -> Preferences:
    document: dict[str, Any] = json.loads(text)
    if document["version"] != VERSION:
        return Preferences()
    views = tuple(
        ViewSettings(
            str(view["name"]), str(view["query"]), read_order(view["sort"]) if view["sort"] else None, view.get("group")
        )
        for view in document["views"]
    )
    shown = cast("Any", tuple(dict.fromkeys(key for key in document["columns"] if key in COLUMN_KEYS)))
    choice = ColumnChoice(shown) if shown else ColumnChoice()
    for key, width in document["widths"].items():
        if key in COLUMN_KEYS:
            choice = choice.sized(key, int(width))
    sort = read_order(str(document["sort"]))
    group, detail = str(document.get("group", "")), bool(document["detail"])
    return Preferences(views, str(document["view"]), sort, group, choice, detail)
