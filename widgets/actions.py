"""How writes are shown: a table with one line each, the facts of one write, and the bar above."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct
from textual.containers import Horizontal
from textual.content import Content

from app.engine.text import SafeText, safe_block, safe_text
from app.engine.times import ago, span, stamp
from storage.records import Action
from storage.records.action import WRITE_KINDS
from widgets.forms.dialog import reason
from widgets.forms.inputs import ListSearch
from widgets.kit.badges import ACTION_BADGES, Badge
from widgets.kit.cells import Column
from widgets.kit.line_table import TableLine, TonedText
from widgets.kit.line_text import ChipBar, SteadyText

_SENT_AGAIN: Final = Badge("↻", "sent again", "quiet")
_WAITING: Final = Badge("◌", "waiting", "wait")


class ActivityEntry(Struct, frozen=True):
    """One write as a row of the table, with its facts."""

    source: Action
    about: SafeText
    waits: int | None = None
    """The number of the waiting continuation; None if this entry is not one."""

    @property
    def key(self) -> str:
        return self.source.action_id

    @property
    def unknown(self) -> Action | None:
        if self.source.state == "unknown" and self.source.resolution is None:
            return self.source
        return None

    @property
    def is_resendable(self) -> bool:
        """Whether it certainly had no effect; an unknown outcome is resolved instead."""
        return self.source.state in {"rejected", "not_sent", "not_created"} and self.source.superseded_by is None

    @property
    def badge(self) -> Badge:
        if self.waits is not None:
            return _WAITING
        if self.source.resolution == "sent_again":
            return _SENT_AGAIN
        return ACTION_BADGES[self.source.state]

    @property
    def run_id(self) -> str | None:
        return self.source.result_id or (self.source.subject if self.source.kind == "run.continue" else None)

    def cells(self, now: datetime) -> TableLine:
        badge = self.badge
        source = self.source
        first: TonedText = (safe_text(badge.text), badge.tone)
        actor: TonedText = (safe_text(source.actor, limit=60), "quiet")
        when: TonedText = (safe_text(ago(source.created_at, now)), "quiet")
        result: TonedText = (safe_text(source.result_id or "", limit=120), "plain")
        if source.error is not None:
            result = safe_text(reason(source.error)), "warn" if source.state == "unknown" else "quiet"
        return first, (kind_label(source.kind), "plain"), (self.about, "plain"), result, actor, when

    def facts(self, now: datetime) -> Iterator[tuple[str, TonedText]]:
        del now
        action = self.source
        badge = self.badge
        yield "outcome", (safe_text(badge.text), badge.tone)
        yield "what", (kind_label(action.kind), "plain")
        if self.about:
            yield "about", (self.about, "plain")
        if self.waits is not None:
            yield "waits for", (safe_text("the end of its run; X cancels it"), "plain")
        if action.result_id:
            yield "made", (safe_text(action.result_id), "plain")
        if action.error is not None:
            yield "reason", (safe_text(reason(action.error)), "warn" if action.state == "unknown" else "bad")
        if self.unknown is not None:
            todo = "Check whether it took effect, then press v. It is never sent again automatically."
            yield "to do", (safe_text(todo), "warn")
        if action.superseded_by:
            yield "sent again", (safe_text(action.superseded_by), "plain")
        yield "asked", (safe_text(f"{stamp(action.created_at)} by {action.actor}"), "plain")
        yield "sent", (safe_text(stamp(action.sending_at) if action.sending_at else "never"), "plain")
        if action.settled_at is not None:
            took = span((action.settled_at - (action.sending_at or action.created_at)).total_seconds())
            label = "settled"
            if action.state == "unknown" or action.resolved_at is not None:
                label = "unknown"
            yield label, (safe_text(f"{stamp(action.settled_at)}, after {took}"), "plain")
        if action.resolved_at is not None:
            yield "resolved", (safe_text(f"{stamp(action.resolved_at)} by {action.resolved_by.name}"), "plain")
        yield "action", (safe_text(action.action_id), "quiet")
        if action.key != action.action_id:
            yield "key", (safe_text(action.key, limit=200), "quiet")

    def below_facts(self, _now: datetime) -> Content:
        body = self.source.body_json
        # A body that is not JSON is shown as it is: the ledger holds the bytes as sent.
        with suppress(ValueError, RecursionError):
            body = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
        lines = map(Content, safe_block(body, limit=20_000, lines=400))
        title = "What was sent" if self.waits is None else "What is sent then"
        return Content("\n").join((Content.styled(title, "$accent bold"), *lines))


def kind_label(kind: str) -> SafeText:
    """A kind in words; an unknown kind as it is."""
    return safe_text(next((row.words for name, row in WRITE_KINDS.items() if name == kind), kind), limit=40)


_RESULT_FROM: Final = 100
COLUMNS: Final = (
    Column("outcome", 13),
    Column("what", 19),
    Column("about", 12, grows=3),
    Column("result", 8, grows=2, wide_from=_RESULT_FROM),
    Column("by", 14, wide_from=_RESULT_FROM),
    Column("when", 9),
)
"""Narrower tables leave the result and the actor to the facts next to them."""


class ActivityBar(Horizontal):
    """Search, filters and extent."""

    DEFAULT_CSS = Path(__file__).with_name("actions.tcss").read_text("utf-8")

    def __init__(self) -> None:
        super().__init__(ListSearch("/ search"), ChipBar(id="activity-filters"), SteadyText(id="activity-extent"))
