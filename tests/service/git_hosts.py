"""Real git hosts on loopback: `git http-backend` behind a small CGI server, and `git daemon`."""

import base64
import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.fault_server import free_port

READY_S = 20.0


class GitHttpHost:
    """Serves the bare repositories under a folder over HTTP; with a token, to nobody who does not send it."""

    def __init__(self, folder: Path, token: str | None = None) -> None:
        self.seen: list[str | None] = []
        """The Authorization of each request."""
        self._folder = folder
        self._expected = None if token is None else f"Basic {_basic(token)}"
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host._serve(self)

            def do_POST(self) -> None:
                host._serve(self)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        given = request.headers["Authorization"]
        self.seen.append(given)
        body = request.rfile.read(int(request.headers["Content-Length"] or 0))
        if self._expected is not None and given != self._expected:
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="git"')
            request.end_headers()
            return
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=self._cgi(request), capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        request.send_response(int(fields.pop("Status", "200 OK").split()[0]))
        for name, value in fields.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content)

    def _cgi(self, request: BaseHTTPRequestHandler) -> dict[str, str]:
        parts = urlsplit(request.path)
        return {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self._folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "http.receivepack",
            "GIT_CONFIG_VALUE_0": "true",
            "GIT_CONFIG_KEY_1": "safe.directory",
            "GIT_CONFIG_VALUE_1": "*",
            "REQUEST_METHOD": request.command,
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "CONTENT_TYPE": request.headers["Content-Type"] or "",
            "HTTP_CONTENT_ENCODING": request.headers["Content-Encoding"] or "",
            "GIT_PROTOCOL": request.headers["Git-Protocol"] or "",
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
        _await_port(port)
        yield f"git://127.0.0.1:{port}"
    finally:
        # git starts the daemon as its child; both are in the session that was made for them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, f"no git daemon on port {port}"
        else:
            return


def _basic(token: str) -> str:
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()
