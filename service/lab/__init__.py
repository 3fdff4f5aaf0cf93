"""The lab: faults, time and history on demand, for testing clients of the service. It must be switched on."""

from starlette.types import ASGIApp

from service.api.app import build
from service.api.context import Context
from service.lab import endpoints
from service.lab.lab import FaultInjector, Lab


def install_lab(context: Context) -> tuple[ASGIApp, dict[str, str]]:
    """Return the application with the lab in front of it, and the `lab_token` to announce."""
    lab = Lab(context)
    return FaultInjector(lab, build(lab.context), endpoints.build(lab)), {"lab_token": lab.token}
