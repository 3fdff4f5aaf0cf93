"""Parses a line into a filter: valid parts count, mistakes are reported with their position and a fix."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from app.engine.text import closest
from app.engine.times import INSTANT, parse_period
from app.runs.query.terms import KEYS, STATES, UNKNOWN, KeyName, QueryToken, Term, closest_key, key_name, key_of, terms
from storage.records import ACTIVE_STATUSES, KNOWN_STATUSES, SORTABLE, RunFilter, RunSort
from storage.records.query import FINDINGS

LONGEST: Final = 4_000
"""Characters of a line."""
SpanKind = Literal["sign", "key", "value", "word", "problem"]


class TextSpan(NamedTuple):
    """A part of the line and its kind, for highlighting; blanks and commas have none."""

    start: int
    """Index of its first character, from 0."""
    end: int
    """Index behind its last character."""
    kind: SpanKind


class QueryProblem(Struct, frozen=True):
    """A part of the line that is not valid; the rest still counts."""

    start: int
    """Index of its first character, from 0."""
    end: int
    """Index behind its last character; equal to `start` where something is missing."""
    message: str
    """The mistake. It may quote the line: foreign text, not yet safe to print."""
    cure: str
    """The correction."""

    def __str__(self) -> str:
        return f"at character {self.start + 1}: {self.message} {self.cure}"


class Query(Struct, frozen=True):
    """A parsed line."""

    filter: RunFilter
    """The filter of the valid parts; times in it are relative to the given `now`."""
    problems: tuple[QueryProblem, ...]
    """In the order of the line; empty if the whole line is valid."""
    spans: tuple[TextSpan, ...]
    """In the order of the line, not overlapping."""


def read_value(token: QueryToken, wanted: KeyName) -> str:
    """A value's meaning in the filter; quoted values are literal."""
    if token.is_quoted:
        return token.text
    text = token.text.casefold()
    if wanted == "finding" or (wanted == "status" and text in KNOWN_STATUSES):
        return text
    if wanted == "agent" and text == UNKNOWN:
        return ""
    return _repository(token.text) if wanted == "repo" else token.text


def _repository(text: str) -> str:
    """A label or a pattern: `acme/` means `acme/*`, `api` means `*/api`; GitHub's prefix is dropped."""
    label = text.removeprefix("github:")
    if label.endswith(("/", ":")):
        return f"{label}*"
    return label if "/" in label or "*" in label or ":" in label else f"*/{label}"


def given(term: Term) -> tuple[QueryToken, ...]:
    """The term's values, without an empty one after a comma."""
    return tuple(token for token in term.tokens if token.text or token.is_quoted)


def broken(term: Term, wanted: KeyName) -> QueryProblem | None:
    """The mistake in the term's form, if any."""
    for token in term.tokens:
        if not token.is_closed:
            return unclosed(token)
        if wanted == "status" and not token.is_quoted and "*" in token.text:
            return QueryProblem(
                token.start, token.end, "A status has no pattern.", "Write it out, or exclude some: -status:…"
            )
        if wanted == "finding" and token.text.casefold() not in (*FINDINGS, ""):
            meant = closest(token.text.casefold(), FINDINGS)
            cure = f"Did you mean finding:{meant}?" if meant else f"There are {', '.join(FINDINGS)}."
            return QueryProblem(token.start, token.end, f"No finding is {token.text!r}.", cure)
    if not given(term):
        return QueryProblem(term.end, term.end, f"{term.key}: lacks its value.", f"As in {key_of(wanted).example}")
    if wanted in {"since", "until", "is"} and len(term.tokens) > 1:
        start = term.tokens[1].start - 1
        return QueryProblem(start, term.end, f"{term.key}: takes one value.", f"As in {key_of(wanted).example}")
    return None


def unclosed(token: QueryToken) -> QueryProblem:
    """The problem of an unclosed quote."""
    return QueryProblem(token.start, token.end, "The quote is not closed.", 'End it with ".')


