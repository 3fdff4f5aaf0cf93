"""Model usage of turns: shown by the API, summed by the command line, and counted in /metrics."""

import os
from contextlib import closing
from dataclasses import replace
from typing import Any

from service.agents.options import Agent
from service.agents.prices import price_of
from service.clock import DAY_MICROS, now_micros
from service.egress.budget import OrganizationDay, Spending
from service.egress.usage import Usage
from service.observability.metrics import OTHERS, ServiceMetrics
from service.settings import DataFolder
from service.store import deletions, organizations, runs, turns, usage
from service.store.database import Database
from service.store.usage import ModelUse, totals
from tests.program import Program
from tests.service.conftest import BOTH, NOW, Api, Make, accepted
from tests.service.observability.test_metrics import scraped
from tests.waiting import present


def used(database: Database, run_id: str, tokens: int, micro_usd: int | None, **given: Any) -> None:
    """Record one request of a turn: `number`, `model`, `at`, and `listed`, the day of a list price."""
    with database.write() as connection:
        turn = replace(turns.of(connection, run_id)[0], number=given.get("number", 1))
        key = f"/{present(runs.by_id(connection, run_id)).agent}"
        about = (key, "anthropic", given.get("model", "m"), Usage(tokens, cached=1, output=2), micro_usd)
        usage.add(connection, turn, ModelUse(*about, given.get("listed")), given.get("at", NOW))


def begun(database: Database, slug: str, agent: str, path: str = "acme/api") -> str:
    return accepted(database, slug, agent, path=path).id


def test_usage_is_summed_by_the_query(database: Database) -> None:
    """Days are inclusive, a path ignores case, and several models of a turn are one turn.

    A run counts on the day of its first request, so that the days add up.
    """
    first, second = begun(database, "acme", "claude"), begun(database, "acme", "codex", "Acme/API")
    third = begun(database, "other", "claude", "other/web")
    used(database, first, 10, 500_000)
    used(database, first, 5, 0, model="n")
    used(database, first, 1, 250_000, at=NOW + DAY_MICROS, number=2)
    used(database, second, 100, 0)
    used(database, third, 1000, 1)
    today = NOW // DAY_MICROS

    def summed(by: Any, *given: Any) -> dict[Any, tuple[int, int, int]]:
        with database.read() as connection:
            found = totals(connection, by, *given)
        return {tuple(one.subject.values()): (one.runs, one.turns, one.figures.input_tokens) for one in found}

    acme, other = (2, 3, 116), (1, 1, 1000)
    assert summed("organization") == {("acme",): acme, ("other",): other}
    assert summed("repository") == {("acme", "github:acme/api"): acme, ("other", "github:other/web"): other}
    agents = {("acme", "claude"): (1, 2, 16), ("acme", "codex"): (1, 1, 100), ("other", "claude"): other}
    assert summed("agent") == agents
    assert summed("day") == {(today,): (3, 3, 1115), (today + 1,): (0, 1, 1)}
    assert summed(None, None, today + 1) == {(): (0, 1, 1)}
    assert summed(None, None, None, today) == {(): (3, 3, 1115)}
    assert summed("day", "org_none") == {}
    with database.read() as connection:
        of_turns = usage.of_turns(connection, first)
    summed_up = {number: usage.add_up(shares.values()) for number, shares in of_turns.items()}
    figures = [(number, one.requests, one.document()["cost_usd"]) for number, one in summed_up.items()]
    assert figures == [(1, 2, 0.5), (2, 1, 0.25)]


_WRITES = """
import sys
from service.clock import now_micros
from service.store import turns, usage
from service.store.database import Database
from service.egress.usage import Usage
database = Database(sys.argv[1])
for number in range(1000):
    with database.write() as connection:
        turn = turns.of(connection, sys.argv[2])[0]
        usage.add(connection, turn, usage.ModelUse("/a", "p", f"m{number % 5}", Usage(number), number), now_micros())
        print(number, flush=True)
"""


