"""`/metrics`: the numbers of all organizations, for the operator's Prometheus alone."""

from typing import Final

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from service.api.context import Services
from service.api.errors import ApiError

router = APIRouter()
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="runwarden metrics"'}


@router.get("/metrics", include_in_schema=False)
async def read_metrics(request: Request, context: Services) -> Response:
    """Answer a scrape."""
    found = context.exposition
    if found is None:
        name = context.settings.metrics.token_env
        raise ApiError(404, "metrics_off", f"/metrics is not offered: set {name} in the service's environment")
    if not found.admits(request.headers.get("authorization", "")):
        text = "send the token for scraping as 'Authorization: Bearer ...'; tokens of organizations do not open this"
        raise ApiError(401, "invalid_token", text, _CHALLENGE)
    return Response(await context.scrapes.run(found.metrics.render), media_type=CONTENT_TYPE_PLAIN_0_0_4)
