"""From the cache and the ledger to what the Runs screen shows: windows of rows, and one run in full."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.text import SafeText, safe_block, safe_text
from storage.records import Action, RunFilter, RunRow, RunWindow, WindowRequest
from widgets.filter.bar import Extent
from widgets.runs.facts import Branch, RunView, Turn

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


def is_scan(condition: RunFilter) -> bool:
    """Whether every run may have to be looked at: no index leads to words or patterns."""
    patterns = (*condition.repositories, *condition.branches)
    excluded = condition.not_repositories or condition.not_branches
    return bool(condition.search or excluded or any("*" in pattern for pattern in patterns))


def window_of_first(rows: tuple[RunRow, ...], request: WindowRequest) -> RunWindow:
    """The first rows, whose number is all that is known so far; the cursor is on its run if that is among them."""
    cursor = next((index for index, row in enumerate(rows) if row.run_id == request.cursor_id), 0)
    return RunWindow(len(rows), 0, rows, 0, cursor)


def statuses_through(condition: RunFilter, known: Iterable[str]) -> frozenset[str]:
    """Which of these statuses the filter lets through."""
    return frozenset(filter(condition.lets_status_through, known))


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


def _said(body_json: str) -> tuple[SafeText, ...]:
    body = json.loads(body_json)
    text = body.get("instructions") if isinstance(body, dict) else None
    if isinstance(text, str):
        return safe_block(text, lines=TURN_LINES)
    return indented(json.dumps(body.get("inputs", {}) if isinstance(body, dict) else body))
