"""The query language: one line of text for a `RunFilter`, and back; valid parts count, mistakes come with a fix.

Pure: no I/O and no clock, only the standard library and the records. See docs/use/queries.md.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from app.engine.text import closest, did_you_mean
from app.engine.times import INSTANT, parse_period
from storage import UnreadableTextError
from storage.records import ACTIVE_STATUSES, KNOWN_STATUSES, SORTABLE, RunFilter, RunSort
from storage.records.query import FINDINGS, Suggestion

KeyName = Literal["status", "repo", "branch", "agent", "finding", "since", "until", "is"]
_START: Final = re.compile(r"(?:-(?=\S))?(?=\S)")
"""Where a term begins, and its minus."""
_NAME: Final = re.compile(r"([A-Za-z_]+):")
_WORD: Final = re.compile(r"\S*")
_VALUE: Final = re.compile(r"[^\s,]*")
_QUOTED: Final = re.compile(r'"((?:\\["\\]|[^"])*)("?)')
_ESCAPED: Final = re.compile(r'\\(["\\])')
MAX_QUERY: Final = 4_000
SpanKind = Literal["sign", "key", "value", "word", "problem"]
_FIELDS: Final[dict[KeyName, str]] = {
    "status": "statuses",
    "repo": "repositories",
    "branch": "branches",
    "agent": "agents",
    "finding": "findings",
}
LISTS: Final = tuple(f"{no}{name}" for name in _FIELDS.values() for no in ("", "not_"))
"""The fields of a filter that are lists, of values that are asked for or excluded."""
MAX_OPTIONS: Final = 12
TAKES_ONE: Final[frozenset[KeyName]] = frozenset({"since", "until", "is"})
_SHORTEST_NAME: Final = 2
"""Characters of a word before it is completed as a repository."""


class QueryKey(Struct, frozen=True):
    """A key of the query language."""

    name: KeyName
    aliases: tuple[str, ...]
    example: str
    about: str


KEYS: Final = (
    QueryKey("status", (), "status:failed,queued", "The run's status; several: any of them."),
    QueryKey("repo", ("repository",), "repo:acme/*", "The repository; * matches anything."),
    QueryKey("branch", (), "branch:agent/*", "The branch; * matches anything."),
    QueryKey("agent", (), "agent:claude", "The agent; * matches anything."),
    QueryKey("finding", ("findings",), "finding:blocker,major", "blocker, major, minor, note, any, none or unknown."),
    QueryKey("since", ("from",), "since:7d", "Created then or later: 2h, 7d, 2026-05-01."),
    QueryKey("until", ("to",), "until:2026-05-01", "Created then or earlier; a date includes its day."),
    QueryKey("is", (), "is:active", "active, ended, stuck or followed."),
)
_BY_NAME: Final = {name: key for key in KEYS for name in (key.name, *key.aliases)}
COLUMNS: Final = frozenset({"asked", "author", "result", "run", "started", "took", "updated"})
"""Names that look like keys because the list shows them: a mistake, not words to be searched."""
UNKNOWN: Final = "unknown"
STATES: Final = ("active", "ended", "stuck", "followed")


def key_name(name: str) -> KeyName | None:
    """The key of a name or alias, case-insensitive; None: unknown."""
    return None if (key := _BY_NAME.get(name.casefold())) is None else key.name


def closest_key(name: str) -> str | None:
    """The known key that an unknown one probably means."""
    if name.casefold() in COLUMNS:
        return None
    return closest(name.casefold(), _BY_NAME)


def unknown_status(status: str, known: Collection[str]) -> tuple[str, str]:
    """Describe a status that no run ever had, and the fix."""
    reason = f"No run that was ever seen here has the status {status!r}."
    return reason, did_you_mean(status.casefold(), known)


class QueryToken(Struct, frozen=True):
    """A value or a word."""

    text: str
    """The text without quotes and escapes."""
    start: int
    end: int
    is_quoted: bool = False
    """Whether the token was quoted, and so is literal."""
    is_closed: bool = True
    """False: the closing quote is missing."""


class Term(Struct, frozen=True):
    """One condition, or one word."""

    start: int
    end: int
    is_negated: bool
    key: str | None
    """The key as written; None: the term is a word."""
    key_end: int
    """The index behind the colon; for a word, the index of its first character."""
    tokens: tuple[QueryToken, ...]
    """The condition's values, empty ones included; one for a word."""


