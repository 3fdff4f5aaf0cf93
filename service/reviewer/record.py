"""The record: a review's data for the next turn, at the end of its file, validated when it is read back."""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from service.errors import ServiceError
from service.reviewer.finding import RULES, CheckRule, ReviewFinding, Severity
from service.reviewer.survey import ReviewScope, Survey

_MARK: Final = "<!-- runwarden-review "
_END: Final = " -->"
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}\Z")
_WHOLE_TREE: Final = {"diff": False, "tree": True}
_FINDINGS: Final = 2_000
"""The most findings that a record holds."""
_RULES_OF_TREE: Final = frozenset(
    {CheckRule.BROKEN_LINK, CheckRule.MISSING_TEST, CheckRule.NO_TESTS, CheckRule.SYMLINK_OUTSIDE}
)
"""Rules whose findings depend on the whole tree, not on one file."""


class RecordError(ServiceError):
    """The record of the last review is missing or damaged; the text says how."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a review hands to the next one."""

    whole_tree: bool
    findings: tuple[ReviewFinding, ...]


@dataclass(frozen=True, slots=True)
class Since:
    """The findings of the last review and of this one, compared."""

    resolved: tuple[ReviewFinding, ...]
    still_open: tuple[ReviewFinding, ...]
    new: tuple[ReviewFinding, ...]
    unseen: tuple[ReviewFinding, ...]
    """Findings of files that were not read this time: they may still hold."""


def compare(
    record: Record, scope: ReviewScope, survey: Survey, reported: tuple[ReviewFinding, ...], paths: Collection[str]
) -> Since:
    """Sort the findings of both reviews; those of the last one appear whatever the focus of either is."""
    before = {one.fingerprint for one in record.findings}
    present = {one.fingerprint: one for one in survey.found}
    both_diffs = not record.whole_tree and scope.base is not None

    def is_resolved(one: ReviewFinding) -> bool:
        """Whether an absent finding is gone, and not only out of this survey's sight."""
        if one.rule in _RULES_OF_TREE and not survey.tree_judged:
            return False
        # A finding also counts as gone if its path was deleted, or if the branch no longer changes it.
        return one.path in survey.judged or one.path not in paths or (both_diffs and one.path not in scope.changes)

    absent = [one for one in record.findings if one.fingerprint not in present]
    return Since(
        resolved=tuple(one for one in absent if is_resolved(one)),
        still_open=tuple(present[one.fingerprint] for one in record.findings if one.fingerprint in present),
        new=tuple(one for one in reported if one.fingerprint not in before),
        unseen=tuple(one for one in absent if not is_resolved(one)),
    )


def encode(record: Record) -> str:
    """The record as an HTML comment on one line; characters that could end the comment are escaped."""
    rows = [[one.fingerprint, one.rule.id, one.weight.value, one.path, one.line] for one in record.findings[:_FINDINGS]]
    text = json.dumps(
        {"v": 1, "kind": "tree" if record.whole_tree else "diff", "findings": rows}, separators=(",", ":")
    )
    for character in "<>&-":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f"{_MARK}{text}{_END}"


def decode(review: bytes | None) -> Record:
    """Read the record of the last review; findings of rules that no longer exist are dropped.

    Raises:
        RecordError: there is none, or this reviewer did not write it.
    """
    if review is None:
        raise RecordError("it is not on this branch")
    text = review.decode("utf-8", "replace")
    start = text.rfind(_MARK)
    end = text.find(_END, start)
    if start < 0 or end < 0:
        raise RecordError("it holds no record of its findings")
    try:
        document = json.loads(text[start + len(_MARK) : end])
        rows = document["findings"][:_FINDINGS]
        return Record(_WHOLE_TREE[document["kind"]], tuple(_finding(*row) for row in rows if row[1] in RULES))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise RecordError("the record of its findings is damaged") from error


def _finding(fingerprint: Any, rule: Any, severity: Any, path: Any, line: Any) -> ReviewFinding:
    if not (_FINGERPRINT.match(fingerprint) and isinstance(path, str) and type(line) is int and line >= 0):
        raise ValueError("finding")
    return ReviewFinding(RULES[rule], path, line, "", severity=Severity(severity), fingerprint=fingerprint)
