"""Code host tokens that expire: printed by a command, created for a GitHub App, or rotated at GitLab."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from service.clock import DAY_MICROS, EPOCH, MICROSECOND, SECOND_MICROS
from service.hosts import HostResponse, ask, rotation
from service.hosts.rotation import TokenRotation, faults
from service.hosts.tokens import HostTokens, TokenError
from service.setup import HostEntry, connect_host, find_organization
from service.store.database import Database
from service.store.hosts import Host, connect, disconnect
from service.store.schema import GitHubApp, host_tokens
from tests.lab import Drop, Received, Respond, Server, Step
from tests.service.conftest import BOTH, NOW, Api, Make, organization, placed
from tests.service.git_hosts import GitHttpHost
from tests.service_process import git, make_repository
from tests.waiting import eventually

APP, INSTALLATION = 7, 70


class AppHost(GitHttpHost):
    """A code host that issues tokens to a GitHub App, as its API describes: each replaces the one before."""

    def __init__(self, folder: Path, key: RSAKey) -> None:
        super().__init__(folder, "none yet")
        self.fault = self._api
        self.minted = 0
        self.life = timedelta(hours=1)
        self.git_database: Callable[[Received, str], Step] = lambda *_: Respond(404, {"message": "Not Found"})
        self._key = RSAKey.import_key(key.as_pem(private=False))

    def _api(self, request: Received) -> Step | None:
        if not request.path.startswith("/api/v3/"):
            return None
        path = request.path.removeprefix("/api/v3")
        if path.startswith("/repos/acme/api/git/"):
            return self.git_database(request, path.removeprefix("/repos/acme/api/git/"))
        if path == "/users/reviewer%5Bbot%5D":
            return Respond(200, {"id": 41})
        try:
            claims = jwt.decode(request.headers["authorization"].removeprefix("Bearer "), self._key).claims
            assert claims["iss"] == str(APP)
        except (JoseError, AssertionError):
            return Respond(401, {"message": "A JSON web token could not be decoded"})
        match path:
            case "/app":
                return Respond(200, {"slug": "reviewer"})
            case "/app/installations":
                return Respond(200, [{"id": INSTALLATION, "account": {"login": "acme"}}])
            case "/app/installations/70/access_tokens":
                self.minted += 1
                self.accept(f"minted-{self.minted}")
                ends = (datetime.now(UTC) + self.life).isoformat().replace("+00:00", "Z")
                return Respond(201, {"token": f"minted-{self.minted}", "expires_at": ends})
        return Respond(404, {"message": "Not Found"})


@cache
def own_key() -> RSAKey:
    """The App's key, generated once because that is slow."""
    return RSAKey.generate_key(2048)


@pytest.fixture
def key() -> RSAKey:
    return own_key()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "hosted" / "acme" / "api", {"README.md": "# api\n"})


@pytest.fixture
def app_host(tmp_path: Path, repository: Path, key: RSAKey) -> Iterator[AppHost]:
    with closing(AppHost(repository.parents[1], key)) as there:
        yield there


Begin = Callable[..., tuple[Api, str, Path]]


@pytest.fixture
def begun(tenant: Make, patient: Any, tmp_path: Path) -> Begin:
    """`begun(host, **token)` starts a run on the host, whose agent works until the file exists."""

    def begin(host: GitHttpHost, **token: Any) -> tuple[Api, str, Path]:
        entry = {"platform": "github", "host": "127.0.0.1", "clone_url": f"{host.origin}/{{path}}.git", **token}
        shell = f"cat > /dev/null; echo at work; while [ ! -e {tmp_path}/go-on ]; do sleep 0.05; done; echo 1 > new.txt"
        agent = {"name": "worker", "argv": ["sh", "-c", shell]}
        api = tenant(on=patient, hosts=[entry], repositories=[placed()], agents=[agent])
        run_id = api.begin("worker")
        eventually(lambda: "at work" in api.log(run_id), "the agent is at work", saw=lambda: api.log(run_id))
        return api, run_id, tmp_path / "go-on"

    return begin


