"""The shared vocabulary: frozen values that every part of the program may use.

It uses neither pydantic nor I/O, since the first screen imports it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from storage.records.activity import LinkState, PollOutcome
from storage.records.coverage import CLOCK_STEP, Coverage, CoverageGap, CoverageRange
from storage.records.health import HealthChange, HealthReport, HealthSample, HealthSpan, PlatformHealth
from storage.records.query import RunFilter, RunPage, RunSort, RunWindow, WindowRequest
from storage.records.repository import Repository
from storage.records.run import Presence, Run, RunChanges, RunDetail, RunFigures, RunRow, StatusTransition, WorkTime
from storage.records.run_fields import (
    ACTIVE_STATUSES,
    ENDING_STATUSES,
    FIELD_BY_NAME,
    FINAL_STATUSES,
    KNOWN_STATUSES,
    RUN_FIELDS,
    RUN_STATUSES,
    SORTABLE,
    STATUS_BY_NAME,
    STATUS_ORDER,
    RunField,
    RunStatus,
    Tone,
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
    from storage.records.service_traits import RunClock

_LATER: Final = ("action", "service_traits")
"""Modules imported at first use: the first screen needs none of them."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module in () if name.startswith("_") else _LATER:
            found = import_module(f"{__name__}.{module}")
            if hasattr(found, name):
                return getattr(found, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
