"""Incidents, one a line: what it was, where, when it began and how long it lasted."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from textual.content import Content
from textual.widgets import Static

from app.text import SafeText
from widgets.badges import STYLES, Badge
from widgets.cells import fit, shorten
from widgets.times import clock_time, span

MOST: Final = 20
"""Lines at most; the rest is counted."""
FACTS: Final = 56
"""Cells before the note."""
_QUIET: Final = STYLES["quiet"]


@dataclass(frozen=True, slots=True)
class IncidentFacts:
    """One incident, as a line says it."""

    badge: Badge
    platform: SafeText
    start: datetime
    seconds: float
    goes_on: bool
    note: str = ""
    """Such as that it flapped, or that its end was not seen."""


class IncidentList(Static):
    """The newest incidents, or one line that says that there are none."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 — Textual's word
        super().__init__(id=id, markup=False)
        self._incidents: Sequence[IncidentFacts] = ()
        self._otherwise = ""
        self._now: datetime | None = None
        self._shown: Content | None = None

    def show(self, incidents: Sequence[IncidentFacts], otherwise: str, now: datetime) -> None:
        """Takes the incidents, newest first; paints only if they read differently."""
        self._incidents, self._otherwise, self._now = incidents, otherwise, now
        content = incident_lines(incidents, otherwise, now, self.size.width)
        if self._shown is None or not content.is_same(self._shown):
            self._shown = content
            self.update(content)

    def on_resize(self) -> None:
        """Draws for the new width."""
        if self._now is not None:
            self.show(self._incidents, self._otherwise, self._now)


def incident_lines(incidents: Sequence[IncidentFacts], otherwise: str, now: datetime, width: int) -> Content:
    """The lines, each in so many cells."""
    if not incidents:
        return Content.styled(otherwise, _QUIET)
    lines = [_line(incident, now, width) for incident in incidents[:MOST]]
    if len(incidents) > MOST:
        lines.append(Content.styled(f"and {len(incidents) - MOST} older ones", _QUIET))
    return Content("\n").join(lines)


def _line(incident: IncidentFacts, now: datetime, width: int) -> Content:
    style = f"{incident.badge.style} bold" if incident.goes_on else incident.badge.style
    lasted = f"{span(incident.seconds)} so far" if incident.goes_on else span(incident.seconds)
    return Content.assemble(
        (fit(incident.badge.text, 16) + " ", style),
        (fit(incident.platform, 10) + " ", "bold" if incident.goes_on else ""),
        (f"{clock_time(incident.start, now):<14}", _QUIET),
        (f"{lasted:<14}", "bold" if incident.goes_on else ""),
        (shorten(incident.note, max(0, width - FACTS)), _QUIET),
    )
