"""One profile without a screen: polling, the lease, and what survives."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from app.actions.actions import InFlight
from app.api.client import Client
from app.engine import events as told
from app.engine.engine import Engine
from app.engine.events import Event, LinkChanged
from app.profiles import Profile, Settings, load
from storage.cache.cache import Cache
from storage.errors import DatabaseBusyError
from storage.ledger import Ledger
from storage.records import PollOutcome, RunFilter
from storage.state import State
from tests.lab import Lab, Respond
from tests.storage.conftest import entry
from tests.waiting import until


async def heard(events: list[Event], wanted: Callable[[Event], bool], what: str) -> None:
    await until(lambda: any(wanted(event) for event in events), what, saw=lambda: events)


@pytest.fixture
def lab() -> AsyncIterator[Lab]:
    with Lab(health={"github": {"status": "ok"}}) as lab:
        yield lab


def configured(lab: Lab, tmp_path: Path) -> tuple[Settings, Profile]:
    settings = load(None, {"RUNWARDEN_BASE_URL": lab.base_url, "RUNWARDEN_DATA_DIR": str(tmp_path)})
    return settings, settings.profile()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWARDEN_TOKEN", "test-token")


async def busy(*_: object) -> None:
    raise DatabaseBusyError("Busy.", path=Path("ledger.sqlite3"))


async def test_everything_is_closed_after_a_failure(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In-flight writes finish first; an error of the lease is reported, and leaves no connection open."""
    closed: list[str] = []
    for kind in (InFlight, Client, State, Ledger, Cache):
        name = "aclose" if kind is Client else "close"
        original = getattr(kind, name)

        async def closing(self: Any, close: Any = original) -> None:
            closed.append(type(self).__name__)
            await close(self)

        monkeypatch.setattr(kind, name, closing)
    monkeypatch.setattr(State, "release_lease", busy)
    engine = await Engine.open(*configured(lab, tmp_path), actor="test")
    engine.polling.is_poller = True
    with pytest.raises(DatabaseBusyError):
        await engine.close()

    assert closed == ["InFlight", "Client", "State", "Ledger", "Cache"]


async def test_a_crashed_poll_is_a_failing_link(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug must not look like a quiet service."""

    async def breaks(_: object) -> None:
        raise OverflowError("date value out of range")

    monkeypatch.setattr("app.sync.runs.RunSync.refresh", breaks)
    monkeypatch.setattr("app.sync.polling.HealthSync.refresh", breaks)
    events: list[Event] = []
    async with await Engine.open(*configured(lab, tmp_path), actor="test") as engine:
        engine.events.subscribe(events.append)
        engine.start_polling()
        await until(lambda: sum(isinstance(one, told.StorageFailed) for one in events) >= 2, "both fail")
        links = await engine.cache.links()

    assert [(link.is_failing, link.error_kind) for link in links] == [(True, "mishandled")] * 2
    assert "OverflowError" in str(links[0].error_message)


async def test_only_one_of_two_processes_polls(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and health are polled by one engine. The second engine does not poll; each learns of the other's writes."""
    lab.put("run_1", "working", created=0)
    first: list[Event] = []
    second: list[Event] = []
    settings = configured(lab, tmp_path)
    async with await Engine.open(*settings, actor="one") as one:
        one.events.subscribe(first.append)
        one.start_polling()
        await heard(first, lambda one: isinstance(one, LinkChanged) and one.state.subject == "runs", "the runs")
        await heard(first, lambda one: isinstance(one, told.HealthChanged), "the health")
        assert await one.cache.count(RunFilter()) == 1
        assert [platform.status for platform in await one.cache.health()] == ["ok"]
        monkeypatch.setenv("RUNWARDEN_TOKEN", "test-token")
        async with await Engine.open(*settings, actor="two") as two:
            two.events.subscribe(second.append)
            two.start_polling()
            lab.put("run_2", "working", created=1)
            one.polling.poll_soon("runs")
            await heard(second, lambda one: isinstance(one, told.FilesChangedElsewhere), "news of the cache")
            first.clear()
            await two.cache.record_poll(PollOutcome("runs", two.clock()))
            await heard(first, lambda one: isinstance(one, told.FilesChangedElsewhere), "more news of the cache")
            await one.usable_state().begin_rule("nightly", "fingerprint", one.clock())
            await heard(second, lambda one: isinstance(one, told.StateChangedElsewhere), "news of the state")

            assert (one.polling.is_poller, two.polling.is_poller) == (True, False)
            assert not any(isinstance(event, LinkChanged) for event in second)


async def test_cached_data_is_readable_after_a_failed_refresh(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing token makes the link fail, not the program. The first problem is returned."""
    lab.put("run_1", "working", created=0)
    settings = configured(lab, tmp_path)
    async with await Engine.open(*settings, actor="test") as engine:
        await engine.refresh()
    monkeypatch.delenv("RUNWARDEN_TOKEN", raising=False)
    async with await Engine.open(*settings, actor="test") as engine:
        problem = await engine.refresh()
        assert engine.token_problem is not None
        assert (problem and problem.kind, await engine.cache.count(RunFilter())) == ("token", 1)
    monkeypatch.setenv("RUNWARDEN_TOKEN", "test-token")
    lab.health = {"github": {"status": "down"}}
    lab.otherwise = lambda request: Respond(429) if request.path.endswith("/runs") else lab.answer(request)
    async with await Engine.open(*settings, actor="test") as engine:
        problem = await engine.refresh()
        assert (problem.kind, [one.status for one in await engine.cache.health()]) == ("rate_limited", ["down"])


@pytest.mark.parametrize("has_lease", [True, False])
async def test_a_killed_processs_write_is_noticed_by_an_open_console(
    lab: Lab, tmp_path: Path, *, has_lease: bool
) -> None:
    """Any polling process notices it, with or without the lease, so it does not stay "sending" until the next start."""
    events: list[Event] = []
    async with await Engine.open(*configured(lab, tmp_path), actor="console") as engine:
        engine.events.subscribe(events.append)
        if not has_lease:
            await engine.usable_state().acquire_lease("poller", "another", 600)
        ledger = engine.ledger
        action = await ledger.prepare(entry("k", "", "run.start"))
        await ledger.sending(action.action_id)
        await ledger.writer.run(
            lambda c: c.execute("UPDATE actions SET owner_json = json_set(owner_json, '$[0]', ?)", (2**22 + 1,))
        )
        engine.start_polling()
        await heard(events, lambda one: one == told.ActionChanged(action.action_id), "the write is settled")

        settled = await ledger.action(action.action_id)
        assert (settled.state, settled.author.surface) == ("unknown", "console")
