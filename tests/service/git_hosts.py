"""Real git hosts on loopback: `git http-backend` behind a small CGI server, and `git daemon`."""

import base64
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.lab import Received, Respond, Server, free_port
from tests.waiting import eventually


class GitHttpHost:
    """Serves the bare repositories under a folder over HTTP; with a token, only to clients that send it."""

    def __init__(self, folder: Path, token: str | None = None) -> None:
        self.seen: list[str | None] = []
        """The Authorization of each request."""
        self._folder = folder
        self._expected = None if token is None else f"Basic {_basic(token)}"
        self._server = Server().start()
        self._server.otherwise = self._serve
        self.url = self._server.origin

    def close(self) -> None:
        self._server.close()

    def _serve(self, request: Received) -> Respond:
        given = request.headers.get("authorization")
        self.seen.append(given)
        if self._expected is not None and given != self._expected:
            return Respond(401, headers={"WWW-Authenticate": 'Basic realm="git"'})
        done = subprocess.run(
            ["git", "http-backend"], input=request.body, env=self._cgi(request), capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        return Respond(int(fields.pop("Status", "200 OK").split()[0]), content, fields)

    def _cgi(self, request: Received) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self._folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "http.receivepack",
            "GIT_CONFIG_VALUE_0": "true",
            "GIT_CONFIG_KEY_1": "safe.directory",
            "GIT_CONFIG_VALUE_1": "*",
            "REQUEST_METHOD": request.method,
            "PATH_INFO": request.path,
            "QUERY_STRING": request.target.partition("?")[2],
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }


@contextlib.contextmanager
def git_daemon(folder: Path) -> Iterator[str]:
    """Serve the bare repositories under a folder with `git daemon`; yields the address they begin with."""
    port = free_port()
    process = subprocess.Popen(
        ["git", "daemon", "--listen=127.0.0.1", f"--port={port}", f"--base-path={folder}", "--export-all", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually(lambda: _listens(port), f"a git daemon on port {port}")
        yield f"git://127.0.0.1:{port}"
    finally:
        # git starts the daemon as its child; both are in the session that was made for them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _basic(token: str) -> str:
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()
