"""GET /external/installation/health: how the connected code hosts are, asked just now (spec 2.7, 4.5)."""

from typing import Any

from fastapi import APIRouter

from service.api.auth import AnyCaller
from service.api.context import Services
from service.api.failures import ApiFailureError, documented
from service.store import hosts, repositories

router = APIRouter()


@router.get("/external/installation/health", responses=documented())
def installation_health(context: Services, caller: AnyCaller) -> dict[str, Any]:
    """Answer with a key for each connected platform; any valid token may ask."""
    with context.database.read() as connection:
        connected = hosts.of(connection, caller.organization.id)
        known = repositories.of(connection, caller.organization.id)
    if not connected:
        raise ApiFailureError(
            404, "no_code_host", "no code host is connected; connect one with runwarden service host connect"
        )
    found = context.probes.ask(connected, known)
    body: dict[str, dict[str, str]] = {}
    for host in connected:
        body[host.platform] = {"status": found[host.platform].status}
        if host.platform == "gitlab":
            body[host.platform] |= {"host": host.host} | ({"group": host.group} if host.group else {})
    return {"code_hosting": body}
