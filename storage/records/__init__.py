"""The shared vocabulary: frozen values that every part of the program may use.

It uses neither pydantic nor I/O, since the first screen imports it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from storage.records.activity import LinkState, PollOutcome
from storage.records.coverage import Coverage, CoverageGap, CoverageRange, RereadCoverage
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
    StatusTransition,
    WorkTime,
)

if TYPE_CHECKING:
    from storage.records.action import (
        INVITATION_LIFETIME,
        OPEN_STATES,
        UNUSED_STATES,
        Action,
        ActionError,
        ActionFilter,
        ActionKind,
        ActionState,
        AuditEntry,
        Author,
        Execution,
        Organization,
        Project,
        Resolution,
        Surface,
    )
    from storage.records.service_traits import DateFilter, Habit, RunClock, ServiceTraits

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
    "RereadCoverage",
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
    "StatusTransition",
    "Surface",
    "WindowRequest",
    "WorkTime",
]

_LATER: Final = ("action", "service_traits")
"""Modules imported at first use: the first screen needs none of them."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module in _LATER if name in __all__ else ():
            found = import_module(f"{__name__}.{module}")
            if hasattr(found, name):
                return getattr(found, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
