"""A lab that remembers what was true when, and what a cache claims of it, against that."""

import json
from collections import defaultdict
from collections.abc import Container, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from storage.records import Coverage, RunDetail
from tests.lab import OMITTED, START, Lab, Received, Step, stamp

SECOND: Final = timedelta(seconds=1)
TICK: Final = timedelta(microseconds=1)
TIMES: Final = ("created_at", "updated_at")
ANSWERING: Final = SECOND / 20
"""What each request takes."""
ACTIVE: Final = ("queued", "working")
SLACK: Final = 2 * SECOND
"""An answer may have left the service so long after it was asked for."""
ODD: Final[dict[str, dict[str, Any]]] = {
    "status null": {"status": None},
    "status a number": {"status": 3},
    "status missing": {"status": OMITTED},
    "repository null": {"repository": None},
    "repository missing": {"repository": OMITTED},
    "repository a string": {"repository": "acme/api"},
    "repository a list": {"repository": ["acme", "api"]},
    "platform a number": {"repository": {"platform": 7, "data": {"owner": "acme"}}},
    "data a string": {"repository": {"platform": "github", "data": "acme/api"}},
    "branch an object": {"branch_name": {"name": "main"}},
    "branch a number": {"branch_name": 12},
    "times as objects": {"created_at": {"seconds": 1}, "updated_at": [1]},
    "numeric run_id": {"run_id": 4711},
}
"""Fields of a run that can be kept, and shown as received."""
UNIDENTIFIED: Final[dict[str, dict[str, Any]]] = {
    "run_id null": {"run_id": None},
    "run_id missing": {"run_id": OMITTED},
    "run_id empty": {"run_id": ""},
    "run_id an object": {"run_id": {"id": 1}},
}
"""Fields of a run that can only be counted."""
HOSTS: Final = ({"status": "healthy", "group": 7}, {}, {"status": None}, {"status": 1}, "healthy", [], {"host": {}})
"""Instead of what is known of a code host."""


def seconds(at: datetime) -> str:
    """A time without its fraction."""
    return f"{at:%Y-%m-%dT%H:%M:%S}Z"


def milliseconds(at: datetime) -> str:
    """A time to the millisecond."""
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


def eastern(at: datetime) -> str:
    """A local time without an offset."""
    return (at + timedelta(hours=5, minutes=30)).replace(tzinfo=None).isoformat()


def western(at: datetime) -> str:
    """A local time without an offset."""
    return (at - timedelta(hours=8)).replace(tzinfo=None).isoformat()


def unreadable(at: datetime) -> str:
    """Not a time."""
    return f"moment {at:%H.%M}"


class Recorder(Lab):
    """A service that remembers all that it ever showed."""

    def __init__(self, **habits: Any) -> None:
        self.born: dict[str, datetime] = {}
        """By run: the true time at which it came into the list."""
        self.lives: dict[str, list[tuple[datetime, str | None]]] = defaultdict(list)
        """By run: its statuses as they are shown, each from a time on. None: deleted."""
        super().__init__(**habits)

    def put(self, run_id: str, status: str = "completed", **more: Any) -> None:
        super().put(run_id, status, **more)
        self.born.setdefault(run_id, self.now)
        self.note(run_id)

    def move(self, run_id: str, status: str, *, updated: float | datetime | None = None) -> None:
        super().move(run_id, status, updated=updated)
        self.note(run_id)

    def delete(self, run_id: str) -> None:
        """The run is gone."""
        del self.runs[run_id]
        self.lives[run_id].append((self.now, None))

    def created(self, run_id: str) -> datetime:
        """The creation, by the service's own clock."""
        return datetime.fromisoformat(self._true_times[run_id]["created_at"])

    def read(self, run_id: str) -> datetime:
        """The creation, as we read what is shown of it."""
        if self.show_time is unreadable:
            return datetime.min.replace(tzinfo=START.tzinfo)
        shown = datetime.fromisoformat(str(self.show_time(self.created(run_id))))
        return shown if shown.tzinfo else shown.replace(tzinfo=START.tzinfo)

    def note(self, run_id: str) -> None:
        """Remember the status that is shown from now on."""
        shown = self.runs[run_id].get("status")
        text = shown if isinstance(shown, str) else "" if shown in {None, OMITTED} else json.dumps(shown)
        self.lives[run_id].append((self.now, text))

    def had(self, run_id: str, status: str, first: datetime, last: datetime) -> bool:
        """Whether the run was shown with this status at any moment between these."""
        life = self.lives[run_id]
        ends = [*(at for at, _ in life[1:]), datetime.max.replace(tzinfo=START.tzinfo)]
        return any(was == status and at <= last and end >= first for (at, was), end in zip(life, ends, strict=True))

    def identified(self) -> dict[str, dict[str, Any]]:
        """The runs that can be kept, by id, as they are shown."""
        nameless = [fields["run_id"] for fields in UNIDENTIFIED.values()]
        return {run_id: self.document(run) for run_id, run in self.runs.items() if run["run_id"] not in nameless}


