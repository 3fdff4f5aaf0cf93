"""What the console remembers of a profile: saved views, the last view and order, the columns, the detail."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from app.atomic_file import alone, replacing
from app.config import ViewSettings
from app.ordering import read_order, written_order
from storage.records import RunSort
from widgets.runs.columns import COLUMN_KEYS, ColumnChoice

FILE: Final = "console.json"
VERSION: Final = 1
MOST_VIEWS: Final = 50


class PreferencesError(Exception):
    """Nothing can be remembered; the message names the file and the cure. The console works without."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """Everything that is remembered."""

    views: tuple[ViewSettings, ...] = ()
    """Saved from the screen."""
    view: str = ""
    """The name of the last view; empty, or of a view that is gone: the first one."""
    sort: RunSort = field(default_factory=RunSort)
    columns: ColumnChoice = field(default_factory=ColumnChoice)
    detail: bool = True
    """Whether the run under the cursor is shown beside or below the table."""

    def with_view(self, view: ViewSettings) -> "Remembered":
        """With another saved view, or in place of the one that has its name."""
        rest = tuple(other for other in self.views if other.name.casefold() != view.name.casefold())
        return replace(self, views=(*rest, view)[-MOST_VIEWS:])

    def without_view(self, name: str) -> "Remembered":
        """Without the saved view of that name."""
        return replace(self, views=tuple(other for other in self.views if other.name.casefold() != name.casefold()))


@dataclass(frozen=True, slots=True)
class PreferencesFile:
    """One file, which only its owner can read."""

    path: Path

    def read(self) -> Remembered:
        """What is remembered; nothing where the file is missing, damaged, or a newer version's."""
        try:
            return _parsed(self.path.read_text("utf-8"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # Comfort, not facts: a console that starts plain is better than one that does not start.
            return Remembered()

    def change(self, change: Callable[[Remembered], Remembered]) -> Remembered:
        """Remembers something else; what another console of this profile remembered meanwhile is kept.

        Raises:
            RememberingError: The file cannot be written, or a newer version wrote it.
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
                f"The console's views and columns cannot be kept in {self.path}: {error.strerror or error}."
            ) from error

    def _refuse_newer(self) -> None:
        try:
            version = json.loads(self.path.read_text("utf-8"))["version"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        if isinstance(version, int) and version > VERSION:
            raise PreferencesError(f"A newer version wrote {self.path}: upgrade, or move it away.")

    def _write(self, remembered: Remembered) -> None:
        with replacing(self.path) as file:
            json.dump(_document(remembered), file, indent=1)


def _document(remembered: Remembered) -> dict[str, object]:
    return {
        "version": VERSION,
        "views": [
            {"name": view.name, "query": view.query, "sort": written_order(view.sort) if view.sort else None}
            for view in remembered.views
        ],
        "view": remembered.view,
        "sort": written_order(remembered.sort),
        "columns": list(remembered.columns.shown),
        "widths": remembered.columns.widths,
        "detail": remembered.detail,
    }


def _parsed(text: str) -> Remembered:
    document: dict[str, Any] = json.loads(text)
    if document["version"] != VERSION:
        return Remembered()
    views = tuple(
        ViewSettings(str(view["name"]), str(view["query"]), read_order(view["sort"]) if view["sort"] else None)
        for view in document["views"]
    )
    shown = cast("Any", tuple(dict.fromkeys(key for key in document["columns"] if key in COLUMN_KEYS)))
    choice = ColumnChoice(shown) if shown else ColumnChoice()
    for key, width in document["widths"].items():
        if key in COLUMN_KEYS:
            choice = choice.sized(key, int(width))
    sort = read_order(str(document["sort"]))
    return Remembered(views, str(document["view"]), sort, choice, bool(document["detail"]))
