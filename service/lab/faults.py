"""Faults: scripted by operation, each consumed a counted number of times, and an account of it."""

import itertools
import re
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Operation = Literal["create_organization", "list_runs", "start_run", "start_agent", "read_health", "onboard_project"]

_PATHS: Final[tuple[tuple[str, re.Pattern[str], Operation], ...]] = (
    ("POST", re.compile("/v1/external/organizations"), "create_organization"),
    ("GET", re.compile("/v1/external/runs"), "list_runs"),
    ("POST", re.compile("/v1/external/runs"), "start_run"),
    ("POST", re.compile("/v1/external/agents/[^/]+/runs"), "start_agent"),
    ("GET", re.compile("/v1/external/installation/health"), "read_health"),
    ("POST", re.compile("/v1/external/gitlab/projects"), "onboard_project"),
)
Kind = Literal["status", "delay", "reset", "lose_answer", "truncate", "drip", "partial"]
HeaderText = Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,200}$")]
_ACCOUNTED: Final = 10_000
"""The account keeps this many entries; older ones are dropped, and counted."""


def operation_of(method: str, path: str) -> Operation | None:
    """Return the operation that a request calls; None when it calls none."""
    return next((name for verb, pattern, name in _PATHS if verb == method and pattern.fullmatch(path)), None)


class Fault(BaseModel):
    """A scripted fault, as POST /_lab/faults takes it."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)

    operation: Operation | Literal["any"]
    kind: Kind
    times: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """How many requests it affects."""
    delay_s: Annotated[float, Field(ge=0, le=3600)] = 0
    """The pause before anything else happens."""
    status: Annotated[int, Field(ge=400, le=599)] | None = None
    """For `status`: the answer in place of the operation."""
    retry_after: HeaderText | None = None
    """For `status`: the header Retry-After, seconds or a date, as it is."""
    message: str | None = None
    error_code: str | None = None
    keep_bytes: Annotated[int, Field(ge=0)] | None = None
    """For `truncate`: how much of the body is sent; half of it if left out."""
    interval_s: Annotated[float, Field(ge=0, le=60)] = 0.1
    """For `drip`: the pause after each byte of the body."""

    @model_validator(mode="after")
    def _fits(self) -> "Fault":
        if (self.kind == "status") != (self.status is not None):
            raise ValueError("status belongs to the kind 'status', which needs it")
        if self.kind == "partial" and self.operation != "create_organization":
            raise ValueError("'partial' is a fault of create_organization")
        if self.kind == "delay" and not self.delay_s:
            raise ValueError("'delay' needs delay_s")
        return self


@dataclass(slots=True)
class PendingFault:
    """A scripted fault, and how many requests it will still affect."""

    id: int
    fault: Fault
    left: int

    def body(self) -> dict[str, object]:
        """Return its form in an answer."""
        return {"id": self.id, "left": self.left} | self.fault.model_dump(exclude_none=True)


@dataclass(slots=True)
class ConsumedFault:
    """One request that a fault hit."""

    fault_id: int
    operation: Operation
    kind: Kind
    path: str
    at: str
    executed_status: int | None = None
    """The operation's own answer; None: it was not executed."""
    ended: bool = False
    """True once the fault is over: the answer is sent, or the connection gone."""


class FaultScript:
    """The script: faults are consumed in the order in which they were added."""

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._pending: list[PendingFault] = []
        self._account: list[ConsumedFault] = []
        self._dropped = 0

    def add(self, fault: Fault) -> PendingFault:
        """Put a fault at the end of the script."""
        with self._lock:
            made = PendingFault(next(self._ids), fault, fault.times)
            self._pending.append(made)
            return made

    def take(self, operation: Operation, path: str) -> tuple[Fault, ConsumedFault] | None:
        """Consume the first fault that is meant for an operation."""
        with self._lock:
            for one in self._pending:
                if one.fault.operation in {operation, "any"}:
                    one.left -= 1
                    if one.left == 0:
                        self._pending.remove(one)
                    entry = ConsumedFault(one.id, operation, one.fault.kind, path, self._now())
                    self._enter(entry)
                    return one.fault, entry
        return None

    def pending(self) -> list[dict[str, object]]:
        """Return the remaining faults."""
        with self._lock:
            return [one.body() for one in self._pending]

    def account(self) -> tuple[list[dict[str, object]], int]:
        """Return the consumed faults, oldest first, and how many older entries were dropped."""
        with self._lock:
            return [asdict(one) for one in self._account], self._dropped

    def clear(self) -> None:
        """Forget the script and the account."""
        with self._lock:
            self._pending.clear()
            self._account.clear()
            self._dropped = 0

    def _enter(self, entry: ConsumedFault) -> None:
        self._account.append(entry)
        if len(self._account) > _ACCOUNTED:
            del self._account[0]
            self._dropped += 1
