"""One turn of work: read, check, compare with the last turn, and apply the focus."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from service.reviewer.checks.files import folders_of
from service.reviewer.finding import SEVERITIES, ReviewFinding, Severity
from service.reviewer.focus import Focus, read_focus
from service.reviewer.git import GitFiles
from service.reviewer.record import Record, RecordError, Since, compare, decode
from service.reviewer.survey import BUDGET_S, Scope, Survey, Surveyor, choose_scope
from service.reviewer.task import Task

_VERDICTS: Final = {
    Severity.BLOCKER: "Do not merge",
    Severity.MAJOR: "Changes needed",
    Severity.MINOR: "Can be merged, with remarks",
    Severity.NOTE: "Nothing found that stands in the way",
}


class NothingToReviewError(Exception):
    """There is no commit to review; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Review:
    """One turn's review."""

    task: Task
    scope: Scope
    focus: Focus
    survey: Survey
    reported: tuple[ReviewFinding, ...]
    """The branch's own findings within the focus, heaviest first."""
    beside_focus: int
    """Findings outside the focus."""
    since: Since | None = None
    """None: there is no last review to compare with."""
    since_problem: str = ""
    """Why there is none, for a turn after the first."""

    @property
    def counts(self) -> dict[Severity, int]:
        """Reported findings by severity, zeros included, heaviest first."""
        counted = Counter(one.weight for one in self.reported)
        return {severity: counted[severity] for severity in SEVERITIES}

    @property
    def verdict(self) -> str:
        """The verdict on a merge, by the counts."""
        heaviest = next((severity for severity, number in self.counts.items() if number), Severity.NOTE)
        return _VERDICTS[heaviest]

    @property
    def record(self) -> Record:
        """The data for the next turn: reported findings, and earlier ones that may still hold."""
        earlier = (*self.since.still_open, *self.since.unseen) if self.since else ()
        findings = {one.fingerprint: one for one in (*self.reported, *earlier)}
        return Record(self.scope.base is None, tuple(findings.values()))


def review(
    task: Task, git: GitFiles, last: bytes | None, say: Callable[[str], None], clock: Callable[[], float]
) -> Review:
    """Do one turn after the last review, if there is one; `clock` counts the seconds of work so far.

    Raises:
        NothingToReviewError: the branch has no commit.
        GitError: the repository cannot be read.
    """
    started = clock()
    head = git.commit("HEAD")
    if head is None:
        git.ask("rev-parse", "--git-dir")  # fails, and says why, when this is no repository at all
        raise NothingToReviewError("the branch has no commit yet; push one and start the run again")
    record, problem = None, ""
    try:
        record = decode(last)
    except RecordError as error:
        problem = str(error)
    entries, cut = git.tree(head)
    known = folders_of(entries) | entries.keys()
    focus = read_focus(task.instructions, task.inputs, known)
    # A run that read the whole tree goes on doing so: only then can two reviews be compared.
    whole = focus.whole_tree or (record is not None and record.whole_tree)
    scope = choose_scope(git, None if whole else task.default_branch, head)
    say(f"Turn {task.turn}: {len(scope.changes) or len(entries)} paths; {scope.reason}.")
    with git.blobs() as blobs:
        surveyor = Surveyor(scope, entries, None if cut else known, blobs, lambda: (clock() - started) / BUDGET_S)
        survey = surveyor.survey()
    introduced = [one for one in survey.found if one.fingerprint not in survey.older]
    say(f"Read {len(survey.sources)} files: {len(introduced)} findings, {len(survey.found) - len(introduced)} older.")
    in_focus = [one for one in introduced if focus.wants(one.rule, one.path)]
    reported = tuple(sorted(in_focus, key=lambda one: (SEVERITIES.index(one.weight), one.path, one.line, one.rule.id)))
    since = compare(record, scope, survey, reported, entries) if record else None
    return Review(task, scope, focus, survey, reported, len(introduced) - len(in_focus), since, problem)
