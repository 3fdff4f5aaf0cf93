"""The draft of one form: its last text, whether it was sent, and the outcome."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal

from app.api.requests import WriteRequest, as_json
from app.console.forms.drafts import Draft, Drafts, DraftsError, Values
from storage.ledger import Ledger
from storage.records import Action
from storage.records.activity import ActivityFilter

Fate = Literal["not_sent", "open", "done"]
MOST_SENT: Final = 200
"""Actions searched for a draft's text."""


async def fate_of(ledger: Ledger, draft: Draft, requests: Sequence[WriteRequest]) -> tuple[Fate, Action | None]:
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
        self._told: str | None = None

    def belong_to(self, name: str, fresh: Values) -> None:
        """Take another name and other initial values, before anything was read or stored."""
        self._name, self.fresh = name, fresh

    @property
    def current(self) -> Draft | None:
        """The draft that a crash now would leave; None: none."""
        return self._wanted

    async def restore(self) -> Draft | None:
        """Return the draft that an earlier form left."""
        try:
            self._wanted = self._stored = await self._drafts.load(self._name)
        except DraftsError as error:
            self._tell(str(error))
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
                self._tell(str(error))
                return
            self._stored, self._told = wanted, None

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            self._told = problem
            self._failed(problem)
