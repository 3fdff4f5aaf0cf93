"""Stored sessions and invitations: how long they last, and that each code is used once."""

import threading
from concurrent.futures import ThreadPoolExecutor

from service.clock import SECOND_MICROS, now_micros
from service.store import invitations, sessions, tokens
from service.store.database import Database
from tests.service.conftest import BOTH, NOW, OPERATOR, Api, organization
from tests.service.page.test_page import Browser


def test_a_session_expires_when_idle_and_after_a_week(database: Database) -> None:
    """A session expires twelve hours after its last use, and seven days after it was opened."""

    def is_open(*hours: float) -> list[bool]:
        """Use a new session at these times."""
        value, found = sessions.begin(connection, NOW), list[bool]()
        for at in (NOW + round(one * 3600 * SECOND_MICROS) for one in hours):
            session = sessions.by_value(connection, value, at)
            found.append(session is not None)
            if session is not None:
                sessions.note_use(connection, session, at)
        return found

    with database.write() as connection:
        assert is_open(11.9, 23.7, 35.8) == [True, True, False]
        assert is_open(*range(0, 7 * 24, 11), 7 * 24 + 0.1) == [True] * 16 + [False]


def test_an_operators_session_ends_with_its_token(idle: Api, database_of_idle: Database) -> None:
    """With another token or none in its variable, the session is not found."""
    with database_of_idle.write() as connection:
        value = sessions.begin(connection, now_micros() - 11 * 3600 * SECOND_MICROS, secret=OPERATOR)
    browser = Browser(idle.service.base_url)
    browser.cookies["__Host-runwarden_session"] = value
    browser.get("/api")
    status, later = browser.get("/operator").status_code, now_micros() + 2 * 3600 * SECOND_MICROS
    with database_of_idle.read() as connection:
        found = [sessions.by_value(connection, value, later, one) is not None for one in (OPERATOR, f"{OPERATOR}x", "")]

    assert (status, found) == (200, [True, False, False])
    assert Browser(idle.service.base_url).sign_in("").status_code == 401


@BOTH
def test_a_code_gives_one_token(database: Database) -> None:
    """Of eight simultaneous uses one gets the token; of many revocations one succeeds."""
    owner, gate = organization(database, now=now_micros()), threading.Barrier(8)
    with database.write() as connection:
        code = str(invitations.waiting_code(connection, invitations.invite(connection, owner, "a@b.example", NOW)))
        token, _ = tokens.create(connection, owner, scopes=("admin",), alias=None, now=NOW)

    def act(_: int) -> tuple[str | None, bool]:
        gate.wait()
        with database.write() as connection:
            return invitations.accept(connection, code, NOW), tokens.revoke(connection, token.id, NOW)

    with ThreadPoolExecutor(8) as at_once:
        accepted, revoked = zip(*at_once.map(act, range(8)), strict=True)

    assert sorted(accepted, key=str) == [None] * 7 + [owner]
    assert sorted(map(bool, revoked)) == [False] * 7 + [True]