def test_a_token_that_expires_while_an_agent_works_is_replaced(begun: Begin, tmp_path: Path, repository: Path) -> None:
    """After a refusal the command runs again.

    If it fails, the run shows why it waits, and pushes once there is a token.
    """
    token = tmp_path / "token"
    token.write_text("one\n")
    with closing(GitHttpHost(repository.parents[1], "one")) as host:
        api, run_id, go_on = begun(host, probe="git", token_command=["cat", str(token)])
        host.accept("two")
        token.unlink()
        go_on.touch()
        waits = lambda: "waiting for" in (api.turns(run_id)[-1]["reason"] or "")  # noqa: E731
        eventually(waits, "it waits for its code host", saw=lambda: api.log(run_id))
        token.write_text("two\n")
        turn = api.worked(run_id)

    assert turn["outcome"] == "completed", turn["log"]
    assert "new.txt" in git("ls-tree", "--name-only", turn["branch"], cwd=repository)


def test_a_github_app_pushes_as_its_bot_account(
    begun: Begin, tmp_path: Path, repository: Path, app_host: AppHost, key: RSAKey
) -> None:
    """The App's only installation is found; a token is used until it nearly expires or is refused."""
    file = tmp_path / "app.pem"
    file.write_bytes(key.as_pem(private=True))
    api, run_id, go_on = begun(app_host, api_url=f"{app_host.origin}/api/v3", app={"id": APP, "key_file": str(file)})
    minted = app_host.minted
    app_host.accept("another, since that one expired")
    go_on.touch()

    turn = api.worked(run_id)

    assert turn["outcome"] == "completed", turn["log"]
    assert (minted, app_host.minted) == (1, 2)
    author = git("log", "-1", "--format=%an <%ae>", turn["branch"], cwd=repository)
    assert author.strip() == "reviewer[bot] <41+reviewer[bot]@users.noreply.127.0.0.1>"


def test_an_apps_token_is_replaced_near_its_end_and_faults_are_named(
    database: Database, tmp_path: Path, app_host: AppHost, key: RSAKey
) -> None:
    """A wrong key and an unreachable API are named."""

    def host(name: str, key: bytes) -> Host:
        (tmp_path / name).write_bytes(key)
        app = GitHubApp(APP, str(tmp_path / name), INSTALLATION)
        return Host("github", "h", None, "api", f"{app_host.origin}/api/v3", None, None, app=app)

    mine = host("mine.pem", key.as_pem(private=True))
    app_host.life = timedelta(minutes=5)
    tokens = HostTokens(database)
    first = tokens.of(mine)
    app_host.life = timedelta(hours=1)
    assert [first, tokens.of(mine), tokens.of(mine)] == ["minted-1", "minted-2", "minted-2"]

    with pytest.raises(TokenError, match=r"the App 7 no token: 401 A JSON .*; check app id, key_file .*app.pem"):
        tokens.of(host("app.pem", RSAKey.generate_key(2048).as_pem(private=True)))
    app_host.fault = lambda _: Drop()
    with pytest.raises(TokenError, match="no token for the GitHub App 7: http"):
        tokens.of(host("right.pem", key.as_pem(private=True)))


@dataclass(kw_only=True, eq=False)
class GitLabTokens(Server):
    """A token family at GitLab: only the newest is valid, until a revoked one requests a rotation."""

    ends: date
    tokens: list[str] = field(default_factory=lambda: ["glpat-token-1"])
    scopes: tuple[str, ...] = ("api",)
    now: Callable[[], int]
    is_revoked: bool = False
    answer_to_rotation: Step | None = None
    """The answer after everything was done; None: the usual one."""

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


