"""News of runs: what moved, and what is stuck."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from app.notify.news import Level, News
from app.text import safe_text
from storage.records import FINAL_STATUSES
from storage.records.following import RunMove, StuckRun
from widgets.times import clock_time, span

_FACTORS: Final = "much longer than usual"


def move_news(moves: Sequence[RunMove], on: Collection[str], profile: str) -> tuple[News, ...]:
    """Those moves that somebody wants to know of."""
    return tuple(_move(move, profile) for move in moves if _is_wanted(move, on))


def missed_news(moves: Sequence[RunMove], on: Collection[str], now: datetime) -> News | None:
    """Those moves that happened while nobody was looking, as one; None: there are none that anybody wants."""
    wanted = [move for move in moves if _is_wanted(move, on)]
    if not wanted:
        return None
    counts = Counter(move.new for move in wanted)
    parts = ", ".join(f"{count} {safe_text(status, limit=30)}" for status, count in counts.most_common())
    newest = max(move.at for move in wanted)
    return News(
        key=f"missed:{newest.isoformat()}",
        kind="run",
        level="warning" if "failed" in counts else "information",
        title=safe_text(f"While nobody was looking: {parts}", limit=120),
        body=safe_text(f"the last one at {clock_time(newest, now)}"),
        at=newest,
    )


def stuck_news(stuck: Sequence[StuckRun], profile: str) -> tuple[News, ...]:
    """The runs that are stuck."""
    return tuple(_stuck(run, profile) for run in stuck)


def _is_wanted(move: RunMove, on: Collection[str]) -> bool:
    return move.new in on or (move.is_pinned and "pinned" in on)


def _move(move: RunMove, profile: str) -> News:
    took = ""
    if move.new in FINAL_STATUSES and move.at > move.active_since:
        took = f" after {span((move.at - move.active_since).total_seconds())}"
    level: Level = "error" if move.new == "failed" else "information"
    return News(
        # To the microsecond: a run that was continued may fail a second time.
        key=f"run:{move.run_id}:{move.new}:{move.at.isoformat()}",
        kind="run",
        level=level,
        title=safe_text(f"Run {move.new}{took}: {move.repository}", limit=120),
        body=safe_text(f"{move.branch_name} · {move.run_id} · {profile}", limit=200),
        at=move.at,
        about=(*_about(move.run_id, move.repository, move.new), ("branch", move.branch_name)),
        mine=move.is_pinned,
    )


def _stuck(run: StuckRun, profile: str) -> News:
    for_s = (run.last_seen_at - run.active_since).total_seconds()
    usual = f"95 of 100 there end within {span(run.p95_s)}" if run.p95_s else _FACTORS
    return News(
        key=f"stuck:{run.run_id}:{run.active_since.isoformat()}",
        kind="stuck",
        level="warning",
        title=safe_text(f"Run stuck: {run.repository}, {run.status} for {span(for_s)}", limit=120),
        body=safe_text(f"{usual} · {run.run_id} · {profile}", limit=200),
        at=run.last_seen_at,
        about=_about(run.run_id, run.repository, run.status),
        lasts=True,
    )


def _about(run_id: str, repository: str, status: str) -> tuple[tuple[str, str], ...]:
    return ("run_id", run_id), ("repository", repository), ("status", status)