class TimedRecorder(Recorder):
    """One whose time passes with each request."""

    def __init__(self, **habits: Any) -> None:
        self.true_now = START
        super().__init__(clock=lambda: self.true_now, **habits)
        self.clock_offsets = [self.clock_offset]
        """All that it ever had."""
        self.hides_its_future = False
        """Its clock was set back before it was ever heard, and no time that it shows says so: nothing can know."""

    def answer(self, request: Received) -> Step:
        self.true_now += ANSWERING
        return super().answer(request)

    def set_clock(self, by: timedelta, *, is_heard: bool) -> None:
        """Set its clock; `is_heard`: a poll compared it with ours before."""
        self.clock_offset += by
        self.clock_offsets.append(self.clock_offset)
        if not is_heard and self.show_time not in (stamp, seconds, milliseconds):
            now = stamp(self.now + self.clock_offset)
            self.hides_its_future |= any(times["updated_at"] > now for times in self._true_times.values())

    def distort(self, run_id: str, kind: str) -> None:
        """Show a run with odd fields from now on; its id stays."""
        fields = {name: value for name, value in ODD[kind].items() if name != "run_id"}
        self._show(run_id, {"updated_at": self._stored(self.now), **fields}, is_new=False)

    def _show(self, run_id: str, fields: dict[str, Any], *, is_new: bool = True) -> None:
        self.runs[run_id].update(fields)
        if is_new:
            self.lives[run_id].pop()
        self.note(run_id)

    def arrive(self, count: int, status: str, *, together: bool = False, kind: str = "") -> None:
        """New runs, one after the other or in the same instant; odd ones of a kind."""
        for n in range(count):
            number = len(self.lives)
            run_id, fields = f"run_{number:05}", {**ODD, **UNIDENTIFIED}.get(kind, {})
            if kind == "numeric run_id":
                run_id, fields = f"{number}", {"run_id": number}
            self.put(run_id, status, created=self.true_now - (0 if together else count - 1 - n) * TICK)
            self._show(run_id, fields)

    def nth(self, place: int, statuses: Container[str]) -> str | None:
        """The run at a place in the list of those with these statuses."""
        found = sorted((self.created(run_id), run_id) for run_id, run in self.runs.items() if run["status"] in statuses)
        return found[-1 - place % len(found)][1] if found else None

    @property
    def hides_its_past(self) -> bool:
        """Its clock was set back while its list was out of order: runs came where nobody has to look again."""
        was_set_back = any(later < earlier for earlier, later in pairwise(self.clock_offsets))
        return was_set_back and not self.is_orderly

    @property
    def shows_its_future(self) -> bool:
        """Its clock was set back and has not caught up with what it dated before."""
        return any(self.created(run_id) > self.now + self.clock_offset for run_id in self.runs)

    @property
    def is_orderly(self) -> bool:
        """Whether its list, read in quiet, proves that it is whole."""
        has_times = all(isinstance(self.document(run).get(name), str) for run in self.runs.values() for name in TIMES)
        is_plain = self.show_time in (stamp, seconds, milliseconds) and self.order == "created_at"
        return has_times and is_plain and not self.endless and self.total_count is None


Held = Mapping[str, RunDetail]


def check_coverage(peer: Recorder, held: Held, coverage: Coverage) -> None:
    """Assert that no run is missing where nothing is said to be; entries without an id are said to be left out."""
    for number, claim in enumerate(coverage.ranges):
        # The newest one is complete as of a time; the others are closed.
        as_of = coverage.as_of if number == 0 else peer.now
        missing = [
            run_id
            for run_id in peer.identified().keys() - held.keys()
            if as_of is not None
            and peer.born[run_id] < as_of
            and (claim.start is None or claim.start <= peer.read(run_id))
            and (number == 0 or (claim.end is not None and peer.read(run_id) <= claim.end))
        ]
        assert not missing, (claim, as_of, missing)


def check_presence(peer: Recorder, held: Held) -> None:
    """Assert that no run is called lost that lives, and none current with a status that it did not have then."""
    for run_id, detail in held.items():
        if detail.presence == "lost":
            assert run_id not in peer.runs, f"{run_id} lives, and is called lost"
        elif detail.presence == "current":
            seen_at, status = detail.last_seen_at, detail.run.status
            assert peer.had(run_id, status, seen_at, seen_at + SLACK), (run_id, detail, peer.lives[run_id])


def check_active(held: Held, polled_at: datetime) -> None:
    """Assert that what is shown as active and current was seen in the poll that began then."""
    for run_id, detail in held.items():
        if detail.presence == "current" and detail.run.status in ACTIVE:
            assert detail.last_seen_at >= polled_at, (run_id, detail.last_seen_at, polled_at)


def check_equal(peer: TimedRecorder, held: Held, coverage: Coverage) -> None:
    """Assert that the cache has what the service has, and says so if the service's list is in order."""
    lives = peer.identified()
    missing = sorted(lives.keys() - held.keys())
    assert not missing, (len(missing), missing[:5])
    first = min((peer.read(run_id) for run_id in peer.runs), default=None)
    reaches = first is None or (coverage.complete_since is not None and coverage.complete_since <= first)
    assert coverage.whole or reaches or not peer.is_orderly, coverage
    lost = [run_id for run_id in lives if held[run_id].presence == "lost"]
    assert not lost, lost
    current = {run_id: each.run for run_id, each in held.items() if each.presence == "current"}
    gone = [run_id for run_id, run in current.items() if run.status in ACTIVE and run_id not in lives]
    assert not gone, f"called current: {gone}"
    shown = {run_id: json.loads(run.raw_json) for run_id, run in current.items() if run.status in ACTIVE}
    other = [(shown[run_id], lives[run_id]) for run_id in shown if shown[run_id] != lives[run_id]]
    assert not other, other
