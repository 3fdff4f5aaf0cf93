"""The lab's endpoints under /_lab, opened by its own token."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.api import errors
from service.api.bodies import ReadBody
from service.api.errors import HttpError, bad_request
from service.clock import CENTURY_MICROS, SECOND_MICROS, parse_duration, parse_rfc3339, rfc3339
from service.lab import history
from service.lab.faults import Fault
from service.lab.lab import PREFIX, Lab
from service.store.agents import DEFAULT_NAME

_CENTURY_S = CENTURY_MICROS // SECOND_MICROS
_TEAM_RUNS = 100_000


class ClockShift(BaseModel):
    """Body of PUT /_lab/clock."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)

    offset_s: Annotated[int, Field(ge=-_CENTURY_S, le=_CENTURY_S)]


class HistoryRequest(BaseModel):
    """Body of POST /_lab/runs."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)

    organization: str
    """Slug or id."""
    runs: Annotated[int, Field(ge=1, le=10_000_000)]
    seed: int = 1
    span: str = "90d"
    until: str | None = None
    """RFC 3339; None: now."""
    active: Annotated[int, Field(ge=0)] = 0
    repositories: Annotated[int, Field(ge=1, le=99)] = 12
    agents: Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(min_length=1, max_length=20)] = [
        DEFAULT_NAME
    ]
    rhythm: Literal["even", "team"] = "even"

    @model_validator(mode="after")
    def _fits(self) -> "HistoryRequest":
        if self.rhythm == "team" and (self.active or self.runs > _TEAM_RUNS):
            raise ValueError(f"the rhythm of a team has no active runs, and at most {_TEAM_RUNS:,}")
        return self


def build(lab: Lab) -> FastAPI:
    """Return the application that answers under /_lab."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.context = lab.context
    app.state.lab = lab
    errors.install(app, errors.offered_by(router))
    app.include_router(router)
    return app


def _authorized(request: Request) -> Lab:
    lab: Lab = request.app.state.lab
    if not lab.authorizes(request.headers.get("authorization")):
        raise HttpError(
            401,
            "invalid_token",
            "the lab opens to its own token, the lab_token of the line that serve printed",
            {"WWW-Authenticate": 'Bearer realm="runwarden-lab"'},
        )
    return lab


router = APIRouter(prefix=PREFIX)
LabAccess = Annotated[Lab, Depends(_authorized)]


@router.get("")
def read(lab: LabAccess) -> dict[str, object]:
    """Return the clock's offset, the faults to come, and the account of those consumed."""
    consumed, dropped = lab.script.account()
    return {
        "offset_s": lab.clock.offset_s,
        "expiry_now": rfc3339(lab.clock()),
        "faults": lab.script.pending(),
        "consumed": consumed,
        "consumed_dropped": dropped,
    }


@router.post("/faults", status_code=201)
def script(lab: LabAccess, fault: Annotated[Fault, Depends(ReadBody(Fault))]) -> dict[str, object]:
    """Put a fault on the script."""
    return lab.script.add(fault).body()


@router.put("/clock")
def shift(lab: LabAccess, request: Annotated[ClockShift, Depends(ReadBody(ClockShift))]) -> dict[str, object]:
    """Shift the clock by which tokens expire."""
    lab.clock.offset_s = request.offset_s
    return {"offset_s": lab.clock.offset_s, "expiry_now": rfc3339(lab.clock())}


@router.post("/runs", status_code=201)
def make_history(
    lab: LabAccess, request: Annotated[HistoryRequest, Depends(ReadBody(HistoryRequest))]
) -> dict[str, object]:
    """Generate runs; answers when all of them are in the database."""
    try:
        span = parse_duration(request.span)
        until = lab.context.clock() if request.until is None else parse_rfc3339(request.until, round_up=False)
    except ValueError as error:
        raise bad_request("invalid_request", str(error)) from error
    if until <= span:
        raise bad_request("invalid_request", "the span begins before 1970")
    if until > lab.context.clock() + CENTURY_MICROS:
        raise bad_request("invalid_request", "until: more than 100 years from now")
    spec = history.HistorySpec(
        organization=request.organization,
        runs=request.runs,
        seed=request.seed,
        span_micros=span,
        until=until,
        active=request.active,
        repositories=request.repositories,
        agents=tuple(request.agents),
        team=request.rhythm == "team",
    )
    try:
        return history.make(lab.context.database, spec)
    except history.UnknownOrganizationError as error:
        raise HttpError(404, "organization_not_found", str(error)) from error
    except history.HistoryExistsError as error:
        raise HttpError(409, "made_already", str(error)) from error


@router.post("/reset")
def reset(lab: LabAccess) -> dict[str, object]:
    """Forget script and account, set the clock right, and remove generated runs."""
    lab.script.clear()
    lab.clock.offset_s = 0
    return {"runs_removed": history.unmake(lab.context.database)}
