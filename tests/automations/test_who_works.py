"""Of all consoles and bots on one folder, one polls and one bot acts, even if the cache is deleted."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.automations.bot import LEASE, Bot
from app.profiles import Settings
from tests.automations.test_acting import RUN, Said, Service, automation, configured, service
from tests.waiting import until

__all__ = ["service"]


@asynccontextmanager
async def at_work(settings: Settings) -> AsyncIterator[tuple[Bot, Said]]:
    """A running bot and its log."""
    bot = await Bot.open(settings, settings.profile(), said := Said())
    working = asyncio.create_task(bot.run())
    try:
        yield bot, said
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await bot.close()


async def looked(bot: Bot) -> None:
    """Wait until its rules have seen the present state, so that later changes are news."""

    async def has_looked() -> bool:
        state = (await bot.state.rule_states()).get("r")
        return state is not None and not state.is_new

    await until(has_looked, "the rule has looked")
    await until(lambda: bot.engine.polling.is_poller, "the bot polls")


async def test_a_deleted_cache_changes_nothing_about_who_works(service: Service, tmp_path: Path) -> None:
    """After the cache is deleted, the bot continues without repeating or missing anything. The other one stands by."""
    settings = configured(service, tmp_path, "[poll]\nruns_s = 1\n" + automation('{ continue = "{run.id}" }'))
    async with at_work(settings) as (bot, said):
        await looked(bot)
        async with at_work(settings) as (_, other):
            service.runs = [RUN]
            await until(lambda: len(service.posted) == 1, "the first failure is continued")
            for file in tmp_path.rglob("cache.sqlite3*"):
                file.unlink()
            now = datetime.now(UTC).isoformat()
            service.runs = [{**RUN, "run_id": "run_9", "created_at": now, "updated_at": now}, RUN]
            await until(lambda: len(service.posted) == 2, "the second failure is continued")
            bot.engine.polling.poll_soon("runs")
            await until(lambda: len(said.outcomes()) == 4, "both are done", saw=said.outcomes)

            assert bot.engine.polling.is_poller
            assert [event for event, _ in other if event == "working"] == []
    assert [request.json()["instructions"] for request in service.posted] == ["run_1", "run_9"]


@pytest.mark.parametrize("fault", ["job", "storage"])
async def test_a_bot_that_cannot_work_says_so_and_is_not_well(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A bot with broken rules or without its state logs that once and reports unhealthy; once fixed, it continues."""
    settings = configured(service, tmp_path, "[poll]\nruns_s = 1\n" + automation('{ continue = "go on" }'))
    async with at_work(settings) as (bot, said):
        await looked(bot)
        await until(bot.is_healthy, "the bot is well")
        state = bot.state.writer.path
        with monkeypatch.context() as broken:
            if fault == "job":
                broken.setattr("app.automations.runner.Runner.decide_and_act", lambda *_, **__: 1 // 0)
            else:
                state.rename(state.with_name("aside"))
            bot.reload(settings)
            await until(lambda: any(event == f"{fault}_failed" for event, _ in said), "the failure is reported")
            assert not await bot.is_healthy()
            bot.reload(settings)
        if fault == "storage":
            state.with_name("aside").rename(state)
        service.runs = [RUN]
        await until(lambda: ("done", None) in said.outcomes(), "the rule acts again", saw=said.outcomes)
        await until(bot.is_healthy, "the bot is well again")

    if fault == "job":
        (failed,) = [facts for event, facts in said if event == "job_failed"]
        assert (failed["job"], "ZeroDivisionError" in str(failed["message"])) == ("automations", True)
        assert any(event == "job_works" for event, _ in said)


async def test_a_bot_without_its_state_says_so_and_is_not_well(service: Service, tmp_path: Path) -> None:
    """A bot without its state file logs that and reports unhealthy; once the file is back, it continues."""
    settings = configured(service, tmp_path, "[poll]\nruns_s = 1\n" + automation('{ continue = "go on" }'))
    async with at_work(settings) as (bot, said):
        await looked(bot)
        await until(bot.is_healthy, "the bot is well")
        state = bot.state.writer.path
        state.rename(state.with_name("aside"))
        bot.reload(settings)
        await until(lambda: any(event == "storage_failed" for event, _ in said), "the failure is reported")
        assert not await bot.is_healthy()
        bot.reload(settings)
        state.with_name("aside").rename(state)
        service.runs = [RUN]
        await until(lambda: ("done", None) in said.outcomes(), "the rule acts again", saw=said.outcomes)
        await until(bot.is_healthy, "the bot is well again")


async def test_a_slow_deed_keeps_the_lease(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is renewed while a program runs, so no other bot takes over."""
    monkeypatch.setattr("app.automations.bot.LEASE_S", 3.0)
    begun, go = tmp_path / "begun", tmp_path / "go"
    argv = json.dumps(["sh", "-c", f"touch {begun}; until [ -e {go} ]; do sleep 0.05; done"])
    settings = configured(service, tmp_path, "[poll]\nruns_s = 1\n" + automation(f"{{ command = {argv} }}"))
    async with at_work(settings) as (bot, said):
        await looked(bot)
        service.runs = [RUN]
        await until(begun.exists, "the program runs")
        first = await bot.state.lease_until(LEASE)

        async def is_renewed() -> bool:
            return await bot.state.lease_until(LEASE) != first

        await until(is_renewed, "the lease is renewed")
        assert ("done", None) not in said.outcomes()
        go.touch()
        await until(lambda: ("done", None) in said.outcomes(), "the program ends", saw=said.outcomes)
