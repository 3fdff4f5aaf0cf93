"""A real service for the tests of a module, and an HTTP client for it."""

import contextlib
import json
import os
import secrets
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import sqlalchemy as sa

from service.clock import SECOND_MICROS
from service.settings import DataFolder
from service.store import dispatch, organizations, runs
from service.store.database import Database
from service.store.runs import Run, TurnRequest
from tests.service.postgres import Cluster, NoPostgresError, cluster
from tests.service_process import (
    Node,
    RunningService,
    lay_tables,
    make_repository,
    refused_start,
    sandbox_works,
    start_service,
)
from tests.waiting import COLD_START_S, eventually

API: Final = {"platform": "github", "data": {"owner": "acme", "repo": "api"}}
"""A repository, as requests and answers name it."""
START: Final = {"instructions": "look", "repository": API}
"""The body of a request that starts a run."""

NOW: Final = 1_800_000_000 * SECOND_MICROS
"""The start of the store tests' time: 15 January 2027."""


_ANY_CERTIFICATE: Final = httpx.create_ssl_context(verify=False)
"""Shared by all clients, since creating one takes as long as answering a request."""


def http_client(token: str = "", base_url: str = "") -> httpx.Client:
    """A client that ignores proxies, waits long, and accepts any certificate."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=base_url, headers=headers, timeout=120, trust_env=False, verify=_ANY_CERTIFICATE)


BARE: Final = http_client()
"""A client without a token."""
NEEDS_SANDBOX = pytest.mark.skipif(not sandbox_works(), reason="bubblewrap does not work here")
UNBOXED: Final = '[execution]\nsandbox = "none"\n'
"""For tests that do not need the sandbox, which takes a fifth of a short turn's time."""
OPERATOR: Final = "rwo_" + "o" * 40
METRICS_TOKEN: Final = "a-token-for-scraping"
MODEL_KEY: Final = "k3y/of+the:model?"
WEBHOOK: Final = "https://hooks.example/gitlab"
FORGE_TOKEN: Final = "forge-t0ken-of-the-service"
OBEYS: Final = """
import json, os, pathlib, shutil, subprocess, sys, time
task = json.load(sys.stdin)
exec(task["instructions"])
"""
"""An agent whose instructions are Python: `worker` of the shared service."""


def member(slug: str = "acme", **fields: Any) -> dict[str, Any]:
    """An organization for `apply`, with a token of scope admin."""
    tokens = [{"alias": "tests", "scopes": ["admin"]}]
    return {"name": slug.title(), "slug": slug, "tokens": tokens, **fields}


