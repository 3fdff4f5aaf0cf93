"""What a cache claims of its service, against what was true."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from storage.records import Coverage, RunDetail
from tests.sync.peer import SECOND, START
from tests.sync.recording_peer import RecordingPeer

ACTIVE: Final = ("queued", "working")
SLACK: Final = 2 * SECOND
"""An answer may have left the service so long after it was asked for."""

Held = Mapping[str, RunDetail]


def check_coverage(peer: RecordingPeer, held: Held, coverage: Coverage) -> None:
    """Assert that no run is missing where nothing is said to be; entries without an id are said to be left out."""
    kept = peer.identified()
    for number, claim in enumerate(coverage.ranges):
        # The newest one is complete as of a time; the others are closed.
        as_of = coverage.as_of if number == 0 else peer.now
        missing = [
            run
            for run in peer.runs.values()
            if run.run_id not in held
            and run.run_id in kept
            and as_of is not None
            and run.born is not None
            and run.born < as_of
            and (claim.start is None or claim.start <= _read(peer, run.created))
            and (number == 0 or (claim.end is not None and _read(peer, run.created) <= claim.end))
        ]
        assert not missing, (claim, as_of, missing)


def check_presence(peer: RecordingPeer, held: Held) -> None:
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


def check_equal(peer: RecordingPeer, held: Held, coverage: Coverage) -> None:
    """Assert that the cache has what the service has, and says so if the service's list is in order."""
    lives = peer.identified()
    missing = sorted(lives.keys() - held.keys())
    assert not missing, (len(missing), missing[:5])
    first = min((_read(peer, run.created) for run in peer.runs.values()), default=None)
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


def _read(peer: RecordingPeer, moment: datetime) -> datetime:
    """A stored time as we read what is shown of it."""
    if not peer.has_readable_times:
        return datetime.min.replace(tzinfo=START.tzinfo)
    shown = datetime.fromisoformat(peer.shown(moment))
    return shown if shown.tzinfo else shown.replace(tzinfo=START.tzinfo)
