"""The review as Markdown, most important first; text from outside is escaped."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from service.reviewer.finding import RULES, ReviewFinding
from service.reviewer.markdown import code, escaped, quoted, visible
from service.reviewer.record import encode
from service.reviewer.review import TurnReview

_FILES: Final = 100
"""Files with findings that are listed."""
_ROWS: Final = 20
"""Rows of one list that are shown."""
_IN_DOCUMENT: Final = 200
"""Findings in the document for programs: as many as a service keeps."""


def render(review: TurnReview) -> str:
    """The whole document, ending in the record for the next turn."""
    sections = (_head, _asked, _since, _findings, _unchecked)
    parts = ["\n".join(section(review)).strip() for section in sections]
    return "\n\n".join(part for part in parts if part) + f"\n\n{encode(review.record)}\n"


def summary(review: TurnReview) -> str:
    """The review in one line, for a list of runs."""
    words = f"{review.verdict}: {_in_words(review)} in {_number(len(review.survey.sources), 'file')}"
    if review.since is not None:
        words += f"; {len(review.since.resolved)} resolved, {len(review.since.still_open)} still open"
    return f"{words}."


def commit_message(review: TurnReview) -> str:
    """The message of the commit with the review."""
    what = f"Review, turn {review.task.turn}: {_in_words(review)}"
    return f"{what}\n\n{summary(review)}\nThe review is reviews/{review.task.run_id}.md.\n"


def findings_document(review: TurnReview) -> str:
    """The findings for programs, version 1 (docs/findings.schema.json)."""
    rows = [
        {
            "rule": one.rule.id,
            "severity": one.weight.value,
            "path": one.path,
            "line": one.line or None,
            "title": visible(one.message),
            "message": one.rule.advice,
        }
        for one in review.reported[:_IN_DOCUMENT]
    ]
    return json.dumps({"version": 1, "findings": rows})


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _in_words(review: TurnReview) -> str:
    """`1 blocker, 2 majors`, or `no findings`."""
    return ", ".join(_number(number, severity) for severity, number in review.counts.items() if number) or "no findings"


def _head(review: TurnReview) -> Iterator[str]:
    branch = f" of {code(review.task.branch)}" if review.task.branch else ""
    scope = review.scope
    what = f"`{scope.base[:12]}..{scope.head[:12]}`" if scope.base else f"the whole tree at `{scope.head[:12]}`"
    yield f"# Review{branch}, turn {review.task.turn}\n"
    yield f"**{review.verdict}**: {_in_words(review)}.\n"
    yield f"Reviewed: {what}; {escaped(scope.reason)}."
    yield f"{_number(len(review.survey.sources), 'file')} read. Run {code(review.task.run_id)}."


def _asked(review: TurnReview) -> Iterator[str]:
    focus = review.focus
    yield f"## What was asked\n\n{quoted(review.task.instructions)}\n"
    yield "This reviewer runs no model. It reads focus words and paths, and leaves the rest to a person.\n"
    yield f"- Focus: {', '.join(sorted(focus.topics)) or 'every topic'}."
    if focus.paths:
        yield f"- Paths: {escaped(', '.join(focus.paths), 600)}."
    if focus.topics or focus.paths:
        yield f"- Findings left out: {review.beside_focus}. Blockers are listed whatever the focus."
    yield from (f"- {escaped(sentence)}" for sentence in focus.unclear)


def _since(review: TurnReview) -> Iterator[str]:
    """What changed since the last review; empty in a first turn."""
    if review.task.turn == 1 and review.since is None:
        return
    yield "## Since the last review\n"
    if review.since is None:
        yield f"The last review could not be compared: {escaped(review.since_problem)}. Everything below counts as new."
        return
    since = review.since
    groups = (since.resolved, since.still_open, since.new, since.unseen)
    titles = ("Resolved", "Still open", "New", "Not looked at this time")
    yield ", ".join(f"{len(rows)} {title.lower()}" for title, rows in zip(titles, groups, strict=True)) + "."
    for title, rows in zip(titles, groups, strict=True):
        if rows:
            yield f"\n**{title}**\n"
            yield from _listed([f"{row.weight} `{row.rule.id}` in {code(row.path)}{_line(row.line)}" for row in rows])
    if any(row.rule.id.startswith("secret-") for row in since.resolved):
        yield "\nA secret that is gone from the files is still in their history: it stays valid until it is revoked."


def _listed(items: list[str]) -> Iterator[str]:
    """The first items as a list, and the number of items left out."""
    yield from (f"- {item}" for item in items[:_ROWS])
    if len(items) > _ROWS:
        yield f"- and {len(items) - _ROWS} more"


def _line(number: int) -> str:
    return f" line {number}" if number else ""


def _findings(review: TurnReview) -> Iterator[str]:
    """The files with the heaviest findings first, then the meanings of the rules."""
    by_path: dict[str, list[ReviewFinding]] = defaultdict(list)
    for one in review.reported:  # the heaviest come first, so their files do
        by_path[one.path].append(one)
    yield "## Findings"
    if not by_path:
        yield "\nNone."
    for path, found in list(by_path.items())[:_FILES]:
        yield f"\n### {code(path)}\n"
        rows = [f"**{one.weight}** `{one.rule.id}`{_line(one.line)}: {escaped(one.message)}" for one in found]
        yield from _listed(rows)
    left = list(by_path.values())[_FILES:]
    if left:
        yield f"\nAnd {sum(map(len, left))} more in {len(left)} more files; name paths or topics to see them."
    broken = {one.rule for one in review.reported}
    if broken:
        yield "\n## What to do\n"
        yield from (f"- `{rule.id}`: {rule.advice}" for rule in RULES.values() if rule in broken)


def _unchecked(review: TurnReview) -> Iterator[str]:
    survey = review.survey
    older = len({one.fingerprint for one in survey.found} & survey.older)
    yield "## What was not checked\n"
    yield "- Whether the code does what it should: nothing was run, built or installed, and no model read it."
    yield "- Languages other than Python beyond their text; dependencies for known vulnerabilities; earlier commits."
    if older:
        yield f"- Findings that were there before the branch: {older}, not listed; ask for the whole tree to see them."
    if survey.unread:
        yield f"- Files left unread, too large or beyond the limits of one review: {survey.unread}."
    if not survey.tree_judged:
        yield "- The tree as a whole (tests, links), because it is too large or time was up."
    yield from (f"- {escaped(sentence)}" for sentence in survey.broken[:_ROWS])