def placed(url: object = None, path: str = "acme/api", **fields: Any) -> dict[str, Any]:
    """A repository for `apply`; without an address, it is at its code host."""
    entry = {"name": path.partition("/")[2], "platform": "github", "path": path}
    return entry | ({} if url is None else {"url": str(url)}) | fields


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status of a refusal, and its error code."""
    return answer.status_code, answer.json()["error_code"]


class Api:
    """A client of one service: `get`, `post`, and waiting for runs to end."""

    def __init__(self, service: Node, organization: dict[str, Any] | None = None) -> None:
        self.service = service
        self.organization = service.organization if organization is None else organization
        self.token = self.organization["tokens"][0]["value"] if self.organization["tokens"] else ""
        self.http = http_client(self.token, service.base_url)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.http.get(path, **options)

    def post(self, path: str, document: Any, **options: Any) -> httpx.Response:
        return self.http.post(path, json=document, **options)

    def start(self, instructions: str, repository: str = "acme/api", **fields: Any) -> str:
        return self.begin("scribe", repository, fields, instructions=instructions)

    def add_agent(self, folder: Path, name: str, source: str, *options: str) -> None:
        """Add an agent with a test's own script; `options` are those of `agent add`."""
        script = folder / f"{name}.py"
        script.write_text(source, "utf-8")
        self.service.admin("agent", "add", name, "--argv", f"{{python}} {script}", *options)

    def begin(self, agent: str, repository: str = "acme/api", fields: Any = None, **inputs: Any) -> str:
        body = {"repository": repository, "inputs": inputs, **(fields or {})}
        answer = self.post(f"/external/agents/{agent}/runs", body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["execution_id"])

    def follow(self, run_id: str, words: str, repository: str = "acme/api", start_from: str = "") -> httpx.Response:
        owner, _, repo = repository.partition("/")
        reference = {"platform": "github", "data": {"owner": owner, "repo": repo}}
        body = {"instructions": words, "repository": reference, "run_id": run_id}
        return self.post("/external/runs", body, params={"start_from": start_from} if start_from else None)

    def turns(self, run_id: str) -> list[dict[str, Any]]:
        return list(self.get(f"/external/runs/{run_id}").json()["turns"])

    def run(self, run_id: str) -> dict[str, Any]:
        run = next((run for run in self.runs(page_size="10") if run["run_id"] == run_id), None)
        assert run is not None, f"{run_id} is not listed"
        return run

    def runs(self, **params: str) -> Iterator[dict[str, Any]]:
        token: dict[str, str] | None = {}
        while token is not None:
            page = self.get("/external/runs", params={"page_size": "100"} | params | token).json()
            yield from page["runs"]
            token = {"page_token": page["next_token"]} if page["next_token"] else None

    def ended(self, run_id: str) -> dict[str, Any]:
        return self.reaches(run_id, "completed", "failed")

    def reaches(self, run_id: str, *statuses: str) -> dict[str, Any]:
        self._wait(run_id, statuses)
        return self.run(run_id)

    def _wait(self, run_id: str, statuses: Sequence[str]) -> None:
        file = DataFolder(self.service.data_dir).database_file

        def status() -> str:
            row = None
            # Read an SQLite database directly if it has the run: an answer costs the service a tenth of a turn's time.
            if file.exists():
                with contextlib.closing(sqlite3.connect(file, timeout=60)) as database:
                    row = database.execute("SELECT status FROM runs WHERE id = ?", [run_id]).fetchone()
            return str(row[0] if row else self.get(f"/external/runs/{run_id}").json()["status"])

        # An agent is a process, which takes time to start.
        eventually(lambda: status() in statuses, f"{run_id} becomes {' or '.join(statuses)}", COLD_START_S)

    def log(self, run_id: str, turn: int = 1) -> str:
        shown = self.service.admin("run", run_id, "--log")
        return str(shown["turns"][turn - 1]["log"])

    def worked(self, run_id: str) -> dict[str, Any]:
        """Wait until a run has ended, and return its last turn with the run's id and branch, and the turn's log."""
        self._wait(run_id, ("completed", "failed"))
        shown = self.service.admin("run", run_id, "--log")
        more = {"run_id": run_id, "branch": shown["branch_name"], "log": shown["turns"][-1]["log"]}
        return self.turns(run_id)[-1] | more

    def work(self, words: str, agent: str = "worker", repository: str = "acme/api", **fields: Any) -> dict[str, Any]:
        """Let an agent do one turn of a new run, and return it as `worked` does."""
        return self.worked(self.begin(agent, repository, fields, instructions=words))

    def go_on(self, run_id: str, words: str, start_from: str = "") -> dict[str, Any]:
        """Let a run have its next turn, and return it as `worked` does."""
        assert self.follow(run_id, words, start_from=start_from).status_code == 201
        return self.worked(run_id)


Make = Callable[..., Api]
"""`tenant(…)` makes an organization, `start(…)` a service; both return a client."""
Own = Callable[..., tuple[Api, Path]]


class Laboratory:
    """A service with an open lab, and a client for both."""

    def __init__(self, service: RunningService) -> None:
        self.service = service
        self.api = Api(service)
        self.url = service.base_url.removesuffix("/v1") + "/_lab"
        self._http = http_client(service.lab_token)

    def get(self, path: str = "") -> httpx.Response:
        return self._http.get(self.url + path)

    def post(self, path: str, document: Any) -> httpx.Response:
        return self._http.post(self.url + path, json=document)

    def put(self, path: str, document: Any) -> httpx.Response:
        return self._http.put(self.url + path, json=document)

    def state(self) -> dict[str, Any]:
        return dict(self.get().json())

    def script(self, operation: str, kind: str, **fields: Any) -> int:
        """Put a fault on the script and return its id."""
        answer = self.post("/faults", {"operation": operation, "kind": kind, **fields})
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])

    def reset(self) -> dict[str, Any]:
        answer = self.post("/reset", {})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@contextlib.contextmanager
