"""Rotation of GitLab's tokens before they expire: once for all workers, and kept in the database.

GitLab revokes the old token at once. If a revoked token asks for a rotation, GitLab revokes its successor too. So a
worker records a rotation before it asks for it, and no request is repeated if its answer may have been lost.
"""

import hashlib
import logging
import os
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import sqlalchemy as sa

from service import how_to_add
from service.agents.key_command import NoKeyError
from service.clock import EPOCH, MICROSECOND, SECOND_MICROS, Clock, Micros
from service.hosts import HostResponse, HostUnreachableError, ask
from service.store.database import Database
from service.store.hosts import Host
from service.store.rows import insert_new, record_of, records_of, update
from service.store.schema import host_tokens, hosts
from service.text import table

_TIMEOUT_S: Final = 20.0
_IN_FLIGHT_MICROS: Final = 600 * SECOND_MICROS
"""After this long, nobody waits for the answer to a rotation any more."""
_EARLY_DAYS: Final = 7
_MAX_DAYS: Final = 365
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RotatedToken:
    """The state of the token in a variable."""

    digest: str
    """The digest of the variable's token. Another token gets another row; this one stays in case the token returns."""
    sealed: str | None
    """The token that replaced it, encrypted with it: neither a back-up nor the database alone shows one."""
    asked_at: Micros | None
    """When a worker requested a rotation whose answer is unknown; None if none is in progress."""
    fault: str | None
    """Why it is not rotated, with the fix."""
    is_lost: bool
    """Whether there is no valid token any more."""


def successor_of(database: Database, token: str) -> str:
    """Return the token that is valid in place of one from the environment (`NoKeyError`: it is not known)."""
    with database.read() as connection:
        return _token(token, record_of(connection, RotatedToken, host_tokens, host_tokens.c.digest == _digest(token)))


def faults(connection: sa.Connection) -> list[str]:
    """Return why tokens of connected hosts are not rotated."""
    rotating = host_tokens.c.variable.in_(sa.select(hosts.c.token_env).where(hosts.c.rotate))
    return [row.fault for row in records_of(connection, RotatedToken, host_tokens, rotating) if row.fault]


