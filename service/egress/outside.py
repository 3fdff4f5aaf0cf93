"""An agent's access to the outside, for one turn: its proxies, and the failures that they noticed."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from service.agents.invocation import MODEL_PORT, PROXY_PORT
from service.agents.options import AgentOptions
from service.agents.outcome import Ending, TurnFailure
from service.agents.presets import allowed_models
from service.egress.budget import UsageMeter
from service.egress.key import ModelKey
from service.egress.model import ModelProxy
from service.egress.outages import Pause
from service.egress.proxy import EgressProxy, Reporter

PROXY_DOOR: Final = "proxy.sock"
MODEL_DOOR: Final = "model.sock"


class Outside:
    """The proxies of one turn; `doors` is the folder for their sockets, None: the agent has no access."""

    def __init__(
        self,
        doors: Path | None,
        options: AgentOptions,
        say: Callable[[str], None],
        meter: UsageMeter,
        patience_s: float,
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._model: ModelProxy | None = None
        if doors is None:
            return
        doors.mkdir(mode=0o700)
        report = Reporter(say)
        self._stack.enter_context(EgressProxy(doors / PROXY_DOOR, options.egress or (), report))
        if options.model is not None:
            key = ModelKey(options.model)
            models = allowed_models(options)
            proxy = ModelProxy(doors / MODEL_DOOR, options.model, key, meter, patience_s, models, report)
            self._model = self._stack.enter_context(proxy)

    def __enter__(self) -> Self:
        """Return this access."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the proxies."""
        self._stack.close()

    @property
    def is_waiting(self) -> bool:
        """Whether the agent waits for its model, or the model answers."""
        return self._model is not None and self._model.waiting > 0

    @property
    def pause(self) -> Pause | None:
        """What the turn waits for if its agent ends now; None: for nothing."""
        return None if self._model is None else self._model.pause

    @property
    def has_answered(self) -> bool:
        """Whether the model answered at all."""
        return self._model is not None and self._model.has_answered

    @property
    def end(self) -> TurnFailure | None:
        """Why the agent has to be ended; None: it may run on."""
        return None if self._model is None else self._model.end

    @property
    def overspent(self) -> TurnFailure | None:
        """Why the turn fails although the agent ended by itself; None: its budget is not spent."""
        return None if self._model is None else self._model.overspent

    @property
    def ending(self) -> Ending | None:
        """How the model's last answer ended; None: as it should, or it is not known."""
        return None if self._model is None else self._model.ending

    @property
    def answered_by(self) -> str:
        """The model that gave the last answer, in words."""
        return "the model" if self._model is None else self._model.answered_by

    @property
    def trouble(self) -> TurnFailure | None:
        """Why the last request to the model failed; None: it was answered, or the agent has no model."""
        return None if self._model is None else self._model.trouble


def doors_of(options: AgentOptions) -> dict[int, str]:
    """Return the name of the door that each port in the sandbox leads to."""
    return {PROXY_PORT: PROXY_DOOR} | ({} if options.model is None else {MODEL_PORT: MODEL_DOOR})
