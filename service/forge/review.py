"""One review for each agent on a pull request, which is brought up to date after each push.

The service finds its comments by the marks in them, so a repetition after a crash posts only missing ones. A finding
whose thread someone else resolved, whose comment was deleted or whose box was ticked is not posted again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final
from urllib.parse import quote

from service.findings import IdentifiedFinding, count_severities
from service.forge import ForgeError, PostedText, ReviewComment, Thread
from service.forge.handlers import Forge, Subject, code_block, in_code, inert, own_account
from service.store.postings import POSTED, Posted

_MARK: Final = "<!-- runwarden:"
"""The beginning of a mark; text from outside cannot hold one where marks are read."""
_MAX_LIST: Final = 30_000
"""The characters of the list; GitHub accepts 65,536 for the whole text, with the data in its mark."""
_REMEMBERED: Final = 500
_MAX_COMMENTS: Final = 50
"""The most comments that one push adds; further findings are listed in the review's text."""
_PATIENCE: Final = 6
"""How many attempts wait for a pull request to show the push that was reviewed."""
_MAX_FAULTS: Final = 3
"""How often the forge may fail at a comment before the findings that are left go into the text."""
_HEAD: Final = re.compile(r"refs/(?:pull|merge-requests)/([0-9]{1,9})/head")
Lines = Mapping[str, frozenset[int]]
Findings = Sequence[IdentifiedFinding]


@dataclass(frozen=True, slots=True)
class Report:
    """An agent's findings at a commit."""

    agent: str
    commit: str
    found: tuple[IdentifiedFinding, ...]
    origin: str
    """The run that found this, as Markdown."""


def post_review(forge: Forge, subject: Subject) -> Posted:
    """Post a turn's findings to the pull request of its branch, or to the one whose head it read."""
    posting, run = subject.posting, subject.run
    commit = str(posting.wanted["commit"])
    # The one whose head the run read, or that of its branch, if possible an open one.
    head = _HEAD.fullmatch(run.head_ref or "")
    pulls = [forge.pull_request(int(head[1]))] if head else forge.pull_requests(run.branch)
    current = next((pull for pull in pulls if pull.state == "open"), next(iter(pulls), None))
    if current is None:
        if (linked := subject.linked) is not None and linked.state == POSTED:
            return Posted(linked.url, linked.failure)
        raise ForgeError(f"the branch {run.branch} has no pull request yet", status=404)
    if current.state != "open":
        return Posted(current.url, f"pull request {current.number} is {current.state}, and was not reviewed")
    if current.head != commit:
        text = f"pull request {current.number} is at {current.head}, and {commit} was reviewed"
        if posting.attempts > _PATIENCE:
            return Posted(current.url, text)
        raise ForgeError(text, status=409)
    findings = tuple(map(IdentifiedFinding.model_validate, posting.wanted["findings"]))
    report = Report(run.agent, commit, findings, subject.origin)
    bring_up_to_date(forge, current.number, report, is_lasting=posting.attempts >= _MAX_FAULTS)
    return Posted(current.url)


def bring_up_to_date(forge: Forge, number: int, report: Report, *, is_lasting: bool = False) -> None:
    """Bring an agent's review of a pull request up to date with its findings.

    `is_lasting`: a forge that failed often by itself fails at one of the comments.

    Raises:
        ForgeError: The forge did not accept everything; the next attempt finds the accepted part.
    """
    lines = forge.diff_lines(number)
    try:
        _update(forge, number, report, lines)
    except ForgeError as error:
        if not error.is_final and (error.is_unreachable or not is_lasting):
            raise
        # The forge does not accept one of the comments, so the rest goes into the text.
        _update(forge, number, report, {})


def _update(forge: Forge, number: int, report: Report, lines: Lines) -> None:
    """Post new findings, then resolve the threads of gone ones; the text comes last, as it reports both."""
    marks = Marks(report.agent)
    earlier = _earlier(forge, number, marks)
    threads = earlier.threads
    review = earlier.review
    dismissed = earlier.dismissed
    if review is None and not report.found and not threads:
        return
    new = [finding for finding in report.found if finding.id not in threads.keys() | dismissed]
    located = [(finding.id, comment) for finding in new if (comment := _comment_at(finding, lines, marks))]
    comments = located[:_MAX_COMMENTS]
    commented = {key for key, _ in comments}
    reported = {finding.id for finding in report.found}
    gone = threads.keys() - reported - earlier.resolved
    back = (threads.keys() & reported & earlier.resolved) - dismissed
    remembered = {
        "posted": threads.keys() | commented | earlier.posted,
        "closed": (earlier.resolved - dismissed | gone) - back,
        "dismissed": dismissed,
    }
    open_ones = [finding for finding in report.found if finding.id not in dismissed]
    in_text = [finding for finding in new if finding.id not in commented]
    text = _body(report, open_ones, in_text, marks, remembered)
    if comments or review is None:
        forge.post_review(number, report.commit, text if review is None else "", [comment for _, comment in comments])
    for is_resolved, keys in ((True, gone), (False, back)):
        for key, thread in threads.items():
            if key in keys:
                forge.resolve(number, thread, is_resolved=is_resolved)
    if review is not None and review.body.replace("\r", "").strip() != text:
        forge.edit(review, text)


