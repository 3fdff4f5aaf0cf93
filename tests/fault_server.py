"""The former name of the lab's server."""

from tests.lab import Drip, Drop, Flood, Hang, Raw, Received, Respond, Server, Step, free_port

__all__ = ["Drip", "Drop", "FaultServer", "Flood", "Hang", "Raw", "Received", "Respond", "Step", "free_port"]


class FaultServer(Server):
    """A server that listens from its construction on."""

    def __init__(self) -> None:
        super().__init__()
        self.start()
