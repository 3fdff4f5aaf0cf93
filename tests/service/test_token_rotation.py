"""GitLab's tokens that the service rotates: as GitLab describes it, revoking a family where a revoked token is used."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

import pytest

from service.clock import DAY_MICROS, EPOCH, MICROSECOND, SECOND_MICROS
from service.hosts import rotation
from service.hosts.rotation import TokenRotation, faults
from service.hosts.tokens import TokenError, token_of
from service.setup import HostEntry, connect_host, find_organization
from service.store.database import Database
from service.store.hosts import connect, disconnect
from service.store.schema import host_tokens
from tests.lab import Drop, Received, Respond, Server, Step
from tests.service.conftest import BOTH, NOW, organization


@dataclass(kw_only=True, eq=False)
class GitLabTokens(Server):
    """One family of tokens at GitLab: only the newest is valid, until a revoked one asks for a rotation."""

    ends: date
    tokens: list[str] = field(default_factory=lambda: ["glpat-token-1"])
    scopes: tuple[str, ...] = ("api",)
    now: Callable[[], int]
    is_revoked: bool = False
    answer_to_rotation: Step | None = None
    """What comes in place of the answer when all was done; None: the answer."""

    def answer(self, request: Received) -> Step:
        given = request.headers.get("private-token", "")
        today = (EPOCH + self.now() * MICROSECOND).date()
        is_valid = given == self.tokens[-1] and not self.is_revoked and self.ends > today
        if request.path == "/api/v4/personal_access_tokens/self" and request.method == "GET" and is_valid:
            made = self.ends - timedelta(days=60)
            return Respond(200, {"expires_at": f"{self.ends}", "created_at": f"{made}T08:00:00.000Z", "active": True})
        if request.path == "/api/v4/personal_access_tokens/self/rotate" and request.method == "POST":
            if given in self.tokens and not is_valid:
                self.is_revoked = True
            elif is_valid and not {"api", "self_rotate"} & {*self.scopes}:
                return Respond(403, {"error": "insufficient_scope", "error_description": "needs higher privileges"})
            elif is_valid:
                self.ends = date.fromisoformat(request.json().get("expires_at") or f"{today + timedelta(days=7)}")
                assert self.ends <= today + timedelta(days=365)
                self.tokens.append(f"glpat-token-{len(self.tokens) + 1}")
                return self.answer_to_rotation or Respond(201, {"token": self.tokens[-1], "expires_at": f"{self.ends}"})
        return Respond(401, {"message": "401 Unauthorized"})

    @property
    def rotations(self) -> int:
        return sum(request.method == "POST" for request in self.requests)


class Setting:
    """A host whose token has ten days left, and a clock."""

    def __init__(self, database: Database) -> None:
        self.now = NOW
        self.database = database
        ends = (EPOCH + NOW * MICROSECOND).date() + timedelta(days=10)
        self.gitlab = GitLabTokens(ends=ends, now=lambda: self.now).start()
        entry = HostEntry(
            platform="gitlab", api_url=f"{self.gitlab.origin}/api/v4", token_env="GITLAB_TOKEN", rotate=True
        )
        organization(database)
        with database.write() as connection:
            self.host = connect_host(connection, find_organization(connection, "acme"), entry, NOW)

    def rotate(self, *, days: float = 0) -> None:
        """Let time pass, and do a worker's round: each worker may be another process."""
        self.now += int(days * DAY_MICROS) + 3600 * SECOND_MICROS
        TokenRotation(self.database, lambda: self.now).run()

    @property
    def faults(self) -> list[str]:
        with self.database.read() as connection:
            return faults(connection)


