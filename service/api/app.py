"""The API application: the spec's paths under /v1, and /livez, /readyz, /metrics and /hooks."""

import hmac
import os
import threading
from typing import Final

import anyio.to_thread
from fastapi import FastAPI, Request, Response, Security
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from sqlalchemy.exc import SQLAlchemyError

from service.api import errors, hooks, organizations, results, runs
from service.api.context import Context, RequestContext
from service.api.errors import HttpError, body
from service.observability.metrics import operators_token
from service.store import workers

API_VERSION: Final = "1.0.0"
PREFIX: Final = "/v1"
_ASKED_AT_ONCE: Final = 8
_DESCRIPTION: Final = (
    "Start agent runs on repositories, continue and list them, start named agents, read the health of code hosts, and "
    "create partner organizations. Operations tagged `results` go beyond the specification. Deprecations are announced "
    "in CHANGELOG.md, and a change that breaks callers gets another version in the path."
)
_BEARER: Final = HTTPBearer(auto_error=False, description="An API token: 'Authorization: Bearer rwt_…'.")


def build(context: Context) -> FastAPI:
    app = FastAPI(
        title="Code-Review Agent Service External API",
        version=API_VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    errors.install(app)
    for router in (organizations.router, runs.router, organizations.partners, results.router):
        # For the description only: service.api.auth reads the header.
        app.include_router(router, prefix=PREFIX, dependencies=[Security(_BEARER)])
    app.include_router(hooks.router)
    app.get("/metrics", include_in_schema=False)(read_metrics)
    context.tracer.instrument_app(app)

    @app.get("/livez", include_in_schema=False)
    async def livez() -> dict[str, str]:
        return {"status": "ok"}

    slots = threading.Semaphore(_ASKED_AT_ONCE)

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> JSONResponse:
        answer = await ask_database(context, slots)
        fault = context.database.write_fault
        if answer is None or fault:
            reason = "the database does not answer"
            if fault:
                reason = f"the database cannot be written: {fault}"
            return JSONResponse(body("database_unavailable", reason), 503)
        return JSONResponse(answer)

    return app


async def read_metrics(request: Request, context: RequestContext) -> Response:
    name = context.settings.metrics.token_env
    token = operators_token(name, os.environ)
    if token is None:
        raise HttpError(404, "metrics_off", f"/metrics is not offered: set {name} in the service's environment")
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(value.strip().encode("utf-8", "replace"), token.encode()):
        message = "send the token for scraping as 'Authorization: Bearer ...'; tokens of organizations do not open this"
        raise HttpError(401, "invalid_token", message, {"WWW-Authenticate": 'Bearer realm="runwarden metrics"'})
    return Response(await context.scrapes.run(context.metrics.render), media_type=CONTENT_TYPE_PLAIN_0_0_4)


async def ask_database(context: Context, slots: threading.Semaphore, deadline_s: float = 5.0) -> dict[str, str] | None:
    """Return the body of `/readyz`; None if the database does not answer in time, or all slots wait for it."""

    def facts() -> dict[str, str] | None:
        if not slots.acquire(blocking=False):
            return None
        try:
            with context.database.read() as connection:
                living = workers.heard_within(connection, context.settings.execution.worker_ttl_s, context.clock)
        except SQLAlchemyError:
            return None
        finally:
            slots.release()
        # The service is ready even without a sandbox: it accepts runs.
        missing = [worker.sandbox for worker in living if worker.has_no_sandbox]
        return {"status": "ok"} | ({"sandbox": missing[0]} if missing else {})

    with anyio.move_on_after(deadline_s):
        return await anyio.to_thread.run_sync(facts, limiter=anyio.CapacityLimiter(1), abandon_on_cancel=True)
    return None
