"""git as a child process: it can be killed, never prompts, and reads no foreign argument as an option.

Fetching uses the person's own configuration and credentials; reading uses none of it, because a configuration names
programs (diff.external, textconv, filters, hooks) that git would run.
"""

import asyncio
import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from app.api.network import TRUST, Network
from app.engine.processes import end_group, signal_group, start_program
from app.engine.text import safe_text
from storage import RunwardenError

_FOREIGN: Final = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
        *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_NAMESPACE", "GIT_EXTERNAL_DIFF", "GIT_REPLACE_REF_BASE"),
    }
)
"""Variables of a hook or a script around us that would lead git to another repository."""
_PASSED_ON: Final = ("PATH", "GIT_EXEC_PATH", "TMPDIR")
_HARDENING_OPTIONS: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "protocol.ext.allow=never"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
)
_FETCHING: Final = (
    *_HARDENING_OPTIONS,
    # A redirect would take a login to another host.
    *("-c", "http.followRedirects=false"),
    *("-c", "http.lowSpeedLimit=1"),
    *("-c", "http.lowSpeedTime=30"),
    *("-c", "fetch.recurseSubmodules=false"),
    *("-c", "fetch.prune=false"),
    *("-c", "fetch.writeCommitGraph=false"),
    *("-c", "fetch.bundleURI="),
)
_SSH: Final = "-oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=15 -oServerAliveCountMax=2"
_OLDEST: Final = (2, 31)
"""The first git that reads configuration from variables, which turn filters off."""
_GRACE_S: Final = 2.0
"""The time that git gets to remove its lock files after SIGTERM."""
_SHOWN: Final = 300
_LOGIN: Final = re.compile(r"(//|(?:host|proxy|to):? )[^\s/']*@")
"""git and curl end a login at its first `@`, and show the rest as part of the host."""
_CHUNK: Final = 65_536


class GitError(RunwardenError):
    """git failed; the message is a printable line, with git's words."""


class TooLargeError(GitError):
    """git's output exceeded the limit."""

    def __init__(self, data: bytes) -> None:
        super().__init__(f"git's answer is larger than {len(data) >> 20} MB.")
        self.data = data
        """The beginning of the output."""


