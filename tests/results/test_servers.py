"""Real servers on loopback: git never prompts, and gives up when a server is silent."""

import asyncio
import base64
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.api.network import Network
from app.results.git import GitError
from tests.lab import Received, Respond, Server
from tests.results.repository import change_of, git, repositories, run_detail
from tests.waiting import eventually

LOGIN = "Basic " + base64.b64encode(b"me:secret").decode()


def judge(request: Received) -> Respond:
    """A repository host behind a password, without repositories; `/moved` redirects."""
    if request.path.startswith("/moved"):
        return Respond(301, headers={"Location": request.target.replace("/moved", "", 1)})
    is_known = request.headers.get("authorization") == LOGIN
    return Respond(404) if is_known else Respond(401, headers={"WWW-Authenticate": "Basic realm=x"})


async def test_only_the_credential_helper_is_asked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a helper it fails at once, without a prompt on a terminal or window; redirects are not followed."""
    server.otherwise = judge
    marker = tmp_path / "asked"
    ask = tmp_path / "ask"
    ask.write_text(f"#!/bin/sh\ntouch {marker}\necho x\n")
    ask.chmod(0o755)
    monkeypatch.setenv("GIT_ASKPASS", str(ask))
    monkeypatch.setenv("SSH_ASKPASS", str(ask))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    with pytest.raises(GitError, match="could not read Username"):
        await change_of(repositories(tmp_path / "none", f"{server.origin}/origin.git"), run_detail())
    helper = "!f() { echo username=me; echo password=secret; }; f"
    git(tmp_path, "config", "--file", str(tmp_path / "gitconfig"), "credential.helper", helper)
    with pytest.raises(GitError, match="not found"):
        await change_of(repositories(tmp_path / "data", f"{server.origin}/origin.git"), run_detail())
    logged_in = [request.headers.get("authorization") for request in server.requests]
    with pytest.raises(GitError, match="moved: configure its new address"):
        await change_of(repositories(tmp_path / "moved", f"{server.origin}/moved/origin.git"), run_detail())

    assert LOGIN in logged_in
    assert {request.path.split("/")[1] for request in server.requests[len(logged_in) :]} == {"moved"}
    assert not marker.exists()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port where a server accepts connections and never sends anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("scheme", ["git", "http"])
async def test_a_silent_server_times_out_with_its_helpers(scheme: str, silent: int, tmp_path: Path) -> None:
    """Git's helper processes are stopped too, and a reader who leaves ends the fetch."""
    address = f"{scheme}://127.0.0.1:{silent}/x.git"
    with pytest.raises(GitError, match="does not answer"):
        await change_of(repositories(tmp_path / "data", address, quiet_s=0.3), run_detail())
    eventually(lambda: not waiting_for(silent), "no process is left")
    if scheme == "git":  # A fetch from this has no helper process whose command line names the port.
        return
    asking = asyncio.create_task(change_of(repositories(tmp_path / "data", address), run_detail()))
    await asyncio.to_thread(eventually, lambda: waiting_for(silent), "git waits for the server")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    eventually(lambda: not waiting_for(silent), "no process is left")


async def test_ssh_never_prompts_and_keeps_the_users_command(tmp_path: Path) -> None:
    """The command of the environment or the configuration gets the options that forbid prompts and waiting."""
    ssh, told = tmp_path / "ssh", tmp_path / "told"
    ssh.write_text(f'#!/bin/sh\necho "$@" > {told}\nexit 1\n')
    ssh.chmod(0o755)
    git(tmp_path, "config", "--file", str(tmp_path / "gitconfig"), "core.sshCommand", f"{ssh} -F mine")
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for env in ({"GIT_SSH_COMMAND": f"{ssh} -F mine"}, {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}):
        found = repositories(tmp_path / "data", "git@127.0.0.1:x.git", network=Network(env=own | env))
        with pytest.raises(GitError):
            await change_of(found, run_detail())

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
