"""From a line to a filter: what is sound counts, what is not is said with its place and its cure."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from app.query.form import broken, given, spans, unclosed
from app.query.keys import STATES, Meaning, meaning, near
from app.query.result import Problem, Query, Span
from app.query.terms import Piece, Term, terms
from app.query.values import read_value
from app.times import INSTANT, parse_period
from storage.records import FINAL_STATUSES, RunFilter

LONGEST: Final = 4_000
"""Characters of a line; what is typed by hand never comes near."""


def parse(text: str, now: datetime) -> Query:
    """What a line asks for.

    Args:
        text: The line.
        now: What durations count back from, aware.

    Returns:
        The filter that its sound parts make, and a problem for each of the others. Never raises.
    """
    reading = _Reading(now)
    for term in terms(text[:LONGEST]):
        reading.take(term)
    if len(text) > LONGEST:
        reading.blame(LONGEST, len(text), f"The line is longer than {LONGEST:,} characters.", "Shorten it.")
    wanted = reading.finish()
    problems = tuple(sorted(reading.problems, key=lambda problem: problem.start))
    return Query(wanted, problems, tuple(reading.spans))


@dataclass(slots=True)
class _Reading:
    """What was read so far."""

    now: datetime
    problems: list[Problem] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    lists: dict[tuple[Meaning, bool], dict[str, None]] = field(default_factory=dict)
    """By key and whether it was negated; a dictionary for its order."""
    words: list[str] = field(default_factory=list)
    since: datetime | None = None
    until: datetime | None = None
    stuck: bool = False
    states: dict[str, Term] = field(default_factory=dict)
    """`active` or `ended`, and the term that first said so."""
    bound: Term | None = None
    """The last term that set a limit of time."""

    def take(self, term: Term) -> None:
        """One term."""
        wanted = meaning(term.key) if term.key is not None else None
        if term.key is not None and wanted is None:
            self._unknown_key(term, term.key)
        elif wanted is None:
            self._word(term)
        elif problem := broken(term, wanted) or self._condition(term, wanted):
            self._refuse(term, problem)
        else:
            self.spans += spans(term)

    def blame(self, start: int, end: int, message: str, cure: str) -> None:
        """Notes what is wrong."""
        self.problems.append(Problem(start, end, message, cure))

    def finish(self) -> RunFilter:
        """The filter."""
        active, statuses = self._state()
        since, until = self.since, self.until
        if since is not None and until is not None and since > until and self.bound is not None:
            self.blame(self.bound.start, self.bound.end, "This is before the earliest time asked for.", "Widen one.")
        return RunFilter(
            statuses=statuses,
            not_statuses=self._list("status", negated=True),
            repositories=self._list("repo", negated=False),
            not_repositories=self._list("repo", negated=True),
            branches=self._list("branch", negated=False),
            not_branches=self._list("branch", negated=True),
            since=since,
            until=until,
            search=" ".join(self.words),
            active=active,
            stuck=self.stuck,
        )

    def _list(self, wanted: Meaning, *, negated: bool) -> tuple[str, ...]:
        return tuple(self.lists.get((wanted, negated), ()))

    def _state(self) -> tuple[bool, tuple[str, ...]]:
        """Whether only active runs are wanted, and the statuses: `ended` means those known to be final."""
        statuses = self._list("status", negated=False)
        ended = self.states.get("ended")
        if ended is None:
            return "active" in self.states, statuses
        if "active" in self.states:
            self.blame(ended.start, ended.end, "No run is both active and ended.", "Keep one of the two.")
            return True, statuses
        both = tuple(status for status in statuses if status in FINAL_STATUSES)
        if statuses and not both:
            self.blame(ended.start, ended.end, "No status asked for is an end.", "Take this away, or the status.")
            return False, statuses
        return False, both or tuple(sorted(FINAL_STATUSES))

    def _word(self, term: Term) -> None:
        (piece,) = term.pieces
        if term.negated:
            cure = f'Exclude with -branch: or -repo:, or search for it as it is: "-{piece.text}".'
            self._refuse(term, Problem(term.start, term.end, "A search word cannot be excluded.", cure))
            return
        if not piece.closed:
            self._refuse(term, unclosed(piece))
            return
        self.words += piece.text.split()
        self.spans += spans(term)

    def _unknown_key(self, term: Term, written: str) -> None:
        meant = near(written)
        cure = f'Did you mean {meant}:? To search for it as it is, put it in quotes: "{written}:…".'
        at = term.key_end - len(written) - 1
        self._refuse(term, Problem(at, term.key_end, f"There is no {written}:.", cure))

    def _condition(self, term: Term, wanted: Meaning) -> Problem | None:
        match wanted:
            case "since" | "until":
                return self._limit(term, wanted)
            case "is":
                return self._is(term)
            case _:
                values = self.lists.setdefault((wanted, term.negated), {})
                values.update(dict.fromkeys(read_value(piece, wanted) for piece in given(term)))
                return None

    def _limit(self, term: Term, wanted: Meaning) -> Problem | None:
        piece = term.pieces[0]
        try:
            limit = _edge(piece, self.now, wanted, negated=term.negated)
        except ValueError as error:
            return Problem(piece.start, piece.end, *_told(str(error)))
        if (wanted == "since") != term.negated:
            self.since = limit if self.since is None else max(self.since, limit)
        else:
            self.until = limit if self.until is None else min(self.until, limit)
        self.bound = term
        return None

    def _is(self, term: Term) -> Problem | None:
        piece = term.pieces[0]
        state = piece.text.casefold()
        if state not in STATES:
            cure = "Write is:active, is:ended or is:stuck."
            return Problem(piece.start, piece.end, f"A run is never {piece.text!r}.", cure)
        if state == "stuck":
            if term.negated:
                return Problem(term.start, term.end, "Stuck runs cannot be excluded.", "Take the minus away.")
            self.stuck = True
            return None
        if term.negated:
            state = STATES[1 - STATES.index(state)]
        self.states.setdefault(state, term)
        return None

    def _refuse(self, term: Term, problem: Problem) -> None:
        self.problems.append(problem)
        self.spans += spans(term, is_problem=True)


def _edge(piece: Piece, now: datetime, wanted: Meaning, *, negated: bool) -> datetime:
    """The limit that a time sets: not since it is until just before it, not until it is since just after."""
    first, last = parse_period(piece.text, now)
    try:
        if wanted == "since":
            return first - INSTANT if negated else first
        return last + INSTANT if negated else last
    except OverflowError as error:
        raise ValueError(f"{piece.text!r} is outside the calendar.") from error


def _told(error: str) -> tuple[str, str]:
    """What is wrong and what to write instead, from one sentence that says both."""
    what, colon, cure = error.rpartition(": ")
    if not colon:
        return error, "Write 2h, 7d or 2026-05-01."
    return f"{what}.", cure[:1].upper() + cure[1:]
