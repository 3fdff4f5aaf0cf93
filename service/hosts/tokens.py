"""The tokens of code hosts: in a variable, printed by a command, or of a GitHub App's installation."""

import contextlib
import functools
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from service import how_to_add
from service.agents.key_command import NoKeyError, PrintedKey
from service.clock import SECOND_MICROS, now_micros, parse_rfc3339
from service.errors import ServiceError
from service.git import GitCommandError, GitRunner
from service.hosts import GITHUB_VERSION, HostResponse, HostUnreachableError, ask, rotation
from service.reference import location
from service.store.database import Database
from service.store.hosts import Host
from service.store.schema import GitHubApp
from service.text import table

_TIMEOUT_S: Final = 15.0
_PATIENCE_S: Final = 5.0
"""How long a turn keeps its slot while a command prints no token."""
_SPARE_S: Final = 300.0
"""How long before it expires an installation's token is replaced."""
_SKEW_S: Final = 60
"""How far this machine's clock may be ahead of GitHub's, in seconds."""
_LIFE_S: Final = 540
_REFUSED: Final = frozenset({401, 403, 404})


class TokenError(HostUnreachableError):
    """A host's token is unavailable now; the text has the reason and the fix."""

    def __init__(self, text: str, *, is_unreachable: bool = False) -> None:
        super().__init__(text)
        self.is_unreachable = is_unreachable
        """Whether GitHub gave no usable answer; otherwise it refused, or the command failed."""


class HostTokens:
    """The tokens of hosts; a process has one, which remembers what commands and GitHub answered while it is valid."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._printed_key = functools.cache(PrintedKey)
        self._installation = functools.cache(_Installation)

    def of(self, host: Host, refused: str | None = None) -> str | None:
        """Return a host's token, if possible not the `refused` one; None: none is configured (or a `TokenError`)."""
        if host.app is not None:
            with _explain_app(host.app):
                return self._installation(host.api_url or "", host.app).get(refused)
        try:
            if host.token_command:
                return self._printed_key("token_command", host.token_command, _PATIENCE_S).get(refused)
            token = (os.environ.get(host.token_env) or None) if host.token_env else None
            # Even if `rotate` was removed since then: GitLab has revoked the variable's token.
            return rotation.successor_of(self._database, token) if token and host.platform == "gitlab" else token
        except NoKeyError as error:
            raise TokenError(f"there is no token for {host.host}: {error}") from error

    def rotated_tokens(self, connected: Iterable[Host]) -> dict[str, str]:
        """Return the tokens that took the place of those in variables, under names that say so."""
        tokens = {}
        for host in connected:
            with contextlib.suppress(TokenError):
                if host.token_env and (token := self.of(host)) and token != os.environ.get(host.token_env):
                    tokens[f"{host.token_env}, rotated"] = token
        return tokens

    def author(self, host: Host | None) -> tuple[str, str] | None:
        """Return the name and the address under which a GitHub App commits; None: there is no App, or no answer."""
        if host is not None and host.app is not None:
            with contextlib.suppress(TokenError), _explain_app(host.app):
                return self._installation(host.api_url or "", host.app).account(host.host)
        return None

    def at(self, host: Host | None, url: str, refused: str | None) -> str | None:
        """Return a token as `of` does for git at an address (or `GitCommandError`); None: that host must not see it."""
        is_without = refused == ""
        if is_without and host is not None and host.token_env and not os.environ.get(host.token_env):
            text = f"{host.token_env} is not set in the environment of this worker: set it for every worker"
            raise GitCommandError(text)
        place = location(url)
        if is_without or host is None or place is None or place.host != host.host:
            return None
        try:
            return self.of(host, refused)
        except ServiceError as error:
            raise GitCommandError(str(error), is_passing=True) from error

    def read_head(self, host: Host | None, url: str, timeout_s: float) -> str:
        """Return the output of `git ls-remote --symref` about a repository's HEAD."""
        with tempfile.TemporaryDirectory(prefix="runwarden-probe-") as home:
            git = GitRunner(Path(home), timeout_s, url=url, token_of=functools.partial(self.at, host))
            return git("ls-remote", "--symref", "--", url, "HEAD")


