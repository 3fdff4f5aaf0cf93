"""The pace of requests, learned from answers: pure changes of a `BudgetState`.

No limit is assumed until the service answers 429. From then on requests are spaced (AIMD): a 429 lowers the rate by a
part, or to what was let through since the limit last opened; successes raise it, quickly until the limit is near.
"""

from dataclasses import replace
from enum import IntEnum
from typing import Final, NamedTuple

from storage.records.service_traits import BudgetState, WaitReason


class Throughput(NamedTuple):
    """What a process saw the service let through in the minute before a 429."""

    requests: int
    per_s: float
    """The best rate up to the end of the stated wait. 0: too few requests."""


class Priority(IntEnum):
    """The purpose of a request; the lower, the more urgent."""

    WRITE = 0
    ASKED = 1
    """A user waits for it."""
    ACTIVE = 2
    """The newest and the active runs."""
    HEALTH = 3
    BACKFILL = 4


BURST: Final = 8.0
"""Requests that can be saved up in idle time."""
POLL: Final = 4.0
"""Requests of a steady poll of runs; history leaves this many to it."""
HISTORY_SHARE: Final = 0.25
"""The part of the rate that polls leave to waiting history."""
DEBT: Final = {Priority.ASKED: 4.0, Priority.ACTIVE: 32.0, Priority.HEALTH: 1.0}
"""Requests that may be sent ahead of the rate: a poll that has begun goes on, and the next one waits for longer."""
STEP: Final = 2e-6
"""What each second adds to the rate, in requests per second; a low rate rises by less, see `STEP_SHARE`."""
STEP_SHARE: Final = 0.5
"""What each second adds at most, as a part of the square of the rate."""
FORGOTTEN_S: Final = 3_600.0
"""After this time without a request, no limit is known."""

SEARCHING: Final = 0.7
"""The part that a success adds to the rate while the limit itself has not been measured."""
QUICKLY: Final = 0.1
"""The part that a success adds to the rate while it is below `NEAR`; each second adds this part at most."""
GENTLY: Final = 0.01
"""As `QUICKLY`, for a rate that is near the measured limit."""
NEAR: Final = 0.9
"""A rate from this part of the measured limit on is near it."""
BEYOND: Final = 0.05
"""As `GENTLY`, after `LONG_ROW` successes without a 429: the limit seems to have risen."""
LONG_ROW: Final = 40
"""In successes; at more than one request per second, in seconds."""
SHARED: Final = 3 / 60
"""Below this rate, in requests per second, many share the limit: only time and a long row raise it."""

DECREASE: Final = 0.7
"""A 429 multiplies the rate by this, or lowers it to what was let through since the last 429 if that is less."""
DEEPEST: Final = 0.3
"""A 429 never lowers the rate below this part of it."""
RARE: Final = 1 / 150
"""In requests per second: a 429 lowers no rate below this because little was let through."""
SLOW_ONCE_S: Final = 1.0
"""All 429s within this time lower the rate only once."""
SAME_S: Final = 10.0
"""A 429 within this time of the one before belongs to the same burst."""
CHANCE: Final = 8
"""So few successes in a minute may be chance: of many clients that ask at once, some are let through."""
FIRST: Final = 0.03
"""What each such success, and the refused request, add to the first rate, in requests per second."""
CAREFUL: Final = 0.9
"""The first rate after more successes, as a part of their rate."""
BURSTY: Final = 2.0
"""If more than this many times the rate was let through, the 429 came from a burst, not from the rate."""
SLOWEST: Final = 1 / 600
FASTEST: Final = 50.0
"""A rate above this counts as no limit."""
MEASURED_S: Final = 60.0
"""The time over which successes are counted to estimate a limit."""
LONGEST_PAUSE_S: Final = 60.0
"""The most that polls and history wait beyond the stated wait."""
ASIDE: Final = 0.3
"""The part of `LONGEST_PAUSE_S` that polls and history wait at least."""
FAILURES_TO_OPEN: Final = 5
"""Failures in a row after which the service counts as down."""
LONGEST_PROBE_WAIT_S: Final = 60.0
SLOWEST_PROBE_S: Final = 300.0
"""As `LONGEST_PROBE_WAIT_S`, if our rate is so low that many others must be asking."""
PROBE_TERM_S: Final = 30.0
"""How long a probe keeps others from asking, in case its process dies."""
CLOCK_SLACK_S: Final = 5.0


