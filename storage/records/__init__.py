"""The shared vocabulary: frozen facts that every part of the program may hold.

No pydantic and no I/O in here: it is on the way to the first painted screen.
"""

from storage.records.action import (
    OPEN_STATES,
    Action,
    ActionError,
    ActionKind,
    ActionState,
    Resolution,
)
from storage.records.health import HealthChange, HealthReport, HealthSample, HealthSpan, PlatformHealth
from storage.records.link import LinkState, PollOutcome
from storage.records.organization import INVITATION_LIFETIME, Organization
from storage.records.page import RunPage
from storage.records.project import Project
from storage.records.query import RunFilter, RunSort, RunWindow, WindowRequest
from storage.records.repository import Repository
from storage.records.run import (
    FINAL_STATUSES,
    Coverage,
    Execution,
    Presence,
    Run,
    RunChanges,
    RunDetail,
    RunRow,
    Transition,
)

__all__ = [
    "FINAL_STATUSES",
    "INVITATION_LIFETIME",
    "OPEN_STATES",
    "Action",
    "ActionError",
    "ActionKind",
    "ActionState",
    "Coverage",
    "Execution",
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
    "Resolution",
    "Run",
    "RunChanges",
    "RunDetail",
    "RunFilter",
    "RunPage",
    "RunRow",
    "RunSort",
    "RunWindow",
    "Transition",
    "WindowRequest",
]
