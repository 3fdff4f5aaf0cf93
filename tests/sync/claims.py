"""What a cache claims of its service, against what was true."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from storage.records import Coverage, RunDetail
from tests.sync.peer import MINUTE, SECOND, START
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
    """Assert that the cache has what the service has, and says so."""
    lives = peer.identified()
    assert not lives.keys() - held.keys(), (len(lives.keys() - held.keys()), sorted(lives.keys() - held.keys())[:5])
    first = min((_read(peer, run.created) for run in peer.runs.values()), default=None)
    reaches = first is None or (coverage.complete_since is not None and coverage.complete_since <= first)
    # Behind the time of what it showed before, a service may be claimed nothing of.
    assert coverage.whole or reaches or peer.endless or peer.clock_offset < max(peer.clock_offsets), coverage
    shown = {run_id: json.loads(each.run.raw_json) for run_id, each in held.items() if each.presence != "lost"}
    gone = [run_id for run_id in shown.keys() - lives.keys() if _is_owed(peer, held[run_id])]
    assert not gone, f"not called lost: {[(run_id, held[run_id]) for run_id in sorted(gone)]}"
    assert not (lives.keys() - shown.keys()), f"called lost: {sorted(lives.keys() - shown.keys())}"
    other = [(shown[run_id], lives[run_id]) for run_id in lives if shown[run_id] != lives[run_id]]
    assert not other, other


def _is_owed(peer: RecordingPeer, gone: RunDetail) -> bool:
    """Whether a run that is gone has to be known as such."""
    if gone.presence != "current":
        return False
    can_be_proved = peer.date_filter == "created" and peer.has_readable_times and gone.run.created_at is not None
    # Where nothing can be asked for that would prove it, nothing says that the run was seen, either.
    return (can_be_proved and not peer.drops) or gone.last_seen_at > peer.now - 3 * MINUTE


def _read(peer: RecordingPeer, moment: datetime) -> datetime:
    """A stored time as we read what is shown of it."""
    if not peer.has_readable_times:
        return datetime.min.replace(tzinfo=START.tzinfo)
    shown = datetime.fromisoformat(peer.shown(moment))
    return shown if shown.tzinfo else shown.replace(tzinfo=START.tzinfo)
