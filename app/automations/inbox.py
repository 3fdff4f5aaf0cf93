"""The inbox: causes that wait, less those that were dealt with; the same for every console and command of a folder."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Self

from app.automations.causes import Cause, Causes
from app.engine import Engine
from app.rules.rule import Rule
from app.text import safe_text
from storage.records.inbox import InboxEntry, InboxItem, Mark
from storage.state import State

MOST_ENTRIES: Final = 50
"""Runs listed for one item."""
_LONGEST_CURE: Final = 1000
"""A command that was cut off cannot be pasted, and paths are long."""
_LONGEST: Final = 200
_DAY: Final = timedelta(days=1)
_NO_MARK: Final = Mark()


@dataclass(frozen=True, slots=True)
class Inbox:
    """One profile's inbox."""

    engine: Engine
    causes: Causes

    @classmethod
    def of(cls, engine: Engine, automations: Callable[[], Sequence[Rule]] | None = None) -> Self:
        """The inbox of an engine's profile; if the state cannot be used, everything waits.

        `automations`: the current rules, if they may have changed since the engine was opened.
        """
        automations = automations or (lambda: engine.settings.automations)
        return cls(engine, Causes(engine, engine.state if isinstance(engine.state, State) else None, automations))

    async def items(self, *, with_done: bool = False) -> tuple[InboxItem, ...]:
        """The open items, the most severe first, then the newest; new activity brings an item back.

        Raises:
            StorageError: A file cannot be read.
        """
        now, marks = self.engine.clock(), {} if with_done else await self._marks()
        causes, command_line = await self.causes.read(now), self.engine.settings.command_line
        items = [item for cause in causes if (item := _item(cause, marks, now, command_line)) is not None]
        return tuple(sorted(items, key=lambda item: (item.rank, -item.at.timestamp(), item.key)))

    async def done(self, items: Sequence[InboxItem]) -> None:
        """Mark the items as done, up to now: later events bring them back.

        Raises:
            StorageError: The state cannot be written.
        """
        await self._mark({entry.key: Mark(done_until=entry.at) for entry in await self._whole(items)})

    async def snooze(self, items: Sequence[InboxItem], until: datetime) -> None:
        """Snooze the items until then; earlier events bring them back sooner.

        Raises:
            StorageError: The state cannot be written.
        """
        marks = await self._marks()
        await self._mark(
            {
                entry.key: replace(marks.get(entry.key, _NO_MARK), snoozed_until=until, seen_until=entry.at)
                for entry in await self._whole(items)
            }
        )

    async def mute(self, items: Sequence[InboxItem]) -> None:
        """Take the items out for good, whatever comes later.

        Raises:
            StorageError: The state cannot be written.
        """
        keys = [key for item in items for key in (item.key, *(entry.key for entry in item.newest))]
        await self._mark(dict.fromkeys(keys, Mark(is_muted=True)))

    async def undo(self) -> tuple[str, ...]:
        """Undo the last change of any console and return its keys; called again, undo the one before it.

        Raises:
            StorageError: The state cannot be written.
        """
        return await self.engine.usable_state().undo(self.engine.clock())

    async def can_undo(self) -> bool:
        """Whether there is a change to undo.

        Raises:
            StorageError: The state cannot be read.
        """
        return any(mark != _NO_MARK for mark in (await self._marks()).values())

    async def _mark(self, marked: Mapping[str, Mark]) -> None:
        await self.engine.usable_state().mark(marked, self.engine.clock())

    async def _marks(self) -> Mapping[str, Mark]:
        return {} if self.causes.state is None else await self.causes.state.marks()

    async def _whole(self, items: Sequence[InboxItem]) -> Iterable[InboxEntry]:
        """The entries to mark: the newest of each key, and of each repository whose items are all chosen."""
        found = {entry.key: entry for item in items for entry in item.newest}
        others = {item.group for item in await self.items() if item.key not in {each.key for each in items}}
        for item in sorted(items, key=lambda item: item.at):
            if item.group and item.group not in others:
                found[item.group] = InboxEntry(item.group, item.at)
        return found.values()


def _item(cause: Cause, marks: Mapping[str, Mark], now: datetime, command_line: str) -> InboxItem | None:
    """The open part of the cause, or None."""
    held = [(entry, [marks.get(key, _NO_MARK) for key in {entry.key, cause.group}]) for entry in cause.entries]
    undone = [(entry, own) for entry, own in held if not any(mark.is_done(entry.at) for mark in own)]
    # A snoozed item comes back with the first news of the same cause.
    is_hidden = all(any(mark.hides(entry.at, now) for mark in own) for entry, own in undone)
    if is_hidden or marks.get(cause.key, _NO_MARK).is_muted:
        return None
    entries = sorted((entry for entry, _ in undone), key=lambda entry: entry.at, reverse=True)
    cure = cause.cure or _cure(entries[0])
    newest = {entry.key: entry for entry in reversed(entries)}
    return InboxItem(
        key=cause.key,
        kind=cause.kind,
        title=safe_text(cause.title(entries), limit=_LONGEST),
        at=entries[0].at,
        count=len(entries),
        cure=safe_text(f"{command_line} {cure}", limit=_LONGEST_CURE) if cure else "",
        subject=cause.subject,
        group=cause.group,
        entries=tuple(entries[:MOST_ENTRIES]),
        newest=tuple(newest.values()),
        is_old=now - entries[0].at > _DAY,
        back=_back([mark for _, own in held for mark in own], now),
    )


def _cure(entry: InboxEntry) -> str:
    return f"runs view {entry.run_id}" if entry.run_id else ""


def _back(marks: Iterable[Mark], now: datetime) -> str:
    """Why an item that was put away is in the inbox again."""
    said = ""
    for mark in marks:
        if mark.snoozed_until is not None:
            return "put off until now" if mark.snoozed_until <= now else "again, sooner than it was put off to"
        if mark.done_until is not None:
            said = "again, after it was dealt with"
    return said
