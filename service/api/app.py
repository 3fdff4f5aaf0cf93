"""The application: the spec's paths under /v1, and nothing else that answers without a token but /livez."""

import asyncio
import json
from typing import Any, Final

import h11
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.api import code_hosts, errors, organizations, run_list, runs
from service.api.context import Context
from service.api.errors import body

API_VERSION: Final = "1.0.0"
PREFIX: Final = "/v1"
TRANSPORT: Final = "runwarden.transport"
"""Key in the ASGI scope's `state`: the connection's transport."""
_NO_HTTP: Final = body("malformed_request", "the request is not HTTP/1.1, or its head is too large")


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
    errors.install(app, [offer for router in routers for offer in errors.offered_by(router, PREFIX)])
    for router in routers:
        app.include_router(router, prefix=PREFIX)

    @app.get("/livez", include_in_schema=False)
    def livez() -> dict[str, str]:
        return {"status": "ok"}

    return app


class HttpProtocol(H11Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Hand the transport to the application: the lab breaks real connections."""
        super().connection_made(transport)
        self.app_state: dict[str, Any] = {**self.app_state, TRANSPORT: transport}

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 — uvicorn's signature; its text is always the same
        """Answer anything but HTTP with a failure body (spec 7.2), and close."""
        if self.conn.our_state in {h11.SEND_RESPONSE, h11.IDLE}:
            raw = json.dumps(_NO_HTTP).encode()
            headers = [("Content-Type", "application/json"), ("Content-Length", str(len(raw))), ("Connection", "close")]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=raw),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
