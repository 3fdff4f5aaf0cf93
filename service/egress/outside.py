"""An agent's access to the outside, for one turn: its proxies, and the state of its model."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from service.agents.invocation import MODEL_PORT, PROXY_PORT
from service.agents.options import AgentOptions
from service.agents.presets import allowed_models
from service.egress.budget import UsageMeter
from service.egress.key import ModelKey
from service.egress.model import ModelProxy
from service.egress.outages import ModelState, Outages, Patience
from service.egress.proxy import EgressProxy, Reporter

PROXY_DOOR: Final = "proxy.sock"
MODEL_DOOR: Final = "model.sock"


class Outside(contextlib.ExitStack):
    """The proxies of one turn; `doors` is the folder for their sockets, None: the agent has no access."""

    def __init__(
        self,
        doors: Path | None,
        options: AgentOptions,
        say: Callable[[str], None],
        meter: UsageMeter,
        patience: Patience,
    ) -> None:
        super().__init__()
        self.model = ModelState(Outages(patience, meter.is_away_for_all))
        if doors is None:
            return
        doors.mkdir(mode=0o700)
        report = Reporter(say)
        self.enter_context(EgressProxy(doors / PROXY_DOOR, options.egress or (), report))
        if options.model is not None:
            key = ModelKey(options.model)
            models = allowed_models(options)
            self.enter_context(ModelProxy(doors / MODEL_DOOR, options.model, key, meter, self.model, models, report))


def doors_of(options: AgentOptions) -> dict[int, str]:
    """Return the name of the door that each port in the sandbox leads to."""
    return {PROXY_PORT: PROXY_DOOR} | ({} if options.model is None else {MODEL_PORT: MODEL_DOOR})
