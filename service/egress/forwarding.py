"""Forwarding: sends a checked request to the provider, with the key, until there is an answer for the agent."""

import contextlib
import os
import random
import re
import time
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import h11

from service.agents.options import ModelAccess
from service.agents.outcome import TurnFailure
from service.agents.prices import Price
from service.egress import refusals
from service.egress.budget import SpendingWatch
from service.egress.http import AgentConnection, ProviderConnection, SandboxServer
from service.egress.outages import ModelState
from service.egress.refusals import Refusal
from service.egress.routes import PROVIDERS
from service.egress.usage import Meter
from service.key_command import NoKeyError, PrintedKey
from service.network import connect

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
            what = f"the key in {self._variable} holds a line break or another character that cannot be sent"
            raise NoKeyError(f"{what}: set {self._variable} to a valid key")
        return self._key


_PASSED_BACK: Final = ("content-type", "retry-after", "request-id", "x-request-id")
_SUCCESS: Final = range(200, 300)
_REDIRECT: Final = range(300, 400)
_CONNECT_S: Final = 20.0
_FIRST_PAUSE_S: Final = 1.0
_SPREAD: Final = 0.25
"""The share by which a pause varies, as many agents may wait for one provider."""
_LOOK_S: Final = 0.5
_NOT_THIS_KEY: Final = frozenset({401, 403})
_LONGEST_REFUSAL: Final = 64 << 10


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
    """How long the provider may be silent."""


class Forwarder:
    """Forwards the requests of one turn; closing the `server` closes its connections."""

    def __init__(
        self, access: ModelAccess, key: ModelKey, budget: SpendingWatch, state: ModelState, server: SandboxServer
    ) -> None:
        self._access = access
        self._provider = PROVIDERS[access.provider]
        self._base = urlsplit(access.base_url or self._provider.base_url)
        self._key = key
        self._budget = budget
        self._state = state
        self._server = server

    def forward(self, agent: AgentConnection, request: ModelRequest) -> None:
        """Pass a request on and its answer back; while the provider is down, hold the request and repeat it."""
        begun, usual_s = time.monotonic(), _FIRST_PAUSE_S
        while True:
            refusal = self._ask(agent, request)
            if refusal is None:
                return
            spread = random.uniform(1 - _SPREAD, 1 + _SPREAD)  # noqa: S311 — no secret
            pause_s = max(min(usual_s, self._state.outages.patience.pause_s) * spread, refusal.wait_s or 0)
            # What costs nothing, such as a list of models, is not worth waiting for.
            is_held = refusal.then == "ask_again" and bool(request.model)
            if not is_held or not self._hold(agent, begun, pause_s, refusal.failure):
                agent.refuse(502, refusal.failure.text)
                return
            usual_s *= 2

    def _hold(self, agent: AgentConnection, begun: float, pause_s: float, failure: TurnFailure) -> bool:
        """Wait before a request is repeated; False: time is up, or the agent has gone."""
        until = time.monotonic() + pause_s
        if not self._state.outages.allows(begun, until):
            self._state.fail(failure, is_final=True)
            return False
        while (left_s := until - time.monotonic()) > 0:
            if agent.is_gone() or self._server.closed.wait(min(_LOOK_S, left_s)):
                return False
        return True

    def _ask(self, agent: AgentConnection, request: ModelRequest, refused: str | None = None) -> Refusal | None:
        """Make a request once, and pass the answer back; return why there is none to pass back.

        A key that was refused is replaced once, if there is another.
        """
        asked_at, outside, start, status = time.monotonic(), None, b"", None
        key = self._key.get(refused)
        login = f"{self._provider.prefix}{key}".strip()
        headers = {"Host": self._base.netloc} | request.headers | {self._provider.header: login}
        with contextlib.ExitStack() as stack:
            try:
                link = connect(self._base, asked_at + _CONNECT_S)
                stack.callback(self._server.release, link)
                self._server.register(link)
                link.settimeout(request.silent_s)
                outside = ProviderConnection(link)
                if request.model:
                    explain = partial(refusals.unreachable, self._access, request.model, TimeoutError())
                    self._state.outages.asked(asked_at, explain)
                outside.ask(request.method, request.target, headers, request.body)
                start = outside.read()
                if request.model:
                    self._state.outages.heard()
                if not start and request.model and outside.status in _SUCCESS:
                    raise ConnectionResetError("an empty answer")
                status = refusals.failed_stream(start) if outside.status in _SUCCESS else outside.status
                while status is not None and len(start) < _LONGEST_REFUSAL and (piece := outside.read()):
                    start += piece
            except (OSError, h11.RemoteProtocolError) as error:
                if self._server.closed.is_set():
                    # Cut by this side, as the agent has ended.
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
                given = (status, outside.headers, start, time.time())
                refusal = refusals.answered(self._access, request.model, *given)
            if request.model or refusal.then == "stop":
                self._state.fail(refusal.failure, is_final=refusal.then == "stop")
            if outside is None or not outside.status or refusal.then == "ask_again":
                if request.model:
                    self._state.outages.refused(asked_at, refusal)
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
            pass  # The rest of the answer is lost.
        finally:
            if request.model:
                usage = meter.total(is_complete=is_complete)
                spent = self._budget.add(request.model, usage, request.price, asked_at)
                if spent is not None:
                    # The agent may still follow this answer, and its changes are kept.
                    self._state.overspent = TurnFailure("out_of_budget", f"{spent}; the agent's last answer passed it")
        # Recorded before the last piece is sent: an agent that has it may exit.
        if request.model and not is_complete:
            broken = refusals.broken_off(self._access, request.model, meter.error)
            self._state.fail(broken, is_final=self._state.outages.broke_off())
        elif request.model:
            self._state.answered(meter.ending, f"{request.model} of {self._access.shown}")
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
