"""The request that each endpoint gets, and the records that a good answer becomes."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from app.api.client import Client
from app.api.errors import ApiError, UnusableAnswerError
from app.api.requests import ContinueRun, CreateOrganization, OnboardProject, RunQuery, StartAgent, StartRun
from app.version import __version__
from storage.records import Repository
from tests.api.conftest import nothing
from tests.lab import ORGANIZATION, Respond, Server

API = Repository.parse("acme/api")
IN_API = {"repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}}}
RUN = {
    "run_id": "run_1",
    "status": "queued",
    "branch_name": "fix/login",
    "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
    "created_at": "2026-05-01T10:00:00.123456Z",
    "updated_at": "2026-05-01T12:00:01+02:00",
}


async def test_every_request_has_the_token_and_accepts_plain_json(server: Server, client: Client) -> None:
    """Each request has the token and accepts plain JSON, without compression (spec 5.1)."""
    server.script(Respond(200, {"code_hosting": {}}))

    await client.health()

    (request,) = server.requests
    assert (request.method, request.target, request.body) == ("GET", "/v1/external/installation/health", b"")
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "authorization": "Bearer token-for-tests",
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": f"runwarden/{__version__}",
    }


async def test_the_list_sends_every_filter_of_the_spec(server: Server, client: Client) -> None:
    """Filters are quoted, times are UTC with a Z, and unused filters are not sent (spec 4.2)."""
    server.script(Respond(200, {"runs": []}), Respond(200, {"runs": []}))

    since = datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    query = RunQuery("queued", API, since, datetime(2026, 5, 2, tzinfo=UTC))
    await client.list_runs(query, page_size=7, page_token="a+b/c=&d")
    await client.list_runs(RunQuery(repository=Repository.of("sourcehut", {"tree": "~ada/x"})))

    wanted = (
        "page_size=7&page_token=a%2Bb%2Fc%3D%26d&status=queued&repository=acme%2Fapi"
        "&date_from=2026-05-01T10%3A00%3A00.000000Z&date_to=2026-05-02T00%3A00%3A00.000000Z"
    )
    assert [request.target for request in server.requests] == [
        f"/v1/external/runs?{wanted}",
        # An unknown platform has no path to filter by (spec 2.9).
        "/v1/external/runs?page_size=100&platform=sourcehut&data=%7B%22tree%22%3A%22~ada%2Fx%22%7D",
    ]


async def test_a_lab_is_recognized_by_its_answers(server: Server, client: Client) -> None:
    """Failures identify a lab as well; a service that stops saying so is no longer one."""
    mark = {"X-Runwarden-Lab": "on"}
    server.script(Respond(503, {"message": "scripted"}, mark), Respond(200, {"runs": []}))

    assert not client.transport.in_lab
    with pytest.raises(ApiError):
        await client.list_runs()
    assert client.transport.in_lab
    await client.list_runs()
    assert not client.transport.in_lab


async def test_every_field_of_a_page_of_runs_is_read(server: Server, client: Client) -> None:
    """Fields, times and the next page are read; the run keeps its document as received, unknown fields included."""
    received = {**RUN, "cost": 1.5, "labels": ["a", None, {"b": True}], "big": 2**70}
    server.script(Respond(200, {"runs": [received], "page_size": 1, "next_token": "more", "total_count": 48_231}))

    page = await client.list_runs(page_size=1)

    (run,) = page.runs
    assert (page.next_token, page.total_count, page.dropped) == ("more", 48_231, 0)
    assert (run.run_id, run.status, run.branch_name, run.repository) == ("run_1", "queued", "fix/login", API)
    assert run.created_at == datetime(2026, 5, 1, 10, 0, 0, 123456, tzinfo=UTC)
    assert run.updated_at == datetime(2026, 5, 1, 10, 0, 1, tzinfo=UTC)
    assert json.loads(run.raw_json) == received


async def test_half_a_surrogate_pair_does_not_hide_a_page(server: Server, client: Client) -> None:
    """Invalid Unicode is shown with a replacement character; everything else is as received."""
    odd = {**RUN, "run_id": "run_2", "branch_name": "x\ud800y", "title": "\udc00 and \U0001f600"}
    body = json.dumps({"runs": [RUN, odd]}).encode()
    server.script(Respond(200, body, headers={"Content-Type": "application/json"}))

    page = await client.list_runs()

    assert [run.branch_name for run in page.runs] == ["fix/login", "x\ufffdy"]
    assert json.loads(page.runs[1].raw_json)["title"] == "\ufffd and \U0001f600"


async def test_a_write_needs_only_the_id_of_its_answer(server: Server, client: Client) -> None:
    """A started run needs only its id, whatever else the answer lacks; without an id its outcome is unknown."""
    server.script(Respond(201, {"run_id": "run_9", "status": 3}), Respond(201, {**RUN, "run_id": 9}))
    request = StartRun("Do it.", API)
    answer = await client.send(request, before_first_byte=nothing)

    assert answer.run is not None
    assert (answer.run.run_id, answer.run.status) == ("run_9", "3")
    with pytest.raises(UnusableAnswerError):
        await client.send(request, before_first_byte=nothing)


async def test_health_has_a_sample_per_connected_platform(server: Server, client: Client) -> None:
    """Each platform has one sample; null means not connected, and no installation is not a failure (spec 2.7)."""
    gitlab = {"status": "degraded", "host": "gitlab.acme.example", "group": "core", "latency_ms": 12}
    server.script(
        Respond(200, {"code_hosting": {"github": {"status": "ok"}, "gitlab": gitlab, "gitea": None}}),
        Respond(404, {"message": "none"}),
        Respond(200, {}),
        Respond(200, {"code_hosting": None}),
    )

    report = await client.health()

    assert [(sample.platform, sample.status, sample.host, sample.group) for sample in report] == [
        ("github", "ok", None, None),
        ("gitlab", "degraded", "gitlab.acme.example", "core"),
    ]
    assert json.loads(report[1].raw_json) == gitlab
    assert [await client.health() for _ in range(3)] == [(), (), ()]


ADA = "ada@example.com"
ONBOARDED = {"success": True, "status": "already_connected", "webhook_configured": True, "project_id": 42}


async def test_each_write_uses_its_endpoint_and_reads_its_answer(server: Server, client: Client) -> None:
    """Unset fields are not sent, and the answer is kept (spec 4.1, 4.3, 4.4 and 4.6)."""
    for request_, target, body, answered, result in (
        (
            StartRun("Fix the login ✓", API, "fix/login", {"ticket": 7}),
            "runs",
            {"instructions": "Fix the login ✓", "branch_name": "fix/login", "metadata": {"ticket": 7}, **IN_API},
            *(RUN, "run_1"),
        ),
        (
            ContinueRun("run_1", "And the tests", API),
            "runs",
            {"run_id": "run_1", "instructions": "And the tests", **IN_API},
            *(RUN, "run_1"),
        ),
        (
            StartAgent("security review", "acme/api", None, {"depth": "full", "n": 3}),
            "agents/security%20review/runs",
            {"repository": "acme/api", "inputs": {"depth": "full", "n": 3}},
            *({"execution_id": "exec_1", "status": "accepted", "created_at": 1_777_777_777}, "exec_1"),
        ),
        (
            CreateOrganization(ADA, "PARTNER-5"),
            *("organizations", {"email": ADA, "offer_code": "PARTNER-5"}, ORGANIZATION, "org_1"),
        ),
        # The id is proof: a missing name must not make a creation unknown.
        (CreateOrganization(ADA), "organizations", {"email": ADA}, {"organization_id": "org_2"}, "org_2"),
        (OnboardProject("core/api"), "gitlab/projects", {"project_path": "core/api"}, ONBOARDED, "core/api"),
    ):
        server.script(Respond(201, answered))

        answer = await client.send(request_, before_first_byte=nothing)

        sent = server.requests[-1]
        assert (sent.target, sent.json()) == (f"/v1/external/{target}", body)
        assert (answer.result_id, json.loads(answer.raw_json)) == (result, answered)


async def test_the_body_is_sent_exactly_as_stored(server: Server, client: Client) -> None:
    server.script(Respond(201, {"organization_id": "org_2"}))
    kept = '{"email" :  "ada@example.com"}'

    await client.send(CreateOrganization("ada@example.com"), body_json=kept, before_first_byte=nothing)

    assert server.requests[0].body == kept.encode()


async def test_reads_share_a_connection_and_writes_have_their_own(server: Server, client: Client) -> None:
    """On a connection that the service has just closed, a write's outcome would be needlessly unknown."""
    server.otherwise = lambda request: Respond(200, RUN if request.method == "POST" else {"runs": []})

    for _ in range(3):
        await client.list_runs()
    after_reads = server.connections
    for _ in range(3):
        await client.send(StartRun("x", API), before_first_byte=nothing)

    assert (after_reads, server.connections) == (1, 4)
