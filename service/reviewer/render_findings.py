"""The findings of a review as Markdown: the heaviest files first, each rule explained once a file."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from service.reviewer.finding import SEVERITIES, Finding, Rule, Severity
from service.reviewer.markdown import code, escaped
from service.reviewer.review import Review

_FILES: Final = 100
_RULES_A_FILE: Final = 20
_PLACES: Final = 8


def findings(review: Review) -> Iterator[str]:
    """The section of findings."""
    by_path: dict[str, list[Finding]] = defaultdict(list)
    for one in review.reported:
        by_path[one.finding.path].append(one.finding)
    yield "## Findings"
    yield ""
    if not by_path:
        yield "None."
    ordered = sorted(by_path.items(), key=lambda item: (min(_order(finding) for finding in item[1]), item[0]))
    for path, found in ordered[:_FILES]:
        yield from _file(path, found)
    if len(ordered) > _FILES:
        left = sum(len(found) for _, found in ordered[_FILES:])
        yield f"And {left} more in {len(ordered) - _FILES} more files; look at fewer paths or rules to see them."


def _order(finding: Finding) -> int:
    return SEVERITIES.index(finding.weight)


def _file(path: str, found: list[Finding]) -> Iterator[str]:
    groups: dict[tuple[int, str], list[Finding]] = defaultdict(list)
    for finding in found:
        groups[_order(finding), finding.rule.id].append(finding)
    yield f"### {code(path)}"
    yield ""
    for key in sorted(groups)[:_RULES_A_FILE]:
        yield from _rule(groups[key])
    if len(groups) > _RULES_A_FILE:
        yield f"- and findings of {len(groups) - _RULES_A_FILE} more rules"
    yield ""


def _rule(found: list[Finding]) -> Iterator[str]:
    """One rule in one file: why and cure once, then the places."""
    rule, severity = found[0].rule, found[0].weight
    if len(found) == 1:
        yield f"- {_title(severity, rule)}{_place(found[0])}: {escaped(found[0].message)}"
        yield f"  {rule.why} {rule.cure}"
        return
    yield f"- {_title(severity, rule)}, {len(found)} times. {rule.why} {rule.cure}"
    for finding in sorted(found, key=lambda one: one.line)[:_PLACES]:
        yield f"    -{_place(finding) or ' whole file'}: {escaped(finding.message)}"
    if len(found) > _PLACES:
        yield f"    - and {len(found) - _PLACES} more"


def _title(severity: Severity, rule: Rule) -> str:
    return f"**{severity}** `{rule.id}`"


def _place(finding: Finding) -> str:
    return f" line {finding.line}" if finding.line else ""