def is_free(state: BudgetState, now_s: float) -> bool:
    """Whether requests need no permission: no limit was met and nothing fails."""
    return state.rate == 0 and state.failures < FAILURES_TO_OPEN and not _is_paused(state, now_s)


def wait_until(
    state: BudgetState, priority: Priority, now_s: float, requests: float = 1
) -> tuple[WaitReason, float] | None:
    """Why this many requests have to wait, and until when; None: they may be sent now."""
    if _is_paused(state, now_s):
        return "rate_limit", state.paused_until_s
    if state.failures >= FAILURES_TO_OPEN and priority is not Priority.WRITE:
        # A user's request goes at once, unless a probe is under way.
        from_s = now_s if priority is Priority.ASKED else state.probe_from_s
        until_s = max(from_s, _believable(state.probing_until_s, now_s, PROBE_TERM_S))
        if priority is Priority.BACKFILL:
            return "service_down", max(until_s, now_s + 1)
        return ("service_down", until_s) if until_s > now_s else None
    if state.rate and priority is not Priority.WRITE:
        missing = _needed(priority, requests) - _refilled(state, now_s).tokens
        if missing > 0:
            return "own_pace", now_s + missing / state.rate
    return None


def admitted(state: BudgetState, priority: Priority, now_s: float) -> BudgetState:
    """Count one request about to be sent; unchanged if it has to wait."""
    if priority is not Priority.WRITE and wait_until(state, priority, now_s) is not None:
        return state
    if state.rate:
        state = _refilled(state, now_s)
        state = replace(state, tokens=state.tokens - 1) if state.rate else state
    if state.failures >= FAILURES_TO_OPEN and priority is not Priority.WRITE:
        state = replace(state, probing_until_s=now_s + PROBE_TERM_S)
    return state


def paused(state: BudgetState, now_s: float, wait_s: float) -> BudgetState:
    """Send nothing for a time that the service stated."""
    until_s = max(state.paused_until_s if _is_paused(state, now_s) else 0.0, now_s + wait_s)
    return replace(state, paused_at_s=now_s, paused_until_s=until_s, tokens=min(state.tokens, 0.0), tokens_at_s=until_s)


def limited(
    state: BudgetState, now_s: float, *, sent_s: float, wait_s: float | None, throughput: Throughput, draw: float
) -> BudgetState:
    """Slow down after a 429 to a request sent at `sent_s`.

    `wait_s` is the stated wait, `throughput` what was let through before it, `draw` a random number in 0..1.
    """
    if not state.rate or sent_s >= state.slowed_at_s + SLOW_ONCE_S or state.slowed_at_s > now_s + CLOCK_SLACK_S:
        # Refusals that belong together lower the rate once.
        state = replace(_slowed(state, now_s + (wait_s or 0.0), throughput), slowed_at_s=now_s)
    refusals = state.refusals + 1
    # Others of the organization wait for the same moment.
    backoff_s = draw * min(LONGEST_PAUSE_S, 2.0**refusals)
    tokens = min(0.0, state.tokens) - min(1.0, backoff_s * state.rate)
    slower = replace(state, refusals=refusals, successes=0.0, tokens=tokens, tokens_at_s=now_s)
    slower = replace(slower, failures=0.0, probing_until_s=0.0)
    return slower if wait_s is None else paused(slower, now_s, wait_s)


def answered(state: BudgetState, priority: Priority, now_s: float) -> BudgetState:
    """The service answered, and let a request through."""
    if state.rate:
        state = _raised(_refilled(state, now_s), priority)
    return replace(state, failures=0.0, refusals=0.0, probing_until_s=0.0)


def failed(state: BudgetState, now_s: float, draw: float) -> BudgetState:
    """A request failed; after several in a row the service counts as down, and is probed less and less often."""
    failures = state.failures + 1
    longest_s = min(LONGEST_PROBE_WAIT_S, 2.0 ** min(16.0, failures - FAILURES_TO_OPEN + 1))
    if state.rate:
        # All clients return at once when it is back: no faster than before.
        state = replace(_refilled(state, now_s), tokens=min(0.0, state.tokens))
        longest_s = max(longest_s, min(SLOWEST_PROBE_S, POLL / state.rate))
    # What passed while it was down tells nothing about the limit.
    state = replace(state, opened_at_s=now_s, successes=0.0)
    return replace(state, failures=failures, probe_from_s=now_s + draw * longest_s, probing_until_s=0.0)


