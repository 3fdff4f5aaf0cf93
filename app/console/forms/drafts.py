"""Drafts: text that was typed and not sent survives escape, a crash and a restart."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from app.atomic_file import alone, replacing
from storage.base_error import RunwardenError

VERSION: Final = 1
Values = dict[str, str]


def named(kind: str, origin: str) -> str:
    """Return a draft's name: its kind, and the run or repository that the form was opened from, if any."""
    return f"{kind}:{origin}" if origin else kind


class DraftsError(RunwardenError):
    """Drafts cannot be read or kept; the message names the file and the cure. Forms work without them."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What was typed into one form."""

    values: dict[str, str]
    """The texts by field, as typed."""
    saved_at: datetime
    sent_at: datetime | None = None
    """When sending began, if no confirmation came back; None: it was never sent."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """The drafts of one profile, in a file that only its owner can read."""

    path: Path

    async def load(self, name: str) -> Draft | None:
        """Return the draft of that name, if there is one.

        Raises:
            DraftsError: The file cannot be read. A damaged one was moved aside, so that the next save works.
        """
        return (await asyncio.to_thread(self._read)).get(name)

    async def save(self, name: str, draft: Draft) -> None:
        """Store the draft under that name.

        Raises:
            DraftsError: It cannot be stored.
        """
        await asyncio.to_thread(self._change, lambda drafts: drafts.__setitem__(name, draft))

    async def discard(self, name: str) -> None:
        """Delete the draft of that name.

        Raises:
            DraftsError: The file cannot be written.
        """
        await asyncio.to_thread(self._change, lambda drafts: drafts.pop(name, None))

    def _change(self, change: Callable[[dict[str, Draft]], object]) -> None:
        try:
            with alone(self.path.parent):
                drafts = self._read()
                before = dict(drafts)
                change(drafts)
                if drafts != before:
                    self._write(drafts)
        except OSError as error:
            raise DraftsError(
                f"A draft cannot be kept ({error.strerror}): see that {self.path} is writable."
            ) from error

    def _read(self) -> dict[str, Draft]:
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise DraftsError(f"Drafts cannot be read ({error.strerror}): see that {self.path} can be read.") from error
        except UnicodeDecodeError as error:
            raise self._damaged() from error
        return self._parse(text)

    def _parse(self, text: str) -> dict[str, Draft]:
        try:
            document = json.loads(text)
            if int(document["version"]) > VERSION:
                raise DraftsError(f"Drafts were written by a newer version: upgrade, or move {self.path} away.")
            return {name: _draft(entry) for name, entry in document["drafts"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged() from error

    def _damaged(self) -> DraftsError:
        aside = self.path.with_suffix(".damaged")
        try:
            self.path.replace(aside)
        except OSError as error:
            return DraftsError(f"Drafts are damaged and cannot be moved away ({error.strerror}): delete {self.path}.")
        return DraftsError(f"The drafts were damaged; they were moved to {aside}.")

    def _write(self, drafts: dict[str, Draft]) -> None:
        document = {"version": VERSION, "drafts": {name: _entry(draft) for name, draft in drafts.items()}}
        with replacing(self.path) as file:
            json.dump(document, file)


def _entry(draft: Draft) -> dict[str, object]:
    sent_at = draft.sent_at.isoformat() if draft.sent_at else None
    return {"values": draft.values, "saved_at": draft.saved_at.isoformat(), "sent_at": sent_at}


def _draft(entry: dict[str, object]) -> Draft:
    values, sent_at = entry["values"], entry["sent_at"]
    if not isinstance(values, dict):
        raise TypeError("A draft's values are an object.")
    return Draft(
        {str(key): str(value) for key, value in values.items()},
        datetime.fromisoformat(str(entry["saved_at"])),
        datetime.fromisoformat(str(sent_at)) if sent_at else None,
    )
