"""The earlier review: a record at the end of the file, read back with suspicion, and what changed since."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, get_args

from service.reviewer.finding import SEVERITIES, Identified, Severity
from service.reviewer.limits import FINDINGS_RECORDED, HISTORY_TURNS
from service.reviewer.scope import Kind

_MARK: Final = "<!-- runwarden-review "
_END: Final = " -->"
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}\Z")
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}\Z")
_RULE: Final = re.compile(r"[a-z][a-z0-9\-]{0,40}\Z")
_PATH: Final = 4_096
_LARGEST: Final = 2**31


class RecordError(Exception):
    """The record of the earlier review is missing or damaged; the text says how."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """A finding of the earlier review."""

    fingerprint: str
    rule: str
    severity: Severity
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A line of the history."""

    turn: int
    head: str
    """The commit that was reviewed."""
    counts: tuple[int, ...]
    """Findings by severity, heaviest first."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a review tells the next one."""

    kind: Kind
    findings: tuple[Remembered, ...]
    history: tuple[PastTurn, ...]
    """Oldest first; the last one is the review that holds this record."""


@dataclass(frozen=True, slots=True)
class Since:
    """The last review against this one."""

    resolved: tuple[Remembered, ...]
    still_open: tuple[Identified, ...]
    new: tuple[Identified, ...]
    unseen: tuple[Remembered, ...]
    """Not looked at this time, so nothing can be said."""


def remember(one: Identified) -> Remembered:
    """A finding as the next review will know it."""
    finding = one.finding
    return Remembered(one.fingerprint, finding.rule.id, finding.weight, finding.path, finding.line)


def compare(
    record: Record,
    reported: tuple[Identified, ...],
    present: frozenset[str],
    seen: Callable[[Remembered], bool],
) -> Since:
    """Sort the findings of two reviews.

    Args:
        record: the last review.
        reported: this review's findings.
        present: fingerprints of everything found now, reported or not.
        seen: whether a finding of the last review would have been found again if it were still there.
    """
    before = {one.fingerprint for one in record.findings}
    absent = [one for one in record.findings if one.fingerprint not in present]
    return Since(
        resolved=tuple(one for one in absent if seen(one)),
        still_open=tuple(one for one in reported if one.fingerprint in before),
        new=tuple(one for one in reported if one.fingerprint not in before),
        unseen=tuple(one for one in absent if not seen(one)),
    )


def encode(record: Record) -> str:
    """The record as one HTML comment in one line; no content of it can end the comment."""
    document = {
        "v": 1,
        "kind": record.kind,
        "findings": [
            [one.fingerprint, one.rule, one.severity.value, one.path, one.line]
            for one in record.findings[:FINDINGS_RECORDED]
        ],
        "history": [[past.turn, past.head, *past.counts] for past in record.history[-HISTORY_TURNS:]],
    }
    text = json.dumps(document, separators=(",", ":"))
    for character in "<>&-":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f"{_MARK}{text}{_END}"


def decode(review: bytes) -> Record:
    """Read the record of an earlier review.

    Raises:
        RecordError: there is none, or it is not what this reviewer writes.
    """
    text = review.decode("utf-8", "replace")
    start = text.rfind(_MARK)
    end = text.find(_END, start)
    if start < 0 or end < 0:
        raise RecordError("it holds no record of its findings")
    try:
        document = json.loads(text[start + len(_MARK) : end])
        return Record(_kind(document["kind"]), _findings(document["findings"]), _history(document["history"]))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise RecordError("the record of its findings is damaged") from error


def _kind(value: Any) -> Kind:
    if value not in get_args(Kind):
        raise ValueError("kind")
    kind: Kind = value
    return kind


def _findings(rows: Any) -> tuple[Remembered, ...]:
    return tuple(
        Remembered(
            _matching(_FINGERPRINT, fingerprint),
            _matching(_RULE, rule),
            Severity(severity),
            _text(path),
            _number(line),
        )
        for fingerprint, rule, severity, path, line in rows[:FINDINGS_RECORDED]
    )


def _history(rows: Any) -> tuple[PastTurn, ...]:
    return tuple(
        PastTurn(_number(turn), _matching(_COMMIT, head), tuple(_number(count) for count in _full(counts)))
        for turn, head, *counts in rows[-HISTORY_TURNS:]
    )


def _full(counts: list[Any]) -> list[Any]:
    if len(counts) != len(SEVERITIES):
        raise ValueError("counts")
    return counts


def _matching(pattern: re.Pattern[str], value: Any) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        raise ValueError("text")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _PATH:
        raise ValueError("path")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise ValueError("number")
    return value
