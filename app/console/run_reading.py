"""From the cache and the ledger to what the Runs screen shows: windows of rows, and one run in full."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.text import SafeText, safe_block, safe_text
from storage.records import FINAL_STATUSES, Action, RunFilter, RunSort
from widgets.filter_extent import Extent
from widgets.run_view import Branch, RunView, Turn
from widgets.run_window import Place, RunWindow

if TYPE_CHECKING:
    from storage.cache import Cache
    from storage.ledger import Ledger

TURN_LINES: Final = 60
"""Lines of one instruction that are shown; the ledger has it in full."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a run was started from here."""

    instructions: str
    branch: str
    """Empty: the service chose it."""


BESIDE: Final = 3
"""Runs on the same branch that are shown before and after one."""
MOST_BESIDE: Final = 100
"""Further ones are not counted."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which rows are wanted, and whether what they stand in may have changed."""

    condition: RunFilter
    sort: RunSort
    place: Place
    is_fresh: bool = False
    """True: runs came or changed, or the condition did: find the anchor again."""


def is_scan(condition: RunFilter) -> bool:
    """Whether every run may have to be looked at: no index leads to words or patterns."""
    patterns = (*condition.repositories, *condition.branches)
    excluded = condition.not_repositories or condition.not_branches
    return bool(condition.search or excluded or any("*" in pattern for pattern in patterns))


async def read_window(cache: "Cache", question: Question) -> RunWindow:
    """The rows of a place, and where its anchor and cursor are now.

    Raises:
        StorageError: The cache cannot be read.
    """
    place, condition, sort = question.place, question.condition, question.sort
    total = await read_total(cache, condition)
    shift, cursor = 0, place.cursor_index if place.cursor_id is not None else None
    if question.is_fresh:
        anchor = await _index(cache, place.anchor_id, question)
        shift = anchor - place.anchor_index if anchor is not None else 0
        cursor = anchor if place.cursor_id == place.anchor_id else await _index(cache, place.cursor_id, question)
    offset = max(0, min(place.offset + shift, total - place.limit))
    rows = await cache.rows(condition, sort, offset=offset, limit=place.limit)
    return RunWindow(total, offset, rows, shift, cursor)


async def read_first(cache: "Cache", condition: RunFilter, sort: RunSort, place: Place) -> RunWindow:
    """The first rows, without a look at how many follow; the cursor is on its run if that is among them.

    Raises:
        StorageError: The cache cannot be read.
    """
    rows = await cache.rows(condition, sort, offset=0, limit=place.limit)
    cursor = next((index for index, row in enumerate(rows) if row.run_id == place.cursor_id), 0)
    return RunWindow(len(rows), 0, rows, 0, cursor)


async def read_total(cache: "Cache", condition: RunFilter) -> int:
    """How many runs the filter lets through.

    Raises:
        StorageError: The cache cannot be read.
    """
    if condition.statuses or condition.not_statuses or condition.active:
        return await cache.count(condition)
    # The numbers by status are asked for as well: one look at the runs gives both.
    return sum((await cache.status_counts(condition)).values())


def statuses_through(condition: RunFilter, known: Iterable[str]) -> frozenset[str]:
    """Which of these statuses the filter lets through."""
    return frozenset(
        status
        for status in known
        if (not condition.statuses or status in condition.statuses)
        and status not in condition.not_statuses
        and not (condition.active and status in FINAL_STATUSES)
    )


async def read_extent(cache: "Cache", matching: int, condition: RunFilter, *, is_counted: bool = True) -> Extent:
    """How much of how much is on show.

    Raises:
        StorageError: The cache cannot be read.
    """
    held = await cache.count(RunFilter()) if condition else matching
    return Extent(matching, held, await cache.coverage(), is_filtered=bool(condition), is_counted=is_counted)


async def read_run(cache: "Cache", ledger: "Ledger", run_id: str, *, stuck: bool) -> RunView | None:
    """One run with what was said to it from here; None: the cache does not hold it.

    Raises:
        StorageError: Cache or ledger cannot be read.
    """
    detail = await cache.detail(run_id)
    if detail is None:
        return None
    actions = await ledger.for_run(run_id)
    earlier = (a.subject for a in actions if a.kind == "run.continue" and run_id == a.result_id != a.subject)
    return RunView(
        detail,
        tuple(turn_of(action) for action in actions),
        stuck,
        next(earlier, None),
        Branch(*await cache.on_branch(run_id, each_way=BESIDE, most=MOST_BESIDE)),
        indented(detail.run.raw_json),
    )


async def read_beginning(ledger: "Ledger", run_id: str) -> Beginning:
    """How the run was started from here; empty where it was not.

    Raises:
        StorageError: The ledger cannot be read.
    """
    for action in await ledger.for_run(run_id):
        body = json.loads(action.body_json)
        if action.kind == "run.start" and isinstance(body, dict):
            return Beginning(str(body.get("instructions") or ""), str(body.get("branch_name") or ""))
    return Beginning("", "")


def turn_of(action: Action) -> Turn:
    """An action of the ledger as a turn of a conversation."""
    trouble = safe_text(action.error.message) if action.error is not None else None
    return Turn(action.created_at, safe_text(action.actor, limit=60), action.state, _said(action.body_json), trouble)


def indented(raw_json: str) -> tuple[SafeText, ...]:
    """JSON with one field a line; as it is, where it is no JSON."""
    try:
        text = json.dumps(json.loads(raw_json), indent=2, ensure_ascii=False)
    except ValueError:
        text = raw_json
    return safe_block(text)


async def _index(cache: "Cache", run_id: str | None, question: Question) -> int | None:
    if run_id is None:
        return None
    return await cache.index_of(run_id, question.condition, question.sort)


def _said(body_json: str) -> tuple[SafeText, ...]:
    body = json.loads(body_json)
    text = body.get("instructions") if isinstance(body, dict) else None
    if isinstance(text, str):
        return safe_block(text, lines=TURN_LINES)
    return indented(json.dumps(body.get("inputs", {}) if isinstance(body, dict) else body))