@BOTH
def test_daily_usage_equals_the_turns_after_kills(database: Database) -> None:
    """Processes die while they record a turn's requests to several models, and the turn is cancelled.

    The days keep a deleted run's usage, since budgets depend on it.
    """
    run_id = begun(database, "acme", "a")
    url = database.url.render_as_string(hide_password=False)
    writers = [Program((url, run_id), os.environ, code=_WRITES) for _ in range(1 if database.is_sqlite else 3)]
    for writer in writers:
        while present(writer.stdout).readline().strip() != "20":
            assert writer.returncode is None
    for writer in writers:
        writer.kill()
        writer.wait()
        writer.close()
    with database.write() as connection:
        turns.cancel(connection, run_id, "over", NOW)
    used(database, run_id, 7, 1, number=1, at=now_micros())

    with database.read() as connection:
        detail = {
            number: usage.add_up(shares.values()) for number, shares in usage.of_turns(connection, run_id).items()
        }
        (whole,) = totals(connection, None)
    with database.write() as connection:
        deletions.delete_runs(connection, [run_id], NOW)
    with database.read() as connection:
        after = totals(connection, None)
    assert (whole.runs, whole.turns, {1: whole.figures}) == (1, 1, detail)
    assert whole.figures.requests > len(writers) * 20
    assert after == [whole]


def test_a_cost_without_a_price_is_unknown(database: Database) -> None:
    """Unpriced usage is counted next to the cost; the oldest list price gives its date."""
    run_id = begun(database, "acme", "claude")
    used(database, run_id, 1, None)
    used(database, run_id, 1, 0, number=2)
    used(database, run_id, 1, 250_000, number=3, listed="2026-11-28")
    used(database, run_id, 1, 250_000, number=3, listed="2026-11-28")
    used(database, run_id, 1, 500_000, number=3, model="n", listed="2026-11-24")
    used(database, run_id, 1, None, number=3, model="o")
    with database.read() as connection:
        turn = replace(turns.of(connection, run_id)[0], number=4)
    proxied = usage.TurnMeter(database, turn, Agent("claude", ("sh",), 9), lambda: NOW)
    proxied.add("gpt-5.4", Usage(1_000_000), price_of("gpt-5.4", {}))
    with database.read() as connection:
        told = [usage.add_up(shares.values()).document() for shares in usage.of_turns(connection, run_id).values()]
        whole = totals(connection, None)[0].figures.document()

    found = [[one[key] for key in ("cost_usd", "unpriced_requests", "list_prices_of")] for one in (*told, whole)]
    priced = [[0, 0, None], [1, 1, "2026-11-24"], [5, 0, "2026-11-24"]]
    assert found == [[None, 1, None], *priced, [6, 2, "2026-11-24"]]


def test_a_daily_limit_counts_every_run_of_the_day(database: Database) -> None:
    """Yesterday's and others' usage is excluded; a run's own limit covers all its days.

    /metrics shows the used share.
    """
    first, second, other = (begun(database, slug, "helper") for slug in ("acme", "acme", "other"))
    used(database, first, 10, 1_500_000, at=NOW - DAY_MICROS)
    used(database, first, 20, 1_500_000, number=2)
    used(database, second, 40, 500_000)
    used(database, other, 80, 9_000_000)
    with database.write() as connection:
        owner = present(organizations.by_slug(connection, "acme"))
        organizations.change(connection, owner.id, day_usd=4.0, day_tokens=660)
        helper = usage.read_spending(connection, first, "/helper", NOW)
        own = usage.read_spending(connection, other, "org_x/helper", NOW)
    shown = scraped(ServiceMetrics(database, lambda: NOW, worker_ttl_s=10))

    assert helper == Spending(3_000_000, 11_000_000, 36, OrganizationDay(2_000_000, 66, 4.0, 660))
    assert own == Spending(9_000_000, 0, 83, OrganizationDay())
    assert shown["runwarden_day_budget_used_ratio", "usd", "acme"] == 0.5
    assert shown["runwarden_day_budget_used_ratio", "tokens", "acme"] == 0.1
    assert sum(key[0] == "runwarden_day_budget_used_ratio" for key in shown) == 2


