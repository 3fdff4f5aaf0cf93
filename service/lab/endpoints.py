"""The lab's endpoints under /_lab, which require the lab's token."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp

from service.api import errors
from service.api.app import build
from service.api.bodies import ReadBody
from service.api.context import Context
from service.api.errors import HttpError
from service.clock import CENTURY_MICROS, SECOND_MICROS, rfc3339
from service.lab import history
from service.lab.history import HistoryRequest
from service.lab.lab import PREFIX, Fault, FaultInjector, Lab
from service.page.app import with_page

_CENTURY_S = CENTURY_MICROS // SECOND_MICROS


class ClockShift(BaseModel):
    """Body of PUT /_lab/clock."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)

    offset_s: Annotated[int, Field(ge=-_CENTURY_S, le=_CENTURY_S)]


def install_lab(context: Context) -> tuple[ASGIApp, dict[str, str]]:
    """Return the application with the lab in front of it, and the `lab_token` to announce."""
    lab = Lab(context)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.context = lab.context
    app.state.lab = lab
    errors.install(app, errors.offered_by(router))
    app.include_router(router)
    return FaultInjector(lab, with_page(build(lab.context), lab.context), app), {"lab_token": lab.token}


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
async def read(lab: LabAccess) -> dict[str, object]:
    """Return the clock's offset, the faults to come, and the account of those consumed."""
    return {
        "offset_s": lab.clock.offset_s,
        "expiry_now": rfc3339(lab.clock()),
        "faults": [one.body() for one in lab.script],
        "consumed": [asdict(one) for one in lab.consumed],
        "consumed_dropped": lab.number_consumed - len(lab.consumed),
    }


@router.post("/faults", status_code=201)
async def script(lab: LabAccess, fault: Annotated[Fault, Depends(ReadBody(Fault))]) -> dict[str, object]:
    """Put a fault at the end of the script."""
    return lab.add(fault).body()


@router.put("/clock")
async def shift(lab: LabAccess, request: Annotated[ClockShift, Depends(ReadBody(ClockShift))]) -> dict[str, object]:
    """Shift the clock by which tokens expire."""
    lab.clock.offset_s = request.offset_s
    return {"offset_s": lab.clock.offset_s, "expiry_now": rfc3339(lab.clock())}


@router.post("/runs", status_code=201)
def make_history(
    lab: LabAccess, request: Annotated[HistoryRequest, Depends(ReadBody(HistoryRequest))]
) -> dict[str, object]:
    """Generate runs; answers when all of them are in the database."""
    return history.make(lab.context.database, request, lab.context.clock())


@router.post("/reset")
def reset(lab: LabAccess) -> dict[str, object]:
    """Forget script and account, set the clock right, and remove generated runs."""
    lab.script.clear()
    lab.consumed.clear()
    lab.number_consumed = lab.clock.offset_s = 0
    return {"runs_removed": history.unmake(lab.context.database)}
