"""A real git host on loopback: `git http-backend` behind a small CGI server."""

import base64
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.lab import Received, Respond, Server, Step
from tests.service_process import commit_stream, git


def push(
    bare: Path, branch: str, files: Mapping[str, str], onto: str = "", more: str = "", message: str = "theirs"
) -> str:
    """Push files to a branch of a bare repository, as somebody else would, and return the commit.

    `onto` is its parent, by default the branch itself; `more` are lines for git's fast-import.
    """
    stream = commit_stream(branch, message, files, f"{onto or f'refs/heads/{branch}'}^0", more)
    git("fast-import", "--quiet", "--force", cwd=bare, stdin=stream)
    return git("rev-parse", branch, cwd=bare)


def marked(bares: Iterable[Path]) -> Counter[str]:
    """Return how often each turn (`RUN turn NUMBER`) is marked on a commit of a branch."""
    form = "--format=%(trailers:key=Runwarden-Run,valueonly,separator=%x2C)"
    return Counter(line for bare in bares for line in git("log", "--branches", form, cwd=bare).splitlines() if line)


class GitHttpHost(Server):
    """Serves the bare repositories under a folder over HTTP; with a token, only to clients that send it."""

    def __init__(self, folder: Path, token: str | None = None, **listening: Any) -> None:
        super().__init__(**listening)
        self.seen: list[str | None] = []
        """The Authorization header of each request."""
        self.fault: Callable[[Received], Step | None] = lambda _: None
        """Returns an answer in place of git's, if any."""
        self._folder = folder
        self.accept(token)
        self.otherwise = self.serve
        self.start()

    def accept(self, token: str | None) -> None:
        """Accept only this token; None: no token is needed."""
        credentials = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        self._expected = None if token is None else f"Basic {credentials}"

    def serve(self, request: Received) -> Step:
        if (fault := self.fault(request)) is not None:
            return fault
        credentials = request.headers.get("authorization")
        self.seen.append(credentials)
        if self._expected is not None and credentials != self._expected:
            return Respond(401, headers={"WWW-Authenticate": 'Basic realm="git"'})
        result = subprocess.run(
            ["git", "http-backend"], input=request.body, env=self._cgi(request), capture_output=True, check=True
        )
        head, _, content = result.stdout.partition(b"\r\n\r\n")
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
