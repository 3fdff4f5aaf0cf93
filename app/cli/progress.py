"""Long-running commands: a progress line on a terminal, and items printed as they arrive."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

from app.cli.context import Invocation
from app.cli.exits import failed
from app.cli.output import Column, Rows
from app.engine.atomic_file import replacing
from app.engine.events import BackfillMoved, Event
from app.engine.text import safe_text
from app.engine.times import span
from app.start.streams import NotPrintedError, remarking

if TYPE_CHECKING:
    from app.cli.output import Output
    from app.engine.engine import Engine

T = TypeVar("T")
BAR_CELLS: Final = 24


@contextmanager
def progress_bar(engine: "Engine", title: str = "") -> Iterator["Bar"]:
    """Show the backfill's progress on stderr, or only a title while its length is not known."""
    bar = Bar(sys.stderr, title)
    stop = engine.events.subscribe(bar.update)
    try:
        yield bar
    finally:
        stop()
        bar.close()


class Bar:
    """A progress line on a terminal; prints nothing into a file, or without a stream."""

    def __init__(self, stream: TextIO | None, title: str = "") -> None:
        can_draw = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._stream = stream if can_draw else None
        self._title = title
        self._is_drawn = False

    def update(self, event: Event) -> None:
        """Show how far the backfill is: a bar where the end is known, the runs fetched, the time left."""
        if isinstance(event, BackfillMoved) and event.progress.phase == "running":
            progress = event.progress
            parts = [f"{progress.done_runs:,} runs"]
            if self._title:
                parts.insert(0, self._title)
            elif progress.estimated_runs:
                share = min(1.0, progress.done_runs / progress.estimated_runs)
                parts = [_cells(share), f"{parts[0]} of about {progress.estimated_runs:,}"]
            if progress.oldest is not None:
                parts.append(f"back to {progress.oldest:%Y-%m-%d %H:%M}")
            if progress.seconds_left is not None and not self._title:
                parts.append(f"{span(progress.seconds_left, pads_hours=False)} left")
            self.note(" · ".join(parts))

    def note(self, text: str) -> None:
        if self._stream is not None:
            self._is_drawn = True
            with remarking(self._stream):
                print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)

    def close(self) -> None:
        if self._is_drawn:
            self.note("")


class RowProgress(Bar):
    """Shows a batch's progress after each row: a bar on a terminal, one line per row elsewhere."""

    def __init__(self, output: "Output", total: int, usual: str) -> None:
        super().__init__(output.stderr)
        self._output = output
        self._total = total
        self._usual = usual
        """The outcome that needs no mention."""
        self._outcomes: Counter[str] = Counter()

    def done(self, outcome: str, name: str) -> None:
        self._outcomes[outcome] += 1
        count = self._outcomes.total()
        if self._stream is None:
            self._output.note(f"{count}/{self._total}  {outcome:15}  {name}")
            return
        others = [f"{n:,} {word.replace('_', ' ')}" for word, n in self._outcomes.items() if word != self._usual]
        bar = _cells(count / self._total)
        self.note(" · ".join([bar, f"{count:,} of {self._total:,}", *others, safe_text(name, limit=60)]))


def _cells(share: float) -> str:
    filled = round(share * BAR_CELLS)
    return f"{'█' * filled}{'░' * (BAR_CELLS - filled)} {share:4.0%}"


@contextmanager
def exporting(invocation: Invocation, out: Path | None, key: str, columns: Sequence[Column[T]]) -> Iterator[Rows[T]]:
    """Print many items as they come on stdout (None, or `-`), or into a file (0600), whole or not at all."""
    if out is None or str(out) == "-":
        invocation.rows = rows = Rows(invocation.output, key, columns)
        yield rows
        return
    try:
        with replacing(out) as file:
            rows = Rows(invocation.output._replace(stdout=file, width=None, colour=False), key, columns)
            yield rows
    except (OSError, NotPrintedError) as error:
        why = error.reason if isinstance(error, NotPrintedError) else error.strerror
        raise failed("usage", f"{out} cannot be written: {why}.") from error
    invocation.output.note(f"{rows.count} {key} written to {out}")
