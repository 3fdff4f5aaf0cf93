"""The application: the spec's paths under /v1, and nothing else but /livez, /readyz and, for operators, /metrics."""

from typing import Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from service.api import code_hosts, errors, metrics, organizations, run_list, runs
from service.api.context import Context
from service.api.errors import body
from service.api.threads import Threads

API_VERSION: Final = "1.0.0"
PREFIX: Final = "/v1"
_ASKED_AT_ONCE: Final = 2


def build(context: Context) -> FastAPI:
    """Return the application over a context."""
    app = FastAPI(
        title="Code-Review Agent Service External API",
        version=API_VERSION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    routers = [module.router for module in (organizations, run_list, runs, code_hosts)]
    offered = [offer for router in routers for offer in errors.offered_by(router, PREFIX)]
    errors.install(app, [*offered, *errors.offered_by(metrics.router)])
    for router in routers:
        app.include_router(router, prefix=PREFIX)
    app.include_router(metrics.router)
    context.tracer.instrument_app(app)

    # Neither waits for a thread that requests use.
    threads = Threads(_ASKED_AT_ONCE)

    @app.get("/livez", include_in_schema=False)
    async def livez() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> JSONResponse:
        def ask() -> None:
            with context.database.read() as connection:
                connection.execute(text("SELECT 1"))

        try:
            await threads.run(ask)
        except SQLAlchemyError:
            return JSONResponse(body("database_unavailable", "the database does not answer"), 503)
        return JSONResponse({"status": "ok"})

    return app
