"""Queries for runs: the filter, the order, the groups, the page or window, and the results."""

from bisect import bisect_left
from collections.abc import Collection
from datetime import datetime
from operator import itemgetter
from typing import Final, Literal, Self, get_args

from msgspec import Struct
from msgspec.structs import replace

from storage.records.coverage import Coverage, CoverageGap
from storage.records.results import SEVERITIES
from storage.records.run import ACTIVE_STATUSES, Run, RunRow

GroupBy = Literal["repository", "branch"]
GROUPINGS: Final[tuple[GroupBy, ...]] = get_args(GroupBy)
UNFOLDED: Final = "unfolded"
FINDINGS: Final = (*SEVERITIES, "any", "none", "unknown")
"""The values by which findings are filtered."""


class Grouping(Struct, frozen=True):
    """The grouping, and the groups folded to one line."""

    by: GroupBy
    is_folded: bool = True
    others: frozenset[str] = frozenset()
    """The groups that differ from the rest in being folded or not."""

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parse the result of `str`; None: no grouping."""
        name, _, folding = text.partition(" ")
        return next((cls(by, folding != UNFOLDED) for by in GROUPINGS if by == name), None)

    def __str__(self) -> str:
        return self.by if self.is_folded else f"{self.by} {UNFOLDED}"


class RunGroup(Struct, frozen=True):
    """The runs of one repository or branch, in numbers."""

    name: str
    runs: int
    failed: int = 0
    stuck: int = 0
    active: int = 0
    others: int = 0
    """How many further groups it covers; 0: it is one group."""
    is_folded: bool = True

    @property
    def rows(self) -> int:
        """The rows that follow its head."""
        return 0 if self.is_folded else self.runs


class Suggestion(Struct, frozen=True):
    """A text that completes the part of a query under the cursor."""

    start: int
    """Index of the first character that it replaces."""
    end: int
    """Index behind the last one."""
    insert: str
    about: str = ""


class RunFilter(Struct, frozen=True):
    """A filter whose conditions must all hold; an empty condition excludes nothing."""

    statuses: tuple[str, ...] = ()
    not_statuses: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    """Labels; `*` matches anything, as in `acme/*`."""
    not_repositories: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    """Names; `*` matches anything, as in `agent/*`."""
    not_branches: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    """Names; `*` matches any, and an empty one stands for an unknown agent."""
    not_agents: tuple[str, ...] = ()
    """A run whose agent is unknown passes neither this condition nor the one above."""
    findings: tuple[str, ...] = ()
    """Severities, or other `FINDINGS`."""
    not_findings: tuple[str, ...] = ()
    """A run whose findings are unknown passes neither this condition nor the one above."""
    since: datetime | None = None
    """The earliest creation, inclusive."""
    until: datetime | None = None
    """The latest creation, inclusive."""
    search: str = ""
    """Words that must all occur, in any case, in run id, repository, branch, instructions, result or agent."""
    active: bool = False
    """Only runs whose status is not known to be final."""
    ended: bool = False
    """Only runs whose status is known to be final."""
    stuck: bool = False
    """Only runs that are flagged as stuck; known to the cache alone."""
    followed: bool = False
    """Only runs that are followed from here; known to the cache alone."""

    def __bool__(self) -> bool:
        return self != RunFilter()

    @property
    def is_scan(self) -> bool:
        """Whether every run may have to be searched: no index leads to words or patterns."""
        patterns = (*self.repositories, *self.branches, *self.agents)
        excluded = self.not_repositories or self.not_branches or self.not_agents
        return bool(self.search or excluded or any("*" in pattern for pattern in patterns))

    def gaps_in(self, coverage: Coverage) -> tuple[CoverageGap, ...]:
        """The gaps that may hold matching runs, newest first."""
        asked_for = CoverageGap(self.since, self.until)
        if self.is_of_active or self.followed:
            return ()
        return tuple(gap for gap in coverage.gaps if gap.overlaps(asked_for))

    @property
    def undecided(self) -> Self | None:
        """The filter for runs that may or may not match; None if every run is known to match or not."""
        if "unknown" in self.findings or "" in self.agents:
            return None
        if self.findings or self.not_findings:
            return replace(self, findings=("unknown",), not_findings=())
        if self.agents or self.not_agents:
            return replace(self, agents=("",), not_agents=())
        return None

    @property
    def is_of_active(self) -> bool:
        """Whether only active runs match: they are requested by status, however old they are."""
        is_active = bool(self.statuses) and set(ACTIVE_STATUSES).issuperset(self.statuses)
        return is_active or self.active or self.stuck

    def lets_status_through(self, status: str, final_statuses: Collection[str]) -> bool:
        if self.statuses and status not in self.statuses:
            return False
        is_excluded = self.active if status in final_statuses else self.ended
        return not is_excluded and status not in self.not_statuses


class RunSort(Struct, frozen=True):
    """An order of runs; the run id breaks ties, so that it is total."""

    column: str = "started"
    descending: bool = True


class WindowRequest(Struct, frozen=True):
    """A window of rows, as a table asks for it."""

    condition: RunFilter
    sort: RunSort
    offset: int
    """The first row, as of the table's last reading."""
    limit: int
    anchor_id: str | None = None
    """The run that must not move on the screen. None: the table rests at its top."""
    anchor_index: int = 0
    """Its row when it was last read."""
    cursor_id: str | None = None
    cursor_index: int = 0
    is_fresh: bool = True
    """False: neither runs nor condition changed since the last read, so anchor and cursor are where they were."""
    grouping: Grouping | None = None