def terms(line: str) -> Iterator[Term]:
    """The terms of a line, from left to right; together they cover everything except blanks."""
    end = 0
    while (match := _START.search(line, end)) is not None:
        start = match.start()
        at = match.end()
        name = _NAME.match(line, at)
        # Other names before a colon are part of a word, as in `gitlab:acme/api`.
        if name is None or not (name[1].casefold() in COLUMNS or key_name(name[1]) or closest_key(name[1])):
            word = _token(line, at, _WORD)
            yield Term(start, end := word.end, at > start, None, at, (word,))
            continue
        tokens = [_token(line, name.end(), _VALUE)]
        while line[tokens[-1].end : tokens[-1].end + 1] == ",":
            tokens.append(_token(line, tokens[-1].end + 1, _VALUE))
        yield Term(start, end := tokens[-1].end, at > start, name[1], name.end(), tuple(tokens))


def _token(line: str, start: int, plain: re.Pattern[str]) -> QueryToken:
    if (match := _QUOTED.match(line, start)) is None:
        end = plain.match(line, start).end()  # type: ignore[union-attr]  # the pattern also matches the empty string
        return QueryToken(line[start:end], start, end)
    text = _ESCAPED.sub(r"\1", match[1])
    return QueryToken(text, start, match.end(), is_quoted=True, is_closed=bool(match[2]))


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
    end: int
    message: str
    """The mistake. It may quote the line: foreign text, not yet safe to print."""
    fix: str

    def __str__(self) -> str:
        return f"at character {self.start + 1}: {self.message} {self.fix}"


class Query(Struct, frozen=True):
    """A parsed line: its filter, its mistakes, and spans for highlighting."""

    filter: RunFilter
    """The filter of the valid parts; times in it are relative to the given `now`."""
    problems: tuple[QueryProblem, ...]
    spans: tuple[TextSpan, ...]


def read_value(token: QueryToken, wanted: KeyName) -> str:
    """A value's meaning in the filter; quoted values are literal."""
    if token.is_quoted:
        return token.text
    text = token.text.casefold()
    if wanted == "finding" or (wanted == "status" and text in KNOWN_STATUSES):
        return text
    if wanted == "agent" and text == UNKNOWN:
        return ""
    if wanted != "repo":
        return token.text
    # A label or a pattern: `acme/` means `acme/*`, `api` means `*/api`.
    label = token.text.removeprefix("github:")
    if label.endswith(("/", ":")):
        return f"{label}*"
    if "/" in label or "*" in label or ":" in label:
        return label
    return f"*/{label}"


def value_text(value: str, key: KeyName) -> str:
    """A value as written after its key, quoted only where needed."""
    if key == "agent" and not value:
        return UNKNOWN
    read = list(terms(f"{key}:{value}"))
    if value and len(read) == 1 and len(read[0].tokens) == 1:
        (token,) = read[0].tokens
        is_pattern = key == "status" and "*" in value
        if not token.is_quoted and token.text == value == read_value(token, key) and not is_pattern:
            return value
    return '"{}"'.format(re.sub(r'(["\\])', r"\\\1", value))


def list_terms(key: KeyName, asked: Iterable[str], excluded: Iterable[str] = ()) -> Iterator[str]:
    """The terms for included and for excluded values."""
    for sign, values in (("", tuple(asked)), ("-", tuple(excluded))):
        if values:
            yield f"{sign}{key}:{','.join(value_text(value, key) for value in values)}"


def values_of(term: Term) -> tuple[QueryToken, ...]:
    """The term's values, without an empty one after a comma."""
    return tuple(token for token in term.tokens if token.text or token.is_quoted)


def broken(term: Term, wanted: KeyName) -> QueryProblem | None:
    """The mistake in the term's syntax, if any."""
    for token in term.tokens:
        if not token.is_closed:
            return unclosed_quote(token)
        if wanted == "status" and not token.is_quoted and "*" in token.text:
            return QueryProblem(
                token.start, token.end, "A status has no pattern.", "Write it out, or exclude some: -status:…"
            )
        if wanted == "finding" and token.text.casefold() not in (*FINDINGS, ""):
            suggestion = closest(token.text.casefold(), FINDINGS)
            fix = f"Did you mean finding:{suggestion}?" if suggestion else f"There are {', '.join(FINDINGS)}."
            return QueryProblem(token.start, token.end, f"There is no finding {token.text!r}.", fix)
    if not values_of(term):
        return QueryProblem(term.end, term.end, f"{term.key}: lacks its value.", f"As in {_BY_NAME[wanted].example}")
    if wanted in TAKES_ONE and len(term.tokens) > 1:
        start = term.tokens[1].start - 1
        return QueryProblem(start, term.end, f"{term.key}: takes one value.", f"As in {_BY_NAME[wanted].example}")
    return None


