"""The shared vocabulary: frozen values that every part of the program may use.

It uses neither pydantic nor I/O, since the first screen imports it.
"""

from storage.records.action import (
    OPEN_STATES,
    UNUSED_STATES,
    WRITE_KINDS,
    Action,
    ActionFailure,
    ActionFilter,
    ActionKind,
    ActionState,
    AuditEntry,
    Author,
    Resolution,
    SettledState,
    Surface,
)
from storage.records.activity import LinkState, PollOutcome, RunClock, link_of
from storage.records.coverage import CLOCK_STEP, Coverage, CoverageGap, CoverageRange
from storage.records.health import HealthChange, HealthSample, HealthSpan, PlatformHealth
from storage.records.query import RunFilter, RunPage, RunSort, RunWindow, WindowRequest
from storage.records.run import (
    ACTIVE_STATUSES,
    CANCELLED,
    ENDING_STATUSES,
    FIELD_BY_NAME,
    FINAL_STATUSES,
    KNOWN_STATUSES,
    RUN_STATUSES,
    SORTABLE,
    STATUS_BY_NAME,
    STATUS_ORDER,
    ActiveRun,
    Presence,
    Repository,
    Run,
    RunChanges,
    RunDetail,
    RunField,
    RunRow,
    RunStatus,
    RunSummary,
    StatusTransition,
    Tone,
    WorkTime,
)
