"""The model proxy: an agent's requests to its model are read, checked against lists and budget, and forwarded.

A request is sent to the provider, with the key, until there is an answer for the agent. `ModelState` has the
facts about its model that a turn needs: whether it answered, and why not.
"""

import contextlib
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from socket import socket
from typing import Final
from urllib.parse import urlsplit

import h11

from service.agents.key_command import NoKeyError, PrintedKey
from service.agents.options import ModelAccess
from service.agents.outcome import Ending, TurnFailure
from service.agents.prices import Price, price_of
from service.egress import refusals, routes
from service.egress.budget import BudgetSpentError, SpendingWatch, UsageMeter
from service.egress.http import AgentConnection, BodyError, ProviderConnection, SandboxServer
from service.egress.refusals import Refusal
from service.egress.usage import Meter
from service.network import connect
from service.settings import AgentLimits
from service.text import table

_PASSED_ON: Final = frozenset({"content-type", "accept", "user-agent", "openai-beta", "x-goog-api-client"})
_PASSED_BACK: Final = ("content-type", "retry-after", "request-id", "x-request-id")
_SUCCESS: Final = range(200, 300)
_REDIRECT: Final = range(300, 400)
_CONNECT_S: Final = 20.0
_FIRST_PAUSE_S: Final = 1.0
_JITTER: Final = 0.25
"""The share by which a pause varies, as many agents may wait for one provider."""
_LOOK_S: Final = 0.5
_NOT_THIS_KEY: Final = frozenset({401, 403})
_MAX_REFUSAL: Final = 64 << 10
_HEADER: Final = re.compile(r"[\t -~]*")
"""The text that an HTTP header can carry."""


class ModelKey:
    """The key of one turn's model; only this process sees it."""

    def __init__(self, access: ModelAccess) -> None:
        self._printed = PrintedKey("key_command", access.key_command) if access.key_command else None
        self._variable = access.key_env or ""
        self._key = os.environ.get(self._variable, "").strip()

    def get(self, refused: str | None = None) -> str:
        """Return the key. If that is the `refused` one, run the command again, which may print the same key.

        Raises:
            NoKeyError: The command printed none, or no header can carry the key of the environment.
        """
        if self._printed is not None:
            return self._printed.get(refused)
        if not _HEADER.fullmatch(self._key):
            problem = f"the key in {self._variable} holds a line break or another character that cannot be sent"
            raise NoKeyError(f"{problem}: set {self._variable} to a valid key")
        return self._key


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request that was checked."""

    method: str
    target: str
    """The provider's path with its query, without a key."""
    body: bytes
    headers: dict[str, str]
    model: str
    """The model's name; empty: the request costs nothing."""
    price: Price | None
    silent_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a turn waits without a slot."""

    failure: TurnFailure
    limit_s: float | None
    """How long the provider's limit lasts; None: the provider is down for an unknown time."""


