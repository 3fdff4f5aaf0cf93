"""The application: the spec's paths under /v1, and nothing else that answers without a token but /livez."""

from typing import Final

from fastapi import FastAPI

from service.api import agents, failures, gitlab, health, organizations, run_list, runs
from service.api.context import Context

API_VERSION: Final = "1.0.0"
PREFIX: Final = "/v1"


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
    routers = [module.router for module in (organizations, run_list, runs, agents, health, gitlab)]
    failures.install(app, [offer for router in routers for offer in failures.offered_by(router, PREFIX)])
    for router in routers:
        app.include_router(router, prefix=PREFIX)

    @app.get("/livez", include_in_schema=False)
    def livez() -> dict[str, str]:
        return {"status": "ok"}

    return app
