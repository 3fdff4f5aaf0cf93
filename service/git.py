"""git, hardened: no hook, no filter, no user configuration and no prompt, and never an argument read as an option."""

import base64
import contextlib
import copy
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from service.errors import ServiceError
from service.network import CLIENT_CERT_VARIABLE, PROXY_VARIABLES
from service.reference import without_login
from service.text import printable

ALLOWED_PROTOCOLS: Final = "file:git:http:https:ssh"
_HARDENING: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.untrackedCache=false"),
    *("-c", "credential.helper="),
    # A redirect would take the host's token, or the push, to another host.
    *("-c", "http.followRedirects=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "protocol.ext.allow=never"),
    *("-c", "submodule.recurse=false"),
    *("-c", "safe.directory=*"),
    *("-c", "advice.addEmbeddedRepo=false"),
)
_PASSED_ON: Final = (
    *("PATH", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_EXEC_PATH", "GIT_SSL_CAINFO"),
    *PROXY_VARIABLES,
)
_SHOWN_OUTPUT: Final = 2000
_PIECE: Final = 1 << 16
_MAX_FETCH_S: Final = 6 * 3600.0
"""A host could print progress forever."""
_REMOTE: Final = frozenset({"ls-remote", "fetch", "push", "lfs"})
_PROGRESS: Final = re.compile(
    r"(remote: )?((Enumerating|Counting|Compressing|Receiving|Resolving|Writing|Unpacking|Updating|Filtering)\b.*: .*"
    r"|Total \d+ .*|Delta compression using .*)"
)
_PROXY: Final = re.compile(
    r"(?:tunnel failed, response|HTTP code) (\d+)|returned error: (407)|proxy auth\w+", re.IGNORECASE
)
"""Messages about a proxy that makes no connection; their words depend on the version of curl."""
_REFUSED: Final = re.compile(
    r"(returned\ error:|HTTP)\ [34](?!07|08|29)\d\d | certificate"
    r" | permission\ denied | authentication\ failed | declined",
    re.IGNORECASE | re.VERBOSE,
)
"""Messages that the same command would give again, whatever else git says with them."""
_UNAUTHORIZED: Final = re.compile(r"authentication failed|returned error: 40[13]", re.IGNORECASE)
_PASSING: Final = re.compile(
    r"""(returned\ error:|HTTP)\ (5\d\d|407|408|429) | (HTTP\ code|tunnel\ failed,\ response)\ [345]\d\d
    | internal\ server\ error
    | service\ unavailable
    | could\ not\ resolve\ host | temporary\ failure | name\ resolution | (failed|couldn't|could\ not)\ connect
    | (connection|operation|network)\W+(was\ |is\ )?(refused|reset|closed|timed\ out|aborted|unreachable|too\ slow)
    | no\ route\ to\ host | empty\ reply | hung\ up\ unexpectedly | unexpected(ly)?\ (disconnect|eof|closed)
    | early\ EOF | (recv|send)\ failure | kex_exchange | broken\ pipe | transfer\ closed | was\ not\ closed\ cleanly
    | proxy\ authentication\ required | socks | handshake\ failed | (gnutls|openssl|ssl)_\w+ | connect\ aborted""",
    re.IGNORECASE | re.VERBOSE,
)
"""Messages about a code host that is down, or about the way to it, including a proxy's refusal."""
TokenSource = Callable[[str, str | None], str | None]
"""Returns the token for an address, and another than a refused one if there can be; None: git logs in without one.

The refused one is empty if git was refused without a token. A `GitCommandError` says why there is none now.
"""


class GitCommandError(ServiceError):
    """git refused or failed; the text holds its message."""

    def __init__(self, text: str, status: int | None = None, printed: str = "", *, is_passing: bool = False) -> None:
        super().__init__(text)
        self.status = status
        """git's exit status; None: it did not exit by itself."""
        self.printed = printed
        self.is_passing = is_passing
        """Whether the code host, or the way to it, is at fault: the same command may succeed later."""


def is_passing(message: str) -> bool:
    """Whether a message of git blames a code host that is down, or the way to it."""
    return bool(_PASSING.search(message)) and not _REFUSED.search(message)


def environment(home: Path) -> dict[str, str]:
    """Return git's variables; of the user's, only those that lead to programs, proxies, certificates and ssh keys."""
    certificate = os.environ.get(CLIENT_CERT_VARIABLE, "")
    variables = {
        "GIT_SSL_CAINFO": os.environ.get("SSL_CERT_FILE", ""),
        "GIT_SSL_CERT": certificate,
        "GIT_SSL_KEY": certificate,
    }
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    direct = "*" if "*" in re.split(r"[,\s]+", direct) else f"{direct},localhost,127.0.0.1,::1".strip(",")
    return (
        {name: value for name, value in variables.items() if value}
        | {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        | {
            "no_proxy": direct,
            "HOME": str(home),
            # git handles names and messages as bytes; another locale would only slow each process.
            "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            # No samples of hooks: each turn would write and remove dozens of files.
            "GIT_TEMPLATE_DIR": "",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=20",
            "GIT_ALLOW_PROTOCOL": ALLOWED_PROTOCOLS,
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_LFS_FORCE_PROGRESS": "1",
            # Send the login in a proxy's address without a challenge.
            "GIT_HTTP_PROXY_AUTHMETHOD": "basic",
        }
    )


def _header(url: str, login: str) -> dict[str, str]:
    """Return the variables with a login for one http(s) address: never in argv, never in a file."""
    basic = base64.b64encode(login.encode()).decode()
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{url}.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {basic}",
    }


class GitRunner:
    """Runs git commands under one time limit; one that fails, or takes too long, raises a `GitCommandError`.

    `extra` holds variables.
    """

    def __init__(
        self,
        home: Path,
        timeout_s: float,
        extra: Mapping[str, str] | None = None,
        progress: Callable[[str], None] = lambda _: None,
        url: str = "",
        token_of: TokenSource | None = None,
        signing_key: Path | None = None,
    ) -> None:
        """`progress` gets git's lines about the progress of a fetch or push, as often as git prints them.

        `token_of` returns the tokens with which git logs in at `url`.
        """
        self.url = url
        self._token_of = token_of
        self.token: str | None = None
        self.signing_key = signing_key
        """The ssh key that signs commits; None: they are not signed."""
        self._environment = environment(home) | dict(extra or {})
        self.timeout_s = timeout_s
        """How long one command may take; for a fetch or push, how long it may be silent."""
        self.progress = progress
        self._git_dir: Path | None = None
        self._work_tree: Path | None = None

    def at(self, url: str) -> "GitRunner":
        """Return a runner that logs in at another address of the same host."""
        runner = copy.copy(self)
        runner.url, runner.token = url, None
        return runner

    def inside(self, git_dir: Path | None, work_tree: Path | None = None) -> "GitRunner":
        """Return a runner whose commands work in a git-dir, and on a work tree."""
        runner = copy.copy(self)
        runner._git_dir, runner._work_tree = git_dir, work_tree  # noqa: SLF001 — its own copy
        return runner

    def __call__(self, *arguments: str) -> str:
        """Run one command and return its standard output, without the last newline."""
        return self.feed(None, *arguments).rstrip("\n")

    def feed(self, text: str | None, *arguments: str) -> str:
        """Run one command with a text on its standard input, and return its standard output."""
        try:
            return self._run(text, *arguments)
        except GitCommandError as refusal:
            if self._token_of is None or not _UNAUTHORIZED.search(str(refusal)):
                raise
            try:
                token = self._token_of(self.url, self.token or "")
            except GitCommandError as error:
                raise GitCommandError(f"{refusal}; {error}", is_passing=error.is_passing) from error
            if not self.token or token == self.token:
                raise
        return self._run(text, *arguments)

    def _run(self, text: str | None, *arguments: str) -> str:
        places = {"git-dir": self._git_dir, "work-tree": self._work_tree}
        options = [f"--{name}={folder}" for name, folder in places.items() if folder]
        # Every user of the machine can read the arguments of a process: git gets logins in variables.
        clean_arguments, variables = [], dict[str, str]()
        for argument in arguments:
            clean = without_login(argument)
            clean_arguments.append(clean)
            if clean != argument:
                user, _, password = argument.partition("://")[2].partition("/")[0].rpartition("@")[0].partition(":")
                start = clean.rfind("=", 0, clean.index("://")) + 1
                variables = _header(clean[start:], f"{unquote(user)}:{unquote(password)}")
        name = next(word for at, word in enumerate(arguments) if word != "-c" and arguments[at - 1 : at] != ("-c",))
        is_remote = name in _REMOTE
        if is_remote and self._token_of is not None:
            self.token = self._token_of(self.url, None)
            if self.token is not None and self.url.startswith(("http://", "https://")):
                variables |= _header(self.url, f"x-access-token:{self.token}")
        try:
            process = subprocess.Popen(
                ["git", *_HARDENING, *options, *clean_arguments],
                stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._work_tree or self._git_dir,
                env={**self._environment, **variables},
                # A terminal's Ctrl-C must reach only the service, which then ends git in order.
                start_new_session=True,
            )
        except OSError as error:
            fix = "; install git on this machine" if isinstance(error, FileNotFoundError) else ""
            raise GitCommandError(f"git cannot be started ({error}){fix}") from error
        with process:
            try:
                if is_remote:
                    out, err = self._follow(process)
                else:
                    data = None if text is None else text.encode("utf-8", "surrogateescape")
                    out, err = process.communicate(data, self.timeout_s)
            except subprocess.TimeoutExpired as error:
                # git waits in a helper process (git-remote-https, ssh), which would outlive it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                text = f"git {name} took longer than {self.timeout_s:g} s"
                if is_remote:
                    text = f"git {name} heard nothing for {self.timeout_s:g} s; is the code host reachable?"
                raise GitCommandError(text, is_passing=is_remote) from error
        printed = out.decode("utf-8", "surrogateescape")
        if process.returncode:
            lines = map(str.strip, (err or out).decode("utf-8", "replace").splitlines())
            # git may quote the code host: the message becomes one line that is safe to show and to log.
            message = "; ".join(line for line in lines if line and not _PROGRESS.fullmatch(line))
            message = printable(message[-_SHOWN_OUTPUT:])
            if re.search(r"returned error: 30[1-8]\b", message):
                message += "; the repository has moved, and redirects are not followed: configure its new address"
            if match := _PROXY.search(message):
                status = match[1] or "407"
                fix = "check what it allows"
                if status == "407":
                    fix = "check the login in HTTPS_PROXY"
                message += f"; the proxy refused the connection ({status}): {fix}"
            text = f"git {name} failed ({process.returncode}): {message}"
            raise GitCommandError(text, process.returncode, printed, is_passing=is_remote and is_passing(message))
        return printed

    def _follow(self, process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
        """Return both outputs of a command, which may take any time as long as it prints its progress.

        Raises:
            TimeoutExpired: It printed nothing for too long.
        """
        out, err = bytearray(), bytearray()
        deadline = time.monotonic() + _MAX_FETCH_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, out)  # type: ignore[arg-type]  # the process was started with both pipes
            selector.register(process.stderr, selectors.EVENT_READ, err)  # type: ignore[arg-type]
            while selector.get_map():
                if not (ready := selector.select(self.timeout_s)) or time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired(process.args, self.timeout_s)
                for key, _ in ready:
                    piece = os.read(key.fd, _PIECE)
                    key.data.extend(piece)
                    if not piece:
                        selector.unregister(key.fileobj)
                    elif key.data is err:
                        del err[:-_PIECE]
                        if lines := piece.decode("utf-8", "replace").split("\r"):
                            self.progress(lines[-1].strip() or lines[0].strip())
        process.wait()
        return bytes(out), bytes(err)


def identity_of(name: str, email: str) -> dict[str, str]:
    """Return the variables with the author and committer of commits."""
    who = {"NAME": name, "EMAIL": email}
    return {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