def served(paths: pytest.TempPathFactory, name: str, settings: str, **options: Any) -> Iterator[RunningService]:
    """A service for all tests of a worker process that do not start, stop or configure it."""
    service = start_service(paths.mktemp(name), settings=settings, **options)
    yield service
    assert service.stop() == 0


@pytest.fixture(scope="session")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service whose agents work without a sandbox."""
    # A variable for the test of what agents see of the service's environment.
    environment = {"SECRET": "s3cr3t", "LENT": "lent", "ANTHROPIC_API_KEY": "sk-x"}
    # Many tests leave runs behind, which must not delay the next test's run.
    settings = f"{UNBOXED}concurrency = 4\n[limits]\nrequests_per_minute = 1000000\n"
    with served(tmp_path_factory, "service", settings, environment=environment) as service:
        Api(service).add_agent(service.data_dir.parent, "worker", OBEYS, "--env", "SECRET")
        yield service


@pytest.fixture(scope="session")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of a service that accepts runs and executes none, for tests of the API alone."""
    settings = "[limits]\nrequests_per_minute = 1000000\nactive_runs = 100000\n"
    environment = {"RUNWARDEN_OPERATOR_TOKEN": OPERATOR}
    with served(tmp_path_factory, "idle", settings, arguments=["--no-worker"], environment=environment) as service:
        yield Api(service)


@pytest.fixture
def database_of_idle(idle: Api) -> Iterator[Database]:
    with contextlib.closing(Database(DataFolder(idle.service.data_dir).database_url)) as database:
        yield database


@pytest.fixture(scope="session")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with one slot, which soon retries a code host that was down."""
    settings = f"{UNBOXED}concurrency = 1\nlook_s = 0.1\n[limits]\nrequests_per_minute = 1000000\n"
    with served(tmp_path_factory, "patient", f"{settings}[forge]\nretry_s = 0.1\n") as service:
        yield service


@pytest.fixture(scope="session")
def api(shared_service: RunningService) -> Api:
    """A client of the shared service's first organization, acme, which many tests use."""
    return Api(shared_service)


@pytest.fixture(scope="session")
def tenant(request: pytest.FixtureRequest) -> Callable[..., Api]:
    """`tenant(hosts=…, repositories=…, agents=…)` makes an organization and returns its client.

    It uses the shared service, unless `on` names another.
    """

    def join(on: RunningService | None = None, agents: Sequence[dict[str, Any]] = (), **fields: Any) -> Api:
        service = on or request.getfixturevalue("shared_service")
        slug = f"tenant-{secrets.token_hex(6)}"
        entry = member(slug, **{"name": slug} | fields)
        setup = {"organizations": [entry], "agents": [{"organization": slug} | agent for agent in agents]}
        file = service.data_dir.parent / "tenant.json"
        file.write_text(json.dumps(setup), "utf-8")
        return Api(service, service.admin("apply", str(file))["organizations"][0])

    return join


@pytest.fixture
def own(tenant: Callable[..., Api], tmp_path: Path) -> Callable[..., tuple[Api, Path]]:
    """`own(files, branches, **entry)` makes an organization with its own repository acme/api, and returns both."""

    def make(
        files: dict[str, str] | None = None,
        branches: dict[str, dict[str, str]] | None = None,
        on: RunningService | None = None,
        agents: Sequence[dict[str, Any]] = (),
        **entry: Any,
    ) -> tuple[Api, Path]:
        bare = make_repository(tmp_path / "acme" / "api", files or {"README.md": "# api\n"}, branches)
        return tenant(on, agents, repositories=[placed(bare, **entry)]), bare

    return make


