"""The draft of one form: its last text, whether it was sent, and the choice between it and the initial values."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol

from app.api.requests import WriteRequest, as_json
from app.console.forms.drafts import Draft, Drafts, DraftsError, Values
from app.text import SafeText, safe_text
from app.times import ago
from storage.errors import StorageError
from storage.ledger import Ledger
from storage.records import Action
from storage.records.activity import ActivityFilter

if TYPE_CHECKING:
    from app.engine import Engine
    from widgets.badges import Tone

DraftOutcome = Literal["not_sent", "open", "done"]
MOST_SENT: Final = 200
"""The most actions that are searched for a draft's text."""
_READ_ONLY: Final = "This profile is read-only: you may prepare and preview, nothing is sent."


async def outcome_of(
    ledger: Ledger, draft: Draft, requests: Sequence[WriteRequest]
) -> tuple[DraftOutcome, Action | None]:
    """Return the outcome of a draft whose sending began, and its action; `requests` are those of its text.

    Raises:
        StorageError: The ledger cannot be read.
    """
    if draft.sent_at is None or not requests:
        return "not_sent", None
    bodies = {as_json(request) for request in requests}
    since = ActivityFilter(kinds=tuple({request.kind for request in requests}), since=draft.sent_at)
    sent = [a for a in (await ledger.journal(since, limit=MOST_SENT)).newest if a.body_json in bodies]
    # An older attempt with the same text may have been settled since; it is not this one.
    sent = [action for action in sent if action.created_at >= draft.sent_at]
    if (still_open := next((action for action in sent if action.is_open), None)) is not None:
        return "open", still_open
    done = [action for action in sent if action.state == "confirmed"]
    return ("done", done[0]) if {action.body_json for action in done} == bodies else ("not_sent", None)


class FormDraft:
    """The draft of one form; the file ends up with the last text."""

    def __init__(
        self, drafts: Drafts, name: str, fresh: Values, clock: Callable[[], datetime], failed: Callable[[str], object]
    ) -> None:
        """Prepare, without any I/O; values equal to `fresh` need no draft.

        `failed` is called with the reason when drafts cannot be stored, once until one is.
        """
        self._drafts = drafts
        self._name = name
        self._clock = clock
        self.fresh = fresh
        self._wanted: Draft | None = None
        self._stored: Draft | None = None
        self._one_at_a_time = asyncio.Lock()
        self._failed = failed
        self._reported: str | None = None

    def belong_to(self, name: str, fresh: Values) -> None:
        """Take another name and other initial values, before anything was read or stored."""
        self._name, self.fresh = name, fresh

    @property
    def current(self) -> Draft | None:
        """The draft to store now; None: the text needs none."""
        return self._wanted

    async def restore(self) -> Draft | None:
        """Return the draft that an earlier form left."""
        try:
            self._wanted = self._stored = await self._drafts.load(self._name)
        except DraftsError as error:
            self._report(str(error))
        return self._wanted

    def typed(self, values: Values) -> None:
        """Take the form's values; `flush` stores them."""
        if values == self.fresh:
            self._wanted = None
        elif self._wanted is None or self._wanted.values != values:
            self._wanted = Draft(values, self._clock())

    async def sending(self) -> None:
        """Store that this text is about to be sent: a crash from here on leaves its outcome unknown."""
        if self._wanted is not None:
            self._wanted = replace(self._wanted, sent_at=self._clock())
        await self.flush()

    async def not_sent(self) -> None:
        """Make it an ordinary draft again: sending had no effect."""
        if self._wanted is not None:
            self._wanted = replace(self._wanted, sent_at=None)
        await self.flush()

    async def done(self) -> None:
        """Delete the draft: sending took effect."""
        self._wanted = None
        await self.flush()

    async def flush(self) -> None:
        """Store the last values."""
        async with self._one_at_a_time:
            wanted = self._wanted
            if wanted == self._stored:
                return
            try:
                await (self._drafts.discard(self._name) if wanted is None else self._drafts.save(self._name, wanted))
            except DraftsError as error:
                self._report(str(error))
                return
            self._stored, self._reported = wanted, None

    def _report(self, problem: str) -> None:
        if problem != self._reported:
            self._reported = problem
            self._failed(problem)


def why_unsendable(engine: "Engine") -> SafeText | None:
    """The reason why sending is not possible, or None."""
    if engine.actions.read_only:
        return safe_text(_READ_ONLY)
    return None if engine.token_problem is None else safe_text(str(engine.token_problem))


def note_about(draft: Draft, outcome: DraftOutcome, sent: Action | None, now: datetime) -> "tuple[SafeText, Tone]":
    """Describe where the text comes from, and its outcome if it was sent."""
    at = ago(draft.sent_at or draft.saved_at, now)
    if outcome == "open":
        return safe_text(f"Sent {at}; the outcome is unknown: look before you send it again."), "warn"
    if outcome == "done":
        result = f": {sent.result_id}" if sent is not None and sent.result_id else ""
        return safe_text(f"What was sent {at} took effect{result}"), "good"
    return safe_text(f"Your draft from {ago(draft.saved_at, now)}."), "quiet"


class ShowNote(Protocol):
    """Shows a note about the whole form."""

    def __call__(self, text: SafeText, tone: "Tone" = "quiet") -> None:
        """Show it."""


class DraftSwitch:
    """Keeps the values that the form does not show, and notes where the shown ones come from."""

    def __init__(
        self,
        engine: "Engine",
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
        """Whether the shown values are the initial ones, not those of a draft."""
        self._outcome: DraftOutcome | None = None
        """The draft's outcome at the last note; None: there was no note."""

    async def restore(self) -> Values | None:
        """Return the draft's values, or None if the form stays as it was opened."""
        draft = await self._draft.restore()
        if draft is None:
            return None
        outcome, sent = await self._outcome_of_draft(draft)
        if outcome == "done":
            await self._draft.done()
            self._say(*note_about(draft, outcome, sent, self._engine.clock()))
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

    async def report(self) -> None:
        """Show why sending is not possible; otherwise where the text comes from, and its outcome."""
        draft = self._draft.current
        outcome, sent = ("not_sent", None) if draft is None else await self._outcome_of_draft(draft)
        if (reason := why_unsendable(self._engine)) is not None:
            self._say(reason, "warn")
        elif draft is not None and outcome != self._outcome and self.other is not None:
            if self.is_fresh and outcome == "not_sent":
                kept = ago(draft.saved_at, self._engine.clock())
                self._say(safe_text(f"A draft from {kept} is kept: ^n brings it back."))
            else:
                self._say(*note_about(draft, outcome, sent, self._engine.clock()))
        self._outcome = outcome

    async def _outcome_of_draft(self, draft: Draft) -> tuple[DraftOutcome, Action | None]:
        try:
            return await outcome_of(self._engine.ledger, draft, self._requests(draft.values))
        except StorageError:
            return "not_sent" if draft.sent_at is None else "open", None