def released(state: BudgetState) -> BudgetState:
    """A probe was cancelled before its answer."""
    return replace(state, probing_until_s=0.0)


def _is_paused(state: BudgetState, now_s: float) -> bool:
    # A pause from the future: the clock was set back, and it might never end.
    return state.paused_at_s - CLOCK_SLACK_S <= now_s < state.paused_until_s


def _believable(until_s: float, now_s: float, longest_s: float) -> float:
    return until_s if until_s <= now_s + longest_s + CLOCK_SLACK_S else 0.0


def _needed(priority: Priority, requests: float) -> float:
    if priority is Priority.BACKFILL:
        return POLL + 1
    # One request continues something; more begin it.
    return min(requests, BURST) if requests > 1 else 1 - DEBT.get(priority, 0.0)


def _refilled(state: BudgetState, now_s: float) -> BudgetState:
    at_s = state.tokens_at_s
    if at_s > now_s + CLOCK_SLACK_S and not _is_paused(state, now_s):
        at_s = now_s  # The clock was set back.
    elapsed_s = max(0.0, now_s - at_s)
    if elapsed_s > FORGOTTEN_S:
        return replace(state, rate=0.0, tokens=0.0, tokens_at_s=now_s)
    tokens = min(BURST, state.tokens + elapsed_s * state.rate)
    # Without answers nothing is learned.
    step = 0.0 if state.failures else min(STEP, STEP_SHARE * state.rate**2)
    return replace(state, rate=state.rate + step * elapsed_s, tokens=tokens, tokens_at_s=max(now_s, at_s))


def _slowed(state: BudgetState, opens_at_s: float, throughput: Throughput) -> BudgetState:
    """The rate after a 429, by what was let through between the last two openings of the limit.

    Whatever the limiter's kind, that is its grant: a window's requests, or what dripped into an empty bucket.
    """
    rate, is_searching = state.rate, not state.refused_rate
    if is_searching and throughput.per_s:
        return replace(state, rate=CAREFUL * throughput.per_s, refused_rate=throughput.per_s, opened_at_s=opens_at_s)
    if not rate:
        return replace(state, rate=FIRST * (1 + throughput.requests), opened_at_s=opens_at_s)
    # If nothing was let through, the rate is lower still.
    measured = max(0.5, state.successes) / max(1.0, opens_at_s - state.opened_at_s)
    lower = max(SLOWEST, min(DECREASE * rate, max(measured, DEEPEST * rate, RARE)))
    is_unknown = is_searching and (not state.successes or measured > BURSTY * rate)
    met = 0.0 if is_unknown else max(lower, min(rate, measured))
    if state.refused_rate >= SHARED and opens_at_s - state.slowed_at_s < SAME_S:
        # The earlier burst is still refused: a measurement between its refusals shows nothing new.
        met, lower = state.refused_rate, max(lower, DEEPEST * state.refused_rate)
    return replace(state, rate=lower, refused_rate=met, opened_at_s=opens_at_s)


def _raised(state: BudgetState, priority: Priority) -> BudgetState:
    """Raise the rate after a success: quickly while no limit is known, gently near the one that was met."""
    state = replace(state, successes=state.successes + 1)
    rate, met = state.rate, state.refused_rate
    if state.tokens - (POLL if priority is Priority.BACKFILL else 0.0) >= POLL:
        return state  # A rate that is not used up proves nothing about a higher one.
    if not met:
        part = SEARCHING
    elif rate >= NEAR * met and state.successes >= LONG_ROW * max(1.0, rate):
        part = BEYOND
    elif rate < SHARED:
        part = 0.0
    else:
        part = QUICKLY if rate < NEAR * met else GENTLY
    rate *= 1 + (part if not met else part * min(1.0, 1 / rate))
    if rate > FASTEST:
        return replace(state, rate=0.0, refused_rate=0.0, successes=0.0, tokens=0.0)
    return replace(state, rate=rate)
