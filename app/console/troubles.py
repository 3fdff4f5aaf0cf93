"""Notices about rows that are not live: what happened, since when, what still holds and which key helps."""

from datetime import datetime
from typing import Final

from app.engine.text import safe_text
from app.engine.times import clock_time, span
from storage.records import LinkState, PollOutcome
from storage.records.activity import Wait
from storage.records.error_kinds import ErrorKind, error_kind
from widgets.frame import Notice, next_poll
from widgets.runs.extent import Extent

UNREADABLE: Final = Notice(
    "∅",
    "Nothing can be shown",
    ("The console's own files cannot be used: Health (2) has the reason and the fix.",),
    "bad",
)
"""Shown in place of a screen whose banner reports our own files."""
READ_ONLY: Final = Notice("◇", "Read-only", ("Nothing can be sent from here.",), "wait")


def link_notice(link: LinkState | None, now: datetime, wait: Wait | None) -> Notice | None:
    """The notice about the link, with its next poll; None if the link works or is not known yet."""
    if link is None or link.failing_since is None:
        return None
    kind = error_kind(link.error_kind)
    title = kind.title
    reason = _why(kind, link.error_message)
    as_of = ""
    if link.last_ok_at is not None:
        as_of = f"What you see is from {clock_time(link.last_ok_at, now)}."
    if kind.concerns == "link":
        silent_s = (now - (link.last_ok_at or link.failing_since)).total_seconds()
        reason = f"{title}. {reason}".strip()
        title = f"No answer for {span(silent_s)}; {next_poll(wait, now)} (^r: now)"
    elif kind.passes:
        title = f"{title}; {next_poll(wait, now)}"
    is_fixable = kind.concerns == "token" or (kind.fix and kind.concerns != "link")
    lines = tuple(filter(None, (reason, as_of)))
    is_bad = is_fixable and not kind.passes
    if is_bad:
        return Notice("✗", title, lines, "bad")
    return Notice("◌", title, lines, "warn")


def own_failure_text(failure: PollOutcome) -> tuple[str, str]:
    """Explain why this console cannot poll while another can: a title and a sentence."""
    kind = error_kind(failure.error_kind)
    return kind.title, f"{_why(kind, failure.error_message)} Another console keeps the rows current."


def storage_notice(message: str) -> Notice:
    """The notice about our own files; the message names the fix, and the Health tab has room for it."""
    return Notice("✗", "The answers cannot be stored: see Health (2)", (safe_text(message, limit=580),), "bad")


def nothing_to_show(
    empty: str | None,
    extent: Extent | None,
    link: LinkState | None,
    now: datetime,
    wait: Wait | None = None,
    *,
    looked: tuple[str, ...] = (),
    read_only: bool = False,
) -> Notice:
    """Explain why there are no rows.

    `empty` is the view's own text, None if its query was changed; `looked` names the parts that were not searched.
    """
    if looked and extent is not None and extent.is_filtered:
        return Notice("∅", "No run matches here", looked)
    if extent is not None and extent.held:
        if empty is None:
            return Notice("∅", "No run matches", (f"{extent.held:,} runs are here; press esc to show them.",))
        return Notice("✓", empty, (f"{extent.held:,} runs are here; press [ or ] for another view.",))
    if (trouble := link_notice(link, now, wait)) is not None:
        return trouble
    if extent is None or link is None or link.last_ok_at is None:
        return Notice("◌", "Asking the service for its runs…", ("The first answer fills this table.",), "busy")
    press = "Press n to start one on a repository, a to start a named agent."
    starts = "They appear here as others start them." if read_only else press
    return Notice("○", "No runs yet", (starts,), "plain")


def _why(kind: ErrorKind, message: str | None) -> str:
    """The fix; if only the link is at fault or no fix is known, the message as a sentence."""
    text = safe_text(message or "", limit=160)
    sentence = text if not text or text.endswith((".", "!", "?")) else f"{text}."
    return sentence if kind.concerns == "link" else kind.fix or sentence