@dataclass(eq=False)
class ModelState:
    """The state of one turn's model: its last answer, its failures, and for how long requests are held.

    `away_s` stores that the provider gave no answer (see the meter).
    """

    limits: AgentLimits
    away_s: Callable[[], float | None]
    outage_s: float = inf
    """The longest wait for the end of an outage or limit, even a known one: longer ones are for a fallback."""
    has_answered: bool = False
    trouble: TurnFailure | None = None
    """Why the last request that costs something failed; None: it was answered."""
    ending: Ending | None = None
    answered_by: str = "the model"
    """The model that gave the last answer, in words."""
    end: TurnFailure | None = None
    """Why the agent must be stopped."""
    overspent: TurnFailure | None = None
    """Why the turn fails even if its agent makes no further request."""
    pause: Pause | None = None
    """Why the turn would wait if it ended now; None: no provider is down, or only this turn gets no answer."""
    waiting: int = 0
    """How many requests are with the provider, or are held because it is down."""
    _since: float | None = None
    """When the first unanswered request was made (monotonic seconds); None: all were answered."""
    _until: float = inf
    """Until when requests may be held for the present outage or limit."""
    _silent: tuple[float, Callable[[float], Refusal]] | None = None
    """The first request since the provider's last word: its time (monotonic seconds), and the words for silence."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record_answer(self, ending: Ending | None, by: str) -> None:
        """Record a whole answer to a request that costs something."""
        with self._lock:
            self.has_answered = True
            if self.end is None:
                self._since = self.trouble = self.pause = None
            self.ending, self.answered_by = ending, by

    def fail(self, failure: TurnFailure, *, is_final: bool = False) -> None:
        """Record why a request failed; a final failure stops the agent."""
        with self._lock:
            self.trouble = failure
            self.end = self.end or (failure if is_final else None)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Count a request that is with the provider, or held."""
        with self._lock:
            self.waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self.waiting -= 1

    def record_refusal(self, asked_at: float, refusal: Refusal) -> None:
        """Record that a request got no answer that could be passed on."""
        is_limit = (refusal.wait_s or 0) > min(self.limits.model_patience_s, self.outage_s)
        away_s = self.away_s()
        with self._lock:
            self._since = self._since or asked_at
            self.pause, self._until, self._silent = None, inf, None
            if is_limit or away_s is not None:
                self.pause = Pause(refusal.failure, refusal.wait_s if is_limit else None)
                self._until = time.monotonic() - (away_s or 0) + self.outage_s

    def request_sent(self, at: float, explain: Callable[[float], Refusal]) -> None:
        """Record that a request was sent; `explain` makes a refusal of seconds of silence."""
        with self._lock:
            self._silent = self._silent or (at, explain)

    def record_reply(self) -> None:
        self._silent = None

    def record_stop(self, least_s: float) -> None:
        """Record that the agent was stopped, or gave up: a provider that was silent for `least_s` by then is down."""
        if (silent := self._silent) is not None and (silent_s := time.monotonic() - silent[0]) >= least_s:
            self.record_refusal(silent[0], silent[1](round(silent_s)))

    def record_break(self) -> bool:
        """Record that an answer broke off; return whether answers have been breaking off for `model_patience_s`."""
        now = time.monotonic()
        with self._lock:
            self._since, self.pause = self._since or now, None
            return now > self._since + self.limits.model_patience_s

    def allows(self, begun: float, until: float) -> bool:
        """Whether a request that was begun may be held until an instant (monotonic seconds)."""
        return until <= min(self._until, min(begun, self._since or begun) + self.limits.model_patience_s)


