"""The choice between a form's draft and its initial values, and the note about it."""

from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from app.api.requests import WriteRequest
from app.console.forms.drafts import Draft, Values
from app.console.forms.form_draft import Fate, FormDraft, fate_of
from app.engine import Engine
from app.text import SafeText, safe_text
from app.times import ago
from storage.errors import StorageError
from storage.records import Action
from widgets.badges import Tone

_READ_ONLY: Final = "This profile is read-only: you may prepare and preview, nothing is sent."


def hindered(engine: Engine) -> SafeText | None:
    """The reason why sending is not possible, or None."""
    if engine.actions.read_only:
        return safe_text(_READ_ONLY)
    return None if engine.token_problem is None else safe_text(str(engine.token_problem))


def origin_of(draft: Draft, fate: Fate, sent: Action | None, now: datetime) -> tuple[SafeText, Tone]:
    """Describe where the text comes from, and its outcome if it was sent."""
    at = ago(draft.sent_at or draft.saved_at, now)
    if fate == "open":
        return safe_text(f"Sent {at}; the outcome is unknown: look before you send it again."), "warn"
    if fate == "done":
        result = f": {sent.result_id}" if sent is not None and sent.result_id else ""
        return safe_text(f"What was sent {at} took effect{result}"), "good"
    return safe_text(f"Your draft from {ago(draft.saved_at, now)}."), "quiet"


class ShowNote(Protocol):
    """Shows a note about the whole form."""

    def __call__(self, text: SafeText, tone: Tone = "quiet") -> None:
        """Show it."""


class DraftSwitch:
    """Keeps the values that the form does not show, and reports the outcome of a draft that was sent."""

    def __init__(
        self,
        engine: Engine,
        draft: FormDraft,
        requests: Callable[[Values], tuple[WriteRequest, ...]],
        say: ShowNote,
        *,
        fresh_wins: bool,
    ) -> None:
        """Prepare; `requests` returns all requests of a form's values."""
        self._engine = engine
        self._draft = draft
        self._requests = requests
        self._say = say
        self._fresh_wins = fresh_wins
        self.other: Values | None = None
        """The values to swap in, or None."""
        self.is_fresh = True
        """Whether the shown values came from no draft."""
        self._fate: Fate | None = None
        """The draft's outcome as reported last; None: none was reported."""

    async def restore(self) -> Values | None:
        """Return the draft's values, or None if the form stays as it was opened."""
        draft = await self._draft.restore()
        if draft is None:
            return None
        fate, sent = await self._fate_of_draft(draft)
        if fate == "done":
            await self._draft.done()
            self._say(*origin_of(draft, fate, sent, self._engine.clock()))
        elif self._fresh_wins:
            self.other = draft.values
        else:
            self.other, self.is_fresh = self._draft.fresh, False
            return draft.values
        return None

    def swap(self, now: Values) -> Values | None:
        """Swap the shown values for the others, if there are any."""
        if (other := self.other) is None:
            return None
        self.other, self.is_fresh = now, not self.is_fresh
        self._say(safe_text("^n brings back the previous text."))
        return other

    async def judge(self) -> None:
        """Report why sending is not possible, otherwise where the text comes from and its outcome."""
        draft = self._draft.current
        fate, sent = ("not_sent", None) if draft is None else await self._fate_of_draft(draft)
        if (hindrance := hindered(self._engine)) is not None:
            self._say(hindrance, "warn")
        elif draft is not None and fate != self._fate and self.other is not None:
            if self.is_fresh and fate == "not_sent":
                kept = ago(draft.saved_at, self._engine.clock())
                self._say(safe_text(f"A draft from {kept} is kept: ^n brings it back."))
            else:
                self._say(*origin_of(draft, fate, sent, self._engine.clock()))
        self._fate = fate

    async def _fate_of_draft(self, draft: Draft) -> tuple[Fate, Action | None]:
        try:
            return await fate_of(self._engine.ledger, draft, self._requests(draft.values))
        except StorageError:
            return "not_sent" if draft.sent_at is None else "open", None
