"""Keeps one form's draft on disk while the form is open, and says where it came from."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from app.console.forms.drafts import Draft, Drafts, DraftsError

Values = dict[str, str]


class DraftKeeper:
    """One form's draft: the last thing typed is what the file ends up with."""

    def __init__(self, drafts: Drafts, name: str, fresh: Values, clock: Callable[[], datetime]) -> None:
        """Prepare, without any I/O.

        Args:
            drafts: Where drafts are kept.
            name: This form's name among them.
            fresh: What the form holds when nothing was typed: not worth a draft.
            clock: The time, aware UTC.
        """
        self._drafts = drafts
        self._name = name
        self._clock = clock
        self.fresh = fresh
        self._wanted: Draft | None = None
        self._stored: Draft | None = None
        self._one_at_a_time = asyncio.Lock()
        self.problem: str | None = None
        """Why drafts cannot be kept just now."""

    async def restore(self) -> Draft | None:
        """The draft an earlier form left."""
        try:
            self._wanted = self._stored = await self._drafts.load(self._name)
        except DraftsError as error:
            self.problem = str(error)
        return self._wanted

    def typed(self, values: Values) -> None:
        """Takes what the form holds now; `flush` puts it on disk."""
        if values == self.fresh:
            self._wanted = None
        elif self._wanted is None or self._wanted.values != values:
            self._wanted = Draft(values, self._clock())

    async def sending(self) -> None:
        """Puts on disk that this very text is about to be sent: a crash from here on leaves its outcome unknown."""
        if self._wanted is not None:
            self._wanted = replace(self._wanted, sent_at=self._clock())
        await self.flush()

    async def not_sent(self) -> None:
        """It had no effect: an ordinary draft again."""
        if self._wanted is not None:
            self._wanted = replace(self._wanted, sent_at=None)
        await self.flush()

    async def done(self) -> None:
        """It took effect: there is no draft any more."""
        self._wanted = None
        await self.flush()

    async def flush(self) -> None:
        """Makes the file say what was typed last."""
        async with self._one_at_a_time:
            wanted = self._wanted
            if wanted == self._stored:
                return
            try:
                await (self._drafts.discard(self._name) if wanted is None else self._drafts.save(self._name, wanted))
            except DraftsError as error:
                self.problem = str(error)
                return
            self._stored, self.problem = wanted, None
