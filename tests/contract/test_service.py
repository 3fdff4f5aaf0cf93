"""The client against the real service, over its socket: each endpoint."""

from datetime import UTC, datetime, timedelta

from app.api.requests import ContinueRun, CreateOrganization, OnboardProject, StartAgent, StartRun
from storage.records import Repository, Run
from tests.contract.world import API, World, listed, nothing, started


async def test_a_run_is_started_listed_and_continued(world: World) -> None:
    """Spec 4.2 and 4.3, from queued to completed and queued again, under the same id."""
    async with world.client() as client:
        first = await client.send(StartRun("Review the login", API, "fix/login"), before_first_byte=nothing)
        assert first.run is not None
        assert (first.status, first.run.status, first.run.branch_name) == (201, "queued", "fix/login")
        assert first.run.repository == API

        done = await listed(client, first.run.run_id, "completed")
        assert done.created_at is not None
        assert done.updated_at is not None
        assert done.created_at < done.updated_at

        again = await client.send(ContinueRun(done.run_id, "Once more", API), before_first_byte=nothing)
        assert again.run is not None
        assert (again.run.run_id, again.run.status) == (done.run_id, "queued")


async def test_a_named_agent_is_accepted(world: World) -> None:
    """Spec 4.4: an execution with an id and a status."""
    async with world.client() as client:
        answer = await client.send(StartAgent("scribe", "acme/web"), before_first_byte=nothing)

    execution = answer.execution
    assert execution is not None
    assert (execution.agent_name, execution.repository, execution.status) == ("scribe", "acme/web", "queued")
    assert execution.execution_id
    assert execution.created_at


async def test_an_organization_is_created_and_invited_twice_over(world: World) -> None:
    """Spec 4.1: each success is another organization, and each has its invitation."""
    async with world.client("creator") as client:
        both = [
            await client.send(CreateOrganization("ada@example.com", "PARTNER"), before_first_byte=nothing)
            for _ in range(2)
        ]

    assert len({answer.result_id for answer in both}) == 2
    for answer in both:
        assert answer.organization is not None
        assert answer.organization.parent_organization_id == world.service.organization["id"]
        assert (world.service.outbox / f"{answer.result_id}.eml").exists()


async def test_health_names_the_connected_hosts(world: World) -> None:
    """Spec 4.5 and 2.7."""
    async with world.client() as client:
        report = await client.health()

    found = {sample.platform: sample for sample in report.samples}
    assert {name: sample.status for name, sample in found.items()} == {"github": "ok", "gitlab": "ok"}
    assert (found["gitlab"].host, found["gitlab"].group) == ("gitlab.example", "acme")


async def test_health_of_an_organization_without_hosts_is_empty(world: World) -> None:
    """No installation is a fact, and no failure."""
    async with world.client("plain") as client:
        assert (await client.health()).samples == ()


async def test_a_known_gitlab_project_is_connected_already(world: World) -> None:
    """Spec 4.6, by the design's decision; a project that cannot be found is an answer as well."""
    async with world.client() as client:
        known = (await client.send(OnboardProject("acme/tools"), before_first_byte=nothing)).project
        missing = (await client.send(OnboardProject("acme/nothing"), before_first_byte=nothing)).project

    assert known is not None
    assert missing is not None
    assert (known.success, known.status, known.project_path) == (True, "already_connected", "acme/tools")
    assert (missing.success, missing.status) == (False, "failed")
    assert missing.error


async def test_the_list_pages_and_filters(world: World) -> None:
    """Spec 4.2: newest first, page by page, without a run lost or repeated; both ends of a window are inclusive."""
    async with world.client() as client:
        ids = [(await started(client, f"note {number}")).run_id for number in range(3)]
        everything = (await client.list_runs()).runs
        walked: list[Run] = []
        token: str | None = None
        while True:
            page = await client.list_runs(page_size=2, page_token=token)
            walked += page.runs
            if (token := page.next_token) is None:
                break
        one = next(run for run in everything if run.run_id == ids[1])
        window = await client.list_runs(date_from=one.created_at, date_to=one.created_at)
        elsewhere = await client.list_runs(repository=Repository.parse("gitlab:acme/tools"))
        here = await client.list_runs(repository=API)
        odd = await client.list_runs(status="no-such-status")
        past = await client.list_runs(date_to=datetime.now(UTC) - timedelta(days=1))

    assert [run.run_id for run in everything][:3] == ids[::-1]
    assert [run.run_id for run in walked] == [run.run_id for run in everything]
    assert [run.run_id for run in window.runs] == [one.run_id]
    assert (elsewhere.runs, odd.runs, past.runs) == ((), (), ())
    assert set(ids) <= {run.run_id for run in here.runs}
