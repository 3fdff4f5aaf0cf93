"""A server on a unix socket that is visible in a sandbox. A thread serves each connection."""

import contextlib
import os
import socket
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, Self

_AT_ONCE: Final = 64


class SandboxServer(ABC):
    """A listening socket; closing it closes every connection through it."""

    @abstractmethod
    def serve(self, inside: socket.socket) -> None:
        """Serve one connection of the agent."""

    def __init__(self, path: Path) -> None:
        """Listen; connections may come at once."""
        self._open: set[socket.socket] = set()
        self.closed = threading.Event()
        """The event that is set when the agent has ended."""
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self._listener = socket.socket(socket.AF_UNIX)
        # Through the folder's descriptor, as the path of a unix socket has at most 107 bytes.
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self._listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        self._listener.listen(_AT_ONCE)
        threading.Thread(target=self._accept, name="sandbox-server", daemon=True).start()

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Accept no more connections, and close those that are open."""
        self.closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def register(self, connection: socket.socket) -> None:
        """Register an outgoing connection, so that closing the server closes it too."""
        with self._lock:
            self._open.add(connection)

    def release(self, connection: socket.socket) -> None:
        """Close a connection that has ended."""
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def _accept(self) -> None:
        # This thread closes the listener: otherwise accept() could continue with a new socket of the same number.
        with self._listener:
            while True:
                try:
                    connection, _ = self._listener.accept()
                except OSError:
                    return
                self._free.acquire()
                threading.Thread(target=self._one, args=(connection,), name="sandbox-connection", daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        self.register(connection)
        try:
            self.serve(connection)
        except OSError:
            # Either side closed its connection, so there is nothing to answer.
            pass
        finally:
            self.release(connection)
            self._free.release()
