"""The shared vocabulary: frozen facts that every part of the program may hold.

No pydantic and no I/O in here: it is on the way to the first painted screen.
"""

from storage.records.action import (
    OPEN_STATES,
    UNUSED_STATES,
    Action,
    ActionError,
    ActionFilter,
    ActionKind,
    ActionState,
    AuditEntry,
    Author,
    Resolution,
    Surface,
)
from storage.records.activity import LinkState, PollOutcome
from storage.records.coverage import Coverage, CoverageGap, CoverageRange, Reread
from storage.records.created import INVITATION_LIFETIME, Execution, Organization, Project
from storage.records.health import HealthChange, HealthReport, HealthSample, HealthSpan, PlatformHealth
from storage.records.query import RunFilter, RunPage, RunSort, RunWindow, WindowRequest
from storage.records.repository import Repository
from storage.records.run import (
    ACTIVE_STATUSES,
    FINAL_STATUSES,
    Presence,
    Run,
    RunChanges,
    RunDetail,
    RunRow,
    Took,
    Transition,
)
from storage.records.traits import DateFilter, Habit, RunClock, ServiceTraits

__all__ = [
    "ACTIVE_STATUSES",
    "FINAL_STATUSES",
    "INVITATION_LIFETIME",
    "OPEN_STATES",
    "UNUSED_STATES",
    "Action",
    "ActionError",
    "ActionFilter",
    "ActionKind",
    "ActionState",
    "AuditEntry",
    "Author",
    "Coverage",
    "CoverageGap",
    "CoverageRange",
    "DateFilter",
    "Execution",
    "Habit",
    "HealthChange",
    "HealthReport",
    "HealthSample",
    "HealthSpan",
    "LinkState",
    "Organization",
    "PlatformHealth",
    "PollOutcome",
    "Presence",
    "Project",
    "Repository",
    "Reread",
    "Resolution",
    "Run",
    "RunChanges",
    "RunClock",
    "RunDetail",
    "RunFilter",
    "RunPage",
    "RunRow",
    "RunSort",
    "RunWindow",
    "ServiceTraits",
    "Surface",
    "Took",
    "Transition",
    "WindowRequest",
]
