"""The model proxy: an agent's requests to its model are read, checked against lists and budget, and forwarded."""

import json
from collections.abc import Callable
from pathlib import Path
from socket import socket
from typing import Final
from urllib.parse import urlsplit

import h11

from service.agents.options import ModelAccess
from service.agents.outcome import TurnFailure
from service.agents.prices import price_of
from service.egress.budget import BudgetSpentError, SpendingWatch, UsageMeter
from service.egress.forwarding import Forwarder, ModelKey, ModelRequest
from service.egress.http import AgentConnection, BodyError, SandboxServer
from service.egress.outages import ModelState
from service.egress.routes import (
    PROVIDERS,
    BlockedRequestError,
    ClosedPathError,
    check_model,
    models_in,
    read_body,
    route_of,
)
from service.key_command import NoKeyError
from service.text import table

_PASSED_ON: Final = frozenset({"content-type", "accept", "user-agent", "openai-beta", "x-goog-api-client"})


class ModelProxy(SandboxServer):
    """An agent's access to its model for one turn; this process sends `key` only to the provider."""

    def __init__(
        self,
        path: Path,
        access: ModelAccess,
        key: ModelKey,
        meter: UsageMeter,
        state: ModelState,
        models: tuple[str, ...] = (),
        report: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """Listen; `models`: the only ones that may be asked, empty: any. `report`: writes to the turn's log."""
        self._access = access
        self._provider = PROVIDERS[access.provider]
        self._base_path = urlsplit(access.base_url or self._provider.base_url).path.rstrip("/")
        self._models = models
        self._report = report
        self._state = state
        self._budget = SpendingWatch(access, meter)
        self._forwarder = Forwarder(access, key, self._budget, state, self)
        super().__init__(path)

    def serve(self, inside: socket) -> None:
        """Answer the requests of one connection."""
        inside.settimeout(self._state.outages.patience.silent_s)
        agent = AgentConnection(inside)
        for request in agent.requests():
            self._answer(agent, request)

    def _answer(self, agent: AgentConnection, asked: h11.Request) -> None:
        try:
            body, method = agent.body(), asked.method.decode("ascii")
            route = route_of(self._provider, method, asked.target.decode("ascii"))
            model, is_stream, path = "", False, route.path
            if route.is_billed:
                document = read_body(body)
                model = (route.model or str(document.get("model") or "unknown"))[:200]
                for name in (model, *models_in(document)):
                    check_model(name, self._models)
                is_stream = bool(document.get("stream")) or "stream" in path
                if path.endswith("completions") and document.get("stream"):
                    # Without this option, a stream does not report its usage.
                    document["stream_options"] = table(document.get("stream_options")) | {"include_usage": True}
                    body = json.dumps(document).encode()
            given = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in asked.headers)
            headers = {name: value for name, value in given if name in _PASSED_ON or name.startswith("anthropic-")}
            own = self._access.headers
            if "anthropic-beta" in headers and "anthropic-beta" in own:
                own = own | {"anthropic-beta": f"{headers['anthropic-beta']},{own['anthropic-beta']}"}
            headers |= own | {"accept-encoding": "identity"}
            if self._provider.place is not None:
                suffix = self._provider.place.sub("", path, count=1)
            else:
                suffix = path.removeprefix("/v1") if self._base_path.endswith("/v1") else path
            target = f"{self._base_path}{suffix}{f'?{route.query}' if route.query else ''}"
            patience = self._state.outages.patience
            silent_s = patience.stream_silent_s if is_stream else patience.silent_s
            price = price_of(model, self._access.prices)
            request = ModelRequest(method, target, body, headers, model, price, silent_s)
            if self._state.end is not None:
                agent.refuse(403, self._state.end.text)
                return
            budget = self._access.budget
            if request.model and request.price is None and (budget.run_usd or budget.day_usd):
                text = f"there is no price for the model {request.model!r}: add it to prices of the agent"
                raise BlockedRequestError(text)  # noqa: TRY301 — refused as any other
            self._state.count(1)
            try:
                with self._budget.request(len(request.body), request.price, is_free=not request.model):
                    self._forwarder.forward(agent, request)
            finally:
                self._state.count(-1)
        except BudgetSpentError as error:
            self._state.fail(TurnFailure("out_of_budget", f"{error}; the agent was stopped"), is_final=True)
            agent.refuse(403, str(error))
        except (BlockedRequestError, BodyError) as error:
            self._report(str(error), f"model: {error}")
            if not isinstance(error, ClosedPathError):
                self._state.fail(TurnFailure("failed", f"the model's proxy refused a request: {error}"))
            agent.refuse(403, str(error))
        except NoKeyError as error:
            self._state.fail(TurnFailure("no_key", str(error)), is_final=True)
            agent.refuse(403, str(error))
        except OSError:
            raise
        except Exception:
            text = "the use of the model cannot be recorded; the service's log says why"
            self._state.fail(TurnFailure("failed", text), is_final=True)
            raise
