"""Drafts: unsent text survives escape, a crash and a restart."""

import asyncio
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict, replace

from app.engine.atomic_file import alone, replacing
from app.engine.engine import Engine
from app.profiles import data_folder
from storage import RunwardenError

VERSION: Final = 1
Values = dict[str, str]


class DraftsError(RunwardenError):
    """Drafts cannot be read or stored; the message has the file and the fix. Forms work without them."""


class Draft(Struct, frozen=True):
    """The text typed into one form."""

    values: Values
    saved_at: datetime
    sent_at: datetime | None = None
    """When an unconfirmed send began; None if the draft was never sent."""


def read_drafts(path: Path) -> dict[str, Draft]:
    """The drafts of one profile, by name; a damaged file is moved aside, so that the next save works."""
    try:
        document = json.loads(path.read_text("utf-8"))
        if int(document["version"]) > VERSION:
            raise DraftsError(f"Drafts were written by a newer version: upgrade, or move {path} away.")
        return convert(document["drafts"], dict[str, Draft])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DraftsError(f"Drafts cannot be read ({error.strerror}): see that {path} can be read.") from error
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        aside = path.with_suffix(".damaged")
        try:
            path.replace(aside)
        except OSError as stuck:
            message = f"Drafts are damaged and cannot be moved away ({stuck.strerror}): delete {path}."
            raise DraftsError(message) from stuck
        raise DraftsError(f"The drafts were damaged; they were moved to {aside}.") from error


def save_draft(path: Path, name: str, draft: Draft | None) -> None:
    """Store the draft under that name, in a file that only its owner can read; None deletes the stored one."""
    try:
        with alone(path.parent):
            drafts = read_drafts(path)
            if drafts.pop(name, None) == draft:
                return
            if draft is not None:
                drafts[name] = draft
            entries = {name: asdict(draft) for name, draft in drafts.items()}
            with replacing(path) as file:
                json.dump({"version": VERSION, "drafts": entries}, file, default=datetime.isoformat)
    except OSError as error:
        raise DraftsError(f"A draft cannot be stored ({error.strerror}): see that {path} is writable.") from error


class FormDraft:
    """The draft of one form; the file always ends up with the last text."""

    def __init__(self, engine: Engine, name: str, fresh: Values, failed: Callable[[str], object]) -> None:
        """The name is the form's kind and its run or repository: `run.continue:run_1`; `fresh` values need no draft.

        `failed` is called with the reason when drafts cannot be stored, once until one is.
        """
        self._path = data_folder(engine.settings, engine.profile) / "drafts.json"
        self._engine = engine
        self.name, self.fresh = name, fresh
        self.current: Draft | None = None
        """The draft to store now, or None if the text needs none."""
        self._stored: Draft | None = None
        self._one_at_a_time = asyncio.Lock()
        self._failed = failed
        self._reported: str | None = None

    async def restore(self) -> Draft | None:
        try:
            self.current = self._stored = (await asyncio.to_thread(read_drafts, self._path)).get(self.name)
        except DraftsError as error:
            self._report(str(error))
        return self.current

    def set_values(self, values: Values) -> None:
        """Make a draft of the form's values; `flush` stores it."""
        if values == self.fresh:
            self.current = None
        elif self.current is None or self.current.values != values:
            self.current = Draft(values, self._engine.clock())

    async def mark_sent(self, at: datetime | None) -> None:
        """Store when this text is sent, after which its outcome is unknown; `at` is None if it had no effect."""
        if self.current is not None:
            self.current = replace(self.current, sent_at=at)
        await self.flush()

    async def delete(self) -> None:
        """Delete the draft: sending took effect."""
        self.current = None
        await self.flush()

    async def flush(self) -> None:
        async with self._one_at_a_time:
            latest = self.current
            if latest == self._stored:
                return
            try:
                await asyncio.to_thread(save_draft, self._path, self.name, latest)
            except DraftsError as error:
                self._report(str(error))
            else:
                self._stored, self._reported = latest, None

    def _report(self, problem: str) -> None:
        if problem != self._reported:
            self._reported = problem
            self._failed(problem)
