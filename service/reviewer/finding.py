"""Findings: what a rule saw at a place, and an identity for it that survives moving lines."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """How much a finding weighs; the order of the members is the order of a review."""

    BLOCKER = "blocker"
    MAJOR = "major"
    MINOR = "minor"
    NOTE = "note"


SEVERITIES: Final = tuple(Severity)


class Topic(StrEnum):
    """What a rule is about; instructions choose by these words."""

    SECURITY = "security"
    CORRECTNESS = "correctness"
    DESIGN = "design"
    TESTS = "tests"
    HYGIENE = "hygiene"
    DOCS = "docs"
    DEPENDENCIES = "dependencies"


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing the reviewer looks for."""

    id: str
    severity: Severity
    topic: Topic
    why: str
    """One sentence: what goes wrong otherwise."""
    cure: str
    """One sentence: what to do."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that applies at a place. Texts are plain: whoever prints them escapes them."""

    rule: Rule
    path: str
    line: int
    """1-based; 0 when the finding is about the whole file."""
    message: str
    """What was seen here; never holds a secret."""
    anchor: str = ""
    """Text that identifies the place within the file; empty when there can be one such finding in a file."""
    severity: Severity | None = None
    """None: the rule's own."""
    fresh: bool = False
    """True: this branch brought it about although its line is old."""

    @property
    def weight(self) -> Severity:
        """The severity that counts."""
        return self.severity or self.rule.severity


@dataclass(frozen=True, slots=True)
class Identified:
    """A finding and its fingerprint."""

    finding: Finding
    fingerprint: str
    """16 hexadecimal digits, the same as long as rule, path and normalised text are."""


def normalised(text: str) -> str:
    """The text without the differences that moving or re-indenting a line makes."""
    return " ".join(text.split())


def identify(findings: Iterable[Finding]) -> Iterator[Identified]:
    """Give each finding its fingerprint; equal ones within a file are told apart by their order."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for finding in findings:
        key = (finding.rule.id, finding.path, normalised(finding.anchor))
        seen[key] += 1
        text = "\0".join((*key, str(seen[key])))
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        yield Identified(finding, digest[:16])


def count(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many findings there are of each severity, zeros included, in the order of a review."""
    counted = Counter(finding.weight for finding in findings)
    return {severity: counted[severity] for severity in SEVERITIES}


def in_words(counts: dict[Severity, int]) -> str:
    """`1 blocker, 2 majors`, or `no findings`."""
    parts = [f"{number} {severity}{'s' if number > 1 else ''}" for severity, number in counts.items() if number]
    return ", ".join(parts) or "no findings"