def spans(term: Term, *, is_problem: bool = False) -> Iterator[TextSpan]:
    """The term's tokens; all are problems if the term is not valid."""
    at = term.start
    if term.is_negated:
        yield TextSpan(at, at + 1, "problem" if is_problem else "sign")
        at += 1
    if term.key is not None:
        yield TextSpan(at, term.key_end, "problem" if is_problem else "key")
    kind: SpanKind = "word" if term.key is None else "value"
    for token in term.tokens:
        if token.end > token.start:
            yield TextSpan(token.start, token.end, "problem" if is_problem else kind)


def parse(text: str, now: datetime) -> Query:
    """The filter of the line's valid parts, and a problem for each mistake; durations count back from `now`."""
    parser = _Parser(now)
    for term in terms(text[:LONGEST]):
        parser.add(term)
    if len(text) > LONGEST:
        parser.blame(LONGEST, len(text), f"The line is longer than {LONGEST:,} characters.", "Shorten it.")
    wanted = parser.finish()
    problems = tuple(sorted(parser.problems, key=lambda problem: problem.start))
    return Query(wanted, problems, tuple(parser.spans))


@dataclass(slots=True)
class _Parser:
    """The state while a line is parsed."""

    now: datetime
    problems: list[QueryProblem] = field(default_factory=list)
    spans: list[TextSpan] = field(default_factory=list)
    lists: dict[tuple[KeyName, bool], dict[str, None]] = field(default_factory=dict)
    """The values by key and negation; dictionaries keep their order and drop repeated ones."""
    words: list[str] = field(default_factory=list)
    since: datetime | None = None
    until: datetime | None = None
    flags: set[str] = field(default_factory=set)
    """`stuck` and `followed`, as far as they were given."""
    states: dict[str, Term] = field(default_factory=dict)
    """`active` or `ended`, and the term that first said so."""
    bound: Term | None = None
    """The last term that set a time limit."""

    def add(self, term: Term) -> None:
        """Add one term to the filter."""
        wanted = key_name(term.key) if term.key is not None else None
        if term.key is not None and wanted is None:
            meant = closest_key(term.key)
            at = term.key_end - len(term.key) - 1
            instead = f"Did you mean {meant}:?" if meant else f"There are {', '.join(each.name for each in KEYS)}."
            cure = f'{instead} To search for it as it is, put it in quotes: "{term.key}:…".'
            self._refuse(term, QueryProblem(at, term.key_end, f"There is no {term.key}:.", cure))
        elif wanted is None:
            self._word(term)
        elif problem := broken(term, wanted) or self._condition(term, wanted):
            self._refuse(term, problem)
        else:
            self.spans += spans(term)

    def blame(self, start: int, end: int, message: str, cure: str) -> None:
        """Record a problem."""
        self.problems.append(QueryProblem(start, end, message, cure))

    def finish(self) -> RunFilter:
        """The filter."""
        since, until = self.since, self.until
        statuses = self._list("status", negated=False)
        active = "active" in self.states
        ended = self.states.get("ended")
        if ended is not None and active:
            self.blame(ended.start, ended.end, "No run is both active and ended.", "Keep one of the two.")
            ended = None
        elif ended is not None and statuses and set(statuses) <= set(ACTIVE_STATUSES):
            self.blame(ended.start, ended.end, "No status asked for is an end.", "Take this away, or the status.")
            ended = None
        if since is not None and until is not None and since > until and self.bound is not None:
            self.blame(self.bound.start, self.bound.end, "This is before the earliest time asked for.", "Widen one.")
        return RunFilter(
            statuses=statuses,
            not_statuses=self._list("status", negated=True),
            repositories=self._list("repo", negated=False),
            not_repositories=self._list("repo", negated=True),
            branches=self._list("branch", negated=False),
            not_branches=self._list("branch", negated=True),
            agents=self._list("agent", negated=False),
            not_agents=self._list("agent", negated=True),
            findings=self._list("finding", negated=False),
            not_findings=self._list("finding", negated=True),
            since=since,
            until=until,
            search=" ".join(self.words),
            active=active,
            ended=ended is not None,
            stuck="stuck" in self.flags,
            followed="followed" in self.flags,
        )

    def _list(self, wanted: KeyName, *, negated: bool) -> tuple[str, ...]:
        return tuple(self.lists.get((wanted, negated), ()))

    def _word(self, term: Term) -> None:
        (token,) = term.tokens
        if term.is_negated:
            cure = f'Exclude with -branch: or -repo:, or search for it as it is: "-{token.text}".'
            self._refuse(term, QueryProblem(term.start, term.end, "A search word cannot be excluded.", cure))
            return
        if not token.is_closed:
            self._refuse(term, unclosed(token))
            return
        self.words += token.text.split()
        self.spans += spans(term)

    def _condition(self, term: Term, wanted: KeyName) -> QueryProblem | None:
        match wanted:
            case "since" | "until":
                return self._limit(term, wanted)
            case "is":
                return self._is(term)
            case _:
                values = self.lists.setdefault((wanted, term.is_negated), {})
                values.update(dict.fromkeys(read_value(token, wanted) for token in given(term)))
                return None

    def _limit(self, term: Term, wanted: KeyName) -> QueryProblem | None:
        token = term.tokens[0]
        try:
            limit = _edge(token, self.now, wanted, negated=term.is_negated)
        except ValueError as error:
            what, colon, cure = str(error).rpartition(": ")
            cure = cure[:1].upper() + cure[1:] if colon else "Write 2h, 7d or 2026-05-01."
            return QueryProblem(token.start, token.end, f"{what}." if colon else str(error), cure)
        if (wanted == "since") != term.is_negated:
            self.since = limit if self.since is None else max(self.since, limit)
        else:
            self.until = limit if self.until is None else min(self.until, limit)
        self.bound = term
        return None

    def _is(self, term: Term) -> QueryProblem | None:
        token = term.tokens[0]
        state = token.text.casefold()
        if state not in STATES:
            meant = closest(state, STATES)
            cure = f"Did you mean is:{meant}?" if meant else "Write is:active, is:ended, is:stuck or is:followed."
            return QueryProblem(token.start, token.end, f"A run is never {token.text!r}.", cure)
        if state in {"stuck", "followed"}:
            if term.is_negated:
                what = f"{state.capitalize()} runs cannot be excluded."
                return QueryProblem(term.start, term.end, what, "Take the minus away.")
            self.flags.add(state)
            return None
        if term.is_negated:
            state = STATES[1 - STATES.index(state)]
        self.states.setdefault(state, term)
        return None

    def _refuse(self, term: Term, problem: QueryProblem) -> None:
        self.problems.append(problem)
        self.spans += spans(term, is_problem=True)


