"""Real servers on loopback: they are asked without questions, and given up when they say nothing."""

import asyncio
import base64
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app.api.network import Network
from app.results.git import GitError
from tests.results.repository import Origin, git, repositories, run_detail
from tests.waiting import eventually

LOGIN = "Basic " + base64.b64encode(b"me:secret").decode()
BACKEND = Path(git(Path("/"), "--exec-path").decode().strip()) / "git-http-backend"
CGI = {"CONTENT_TYPE": "Content-Type", "GIT_PROTOCOL": "Git-Protocol", "HTTP_CONTENT_ENCODING": "Content-Encoding"}


class Backend(BaseHTTPRequestHandler):
    """git-http-backend behind a password; `/moved` redirects."""

    root: Path

    def do_GET(self) -> None:
        if self.path.startswith("/moved"):
            self.send_response(301)
            self.send_header("Location", self.path.replace("/moved", "", 1))
            self.end_headers()
        elif self.headers.get("Authorization") != LOGIN:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic realm=x")
            self.end_headers()
        else:
            self._run()

    do_POST = do_GET

    def _run(self) -> None:
        path, _, query = self.path.partition("?")
        env = {name: self.headers.get(header, "") for name, header in CGI.items()}
        env |= {"GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": self.command}
        env |= {"PATH_INFO": path, "QUERY_STRING": query, "REMOTE_USER": "me", "PATH": os.environ["PATH"]}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run([BACKEND], input=body, env=env, check=True, capture_output=True)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(rest)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "host")
    origin.commit("agent/x", {"code.py": b"def f():\n    return 2\n"}, mark="run_1 turn 1")
    return origin


@pytest.fixture
def http(origin: Origin) -> Iterator[str]:
    if not BACKEND.exists():
        pytest.skip("git-http-backend is not installed")
    handler = type("Handler", (Backend,), {"root": origin.bare.parent})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port where a server accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_your_credential_helper_is_asked_and_nothing_else(
    http: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one it fails at once, with no question on any terminal or window; a redirect is not followed."""
    marker = tmp_path / "asked"
    ask = tmp_path / "ask"
    ask.write_text(f"#!/bin/sh\ntouch {marker}\necho x\n")
    ask.chmod(0o755)
    monkeypatch.setenv("GIT_ASKPASS", str(ask))
    monkeypatch.setenv("SSH_ASKPASS", str(ask))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    with pytest.raises(GitError, match="could not read Username"):
        await repositories(tmp_path / "none", f"{http}/origin.git").change(run_detail())
    helper = "!f() { echo username=me; echo password=secret; }; f"
    git(tmp_path, "config", "--file", str(tmp_path / "gitconfig"), "credential.helper", helper)
    change = await repositories(tmp_path / "data", f"{http}/origin.git").change(run_detail())
    with pytest.raises(GitError, match="moved: configure its new address"):
        await repositories(tmp_path / "moved", f"{http}/moved/origin.git").change(run_detail())

    assert [file.path for file in change.files] == ["code.py"]
    assert not marker.exists()


@pytest.fixture
def daemon(origin: Origin) -> Iterator[str]:
    program = BACKEND.parent / "git-daemon"
    if not program.exists():
        pytest.skip("git-daemon is not installed")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ("--listen=127.0.0.1", f"--port={port}", f"--base-path={origin.bare.parent}", "--export-all")
    with subprocess.Popen([program, *options, "--reuseaddr"], stderr=subprocess.DEVNULL) as process:
        eventually(lambda: not socket.socket().connect_ex(("127.0.0.1", port)), "the daemon listens")
        yield f"git://127.0.0.1:{port}"
        process.terminate()


async def test_the_git_protocol_serves_contents_with_filters_and_without(
    origin: Origin, daemon: str, tmp_path: Path
) -> None:
    """A server without filters sends everything at once; the change is the same."""
    filtered = await repositories(tmp_path / "a", f"{daemon}/origin.git").change(run_detail())
    git(origin.bare, "config", "uploadpack.allowFilter", "false")
    whole = await repositories(tmp_path / "b", f"{daemon}/origin.git").change(run_detail())

    assert filtered.patch == whole.patch
    assert b"return 2" in whole.patch


@pytest.mark.parametrize("scheme", ["git", "http"])
async def test_a_silent_server_is_given_up_with_all_that_waits_for_it(scheme: str, silent: int, tmp_path: Path) -> None:
    """Also git's helper, which would outlive it."""
    found = repositories(tmp_path / "data", f"{scheme}://127.0.0.1:{silent}/x.git", quiet_s=0.3)
    with pytest.raises(GitError, match="does not answer"):
        await found.change(run_detail())

    eventually(lambda: not waiting_for(silent), "no process is left")


async def test_a_reader_who_leaves_ends_the_fetch(silent: int, tmp_path: Path) -> None:
    """A cancelled question leaves no process behind."""
    found = repositories(tmp_path / "data", f"http://127.0.0.1:{silent}/x.git")
    asking = asyncio.create_task(found.change(run_detail()))
    await asyncio.to_thread(eventually, lambda: waiting_for(silent), "git waits for the server")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    eventually(lambda: not waiting_for(silent), "no process is left")


async def test_ssh_asks_no_questions_and_keeps_the_persons_own_command(tmp_path: Path) -> None:
    """The command of the environment or of the configuration gets the options that forbid questions and waiting."""
    ssh, told = tmp_path / "ssh", tmp_path / "told"
    ssh.write_text(f'#!/bin/sh\necho "$@" > {told}\nexit 1\n')
    ssh.chmod(0o755)
    git(tmp_path, "config", "--file", str(tmp_path / "gitconfig"), "core.sshCommand", f"{ssh} -F mine")
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for env in ({"GIT_SSH_COMMAND": f"{ssh} -F mine"}, {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}):
        found = repositories(tmp_path / "data", "git@127.0.0.1:x.git", network=Network(env=own | env))
        with pytest.raises(GitError):
            await found.change(run_detail())

        assert told.read_text().startswith("-F mine -oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=15")
        told.unlink()


def waiting_for(port: int) -> list[str]:
    """The command lines of the processes that name this port."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines.append((folder / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if f"127.0.0.1:{port}/" in line]