@dataclass(frozen=True, slots=True)
class _Earlier:
    """An agent's earlier review of a pull request; all but the review are of findings, by their ids."""

    review: PostedText | None
    threads: dict[str, Thread]
    posted: set[str]
    resolved: set[str]
    dismissed: set[str]
    """Those that a user resolved, deleted or ticked, now or before."""


def _earlier(forge: Forge, number: int, marks: "Marks") -> _Earlier:
    account = own_account(forge)
    own_threads = [thread for thread in forge.threads(number) if account in {None, thread.author.lower()}]
    # A forge crash may have duplicated a thread; the first one counts.
    threads = {key: thread for thread in reversed(own_threads) if (key := marks.id_of(thread.body)) is not None}
    reviews = (posted for posted in forge.reviews(number) if account in {None, posted.author.lower()})
    review = next((posted for posted in reviews if marks.memory_of(posted.body) is not None), None)
    memory = {} if review is None else marks.memory_of(review.body) or {}
    posted = memory.get("posted", set())
    resolved = {key for key, thread in threads.items() if thread.is_resolved}
    if account is None:
        by_users = resolved - memory.get("closed", set())
    else:
        by_users = {key for key in resolved if (threads[key].resolved_by or "").lower() != account}
    dismissed = memory.get("dismissed", set()) | by_users | (posted - threads.keys())
    return _Earlier(review, threads, posted, resolved, dismissed)


def _comment_at(finding: IdentifiedFinding, lines: Lines, marks: "Marks") -> ReviewComment | None:
    """Return the comment on a finding at its lines; None: the diff does not show its first one."""
    first, visible = finding.line, lines.get(finding.path, frozenset())
    if first is None or first not in visible:
        return None
    end = finding.end_line or first
    last = end if visible.issuperset(range(first, end + 1)) else first
    text = comment(finding, marks, may_replace=first == end)
    return ReviewComment(finding.path, last, text, first if first < last else None)


class Marks:
    """The hidden marks in one agent's comments, by which it finds its own again and leaves those of others alone."""

    def __init__(self, agent: str) -> None:
        key = quote(agent, safe="").replace("-", "%2D")
        self._review = f"{_MARK}{key} review "
        self._finding = f"{_MARK}{key} finding "
        self._id = re.compile(rf"{re.escape(self._finding)}([0-9a-f]{{16}}) -->\s*\Z")
        self._ticked = re.compile(rf"(?m)^- \[[xX]\] .*{re.escape(self._finding)}([0-9a-f]{{16}}) -->$")

    def finding(self, finding_id: str) -> str:
        return f"{self._finding}{finding_id} -->"

    def id_of(self, comment: str) -> str | None:
        """Return the finding of a comment by the mark at its very end; None: the service did not write it."""
        match = self._id.search(comment.replace("\r", ""))
        return None if match is None else match[1]

    def review(self, memory: Mapping[str, set[str]]) -> str:
        """Return the mark of a review, with the data for the next one."""
        newest = {key: sorted(ids)[-_REMEMBERED:] for key, ids in memory.items()}
        return f"{self._review}{json.dumps(newest, separators=(',', ':'))} -->"

    def memory_of(self, review: str) -> dict[str, set[str]] | None:
        """Return the data in a review of the service, with the ticked findings; None: it is another's review."""
        text = review.replace("\r", "").rstrip()
        _, mark, rest = text.rpartition(self._review)
        if not mark or not rest.endswith(" -->") or "\n" in rest:
            return None
        try:
            document = json.loads(rest.removesuffix(" -->"))
            memory = {key: {str(name) for name in ids} for key, ids in document.items()}
        except (ValueError, AttributeError, TypeError):
            memory = {}
        memory["dismissed"] = memory.get("dismissed", set()) | set(self._ticked.findall(text))
        return memory


def comment(finding: IdentifiedFinding, marks: Marks, *, may_replace: bool) -> str:
    """Return the text of a comment at a line; `may_replace`: it is a single line, which a suggestion can replace."""
    parts = [_head(finding), inert(finding.message)]
    if finding.suggestion:
        parts.append(code_block(finding.suggestion, "suggestion" if may_replace else ""))
    return "\n\n".join([*filter(None, parts), marks.finding(finding.id)])


def _body(report: Report, findings: Findings, listed: Findings, marks: Marks, memory: Mapping[str, set[str]]) -> str:
    """Return the text of a review; `listed`: findings on lines outside the diff."""
    summary = count_severities(finding.severity for finding in findings) or "nothing"
    lines = [f"{in_code(report.agent)} found {summary}."]
    if listed:
        items = []
        for finding in listed:
            place = finding.path if finding.line is None else f"{finding.path}:{finding.line}"
            items.append(f"- [ ] {in_code(place)} {_head(finding)} {marks.finding(finding.id)}")
        fitting = [item for item, size in zip(items, accumulate(map(len, items)), strict=True) if size <= _MAX_LIST]
        lines += ["", "Not at a line of this diff:", "", *fitting]
        if len(fitting) < len(items):
            lines.append(f"- and {len(items) - len(fitting)} more")
    hint = ""
    if findings:
        hint = " Resolve a thread, or tick a box, and its finding is not posted again."
    return "\n".join([*lines, "", f"{report.origin}{hint}", "", marks.review(memory)])


def _head(finding: IdentifiedFinding) -> str:
    rule = f" {in_code(finding.rule)}" if finding.rule else ""
    return f"**{finding.severity}**{rule}: {inert(finding.title)}"
