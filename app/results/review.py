"""Findings in a review's Markdown: file, line and severity; and a review made of findings that were reported. Pure.

Everything else stays prose. Two ways of writing are understood: a heading that is a path with items
`**major** … line 7: text` below it, as the reviewer that ships writes, and `path:line: text` anywhere outside of code.
"""

import re
from collections.abc import Sequence
from typing import Final

from storage.records.results import SEVERITIES, Finding, ReportedFinding, Review, Severity

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING: Final = re.compile(r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_CODE: Final = re.compile(r"(`+) ?(.+?) ?\1")
_ITEM: Final = re.compile(r"\s{0,12}(?:[-*+]|\d{1,3}[.)])\s+(.*)")
_PLACE: Final = re.compile(
    r"(?<![\w/:.])`?([\w.@+-][\w.@+/-]{0,300}\.\w{1,12}):(\d{1,9})(?::\d+)?`?(?![\w/])(?:\s*[:\u2013\u2014-]\s*)?"
)
_LINE: Final = re.compile(r" ?\bline (\d{1,9})\b")
_SEVERITY: Final = re.compile(r"[^\w`]{0,4}([A-Za-z]{3,9})\b[*_\]):]{0,4}")
_WEIGHTS: Final[dict[str, Severity]] = {
    **dict.fromkeys(("blocker", "critical"), "blocker"),
    **dict.fromkeys(("major", "high", "error"), "major"),
    **dict.fromkeys(("minor", "medium", "warning"), "minor"),
    **dict.fromkeys(("note", "low", "info", "nit"), "note"),
}
_MAX_LINE: Final = 2_000
_MAX_RESULTS: Final = 1_000


def findings(text: str) -> tuple[Finding, ...]:
    """The findings of a review, in its order; at most a thousand."""
    results = list[Finding]()
    fence, path = "", ""
    for at, whole in enumerate(text.split("\n")):
        line = whole[:_MAX_LINE].rstrip("\r")
        marker = _FENCE.match(line)
        if len(results) == _MAX_RESULTS:
            break
        if fence:
            closes = marker and marker[1].startswith(fence) and not line.strip(" `~")
            fence = "" if closes else fence
        elif marker:
            fence = marker[1]
        elif heading := _HEADING.match(line):
            code = _CODE.fullmatch(heading[2])
            title = code[2] if code else heading[2]
            path = ""
            if code or (" " not in title and ("/" in title or "." in title)):
                path = title
        elif location := _PLACE.search(line):
            before = line[: location.start()]
            after = line[location.end() :]
            is_first = all(word.lower() in _WEIGHTS or word.isdecimal() for word in re.findall(r"\w+", before))
            rest = before + after if is_first and after else line
            results.append(_finding(at, location[1], int(location[2]), rest))
        elif path and (item := _ITEM.match(line)):
            number = _LINE.search(item[1])
            results.append(_finding(at, path, int(number[1]) if number else None, item[1]))
    return tuple(results)


def review_of_reports(turn: int, reports: Sequence[ReportedFinding]) -> Review:
    """A review made of an agent's findings, by file, the heaviest first."""
    heaviest: dict[str, int] = {}
    for report in reports:
        heaviest[report.path] = min(_rank(report), heaviest.get(report.path, len(SEVERITIES)))
    lines = [f"# Findings of turn {turn}"]
    items: list[Finding] = []
    path = None
    for report in sorted(reports, key=lambda item: (heaviest[item.path], item.path, _rank(item), item.line or 0)):
        if report.path != path:
            path = report.path
            lines += ["", f"## {_in_code(path)}", ""]
        items.append(Finding(report.path, report.line, report.title, report.severity, len(lines)))
        rule = f" {_in_code(report.rule)}" if report.rule else ""
        location = f" line {report.line}" if report.line else ""
        lines.append(f"- **{report.severity or 'finding'}**{rule}{location}: {' '.join(report.title.split())}")
        if report.message:
            lines += ["", *(f"  {line}" for line in report.message.splitlines())]
        if report.suggestion:
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", report.suggestion)), default=0))
            lines += ["", *(f"  {line}" for line in (fence, *report.suggestion.split("\n"), fence)), ""]
    if not reports:
        lines += ["", "None."]
    return Review(f"findings of turn {turn}", "\n".join(lines), tuple(items), "service")


def _rank(finding: ReportedFinding) -> int:
    if finding.severity is None:
        return len(SEVERITIES)
    return SEVERITIES.index(finding.severity)


def _in_code(text: str) -> str:
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{' '.join(text.split())}{fence}"


def _finding(at: int, path: str, line: int | None, rest: str) -> Finding:
    item = _ITEM.match(rest)
    text = (item[1] if item else rest).strip()
    severity_match = _SEVERITY.match(text)
    weight = _WEIGHTS.get(severity_match[1].lower()) if severity_match else None
    if severity_match and weight:  # Severity and line are shown next to the text.
        text = text[severity_match.end() :]
    return Finding(path, line, _LINE.sub("", text, count=1).strip(" :-\u2013\u2014") or rest.strip(), weight, at)
