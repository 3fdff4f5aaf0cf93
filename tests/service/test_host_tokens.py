"""Tokens of code hosts that live an hour: printed by a command, or minted for a GitHub App."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from service.hosts.tokens import TokenError, token_of
from service.printed import NoKeyError, PrintedKey
from service.setup import HostEntry
from service.store.hosts import Host
from service.store.schema import GitHubApp
from tests.lab import Drop, Received, Respond, Step
from tests.service.conftest import UNBOXED, Api
from tests.service.git_hosts import GitHttpHost
from tests.service_process import git, make_repository
from tests.waiting import eventually

Start = Callable[..., Api]
APP, INSTALLATION = 7, 70


class AppHost(GitHttpHost):
    """A code host that gives a GitHub App tokens, as its API describes: each replaces the one before."""

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


@pytest.fixture(scope="module")
def key() -> RSAKey:
    return RSAKey.generate_key(2048)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "hosted" / "acme" / "api", {"README.md": "# api\n"})


@pytest.fixture
def app_host(tmp_path: Path, repository: Path, key: RSAKey) -> Iterator[AppHost]:
    with closing(AppHost(repository.parents[1], key)) as there:
        yield there


def begun(start: Start, host: GitHttpHost, folder: Path, **token: Any) -> tuple[Api, str, Path]:
    """Start a service and a run on the host; return when its agent is at work, and the file that lets it go on."""
    entry = {"platform": "github", "host": "127.0.0.1", "clone_url": f"{host.url}/{{path}}.git", **token}
    organization = {"name": "Acme", "slug": "acme", "entitlements": ["ServiceAPI"], "hosts": [entry]}
    organization |= {"tokens": [{"alias": "tests", "scopes": ["admin"]}]}
    organization["repositories"] = [{"name": "api", "platform": "github", "path": "acme/api"}]
    shell = f"cat > /dev/null; echo at work; while [ ! -e {folder}/go-on ]; do sleep 0.05; done; echo 1 > new.txt"
    agents = [{"name": "worker", "argv": ["sh", "-c", shell]}]
    settings = f"{UNBOXED}[forge]\nretry_s = 0.1\n"
    api = start(settings=settings, setup={"organizations": [organization], "agents": agents})
    run_id = api.begin("worker")
    eventually(lambda: "at work" in api.log(run_id), "the agent is at work", saw=lambda: api.log(run_id))
    return api, run_id, folder / "go-on"


def test_a_token_that_expires_while_an_agent_works_is_replaced(start: Start, tmp_path: Path, repository: Path) -> None:
    """The push is refused once, the command runs again, and the turn completes."""
    token = tmp_path / "token"
    token.write_text("one\n")
    with closing(GitHttpHost(repository.parents[1], "one")) as host:
        api, run_id, go_on = begun(start, host, tmp_path, probe="git", token_command=["cat", str(token)])
        token.write_text("two\n")
        host.accept("two")
        go_on.touch()

        run = api.ended(run_id)
    assert run["status"] == "completed", api.log(run_id)
    assert "new.txt" in git("ls-tree", "--name-only", run["branch_name"], cwd=repository)


def test_a_command_that_fails_for_a_while_loses_no_work(start: Start, tmp_path: Path, repository: Path) -> None:
    """The change is kept, the run says why it waits, and its commit is pushed once there is a token again."""
    token = tmp_path / "token"
    token.write_text("one\n")
    with closing(GitHttpHost(repository.parents[1], "one")) as host:
        api, run_id, go_on = begun(start, host, tmp_path, probe="git", token_command=["cat", str(token)])
        host.accept("two")
        token.unlink()
        go_on.touch()
        turn: dict[str, Any] = {}

        def waits() -> bool:
            turn.update(api.get(f"/external/runs/{run_id}").json()["turns"][-1])
            return "waiting for" in (turn["reason"] or "")

        eventually(waits, "it waits for its code host", saw=lambda: (turn, api.log(run_id)))
        token.write_text("two\n")

        assert api.ended(run_id)["status"] == "completed", api.log(run_id)
    assert "new.txt" in git("ls-tree", "--name-only", api.run(run_id)["branch_name"], cwd=repository)


def test_a_github_app_pushes_as_its_account(
    start: Start, tmp_path: Path, repository: Path, app_host: AppHost, key: RSAKey
) -> None:
    """Its only installation is found; a token is used until it is near its end or refused."""
    file = tmp_path / "app.pem"
    file.write_bytes(key.as_pem(private=True))
    app = {"id": APP, "key_file": str(file)}
    api, run_id, go_on = begun(start, app_host, tmp_path, api_url=f"{app_host.url}/api/v3", app=app)
    minted = app_host.minted
    app_host.accept("another, since that one expired")
    go_on.touch()

    run = api.ended(run_id)

    assert run["status"] == "completed", api.log(run_id)
    assert (minted, app_host.minted) == (1, 2)
    author = git("log", "-1", "--format=%an <%ae>", run["branch_name"], cwd=repository)
    assert author.strip() == "reviewer[bot] <41+reviewer[bot]@users.noreply.127.0.0.1>"


def test_an_apps_key_that_is_anothers_is_named(tmp_path: Path, app_host: AppHost, key: RSAKey) -> None:
    """So are a file that holds no key, an API that is away, and an answer that is no token."""
    file = tmp_path / "app.pem"
    file.write_bytes(RSAKey.generate_key(2048).as_pem(private=True))

    def host(name: str) -> Host:
        app = GitHubApp(APP, str(tmp_path / name), INSTALLATION)
        return Host("github", "h", None, "api", f"{app_host.url}/api/v3", None, None, app=app)

    with pytest.raises(TokenError, match=r"the App 7 no token: 401 A JSON .*; check app id, key_file .*app.pem"):
        token_of(host("app.pem"))
    (tmp_path / "none.pem").write_text("no key")
    (tmp_path / "right.pem").write_bytes(key.as_pem(private=True))
    for answer, said in ((Respond(200, {}), "unknown answer"), (Drop(), "no token for the GitHub App 7: http")):
        app_host.fault = lambda _, answer=answer: answer
        with pytest.raises(TokenError, match=said):
            token_of(host("right.pem"))
    with pytest.raises(TokenError, match="private key of the GitHub App 7 cannot be used"):
        token_of(host("none.pem"))


def test_nobody_waits_long_for_a_command_that_hangs(tmp_path: Path) -> None:
    """What it prints in the end is taken by the next attempt, and it ran once."""
    shell = f"echo >> {tmp_path}/runs; while [ ! -e {tmp_path}/go-on ]; do sleep 0.05; done; echo late"
    key = PrintedKey("token_command", ["sh", "-c", shell], 0.01)
    for _ in range(2):
        with pytest.raises(NoKeyError, match=r"has printed no token within 0\.01 s; it goes on"):
            key.get()
    (tmp_path / "go-on").touch()

    def printed() -> bool:
        with suppress(NoKeyError):
            return key.get() == "late"
        return False

    eventually(printed, "the token is printed")
    assert (tmp_path / "runs").read_text() == "\n"


def test_a_failed_command_is_the_answer_for_some_seconds(tmp_path: Path) -> None:
    """It runs once for all who ask meanwhile."""
    key = PrintedKey("token_command", ["sh", "-c", f"echo >> {tmp_path}/runs; echo down >&2; exit 1"])
    for _ in range(3):
        with pytest.raises(NoKeyError, match="printed no token: down"):
            key.get()

    assert (tmp_path / "runs").read_text() == "\n"


def test_a_token_near_its_end_is_replaced(tmp_path: Path, app_host: AppHost, key: RSAKey) -> None:
    """One that lives longer than five minutes is used again."""
    (tmp_path / "mine.pem").write_bytes(key.as_pem(private=True))
    app = GitHubApp(APP, str(tmp_path / "mine.pem"), INSTALLATION)
    host = Host("github", "h", None, "api", f"{app_host.url}/api/v3", None, None, app=app)
    app_host.life = timedelta(minutes=5)

    first = token_of(host)
    app_host.life = timedelta(hours=1)

    assert [first, token_of(host), token_of(host)] == ["minted-1", "minted-2", "minted-2"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["sh", "-c", "echo one; echo two"], "token_command 'sh' printed no token: its output is not one word"),
        (["sh", "-c", "echo 'vault: sealed' >&2; exit 2"], "there is no token for h: .*: vault: sealed"),
    ],
)
def test_a_command_that_prints_no_token_says_why(command: list[str], why: str) -> None:
    """The host is named with it."""
    with pytest.raises(TokenError, match=why):
        token_of(Host("github", "h", None, "git", None, None, None, token_command=tuple(command)))


def test_a_host_has_one_kind_of_token() -> None:
    """Two of them, or an App of GitLab, are refused by name."""
    with pytest.raises(ValueError, match="one of token_env, token_command and app"):
        HostEntry(platform="github", token_env="T", token_command=("print-it",))
    with pytest.raises(ValueError, match="app is for the platform github"):
        HostEntry.model_validate({"platform": "gitlab", "app": {"id": 1, "key_file": "k"}})
