"""The review as Markdown: what a person reads first stands first, and no foreign text marks anything up."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from service.reviewer.checks import RULES
from service.reviewer.checks.syntax import PYTHON as PYTHON_SYNTAX
from service.reviewer.earlier import PastTurn, encode
from service.reviewer.finding import SEVERITIES, Severity, in_words
from service.reviewer.markdown import code, escaped, quoted
from service.reviewer.render_findings import findings
from service.reviewer.render_since import answers, since
from service.reviewer.review import Review
from service.reviewer.source import PYTHON

_SHOWN: Final = 20
_HISTORY_SHOWN: Final = 10
_QUOTED: Final = 100


def render(review: Review) -> str:
    """The whole document, ending in the record for the next turn."""
    sections = (_head, _asked, since, findings, _fixed, _good, _unchecked, _history)
    parts = ["\n".join(section(review)).strip() for section in sections]
    return "\n\n".join(part for part in parts if part) + f"\n\n{encode(review.record)}\n"


def summary(review: Review) -> str:
    """The review in one line, for a list of runs."""
    words = f"{review.verdict}: {in_words(review.counts)} in {_files(len(review.survey.sources))}"
    if review.since is not None:
        words += f"; {len(review.since.resolved)} resolved, {len(review.since.still_open)} still open"
    return f"{words}{_fixed_words(review)}."


def _fixed_words(review: Review) -> str:
    return f"; {_files(len(review.tidied.paths))} tidied" if review.tidied.paths else ""


def commit_message(review: Review) -> str:
    """What the commit that carries the review says."""
    what = f"Review, turn {review.task.turn}: {in_words(review.counts)}"
    return f"{what}\n\n{summary(review)}\nThe review is reviews/{review.task.run_id}.md.\n"


def _files(number: int) -> str:
    return f"{number} file{'' if number == 1 else 's'}"


def _head(review: Review) -> Iterator[str]:
    branch = f" of {code(review.task.branch)}" if review.task.branch else ""
    scope = review.scope
    yield f"# Review{branch}, turn {review.task.turn}"
    yield ""
    yield f"**{review.verdict}**: {in_words(review.counts)}."
    yield ""
    if scope.base is None:
        yield f"Reviewed: the whole tree at `{scope.head[:12]}`, because {escaped(scope.reason)}."
    else:
        yield f"Reviewed: `{scope.base[:12]}..{scope.head[:12]}`, {escaped(scope.reason)}."
    yield f"{_files(len(review.survey.sources))} read{_changes(review)}. Run {code(review.task.run_id)}."
    yield ""
    yield "| severity | findings |"
    yield "|---|---:|"
    yield from (f"| {severity} | {number} |" for severity, number in review.counts.items())


def _changes(review: Review) -> str:
    """`, of 3 changed, 1 added and 2 deleted`, or nothing for the whole tree."""
    words = {"M": "changed", "A": "added", "D": "deleted", "R": "renamed", "T": "changed in kind", "C": "copied"}
    counted = Counter(change.status for change in review.scope.changes.values())
    parts = [f"{counted[status]} {word}" for status, word in words.items() if counted[status]]
    return f" ({', '.join(parts)} on the branch)" if parts else ""


def _asked(review: Review) -> Iterator[str]:
    yield "## What was asked"
    yield ""
    yield quoted(review.task.instructions)
    yield ""
    yield "This reviewer runs no model. It acts on phrases and inputs that it knows, and leaves the rest to a human."
    yield ""
    acted = review.wishes.understood or ("Nothing in particular: the usual review.",)
    yield from (f"- Acted on: {escaped(sentence, 600)}" for sentence in acted)
    yield from (f"- Not acted on: {escaped(sentence)}" for sentence in review.wishes.unclear)
    yield from answers(review)


def _fixed(review: Review) -> Iterator[str]:
    if not review.wishes.fix:
        return
    yield "## Fixed in this turn"
    yield ""
    if not review.tidied.paths:
        yield "Nothing: there was no mechanical fault that could be fixed without a doubt."
    yield from (f"- {code(path)}" for path in review.tidied.paths[:_SHOWN])
    if len(review.tidied.paths) > _SHOWN:
        yield f"- and {len(review.tidied.paths) - _SHOWN} more"
    if review.tidied.left:
        yield ""
        yield (
            f"In {_files(review.tidied.left)} a mechanical fault was left, because blanks or line ends there may be "
            "content and this reviewer cannot prove otherwise."
        )


def _good(review: Review) -> Iterator[str]:
    sources = list(review.survey.sources.values())
    if not sources:
        return
    yield "## What is good"
    yield ""
    hit = {one.finding.rule.topic for one in review.survey.found}
    clean = sorted({rule.topic for rule in RULES.values() if review.wishes.wants(rule.id)} - hit)
    yield f"- No finding about {', '.join(clean)}." if clean else "- Nothing: every topic has at least one finding."
    if review.scope.kind == "diff":
        tests = sum(source.test for source in sources)
        if tests:
            yield f"- Tests were changed along with the code: {_files(tests)}."
    failed = {one.finding.path for one in review.survey.found if one.finding.rule is PYTHON_SYNTAX}
    parsed = sum(source.suffix in PYTHON for source in sources) - len(failed) - len(review.survey.unparsed)
    if parsed and review.wishes.wants(PYTHON_SYNTAX.id):
        yield f"- {_files(parsed)} of Python parse."


def _unchecked(review: Review) -> Iterator[str]:
    yield "## What was not checked"
    yield ""
    yield "- Whether the code does what it should: nothing was run, built or installed, and no model read it."
    yield "- Languages other than Python beyond their text; YAML syntax; dependencies for known vulnerabilities."
    yield "- Duplicate functions only among the files read here; secrets only in the present tree, not in its history."
    survey = review.survey
    reasons = (
        (
            len(review.survey.older),
            "findings in these files were there before the branch and are not listed; ask for the whole tree",
        ),
        (review.over_limit, "files are beyond the number this reviewer looks at"),
        (survey.too_large, "files are too large to read; they were judged by name and size"),
        (survey.unread, "files were left unread, because the time or the bytes for one review were used up"),
        (len(survey.unparsed), "files of Python were read but, for want of time, not parsed"),
        (len(survey.unjudged), "rules about the tree as a whole were left out, because it is too large or time was up"),
    )
    yield from (f"- {number} {reason}." for number, reason in reasons if number)
    yield from (f"- {escaped(sentence)}" for sentence in survey.broken[:_SHOWN])


def _history(review: Review) -> Iterator[str]:
    if not review.past:
        return
    asked = {turn.turn: turn.instructions for turn in review.task.conversation}
    yield "## Earlier turns"
    yield ""
    for past in review.past[::-1][:_HISTORY_SHOWN]:
        counts: dict[Severity, int] = dict(zip(SEVERITIES, past.counts, strict=True))
        yield f"- Turn {past.turn} at `{past.head[:12]}`: {in_words(counts)}{_said(asked, past)}"
    if len(review.past) > _HISTORY_SHOWN:
        yield f"- and {len(review.past) - _HISTORY_SHOWN} more"


def _said(asked: dict[int, str], past: PastTurn) -> str:
    """What was asked then, if the conversation tells."""
    text = asked.get(past.turn, "").strip()
    return f", asked: {escaped(text, _QUOTED)}" if text else "."