class ModelProxy(SandboxServer):
    """An agent's access to its model for one turn; this process sends the key only to the provider."""

    def __init__(
        self,
        path: Path,
        access: ModelAccess,
        meter: UsageMeter,
        state: ModelState,
        models: tuple[str, ...],
        report: Callable[[str, str], None],
    ) -> None:
        """Listen; `models`: the only ones that may be asked, empty: any. `report`: writes to the turn's log."""
        self._access = access
        self._provider = routes.PROVIDERS[access.provider]
        self._base = urlsplit(access.base_url or self._provider.base_url)
        self._key = ModelKey(access)
        self._models = models
        self._report = report
        self._state = state
        self._budget = SpendingWatch(access.budget, meter)
        super().__init__(path)

    def serve(self, inside: socket) -> None:
        inside.settimeout(self._state.limits.model_silent_s)
        agent = AgentConnection(inside)
        for request in agent.requests():
            self._answer(agent, request)

    def _answer(self, agent: AgentConnection, received: h11.Request) -> None:
        """Check a request, and answer it or refuse it."""
        state = self._state
        try:
            request = self._check(received, agent.body())
            if state.end is not None:
                agent.refuse(403, state.end.text)
                return
            self._check_price(request)
            with state.asking(), self._budget.request(len(request.body), request.price, is_free=not request.model):
                self._forward(agent, request)
        except BudgetSpentError as error:
            state.fail(TurnFailure("out_of_budget", f"{error}; the agent was stopped"), is_final=True)
            agent.refuse(403, str(error))
        except (routes.BlockedRequestError, BodyError) as error:
            self._report(str(error), f"model: {error}")
            if not isinstance(error, routes.ClosedPathError):
                state.fail(TurnFailure("failed", f"the model's proxy refused a request: {error}"))
            agent.refuse(403, str(error))
        except NoKeyError as error:
            state.fail(TurnFailure("no_key", str(error)), is_final=True)
            agent.refuse(403, str(error))
        except OSError:
            raise
        except Exception:
            text = "the use of the model cannot be recorded; the service's log says why"
            state.fail(TurnFailure("failed", text), is_final=True)
            raise

    def _check(self, received: h11.Request, body: bytes) -> ModelRequest:
        """The request as the provider gets it; `BlockedRequestError`: its path or its model is not allowed."""
        method = received.method.decode("ascii")
        route = routes.route_of(self._provider, method, received.target.decode("ascii"))
        model, is_stream = "", False
        if route.is_billed:
            document = routes.read_body(body)
            model = (route.model or str(document.get("model") or "unknown"))[:200]
            for name in (model, *routes.models_in(document)):
                routes.check_model(name, self._models)
            is_stream = bool(document.get("stream")) or "stream" in route.path
            if route.path.endswith("completions") and document.get("stream"):
                # Without this option, a stream does not report its usage.
                document["stream_options"] = table(document.get("stream_options")) | {"include_usage": True}
                body = json.dumps(document).encode()
        return ModelRequest(
            method,
            self._target(route),
            body,
            self._headers(received),
            model,
            price_of(model, self._access.prices),
            self._state.limits.model_stream_silent_s if is_stream else self._state.limits.model_silent_s,
        )

    def _target(self, route: routes.Route) -> str:
        """The path and query at the provider, whose address may have a path of its own."""
        base_path = self._base.path.rstrip("/")
        path = route.path
        if self._provider.path_prefix is not None:
            path = self._provider.path_prefix.sub("", path, count=1)
        elif base_path.endswith("/v1"):
            path = path.removeprefix("/v1")
        if route.query:
            return f"{base_path}{path}?{route.query}"
        return f"{base_path}{path}"

    def _headers(self, received: h11.Request) -> dict[str, str]:
        """The headers for the provider: the agent's, of those that it may set, and those that are configured."""
        sent = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in received.headers)
        headers = {name: value for name, value in sent if name in _PASSED_ON or name.startswith("anthropic-")}
        configured = self._access.headers
        if "anthropic-beta" in headers and "anthropic-beta" in configured:
            configured = configured | {"anthropic-beta": f"{headers['anthropic-beta']},{configured['anthropic-beta']}"}
        return headers | configured | {"accept-encoding": "identity"}

    def _check_price(self, request: ModelRequest) -> None:
        """Refuse a model without a price if there is a budget in dollars."""
        budget = self._access.budget
        if request.model and request.price is None and (budget.run_usd or budget.day_usd):
            text = f"there is no price for the model {request.model!r}: add it to prices of the agent"
            raise routes.BlockedRequestError(text)

    def _forward(self, agent: AgentConnection, request: ModelRequest) -> None:
        """Pass a request on and its answer back; while the provider is down, hold the request and repeat it."""
        begun, usual_s = time.monotonic(), _FIRST_PAUSE_S
        while (refusal := self._ask(agent, request)) is not None:
            spread = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 — no secret
            pause_s = max(min(usual_s, self._state.limits.model_pause_s) * spread, refusal.wait_s or 0)
            until = time.monotonic() + pause_s
            # Free requests, such as a list of models, are not worth waiting for.
            is_held = refusal.then == "ask_again" and bool(request.model)
            if is_held and not self._state.allows(begun, until):
                self._state.fail(refusal.failure, is_final=True)
                is_held = False
            while is_held and (left_s := until - time.monotonic()) > 0:
                is_held = not agent.is_gone() and not self.closed.wait(min(_LOOK_S, left_s))
            if not is_held:
                agent.refuse(502, refusal.failure.text)
                return
            usual_s *= 2

    def _ask(self, agent: AgentConnection, request: ModelRequest, refused: str | None = None) -> Refusal | None:
        """Send a request once, and again if there is another key than a refused one; return why no answer arrives."""
        asked_at, outside, start, status = time.monotonic(), None, b"", None
        key = self._key.get(refused)
        login = f"{self._provider.prefix}{key}".strip()
        headers = {"Host": self._base.netloc} | request.headers | {self._provider.header: login}
        with contextlib.ExitStack() as stack:
            try:
                link = connect(self._base, asked_at + _CONNECT_S)
                stack.enter_context(self.closing(link))
                link.settimeout(request.silent_s)
                outside = ProviderConnection(link)
                if request.model:
                    explain = partial(refusals.unreachable, self._access, request.model, TimeoutError())
                    self._state.request_sent(asked_at, explain)
                outside.ask(request.method, request.target, headers, request.body)
                start = outside.read()
                if request.model:
                    self._state.record_reply()
                if not start and request.model and outside.status in _SUCCESS:
                    raise ConnectionResetError("an empty answer")
                status = refusals.failed_stream(start) if outside.status in _SUCCESS else outside.status
                while status is not None and len(start) < _MAX_REFUSAL and (piece := outside.read()):
                    start += piece
            except (OSError, h11.RemoteProtocolError) as error:
                if self.closed.is_set():
                    # This side closed the connection, since the agent has exited.
                    raise ConnectionAbortedError from error
                silent_s = None if outside is None else request.silent_s
                refusal = refusals.unreachable(self._access, request.model, error, silent_s)
            else:
                if status is None:
                    self._pass_back(agent, request, outside, start, time.time() - (time.monotonic() - asked_at))
                    return None
                if status in _NOT_THIS_KEY and refused is None and self._key.get(key) != key:
                    return self._ask(agent, request, key)
                start = start.replace(key.encode(), b"[masked]") if key else start
                refusal = refusals.of_answer(self._access, request.model, status, outside.headers, start, time.time())
            if request.model or refusal.then == "stop":
                self._state.fail(refusal.failure, is_final=refusal.then == "stop")
            if outside is None or not outside.status or refusal.then == "ask_again":
                if request.model:
                    self._state.record_refusal(asked_at, refusal)
                return refusal
            _begin(agent, outside)
            agent.send(start)
            agent.finish()
        return None

    def _pass_back(
        self, agent: AgentConnection, request: ModelRequest, outside: ProviderConnection, start: bytes, asked_at: float
    ) -> None:
        meter = Meter(len(request.body), outside.headers.get("content-type", ""))
        _begin(agent, outside)
        is_complete, held = False, start
        try:
            meter.feed(start)
            # All of the answer is read even if the agent has gone, so that its tokens are counted. Its last piece is
            # held until they are: an agent that has its answer may exit.
            while piece := outside.read():
                agent.send(held)
                held = piece
                meter.feed(piece)
            is_complete = not request.model or meter.is_whole
        except (OSError, h11.RemoteProtocolError):
            pass  # Ignore the rest of the answer.
        finally:
            if request.model:
                spent = self._budget.add(request.model, meter.total(is_complete=is_complete), request.price, asked_at)
                if spent is not None:
                    # The agent may still follow this answer, and its changes are kept.
                    self._state.overspent = TurnFailure("out_of_budget", f"{spent}; the agent's last answer passed it")
        # Recorded before the last piece is sent: an agent that has it may exit.
        if request.model and not is_complete:
            broken = refusals.broken_off(self._access, request.model, meter.error)
            self._state.fail(broken, is_final=self._state.record_break())
        elif request.model:
            self._state.record_answer(meter.ending, f"{request.model} of {self._access.shown}")
        agent.send(held)
        if is_complete:
            agent.finish()
        else:
            # The program has seen the beginning, so only the program can ask again.
            agent.break_off()


def _begin(agent: AgentConnection, outside: ProviderConnection) -> None:
    # A redirect is an error and is not followed: the key is for one host only.
    status = 502 if outside.status in _REDIRECT else outside.status
    agent.begin(status, [(name, outside.headers[name]) for name in _PASSED_BACK if name in outside.headers])