class Rotating:
    """A host whose token expires in ten days, and a clock."""

    def __init__(self, database: Database) -> None:
        self.now = NOW
        self.database = database
        ends = (EPOCH + NOW * MICROSECOND).date() + timedelta(days=10)
        self.gitlab = GitLabTokens(ends=ends, now=lambda: self.now).start()
        url = f"{self.gitlab.origin}/api/v4"
        entry = HostEntry(platform="gitlab", api_url=url, token_env="GITLAB_TOKEN", rotate=True)
        organization(database)
        with database.write() as connection:
            self.host = connect_host(connection, find_organization(connection, "acme"), entry, NOW)

    def rotate(self, *, days: float = 0) -> None:
        """Let time pass, and run a worker's round; each worker may be another process."""
        self.now += int(days * DAY_MICROS) + 3600 * SECOND_MICROS
        TokenRotation(self.database, lambda: self.now).run()

    @property
    def token(self) -> str | None:
        return HostTokens(self.database).of(self.host)

    @property
    def faults(self) -> list[str]:
        with self.database.read() as connection:
            return faults(connection)


@pytest.fixture
def rotating(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rotating]:
    monkeypatch.setenv("GITLAB_TOKEN", "glpat-token-1")
    made = Rotating(database)
    with closing(made.gitlab):
        yield made


@BOTH
def test_a_token_is_rotated_once_before_it_expires(rotating: Rotating) -> None:
    """One of several simultaneous workers rotates it.

    The database does not show the token, and later it is rotated again.
    """
    rotating.rotate()
    assert (rotating.gitlab.rotations, rotating.token) == (0, "glpat-token-1")

    with ThreadPoolExecutor(8) as workers:
        rotating.now += 4 * DAY_MICROS
        rounds = [workers.submit(TokenRotation(rotating.database, lambda: rotating.now).run) for _ in range(8)]
        assert [each.result() for each in rounds] == [None] * 8
    rotating.rotate()

    assert (rotating.gitlab.rotations, rotating.token) == (1, "glpat-token-2")
    with rotating.database.read() as connection:
        row = connection.execute(host_tokens.select()).one()
    assert "glpat" not in str(row)
    rotating.rotate(days=55)
    assert (rotating.gitlab.rotations, rotating.token, rotating.faults) == (2, "glpat-token-3", [])