def unclosed_quote(token: QueryToken) -> QueryProblem:
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
    for term in terms(text[:MAX_QUERY]):
        if (problem := parser.add(term)) is not None:
            parser.problems.append(problem)
        parser.spans += spans(term, is_problem=problem is not None)
    if len(text) > MAX_QUERY:
        parser.blame(MAX_QUERY, len(text), f"The line is longer than {MAX_QUERY:,} characters.", "Shorten it.")
    condition = parser.finish()
    return Query(condition, tuple(sorted(parser.problems, key=attrgetter("start"))), tuple(parser.spans))


@dataclass(slots=True)
class _Parser:
    """The state while a line is parsed."""

    now: datetime
    problems: list[QueryProblem] = field(default_factory=list)
    spans: list[TextSpan] = field(default_factory=list)
    lists: dict[str, dict[str, None]] = field(default_factory=dict)
    """The values by field of the filter; dictionaries keep their order and drop repeated ones."""
    words: list[str] = field(default_factory=list)
    since: datetime | None = None
    until: datetime | None = None
    states: dict[str, Term] = field(default_factory=dict)
    """The values of `is:`, each with the term that first gave it."""
    bound: Term | None = None

    def add(self, term: Term) -> QueryProblem | None:
        """Add one term to the filter, unless there is a problem."""
        if term.key is None:
            (token,) = term.tokens
            if term.is_negated:
                fix = f'Exclude with -branch: or -repo:, or search for it as it is: "-{token.text}".'
                return QueryProblem(term.start, term.end, "A search word cannot be excluded.", fix)
            if not token.is_closed:
                return unclosed_quote(token)
            self.words += token.text.split()
            return None
        if (key := key_name(term.key)) is None:
            suggestion = closest_key(term.key)
            at = term.key_end - len(term.key) - 1
            if suggestion:
                instead = f"Did you mean {suggestion}:?"
            else:
                instead = f"There are {', '.join(each.name for each in KEYS)}."
            fix = f'{instead} To search for it as it is, put it in quotes: "{term.key}:…".'
            return QueryProblem(at, term.key_end, f"There is no {term.key}:.", fix)
        if problem := broken(term, key):
            return problem
        match key:
            case "since" | "until":
                return self._limit(term, key)
            case "is":
                return self._is(term)
        values = self.lists.setdefault(f"{'not_' if term.is_negated else ''}{_FIELDS[key]}", {})
        values.update(dict.fromkeys(read_value(token, key) for token in values_of(term)))
        return None

    def blame(self, start: int, end: int, message: str, fix: str) -> None:
        self.problems.append(QueryProblem(start, end, message, fix))

    def finish(self) -> RunFilter:
        since = self.since
        until = self.until
        statuses = self.lists.get("statuses")
        if (term := self.states.get("ended")) is not None:
            if "active" in self.states:
                self.blame(term.start, term.end, "No run is both active and ended.", "Keep one of the two.")
                del self.states["ended"]
            elif statuses and set(statuses) <= set(ACTIVE_STATUSES):
                fix = "Take this away, or the status."
                self.blame(term.start, term.end, "None of these statuses is final.", fix)
                del self.states["ended"]
        if since is not None and until is not None and since > until and self.bound is not None:
            self.blame(self.bound.start, self.bound.end, "This is before the earliest time asked for.", "Widen one.")
        lists: dict[str, Any] = {name: tuple(values) for name, values in self.lists.items()}
        states: dict[str, Any] = dict.fromkeys(self.states, True)
        return RunFilter(since=since, until=until, search=" ".join(self.words), **lists, **states)

    def _limit(self, term: Term, wanted: KeyName) -> QueryProblem | None:
        token = term.tokens[0]
        try:
            first, last = parse_period(token.text, self.now)
            # A negated limit lies just before or just after the time.
            if wanted == "since":
                limit = first - INSTANT if term.is_negated else first
            else:
                limit = last + INSTANT if term.is_negated else last
        except OverflowError:
            message = f"{token.text!r} is outside the calendar."
            return QueryProblem(token.start, token.end, message, "Write 2h, 7d or 2026-05-01.")
        except UnreadableTextError as error:
            return QueryProblem(token.start, token.end, error.problem, error.fix)
        if (wanted == "since") != term.is_negated:
            self.since = limit if self.since is None else max(self.since, limit)
        else:
            self.until = limit if self.until is None else min(self.until, limit)
        self.bound = term
        return None

    def _is(self, term: Term) -> QueryProblem | None:
        (token,) = term.tokens
        state = token.text.casefold()
        if state not in STATES:
            suggestion = closest(state, STATES)
            if suggestion:
                fix = f"Did you mean is:{suggestion}?"
            else:
                fix = "Write is:active, is:ended, is:stuck or is:followed."
            return QueryProblem(token.start, token.end, f"There is no state {token.text!r}.", fix)
        if term.is_negated and state in {"stuck", "followed"}:
            mistake = f"{state.capitalize()} runs cannot be excluded."
            return QueryProblem(term.start, term.end, mistake, "Take the minus away.")
        state = {"active": "ended", "ended": "active"}[state] if term.is_negated else state
        self.states.setdefault(state, term)
        return None