class RunWindow(Struct, frozen=True):
    """Rows of a table, with their positions."""

    total: int = 0
    """Rows of the whole table."""
    offset: int = 0
    rows: tuple[RunRow, ...] = ()
    shift: int = 0
    """The number of rows by which the anchor moved down since the request."""
    cursor_index: int | None = None
    """The row of the cursor's run. None: the request named none, or it is no longer in the table."""
    gaps: tuple[tuple[int, CoverageGap], ...] = ()
    """Rows, by number and in order, in place of runs which are not held."""
    heads: tuple[tuple[int, RunGroup], ...] = ()
    """Rows, by number and in order, that head a group."""
    matching: int | None = None
    """Runs of the whole table where folded groups hide some. None: each has its row."""

    @property
    def runs(self) -> int:
        if self.matching is None:
            return self.total - len(self.gaps)
        return self.matching

    def row(self, index: int) -> RunRow | None:
        """The run of the row of that number, if it is here."""
        position = self._run_at(index) - self._run_at(self.offset)
        is_run = self.gap(index) is None and self.head(index) is None
        is_here = self.offset <= index and position < len(self.rows) and is_run
        return self.rows[position] if is_here else None

    def gap(self, index: int) -> CoverageGap | None:
        return next((gap for number, gap in self.gaps if number == index), None)

    def head(self, index: int) -> RunGroup | None:
        """The group whose head is in the row of that number, or None."""
        at = bisect_left(self.heads, index, key=itemgetter(0))
        if at < len(self.heads) and self.heads[at][0] == index:
            return self.heads[at][1]
        return None

    def group_at(self, index: int) -> RunGroup | None:
        """The group of the row with that number, whether the row is its head or one of its runs."""
        return next((group for number, group in reversed(self.heads) if number <= index), None)

    def row_of_run(self, run_id: str) -> int | None:
        """The number of the row with this run, if it is here."""
        indexes = range(self.offset, self.offset + len(self.rows) + len(self.gaps) + len(self.heads))
        return next((index for index in indexes if (row := self.row(index)) is not None and row.run_id == run_id), None)

    def holds(self, first: int, last: int) -> bool:
        """Whether all rows from first to last are loaded; rows beyond the table's end do not count."""
        end = self._run_at(min(last, self.total - 1) + 1)
        return self.offset <= max(0, first) and end <= self._run_at(self.offset) + len(self.rows)

    def _run_at(self, index: int) -> int:
        """The number of runs above the row of that number."""
        heads = bisect_left(self.heads, index, key=itemgetter(0))
        return index - sum(number < index for number, _ in self.gaps) - heads


class RunPage(Struct, frozen=True):
    """Runs, newest first, and the way to the next page."""

    runs: tuple[Run, ...]
    next_token: str | None
    """None: this was the last page (the service may say so with null, an empty string or by leaving it out)."""
    total_count: int | None = None
    """The total as received, if it is a number; never trusted for paging, since the spec does not define it."""
    dropped: int = 0
    """Entries that had no usable id."""
    repeated: frozenset[str] = frozenset()
    """Runs that an earlier page of the same walk had; only a walk knows."""
