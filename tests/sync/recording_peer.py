"""A scripted service that remembers what was true when, so that each claim can be judged."""

import json
from collections import defaultdict
from collections.abc import Container
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from tests.sync.odd import ODD, UNIDENTIFIED
from tests.sync.peer import OMITTED, SECOND, START, TICK, Answer, Peer

TIMES: Final = ("created_at", "updated_at")
ANSWERING: Final = SECOND / 20
"""What each request takes."""


class RecordingPeer(Peer):
    """A service whose time passes with each request."""

    def __init__(self, **habits: Any) -> None:
        super().__init__(clock=lambda: self.true_now, **habits)
        self.true_now = START
        self.clock_offsets = [self.clock_offset]
        """All that it ever had."""
        self.hides_its_future = False
        """Its clock was set back before it was ever heard, and no time that it shows says so: nothing can know."""
        self.lives: dict[str, list[tuple[datetime, str | None]]] = defaultdict(list)
        """By run: its statuses as they are shown, each from a time on. None: deleted."""

    def answer(self, method: str, target: str, token: str, body: bytes) -> tuple[Answer, str]:
        self.true_now += ANSWERING
        return super().answer(method, target, token, body)

    def set_clock(self, by: timedelta, *, is_heard: bool) -> None:
        """Set its clock; `is_heard`: a poll compared it with ours before."""
        self.clock_offset += by
        self.clock_offsets.append(self.clock_offset)
        is_certain = self.has_readable_times and self.local_offset is None
        if not is_heard and not is_certain:
            self.hides_its_future |= any(run.updated > self.service_now for run in self.runs.values())

    def put(self, run_id: str, status: str = "completed", **more: Any) -> None:
        super().put(run_id, status, **more)
        self._note(run_id)

    def move(self, run_id: str, status: str, *, updated: datetime | None = None) -> None:
        super().move(run_id, status, updated=updated)
        self._note(run_id)

    def distort(self, run_id: str, kind: str) -> None:
        """Show a run with odd fields from now on; its id stays."""
        fields = {name: value for name, value in ODD[kind].items() if name != "run_id"}
        run = self.runs[run_id]
        self.runs[run_id] = replace(run, fields={**run.fields, **fields}, updated=self._stored(self.now))
        self._note(run_id)

    def delete(self, run_id: str) -> None:
        del self.runs[run_id]
        self.lives[run_id].append((self.true_now, None))

    def had(self, run_id: str, status: str, first: datetime, last: datetime) -> bool:
        """Whether the run was shown with this status at any moment between these."""
        life = self.lives[run_id]
        ends = [*(at for at, _ in life[1:]), datetime.max.replace(tzinfo=START.tzinfo)]
        return any(was == status and at <= last and end >= first for (at, was), end in zip(life, ends, strict=True))

    def arrive(self, count: int, status: str, *, together: bool = False, kind: str = "") -> None:
        """New runs, one after the other or in the same instant; odd ones of a kind."""
        for n in range(count):
            moment = self.true_now - (0 if together else count - 1 - n) * TICK
            number = len(self.lives)
            run_id, fields = f"run_{number:05}", {**ODD, **UNIDENTIFIED}.get(kind, {})
            if kind == "numeric run_id":
                run_id, fields = f"{number}", {"run_id": number}
            self.put(run_id, status, created=moment)
            self.runs[run_id] = replace(self.runs[run_id], fields=fields)
            self.lives[run_id].pop()
            self._note(run_id)

    def nth(self, place: int, statuses: Container[str]) -> str | None:
        """The run at a place in the list of those with these statuses."""
        found = sorted((run.created, run.run_id) for run in self.runs.values() if run.status in statuses)
        return found[-1 - place % len(found)][1] if found else None

    def identified(self) -> dict[str, dict[str, Any]]:
        """The runs that can be kept, by id, as they are shown."""
        nameless = [fields["run_id"] for fields in UNIDENTIFIED.values()]
        return {
            run_id: self.document(run)
            for run_id, run in self.runs.items()
            if run.fields.get("run_id", run_id) not in nameless
        }

    @property
    def hides_its_past(self) -> bool:
        """Its clock was set back while its list was out of order: runs came where nobody has to look again."""
        was_set_back = any(later < earlier for earlier, later in pairwise(self.clock_offsets))
        return was_set_back and not self.is_orderly

    @property
    def shows_its_future(self) -> bool:
        """Its clock was set back and has not caught up with what it dated before."""
        return any(run.created > self.service_now for run in self.runs.values())

    @property
    def is_orderly(self) -> bool:
        """Whether its list, read in quiet, proves that it is whole."""
        has_times = all(isinstance(self.document(run).get(name), str) for run in self.runs.values() for name in TIMES)
        is_plain = self.has_readable_times and self.local_offset is None and self.order == "created"
        return has_times and is_plain and not self.endless and self.total_count is None

    def _note(self, run_id: str) -> None:
        run = self.runs[run_id]
        shown = run.fields.get("status", run.status)
        text = shown if isinstance(shown, str) else "" if shown in {None, OMITTED} else json.dumps(shown)
        self.lives[run_id].append((self.true_now, text))