@pytest.fixture
def setting(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    monkeypatch.setenv("GITLAB_TOKEN", "glpat-token-1")
    made = Setting(database)
    with closing(made.gitlab), rotation.used(database):
        yield made


@BOTH
def test_a_token_is_rotated_before_its_end_and_once(setting: Setting) -> None:
    """However many workers look at the same time; the database does not show it, and the next has its turn."""
    setting.rotate()
    assert (setting.gitlab.rotations, token_of(setting.host)) == (0, "glpat-token-1")

    with ThreadPoolExecutor(8) as workers:
        setting.now += 4 * DAY_MICROS
        rounds = [workers.submit(TokenRotation(setting.database, lambda: setting.now).run) for _ in range(8)]
        assert [each.result() for each in rounds] == [None] * 8
    setting.rotate()

    assert (setting.gitlab.rotations, token_of(setting.host)) == (1, "glpat-token-2")
    with setting.database.read() as connection:
        row = connection.execute(host_tokens.select()).one()
    assert "glpat" not in str(row)
    setting.rotate(days=55)
    assert (setting.gitlab.rotations, token_of(setting.host), setting.faults) == (2, "glpat-token-3", [])


def test_a_rotation_whose_answer_is_lost_is_never_repeated(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is gone, and everything says so with the fix, until another one is in the variable."""
    setting.gitlab.answer_to_rotation = Drop()
    setting.rotate(days=4)
    assert setting.faults == []
    for _ in range(3):
        setting.rotate()

    assert setting.gitlab.rotations == 1
    (fault,) = setting.faults
    assert "the answer to the rotation of the token in GITLAB_TOKEN was lost" in fault
    with pytest.raises(TokenError, match=r"create a new token at 127\.0\.0\.1, and set it there"):
        token_of(setting.host)

    monkeypatch.setenv("GITLAB_TOKEN", "glpat-of-an-admin")
    setting.gitlab.tokens, setting.gitlab.answer_to_rotation = ["glpat-of-an-admin"], None
    setting.rotate()
    assert (token_of(setting.host), setting.faults) == ("glpat-of-an-admin", [])


def test_without_the_cipher_nothing_is_rotated(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new token could not be kept; status says what to install."""
    monkeypatch.setitem(sys.modules, "joserfc", None)
    setting.rotate(days=4)

    assert (setting.gitlab.rotations, token_of(setting.host)) == (0, "glpat-token-1")
    assert ["needs the extra `oidc`" in fault for fault in setting.faults] == [True]


def test_a_rotation_that_never_arrived_is_asked_for_again(setting: Setting) -> None:
    """GitLab still takes the old token, so that none can be lost."""
    setting.gitlab.script(Respond(200, {"expires_at": f"{setting.gitlab.ends}", "created_at": "2026-01-01"}), Drop())
    setting.rotate(days=4)
    assert (setting.gitlab.tokens, token_of(setting.host)) == (["glpat-token-1"], "glpat-token-1")
    setting.rotate()

    assert (token_of(setting.host), setting.faults, setting.gitlab.is_revoked) == ("glpat-token-2", [], False)


def test_a_rotated_token_is_found_whatever_was_changed_meanwhile(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker without the variable or with another token in it, `rotate` dropped, the host disconnected and back."""
    setting.rotate(days=4)
    owner, others = organization(setting.database), organization(setting.database, "others")
    with setting.database.write() as connection:
        connect(connection, others, replace(setting.host, token_env="GITLAB_TOKEN2"), NOW)
    for name, values in {"GITLAB_TOKEN": (None, "mistyped"), "GITLAB_TOKEN2": ("glpat-of-others",)}.items():
        for value in values:
            monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
            setting.rotate()
    monkeypatch.setenv("GITLAB_TOKEN", "glpat-token-1")
    for rotates in (False, True):
        with setting.database.write() as connection:
            disconnect(connection, owner, "gitlab")
        setting.rotate()
        host = replace(setting.host, rotate=rotates)
        with setting.database.write() as connection:
            connect(connection, owner, host, NOW)
        setting.rotate()
        assert token_of(host) == "glpat-token-2"

    assert (setting.gitlab.rotations, setting.gitlab.is_revoked, len(setting.faults)) == (1, False, 1)


def test_a_token_without_the_scope_is_named(setting: Setting) -> None:
    """It works until its end; the fault goes when the scope is there."""
    setting.gitlab.scopes = ("read_api",)
    setting.rotate(days=4)
    (fault,) = setting.faults
    assert "answered 403 needs higher privileges; it must be valid, and needs the scope self_rotate or api" in fault
    assert token_of(setting.host) == "glpat-token-1"

    setting.gitlab.scopes = ("read_api", "self_rotate")
    setting.rotate()
    assert (token_of(setting.host), setting.faults) == ("glpat-token-2", [])


def test_only_gitlabs_token_in_a_variable_can_be_rotated() -> None:
    """Others are refused with the reason."""
    for more in ({"platform": "github", "token_env": "A"}, {"platform": "gitlab", "token_command": ("vault",)}):
        with pytest.raises(ValueError, match="rotate is for the platform gitlab"):
            HostEntry.model_validate(more | {"rotate": True})