@dataclass(eq=False)
class TokenRotation:
    """Rotates the tokens of hosts with `rotate = true`."""

    _database: Database
    _clock: Clock
    _unsaved: dict[str, dict[str, object]] = field(default_factory=dict)
    """New tokens that the database did not take yet."""

    def run(self) -> None:
        for digest, values in [*self._unsaved.items()]:
            self._save(digest, values)
        with self._database.read() as connection:
            rotating = records_of(connection, Host, hosts, hosts.c.rotate.is_(True))
        tokens = {token: host for host in rotating if (token := os.environ.get(host.token_env or ""))}
        for token, host in tokens.items():
            try:
                self._rotate_if_due(host, token)
            except HostUnreachableError as error:
                _logger.warning("the token in %s is not rotated now: %s", host.token_env, error)

    def _rotate_if_due(self, host: Host, configured: str) -> None:
        """Rotate a host's token if it expires soon; `configured` is the token in its variable."""
        digest, now = _digest(configured), self._clock()
        today = (EPOCH + now * MICROSECOND).date()
        # The token's row, from now on under the name of its variable.
        with self._database.write() as connection:
            insert_new(connection, host_tokens, {"digest": digest, "variable": host.token_env, "is_lost": False})
            mine = host_tokens.c.digest == digest
            there = host_tokens.c.variable == host.token_env
            update(connection, host_tokens, mine, ~there, variable=host.token_env)
            update(connection, host_tokens, there, ~mine, fault=None)
            (row,) = records_of(connection, RotatedToken, host_tokens, mine)
        lost = f"the answer to the rotation of the token in {host.token_env} was lost, and GitLab has revoked it"
        lost += f": create a new token at {host.host}, and set it there"
        if row.is_lost:
            self._note(row, lost)
            return
        if row.asked_at is not None and now - row.asked_at < _IN_FLIGHT_MICROS:
            return
        try:
            token = _token(configured, row)
            _cipher(configured)
        except NoKeyError as error:
            self._note(row, str(error))
            return
        send = partial(ask, timeout_s=_TIMEOUT_S, headers={"PRIVATE-TOKEN": token})
        url = f"{(host.api_url or '').rstrip('/')}/personal_access_tokens/self"
        shown = send(url)
        if shown.status == HTTPStatus.UNAUTHORIZED and row.asked_at is not None:
            _logger.error("%s", lost)
            self._save(digest, {"fault": lost, "is_lost": True})
            return
        if shown.status != HTTPStatus.OK or not isinstance(shown.body, dict):
            self._note(row, _refusal(host, shown))
            return
        days = _due(shown.body, today)
        if days is None:
            self._note(row, None)
            return
        if not self._change(row, asked_at=now):
            return
        # If this fails, the answer is unknown, and `asked_at` stays.
        ends = (today + timedelta(days=days)).isoformat()
        answer = send(f"{url}/rotate", method="POST", document={"expires_at": ends})
        new = table(answer.body).get("token")
        if answer.status in {HTTPStatus.OK, HTTPStatus.CREATED} and isinstance(new, str) and new:
            jwe, key, _ = _cipher(configured)
            sealed = str(jwe.encrypt_compact({"alg": "dir", "enc": "A256GCM"}, new.encode(), key))
            self._save(digest, {"sealed": sealed, "asked_at": None, "fault": None})
            _logger.info("the token in %s was rotated; the new one expires on %s", host.token_env, ends)
        elif answer.status in range(400, 500):
            self._save(digest, {"asked_at": None, "fault": _refusal(host, answer)})

    def _change(self, row: RotatedToken, **values: object) -> bool:
        """Change the row, unless another worker has asked for a rotation since; return whether it was changed."""
        before = {"digest": row.digest, "sealed": row.sealed, "asked_at": row.asked_at}
        same = (host_tokens.c[name].is_not_distinct_from(value) for name, value in before.items())
        with self._database.write() as connection:
            return update(connection, host_tokens, *same, **values) > 0

    def _note(self, row: RotatedToken, fault: str | None) -> None:
        if (row.fault, row.asked_at) != (fault, None) and self._change(row, fault=fault, asked_at=None) and fault:
            _logger.warning("%s", fault)

    def _save(self, digest: str, values: dict[str, object]) -> None:
        # The new token is stored nowhere else.
        self._unsaved[digest] = values
        with self._database.write() as connection:
            update(connection, host_tokens, host_tokens.c.digest == digest, **values)
        del self._unsaved[digest]


def _due(shown: dict[str, Any], today: date) -> int | None:
    """Return the lifetime, in days, of a token that has to be rotated now; None: it does not have to be.

    `shown` is GitLab's description of it; without a date it never expires.
    """
    try:
        ends_on = date.fromisoformat(str(shown["expires_at"]))
        days = max(1, (ends_on - date.fromisoformat(str(shown["created_at"])[:10])).days)
    except (KeyError, ValueError):
        return None
    is_due = (ends_on - today).days <= min(_EARLY_DAYS, max(1, days // 3))
    return min(days, _MAX_DAYS) if is_due else None


def _refusal(host: Host, answer: HostResponse) -> str:
    body = table(answer.body)
    message = str(body.get("message") or body.get("error_description") or body.get("error") or "").strip()
    text = f"the token in {host.token_env} cannot be rotated: {host.host} answered {answer.status} {message}".rstrip()
    return f"{text}; it must be valid, and needs the scope self_rotate or api: replace it, or remove rotate"


def _digest(token: str) -> str:
    return hashlib.sha256(f"runwarden:{token}".encode()).hexdigest()


def _token(configured: str, row: RotatedToken | None) -> str:
    if row is not None and row.is_lost:
        raise NoKeyError(row.fault or "it is lost")
    if row is None or row.sealed is None:
        return configured
    jwe, key, error = _cipher(configured)
    try:
        return (jwe.decrypt_compact(row.sealed, key).plaintext or b"").decode()
    except error as invalid:
        raise NoKeyError("the rotated token in the database was changed: create a new token, and set it") from invalid


def _cipher(configured: str) -> tuple[Any, Any, type[Exception]]:
    """Return the encryption, the key for a token, and the error of a text that was changed."""
    try:
        from joserfc import jwe
        from joserfc.errors import JoseError
        from joserfc.jwk import OctKey
    except ImportError as error:
        raise NoKeyError(f"rotate needs the extra `oidc`; install it {how_to_add('oidc')}") from error
    return jwe, OctKey.import_key(hashlib.sha256(f"runwarden seal:{configured}".encode()).digest()), JoseError
