"""What the Runs room opens with: the view and the order that were left, before anything is read of the service."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.config import CACHE_FILE, Profile, Settings, data_folder
from app.console.runs.remembered import FILE, PreferencesFile, Remembered
from app.console.runs.views import ALL, TableQuery, View, views_of
from app.console.terminal.early import FILE as PICTURE

if TYPE_CHECKING:
    from storage.cache.first_paint import FirstPaint

FIRST_ROWS: Final = 120
"""Rows read for the first picture: more than any terminal is high."""


def memory_of(settings: Settings, profile: Profile) -> PreferencesFile:
    """Where the console remembers things of this profile."""
    return PreferencesFile(data_folder(settings, profile) / FILE)


def picture_file(settings: Settings, profile: Profile) -> Path:
    """What the earliest picture of this profile is drawn by."""
    return data_folder(settings, profile) / PICTURE


def first_wanted(settings: Settings, remembered: Remembered) -> TableQuery:
    """The view that was left, in the order that was left; a line that was typed is not brought back."""
    views = views_of(settings.views, remembered.views)
    return TableQuery.of(named(views, remembered.view), remembered.sort)


def named(views: tuple[View, ...], name: str) -> View:
    """The view of that name; all runs, where there is none."""
    return next((view for view in views if view.name.casefold() == name.casefold()), ALL)


def first_picture(settings: Settings, profile: Profile, now: datetime) -> "FirstPaint | None":
    """What is cached of that view; None: no cache can be read as it is, or not at once."""
    from storage.cache.first_paint import peek

    wanted = first_wanted(settings, memory_of(settings, profile).read())
    return peek(data_folder(settings, profile) / CACHE_FILE, wanted.condition(now), wanted.sort, FIRST_ROWS)