@pytest.fixture(scope="session")
def equipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service whose agents work in the sandbox, with a page, metrics, and variables to lend."""
    settings = '[execution]\nconcurrency = 3\n[page]\nurl = "https://runs.acme.example"\n[forge]\nretry_s = 0.1\n'
    settings += f'[gitlab]\nwebhook_url = "{WEBHOOK}"\nwebhook_secret_env = "HOOK_SECRET_HERE"\n'
    environment = {"RUNWARDEN_OPERATOR_TOKEN": OPERATOR, "RUNWARDEN_METRICS_TOKEN": METRICS_TOKEN}
    environment |= {"GITLAB_TOKEN_HERE": "bot-token", "HOOK_SECRET_HERE": "hush"}
    environment |= {"LENT": "lent-value", "MODEL_KEY": MODEL_KEY, "FORGE_TOKEN": FORGE_TOKEN}
    with served(tmp_path_factory, "equipped", settings, environment=environment) as service:
        yield service


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Api]]:
    """Start a separate service: `start(settings=…, setup=…)` returns a client of it."""
    running: list[RunningService] = []

    def begin(**options: Any) -> Api:
        service = start_service(tmp_path / f"service-{len(running)}", **options)
        running.append(service)
        return Api(service)

    yield begin
    for service in running:
        service.stop()


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on a separate disk of 256 MiB and 20,000 inodes, unless a test requests another size."""
    folder = tmp_path / "small"
    folder.mkdir()
    size = getattr(request, "param", "size=256m,nr_inodes=20000")
    mount = ["mount", "-t", "tmpfs", "-o", size, "none", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A real PostgreSQL for the tests of a worker process; without one, those that need it are skipped."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(cluster())
        except NoPostgresError as reason:
            pytest.skip(str(reason))
        yield server


@pytest.fixture(scope="session")
def tables(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a PostgreSQL database with the service's and the queue's tables, as a template."""
    url = postgres.create("tables")
    result = refused_start(tmp_path_factory.mktemp("tables"), "migrate", "--database", url)
    assert result.returncode == 0, result.stderr
    return "tables"


@pytest.fixture
def postgres_url(postgres: Cluster, tables: str) -> Iterator[str]:
    """The address of a PostgreSQL database with empty tables."""
    with postgres.temporary(tables) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def either_url(request: pytest.FixtureRequest) -> str | None:
    """The address of a PostgreSQL database with empty tables, and None for a deployment on SQLite."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


BOTH: Final = pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
"""Runs a test on both databases."""


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database with empty tables: SQLite, unless a test requests PostgreSQL."""
    if getattr(request, "param", "sqlite") == "postgresql":
        url = str(request.getfixturevalue("postgres_url"))
    else:
        lay_tables(tmp_path)
        url = DataFolder(tmp_path).database_url
    with contextlib.closing(Database(url)) as database:
        yield database


def organization(database: Database, slug: str = "acme", now: int = NOW) -> str:
    """Return an organization's id; create it if it does not exist."""
    with database.write() as connection:
        there = organizations.by_slug(connection, slug)
        return (there or organizations.create(connection, name=slug, slug=slug, now=now)).id


def order(owner: str, agent: str = "scribe", **changed: Any) -> TurnRequest:
    """A requested turn."""
    fields = {"platform": "github", "path": "acme/api", "url": "/srv/api.git", "branch": None, "instructions": "do it"}
    return TurnRequest(owner, agent, **fields | changed)


def due_jobs(connection: sa.Connection, kind: str, now: int) -> list[str]:
    """Return the keys of the due jobs of a kind, in their order."""
    return [name.partition(":")[2] for name in dispatch.due_jobs(connection, now) if name.startswith(f"{kind}:")]


def accepted(database: Database, slug: str = "acme", agent: str = "scribe", now: int = NOW, **changed: Any) -> Run:
    """Accept a run of an organization, which is created if it does not exist."""
    owner = organization(database, slug, now)
    with database.write() as connection:
        return runs.accept(connection, order(owner, agent, **changed), now)
