"""The lab: faults, time and history on demand, for those who test clients of the service. Never on by itself."""

from starlette.types import ASGIApp

from service.api.app import build
from service.api.context import Context
from service.lab import desk
from service.lab.lab import Faulty, Lab


def installed(context: Context) -> tuple[ASGIApp, dict[str, str]]:
    """Return the application with the lab before it, and what is announced of it: the `lab_token`."""
    lab = Lab(context)
    return Faulty(lab, build(lab.context), desk.build(lab)), {"lab_token": lab.token}
