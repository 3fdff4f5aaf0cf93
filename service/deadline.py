"""Deadlines on sockets: a peer that sends byte by byte, and so never meets a time-out, is cut off."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def cut_off(after_s: float, socket_of: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Shut a socket down when the block takes longer: a pending read or write then fails or ends.

    The socket's own time-out starts again with each byte.
    """

    def shut_down() -> None:
        open_socket = socket_of()
        if open_socket is not None:
            with contextlib.suppress(OSError):
                # Not the TLS wrapper's own method: after it, the connection would continue in clear text.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    timer = threading.Timer(after_s, shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