def _edge(token: QueryToken, now: datetime, wanted: KeyName, *, negated: bool) -> datetime:
    """The limit that a time sets; a negated limit lies just before or just after it."""
    first, last = parse_period(token.text, now)
    try:
        if wanted == "since":
            return first - INSTANT if negated else first
        return last + INSTANT if negated else last
    except OverflowError as error:
        raise ValueError(f"{token.text!r} is outside the calendar.") from error


def read_order(text: str) -> RunSort:
    """An order of runs: `started` is oldest first, `-started` newest first.

    Raises:
        ValueError: There is no such column; the message lists the columns.
    """
    name = text.strip().removeprefix("-")
    columns = [field.name for field in SORTABLE]
    if name not in columns:
        raise ValueError(f"there is no column {name!r} to sort by: {', '.join(columns)}; -started is newest first")
    return RunSort(name, descending=text.strip().startswith("-"))


def both(one: RunFilter, other: RunFilter) -> RunFilter:
    """Combine two filters as if they were in one line: lists join, limits tighten, words add up."""

    def joined(name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*getattr(one, name), *getattr(other, name))))

    return replace(
        one,
        statuses=joined("statuses"),
        not_statuses=joined("not_statuses"),
        repositories=joined("repositories"),
        not_repositories=joined("not_repositories"),
        branches=joined("branches"),
        not_branches=joined("not_branches"),
        agents=joined("agents"),
        not_agents=joined("not_agents"),
        findings=joined("findings"),
        not_findings=joined("not_findings"),
        since=max((limit for limit in (one.since, other.since) if limit), default=None),
        until=min((limit for limit in (one.until, other.until) if limit), default=None),
        search=" ".join(part for part in (one.search, other.search) if part),
        active=one.active or other.active,
        ended=one.ended or other.ended,
        stuck=one.stuck or other.stuck,
        followed=one.followed or other.followed,
    )