@contextlib.contextmanager
def _explain_app(app: GitHubApp) -> Iterator[None]:
    """Name the App if GitHub cannot be asked, or answers something else."""
    try:
        yield
    except TokenError:
        raise
    except HostUnreachableError as error:
        raise TokenError(f"there is no token for the GitHub App {app.id}: {error}", is_unreachable=True) from error
    except (LookupError, TypeError, ValueError) as error:
        raise TokenError(f"there is no token for the GitHub App {app.id}: its API gave an unknown answer") from error


class _Installation:
    """A GitHub App in one account: mints tokens that live an hour."""

    def __init__(self, api_url: str, app: GitHubApp) -> None:
        self._api_url = api_url.rstrip("/")
        self._app = app
        self._id = app.installation_id
        self._token = ""
        self._account: tuple[str, str] | None = None
        self._until = 0.0
        self._asking = threading.Lock()

    def get(self, refused: str | None) -> str:
        with self._asking:
            if self._token == refused or time.monotonic() >= self._until:
                if self._id is None:
                    rows = self._ask("GET", "/app/installations").body
                    owners = {int(row["id"]): str(row["account"]["login"]) for row in rows}
                    if len(owners) != 1:
                        names = ", ".join(f"{name} ({number})" for number, name in owners.items())
                        accounts = f"it is installed by: {names or 'none: install it in GitHub'}"
                        raise TokenError(f"set installation_id of the GitHub App {self._app.id}; {accounts}")
                    (self._id,) = owners
                body = self._ask("POST", f"/app/installations/{self._id}/access_tokens").body
                self._token = str(body["token"])
                ends_in_s = (parse_rfc3339(str(body["expires_at"]), round_up=False) - now_micros()) / SECOND_MICROS
                self._until = time.monotonic() + max(0.0, ends_in_s - _SPARE_S)
            return self._token

    def account(self, host: str) -> tuple[str, str]:
        token = self.get(None)
        if self._account is None:
            name = f"{self._ask('GET', '/app').body['slug']}[bot]"
            headers = {"Authorization": f"Bearer {token}"}
            user = ask(f"{self._api_url}/users/{quote(name)}", _TIMEOUT_S, headers=headers).body
            self._account = name, f"{user['id']}+{name}@users.noreply.{host}"
        return self._account

    def _ask(self, method: str, path: str) -> HostResponse:
        try:
            from joserfc import jwt
            from joserfc.errors import JoseError
            from joserfc.jwk import RSAKey
        except ImportError as error:
            raise TokenError(f"a GitHub App needs the extra `oidc`; install it {how_to_add('oidc')}") from error
        now = now_micros() // SECOND_MICROS
        claims = {"iat": now - _SKEW_S, "exp": now + _LIFE_S, "iss": str(self._app.id)}
        try:
            signed = jwt.encode({"alg": "RS256"}, claims, RSAKey.import_key(Path(self._app.key_file).read_bytes()))
        except (OSError, ValueError, JoseError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no RSA key in PEM form without passphrase"
            text = f"the private key of the GitHub App {self._app.id} cannot be used: {self._app.key_file}: {reason}"
            fix = "generate one on the App's page at GitHub, and let only the service's user read it"
            raise TokenError(f"{text}; {fix}") from error
        headers = {"Authorization": f"Bearer {signed}"} | GITHUB_VERSION
        answer = ask(self._api_url + path, _TIMEOUT_S, headers=headers, method=method)
        if answer.is_success and answer.body is not None:
            return answer
        message = table(answer.body).get("message", "")
        text = f"GitHub gave the App {self._app.id} no token: {answer.status} {message}".rstrip()
        fix = ""
        if answer.status in _REFUSED:
            fix = f"; check app id, key_file {self._app.key_file} and installation_id"
        raise TokenError(f"{text}{fix}", is_unreachable=answer.status not in _REFUSED)
