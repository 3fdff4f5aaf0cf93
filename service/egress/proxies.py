"""An agent's access to the network, for one turn: its proxies, and the state of its model."""

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

PROXY_SOCKET: Final = "proxy.sock"
MODEL_SOCKET: Final = "model.sock"


class TurnProxies(contextlib.ExitStack):
    """The proxies of one turn; `folder` is for their sockets, None: the agent has no access."""

    def __init__(
        self,
        folder: Path | None,
        options: AgentOptions,
        say: Callable[[str], None],
        meter: UsageMeter,
        patience: Patience,
    ) -> None:
        super().__init__()
        self.model = ModelState(Outages(patience, meter.away_s))
        if folder is None:
            return
        folder.mkdir(mode=0o700)
        report = Reporter(say)
        self.enter_context(EgressProxy(folder / PROXY_SOCKET, options.egress or (), report))
        if options.model is not None:
            key = ModelKey(options.model)
            models = allowed_models(options)
            self.enter_context(ModelProxy(folder / MODEL_SOCKET, options.model, key, meter, self.model, models, report))


def sockets_of(options: AgentOptions) -> dict[int, str]:
    """Return the name of the socket that each port in the sandbox leads to."""
    return {PROXY_PORT: PROXY_SOCKET} | ({} if options.model is None else {MODEL_PORT: MODEL_SOCKET})
