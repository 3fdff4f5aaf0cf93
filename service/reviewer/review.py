"""A review as a value: everything that is known before it is written down."""

from dataclasses import dataclass

from service.reviewer.earlier import PastTurn, Record, Since, remember
from service.reviewer.finding import SEVERITIES, Identified, Severity, count
from service.reviewer.limits import HISTORY_TURNS
from service.reviewer.scope import Scope
from service.reviewer.survey import Survey
from service.reviewer.task import Task
from service.reviewer.tidy import Tidied
from service.reviewer.wishes import Wishes


@dataclass(frozen=True, slots=True)
class Review:
    """One turn's review."""

    task: Task
    scope: Scope
    wishes: Wishes
    survey: Survey
    selected: frozenset[str]
    """Paths under review: files, links and submodules."""
    reported: tuple[Identified, ...]
    """What the branch has to answer for, after fixes; heaviest first within a file."""
    tidied: Tidied
    """What this turn fixed."""
    since: Since | None
    """None: there is no earlier review to compare with."""
    since_problem: str | None
    """Why there is none although there should be."""
    past: tuple[PastTurn, ...]
    """Earlier turns, oldest first."""
    over_limit: int
    """Files beyond the limit on files."""

    @property
    def judged(self) -> frozenset[str]:
        """Paths about which this review can tell that an earlier finding is gone."""
        unread = self.survey.unread + self.survey.too_large > 0
        return frozenset(self.survey.sources) if unread else self.selected

    @property
    def counts(self) -> dict[Severity, int]:
        """Reported findings by severity."""
        return count(one.finding for one in self.reported)

    @property
    def verdict(self) -> str:
        """What the counts mean for a merge."""
        counts = self.counts
        if counts[Severity.BLOCKER]:
            return "Do not merge"
        if counts[Severity.MAJOR]:
            return "Changes needed"
        if counts[Severity.MINOR]:
            return "Can be merged, with remarks"
        return "Nothing found that stands in the way"

    @property
    def record(self) -> Record:
        """What the next turn will compare with; what was not looked at stays remembered."""
        unseen = self.since.unseen if self.since else ()
        findings = (*(remember(one) for one in self.reported), *unseen)
        return Record(self.scope.kind, findings, (*self.past, self._turn)[-HISTORY_TURNS:])

    @property
    def _turn(self) -> PastTurn:
        counts = self.counts
        return PastTurn(self.task.turn, self.scope.head, tuple(counts[severity] for severity in SEVERITIES))