def test_metrics_count_usage_by_organization_and_agent(database: Database) -> None:
    """The metrics count each use once, from the first scrape on and past midnight.

    A deleted run lowers nothing, and series are capped.
    """
    clock, found = [NOW], list[dict[tuple[str, ...], float]]()
    metrics = ServiceMetrics(database, lambda: clock[0], worker_ttl_s=10)
    first, gone = begun(database, "acme", "claude"), begun(database, "acme", "claude")
    used(database, first, 10, 500_000)
    used(database, gone, 10, 500_000)
    found.append(scraped(metrics))
    used(database, first, 7, 250_000)
    found.append(scraped(metrics))
    used(database, first, 1, 1_000_000)
    clock[0] += DAY_MICROS
    used(database, first, 2, 1_000_000, at=clock[0])
    found.append(scraped(metrics))
    with database.write() as connection:
        deletions.delete_runs(connection, [gone], clock[0])
    found.append(scraped(metrics))
    for number in range(55):
        used(database, begun(database, "acme", f"a{number:02}"), 1, 0, at=clock[0])
    many = scraped(metrics)

    tokens, cost = ("runwarden_model_tokens_total", "claude", "input"), ("runwarden_model_cost_usd_total", "claude")
    counted = [(one[*tokens, "acme"], one[*cost, "acme"]) for one in found]
    assert counted == [(0, 0), (7, 0.25), (10, 2.25), (10, 2.25)]
    assert sum(key[0] == cost[0] for key in many) == 51
    assert many["runwarden_model_tokens_total", OTHERS, "input", OTHERS] == 6


def test_a_service_reports_its_usage(tenant: Make, shared_service: Any) -> None:
    """A run's turns have it and the run list does not; the command line sums it.

    A run with a budget shows the share used of its nearest limit, over all its turns, even beyond 100%.
    """
    acme = next(one for one in shared_service.setup["organizations"] if one["slug"] == "acme")
    client = Api(shared_service, acme)
    folder = shared_service.data_dir
    model = ["--model", '{ provider = "anthropic", key_env = "HOME", budget = { run_tokens = 2406 } }']
    client.add_agent(folder, "thrifty", "print()", *model)
    run_id, thrifty = client.start("write it"), client.begin("thrifty", instructions="go")
    client.ended(run_id)
    client.follow(run_id, "nothing more")
    listed = client.ended(run_id)
    client.ended(thrifty)
    shares = []
    with closing(Database(DataFolder(folder).database_url)) as database:
        used(database, run_id, 1200, 345_678, listed="2026-11-24")
        for number, tokens in ((1, 1200), (2, 2400)):
            used(database, thrifty, tokens, 1, number=number, at=NOW + DAY_MICROS)
            shares.append(client.get(f"/external/runs/{thrifty}").json()["budget_used"])
    day = ("--from", "2027-01-15", "--to", "2027-01-15")
    document = client.service.admin("usage", "--org", "acme", *day, "--by", "agent")

    figures = {"input_tokens": 1200, "cached_tokens": 1, "output_tokens": 2, "cost_usd": 0.345678}
    figures |= {"unpriced_requests": 0, "list_prices_of": "2026-11-24"}
    assert [one["usage"] for one in client.turns(run_id)] == [{"requests": 1} | figures, None]
    assert client.get(f"/external/runs/{run_id}").json().get("budget_used") is None
    assert shares == [0.5, 3606 / 2406]
    assert client.run(run_id) == listed
    assert "usage" not in listed
    counts = {"runs": 1, "turns": 1, "requests": 1}
    assert document["usage"] == [{"organization": "acme", "agent": "scribe"} | counts | figures]
    assert document["total"] == counts | figures
