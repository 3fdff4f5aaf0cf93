"""What the Runs screen opens with, before anything is asked of the service."""

from datetime import datetime
from typing import TYPE_CHECKING, Final

from app.config import CACHE_FILE, Profile, Settings, data_folder
from app.console.runs.preferences import PreferencesFile
from app.console.runs.views import first_query

if TYPE_CHECKING:
    from storage.cache.first_paint import FirstPaint

FIRST_ROWS: Final = 120
"""Rows read for the first picture: more than any terminal is high."""


def first_picture(settings: Settings, profile: Profile, now: datetime) -> "FirstPaint | None":
    """What is cached of that view; None: no cache can be read as it is, or not at once."""
    from storage.cache.first_paint import peek

    query = first_query(settings, PreferencesFile.of(settings, profile).read())
    return peek(data_folder(settings, profile) / CACHE_FILE, query.condition(now), query.sort, FIRST_ROWS)