class Git(Struct, frozen=True):
    """Runs git; a cancelled, silent or slow command is killed together with its child processes."""

    quiet_s: float = 60.0
    """Seconds without output after which a server counts as silent."""
    deadline_s: float = 900.0
    most_bytes: int = 256 << 20
    network: Network = Network()

    async def read(self, git_dir: Path, *arguments: str, stdin: bytes = b"", max_bytes: int | None = None) -> bytes:
        """Run a command that only reads one of our mirrors, without configuration, network, or attributes.

        Raises:
            GitError: It failed; `TooLargeError`: its output is larger than `most` bytes.
        """
        argv = ["git", *_HARDENING_OPTIONS, f"--git-dir={git_dir}", *arguments]
        return await self._run(argv, reading(self.network.env), git_dir, stdin, max_bytes or self.most_bytes)

    async def fetch(self, git_dir: Path, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run a command that reaches a remote repository, with the person's configuration, but without any question.

        Raises:
            GitError: It failed, or the server was silent for too long.
        """
        environment = await asyncio.to_thread(fetching, self.network)
        if "GIT_SSH" not in environment:
            command = ["git", f"--git-dir={git_dir}", "config", "--default", "ssh", "--get", "core.sshCommand"]
            ssh = environment.get("GIT_SSH_COMMAND")
            if not ssh:
                ssh = (await self._run(command, environment, git_dir)).decode(errors="replace").strip()
            environment["GIT_SSH_COMMAND"] = f"{ssh or 'ssh'} {_SSH}"
        argv = ["git", *_FETCHING, f"--git-dir={git_dir}", *arguments]
        return await self._run(argv, environment, git_dir, stdin, self.most_bytes)

    async def work(self, folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run a command in a checkout with the person's configuration, but without hooks, filters and monitors.

        Raises:
            GitError: It failed.
        """
        output = await self._run(["git", "version"], reading(self.network.env), folder)
        version = output.decode(errors="replace").strip()
        parts = re.search(r"(\d+)\.(\d+)", version)
        if parts and (int(parts[1]), int(parts[2])) < _OLDEST:
            raise GitError(f"{safe_text(version)} would run filters of the checkout: git 2.31 or newer is needed.")
        environment = await asyncio.to_thread(fetching, self.network)
        environment |= {"GIT_LFS_SKIP_SMUDGE": "1", "GIT_OPTIONAL_LOCKS": "0"}
        start = ["git", *_FETCHING, "-C", str(folder)]
        # Fails if no filter is configured.
        with suppress(GitError):
            listing = [*start, "config", "--null", "--name-only", "--get-regexp", r"^filter\."]
            names = (await self._run(listing, environment, folder)).decode(errors="surrogateescape")
            # Each filter is turned off by variables; not by `-c`, as its name may hold an equals sign.
            drivers = sorted({key.rpartition(".")[0] for key in names.split("\0") if key})
            off = {"smudge": "", "clean": "", "process": "", "required": "false"}
            pairs = [(f"{driver}.{key}", value) for driver in drivers for key, value in off.items()]
            begin = int(environment.get("GIT_CONFIG_COUNT") or 0)
            environment["GIT_CONFIG_COUNT"] = str(begin + len(pairs))
            for index, (key, value) in enumerate(pairs, begin):
                environment |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
        return await self._run([*start, *arguments], environment, folder, stdin, self.most_bytes)

    async def _run(
        self, argv: Sequence[str], env: Mapping[str, str], folder: Path, stdin: bytes = b"", max_bytes: int = _CHUNK
    ) -> bytes:
        try:
            process = await start_program(
                *argv,
                stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env=env,  # Its helpers (git-remote-https, ssh) end with it, and none has our terminal.
            )
        except FileNotFoundError as error:
            missing = "git on PATH. Install it, then try again" if error.filename == argv[0] else f"folder {folder}"
            raise GitError(f"There is no {safe_text(missing)}.") from error
        except OSError as error:
            raise GitError(f"git cannot be started: {error.strerror}.") from error
        try:
            async with asyncio.timeout(self.deadline_s):
                out, err = await _talk(process, stdin, self.quiet_s, max_bytes)
        except TimeoutError as error:
            await end_group(process, _GRACE_S)
            raise GitError("The repository does not answer: git was given up. Is the server reachable?") from error
        except BaseException:
            await end_group(process, _GRACE_S)
            raise
        if process.returncode:
            # git's last words as a line; many come from the server.
            lines = [line.strip() for line in err.decode(errors="replace").replace("\r", "\n").split("\n")]
            errors = [line for line in lines if line.startswith(("fatal:", "error:", "remote: error"))] or lines
            text = _LOGIN.sub(r"\1", "; ".join(filter(None, errors)))[-_SHOWN:] or f"exit code {process.returncode}"
            moved = ""
            if "returned error: 30" in text:
                moved = " The repository has moved: configure its new address."
            refused = f" {TRUST}" if "certificate verif" in text else ""
            raise GitError(f"git: {safe_text(text)}.{moved}{refused}".replace("..", "."))
        return out


async def _talk(
    process: asyncio.subprocess.Process, stdin: bytes, quiet_s: float, max_bytes: int
) -> tuple[bytes, bytes]:
    """A process's stdout and the end of its stderr; any output restarts the time after which it counts as silent.

    Raises:
        TimeoutError: It was silent.
        TooLargeError: It wrote too much, and was killed.
    """
    assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 — both pipes were requested above
    out = bytearray()
    err = bytearray()
    async with asyncio.timeout(quiet_s) as patience:

        async def receive(stream: asyncio.StreamReader, into: bytearray) -> None:
            while len(out) <= max_bytes and (chunk := await stream.read(_CHUNK)):
                patience.reschedule(asyncio.get_running_loop().time() + quiet_s)
                into += chunk
                del err[:-_CHUNK]
                if len(out) > max_bytes:
                    signal_group(process, signal.SIGKILL)

        async def feed() -> None:
            if process.stdin is not None:
                with suppress(BrokenPipeError, ConnectionResetError):
                    process.stdin.write(stdin)
                    await process.stdin.drain()
                process.stdin.close()

        await asyncio.gather(receive(process.stdout, out), receive(process.stderr, err), feed())
        await process.wait()
    if len(out) > max_bytes:
        raise TooLargeError(bytes(out[:max_bytes]))
    return bytes(out), bytes(err)


def fetching(network: Network) -> dict[str, str]:
    """The person's environment, with everything turned off that would ask a question.

    Raises:
        GitError: The profile's proxy, or a file of certificates, cannot be used.
    """
    try:
        own = network.environment()
    except ValueError as error:
        raise GitError(f"git cannot be started: {error}.") from error
    env = {name: value for name, value in own.items() if name not in _FOREIGN and not name.startswith("GIT_TRACE")}
    return env | {
        "LC_ALL": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "SSH_ASKPASS_REQUIRE": "never",
        "GCM_INTERACTIVE": "never",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    }


def reading(network_env: Mapping[str, str]) -> dict[str, str]:
    """An environment in which git reads only the repository's own configuration and has no network."""
    return {name: network_env[name] for name in _PASSED_ON if name in network_env} | {
        "HOME": os.devnull,
        "XDG_CONFIG_HOME": os.devnull,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_TERMINAL_PROMPT": "0",
    }