def read_order(text: str) -> RunSort:
    """An order of runs: `started` is oldest first, `-started` newest first.

    Raises:
        UnreadableTextError: There is no such column; its fix lists the columns.
    """
    name = text.strip().removeprefix("-")
    columns = [field.name for field in SORTABLE]
    if name not in columns:
        fix = f"Write one of: {', '.join(columns)}; -started is newest first."
        raise UnreadableTextError(f"there is no column {name!r} to sort by.", fix)
    return RunSort(name, descending=text.strip().startswith("-"))


def written_order(sort: RunSort) -> str:
    """The text that `read_order` reads as this order."""
    return f"{'-' if sort.descending else ''}{sort.column}"


def combine_filters(one: RunFilter, other: RunFilter) -> RunFilter:
    """Combine two filters as if they were in one line: lists join, limits tighten, words add up."""
    return replace(
        one,
        **{name: tuple(dict.fromkeys((*getattr(one, name), *getattr(other, name)))) for name in LISTS},
        since=max((limit for limit in (one.since, other.since) if limit), default=None),
        until=min((limit for limit in (one.until, other.until) if limit), default=None),
        search=" ".join(part for part in (one.search, other.search) if part),
        **{state: getattr(one, state) or getattr(other, state) for state in STATES},
    )


class Vocabulary(Struct, frozen=True):
    """Known names to complete from, best first."""

    repositories: tuple[str, ...] = ()
    """Labels."""
    branches: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    """The statuses in addition to those that the spec names."""


def suggestions(line: str, cursor: int, known: Vocabulary) -> tuple[Suggestion, ...]:
    """Complete the token that the cursor touches, from 0 to the line's length."""
    if (current := next((term for term in terms(line) if term.start <= cursor <= term.end), None)) is None:
        options = list(_keys("", cursor, cursor))
    elif current.key is None:
        (token,) = current.tokens
        typed = line[current.key_end : cursor]
        options = [] if token.is_quoted else list(_keys(typed, token.start, token.end))
        if len(typed) >= _SHORTEST_NAME and not token.is_quoted:
            for label in _matching(typed, known.repositories):
                text = f"repo:{value_text(label, 'repo')}"
                options.append(Suggestion(token.start, token.end, text, "The repository."))
    elif cursor < current.key_end:
        options = list(_keys(current.key, current.key_end - len(current.key) - 1, current.key_end))
    elif (key := key_name(current.key)) is None:
        options = []
    else:
        token = next(token for token in current.tokens if cursor <= token.end)
        others = {each.text for each in current.tokens if each is not token}
        typed = token.text[: max(0, cursor - token.start - int(token.is_quoted))]
        options = [
            Suggestion(token.start, token.end, value if key in TAKES_ONE else value_text(value, key))
            for value in _matching(typed, _known_values(key, known))
            if value not in others
        ]
    return tuple(option for option in options if line[option.start : option.end] != option.insert)[:MAX_OPTIONS]


def _keys(start_of_name: str, start: int, end: int) -> Iterator[Suggestion]:
    for key in KEYS:
        if key.name.startswith(start_of_name.casefold()):
            yield Suggestion(start, end, f"{key.name}:", key.about)


def _known_values(wanted: KeyName, known: Vocabulary) -> Iterable[str]:
    owners = [f"{label.rpartition('/')[0]}/*" for label in known.repositories if "/" in label]
    values: dict[KeyName, Iterable[str]] = {
        "status": dict.fromkeys((*sorted(KNOWN_STATUSES), *known.statuses)),
        "repo": dict.fromkeys((*known.repositories, *owners)),
        "branch": known.branches,
        "agent": known.agents,
        "finding": FINDINGS,
        "is": STATES,
    }
    return values.get(wanted, ("1h", "24h", "7d", "30d"))


def _matching(typed: str, values: Iterable[str]) -> Iterator[str]:
    """The values that contain the typed text, those that begin with it first."""
    stem = typed.casefold()
    inside = [value for value in values if stem in value.casefold()]
    yield from sorted(inside, key=lambda value: not value.casefold().startswith(stem))
