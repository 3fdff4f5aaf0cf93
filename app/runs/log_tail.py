"""The end of a failed run's log, for the pane next to the list: why it failed, without opening it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from app.api.errors import ApiError
from app.engine.text import SafeText, safe_log_line, safe_text
from app.results.steps import StepLines
from storage.records import RunDetail
from storage.records.results import LogChunk, LogTail, Unavailable

if TYPE_CHECKING:
    from app.results.service import ServiceExtension

TAIL: Final = 32 * 1024
"""Bytes requested of a log's end."""
MOST_LINES: Final = 40
MOST_HELD: Final = 64
"""Runs whose tail is kept; the one read the longest ago is dropped first."""
_TIME: Final = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:[\d.,]+(Z|[+-]\d\d:?\d\d)?\]?\s*")
"""The time before a line, for which the pane has no room."""
RETRY_AFTER: Final = timedelta(seconds=15)
"""How long a failed request is shown before the service is asked again."""


@dataclass(slots=True)
class LogTails:
    """The ends of logs, each requested once for a state of its run."""

    _held: dict[tuple[str, datetime | None], tuple[datetime | None, LogTail]] = field(default_factory=dict)
    """By run and its own time; with the time of a request that failed, which is repeated."""

    def held(self, detail: RunDetail, now: datetime) -> LogTail | None:
        """The tail as read before; None: it has to be requested."""
        failed_at, tail = self._held.get((detail.run.run_id, detail.run.updated_at), (None, None))
        return None if failed_at is not None and now - failed_at > RETRY_AFTER else tail

    async def read(self, extension: "ServiceExtension", detail: RunDetail, now: datetime) -> None:
        """Request the tail, or the reason why there is none."""
        key = detail.run.run_id, detail.run.updated_at
        try:
            self._held[key] = None, await _tail(extension, detail)
        except ApiError as error:
            self._held[key] = now, LogTail(missing=safe_text(f"The log cannot be read now. {error.message}", limit=400))
        while len(self._held) > MOST_HELD:
            del self._held[next(iter(self._held))]


async def _tail(extension: "ServiceExtension", detail: RunDetail) -> LogTail:
    run, summary = detail.run, detail.summary
    turn = summary.turns if (summary.status, summary.updated_at) == (run.status, run.updated_at) else None
    if turn is None:
        turns = await extension.turns(run.run_id)
        if isinstance(turns, Unavailable):
            return LogTail(missing=safe_text(turns.reason, limit=400))
        turn = turns.turns[-1].number if turns.turns else 1
    chunk = await extension.log(run.run_id, turn, offset=-TAIL, before=0)
    if isinstance(chunk, Unavailable):
        return LogTail(missing=safe_text(chunk.reason, limit=400))
    lines = [(text, is_failed) for text, is_failed in _lines(chunk) if text.strip()]
    if not lines:
        return LogTail(missing="The log is empty.")
    why = next((text for text, is_failed in reversed(lines) if is_failed), lines[-1][0])
    return LogTail(tuple(text for text, _ in lines[-MOST_LINES:]), why)


def _lines(chunk: LogChunk) -> Iterator[tuple[SafeText, bool]]:
    """The lines, each with whether it belongs to a step that failed."""
    if chunk.steps is None:
        text = chunk.data.decode("utf-8", "replace")
        # A piece from the middle of a log begins within a line.
        text = (text.partition("\n")[2] or text) if chunk.offset else text
        yield from ((safe_log_line(_TIME.sub("", line)), False) for line in text.split("\n"))
        return
    drawn = StepLines("l shows them")
    for step in chunk.steps:
        for line in drawn.of(step):
            yield SafeText(line.drawn(colour=False)), step.failed or step.kind == "error"