def test_a_refused_worker_does_not_rotate_again(rotating: Rotating, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker looks, a second rotates, and a third is refused with the old token.

    A second rotation with the old token would make GitLab revoke the new one.
    """
    rotating.now += 5 * DAY_MICROS
    looked, asked, rotated, ended = (threading.Event() for _ in range(4))
    others = [threading.Thread(target=TokenRotation(rotating.database, lambda: rotating.now).run) for _ in range(2)]
    refused, rotates = others
    looks = iter(("first", "refused"))

    def while_the_first_is_answered() -> None:
        refused.start()
        assert looked.wait(30)
        rotates.start()
        assert rotated.wait(30)
        asked.set()
        refused.join(30)

    def while_the_rotation_is_answered() -> None:
        rotated.set()
        assert ended.wait(30)

    def held_back(*given: Any, **named: Any) -> HostResponse:
        who = "rotates" if named.get("method") == "POST" else next(looks, "")
        if who == "refused":
            looked.set()
            assert asked.wait(30)
        answer = ask(*given, **named)
        if who == "first":
            while_the_first_is_answered()
        elif who == "rotates":
            while_the_rotation_is_answered()
        return answer

    monkeypatch.setattr(rotation, "ask", held_back)
    TokenRotation(rotating.database, lambda: rotating.now).run()
    ended.set()
    rotates.join(30)

    assert (rotating.gitlab.rotations, rotating.gitlab.is_revoked) == (1, False)
    assert rotating.token == "glpat-token-2"


def test_a_rotation_whose_answer_is_lost_is_never_repeated(rotating: Rotating, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is lost, and everything reports that with the fix, until the variable has another one."""
    rotating.gitlab.answer_to_rotation = Drop()
    rotating.rotate(days=4)
    assert rotating.faults == []
    for _ in range(3):
        rotating.rotate()

    assert rotating.gitlab.rotations == 1
    (fault,) = rotating.faults
    assert "the answer to the rotation of the token in GITLAB_TOKEN was lost" in fault
    with pytest.raises(TokenError, match=r"create a new token at 127\.0\.0\.1, and set it there"):
        _ = rotating.token

    monkeypatch.setenv("GITLAB_TOKEN", "glpat-of-an-admin")
    rotating.gitlab.tokens, rotating.gitlab.answer_to_rotation = ["glpat-of-an-admin"], None
    rotating.rotate()
    assert (rotating.token, rotating.faults) == ("glpat-of-an-admin", [])


def test_a_rotated_token_is_found_after_configuration_changes(
    rotating: Rotating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker may lack the variable or have another token, `rotate` may be dropped, or the host reconnected."""
    rotating.rotate(days=4)
    owner, others = organization(rotating.database), organization(rotating.database, "others")
    with rotating.database.write() as connection:
        connect(connection, others, replace(rotating.host, token_env="GITLAB_TOKEN2"), NOW)
    for name, values in {"GITLAB_TOKEN": (None, "mistyped"), "GITLAB_TOKEN2": ("glpat-of-others",)}.items():
        for value in values:
            monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
            rotating.rotate()
    monkeypatch.setenv("GITLAB_TOKEN", "glpat-token-1")
    for rotates in (False, True):
        with rotating.database.write() as connection:
            disconnect(connection, owner, "gitlab")
        rotating.rotate()
        host = replace(rotating.host, rotate=rotates)
        with rotating.database.write() as connection:
            connect(connection, owner, host, NOW)
        rotating.rotate()
        assert HostTokens(rotating.database).of(host) == "glpat-token-2"

    assert (rotating.gitlab.rotations, rotating.gitlab.is_revoked, len(rotating.faults)) == (1, False, 1)


def test_a_failed_rotation_is_reported_and_repeated(rotating: Rotating, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cipher, a new token could not be stored; a token without the scope works until it expires.

    A request that never arrived is repeated, since GitLab still accepts the old token.
    """
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "joserfc", None)
        rotating.rotate(days=4)
    assert (rotating.gitlab.rotations, rotating.token) == (0, "glpat-token-1")
    assert ["needs the extra `oidc`" in fault for fault in rotating.faults] == [True]

    rotating.gitlab.scopes = ("read_api",)
    rotating.rotate()
    (fault,) = rotating.faults
    assert "answered 403 needs higher privileges; it must be valid, and needs the scope self_rotate or api" in fault
    assert rotating.token == "glpat-token-1"

    rotating.gitlab.scopes = ("read_api", "self_rotate")
    rotating.gitlab.script(Respond(200, {"expires_at": f"{rotating.gitlab.ends}", "created_at": "2026-01-01"}), Drop())
    rotating.rotate()
    assert (rotating.gitlab.tokens, rotating.token) == (["glpat-token-1"], "glpat-token-1")
    rotating.rotate()
    assert (rotating.token, rotating.faults, rotating.gitlab.is_revoked) == ("glpat-token-2", [], False)


def test_a_host_has_one_kind_of_token() -> None:
    """Two tokens, an App at GitLab, and a rotation of anything but a GitLab token in a variable are refused."""
    app, command = {"id": 1, "key_file": "k"}, ("vault",)
    for platform, given, why in (
        ("github", {"token_env": "T", "token_command": command}, "one of token_env, token_command and app"),
        ("gitlab", {"app": app}, "app is for the platform github"),
        ("github", {"token_env": "A", "rotate": True}, "rotate is for the platform gitlab"),
        ("gitlab", {"token_command": command, "rotate": True}, "rotate is for the platform gitlab"),
    ):
        with pytest.raises(ValueError, match=why):
            HostEntry.model_validate({"platform": platform, **given})
