"""/metrics shows the database at that moment, and only accepts the operator's token."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families

from service.clock import SECOND_MICROS
from service.observability.metrics import OTHERS, ServiceMetrics
from service.observability.requests import RequestRecord
from service.store import invitations, turns, workers
from service.store.database import Database
from service.store.turns import TurnOutcome
from service.store.workers import Worker
from tests.service.conftest import BARE, NOW, Api, accepted, organization
from tests.service.conftest import METRICS_TOKEN as TOKEN
from tests.service_process import refused_start

SHIPPED: Final = Path(__file__).parents[3] / "deploy" / "prometheus"


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Map name and label values, in the order of their names, to the number."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, *(value for _, value in sorted(sample.labels.items())))
            assert key not in found, f"{key} twice: Prometheus would drop one of them"
            found[key] = sample.value
    return found


@pytest.fixture
def metrics(database: Database) -> ServiceMetrics:
    """The metrics over an empty database."""
    return ServiceMetrics(database, lambda: NOW, worker_ttl_s=10)


def scraped(metrics: ServiceMetrics) -> dict[tuple[str, ...], float]:
    return samples(metrics.render().decode())


def accept(database: Database, slug: str, age_s: int = 0, count: int = 1) -> str:
    """Accept an organization's runs, and return the first one's id."""
    first, *_ = (accepted(database, slug, now=NOW - age_s * SECOND_MICROS).id for _ in range(count))
    return first


def test_queue_and_slot_metrics_are_current(database: Database, metrics: ServiceMetrics) -> None:
    """Values are per organization; what ended is missing from the next scrape, and an empty sum is zero."""
    first, second = accept(database, "acme", age_s=90), accept(database, "other", age_s=30, count=2)
    before = scraped(metrics)
    with database.write() as connection:
        turns.mark_dispatched(connection, [(first, 1), (second, 1)], NOW)
        turns.cancel(connection, first, "cancelled", NOW)
        for name in ("w", "dead"):
            workers.beat(connection, Worker(name, "host", "none", 1, 3, NOW, NOW), lambda: NOW)
        workers.sign_off(connection, "dead")
    after = scraped(metrics)

    assert before["runwarden_queue_turns", "acme"] == 1
    assert before["runwarden_queue_oldest_seconds", "acme"] == pytest.approx(90, abs=0.001)
    assert before["runwarden_queue_turns", "other"] == 2
    assert before["runwarden_places",] == before["runwarden_workers",] == 0
    assert ("runwarden_queue_turns", "acme") not in after
    assert after["runwarden_queue_turns", "other"] == after["runwarden_places_in_use", "other"] == 1
    assert after["runwarden_queue_turns", OTHERS] == 0
    assert (after["runwarden_places",], after["runwarden_workers",]) == (3, 1)


def test_hostile_names_do_not_break_a_scrape(database: Database, metrics: ServiceMetrics) -> None:
    """Quotes, line ends, escapes, lone surrogates and names that are equal when shortened are safe.

    The fifty organizations with the longest waits have their own series; others are summed up.
    """
    for slug in ('a"} 1\nb{c="', "\x1b[31mred", "x" * 300 + "1", "x" * 300 + "2"):
        accept(database, slug)
    metrics.count_request(RequestRecord("id", "\ud800\n", route="/\ud800\x1b\n", status=404))
    text = metrics.render().decode()
    few = samples(text)
    for number in range(60):
        accept(database, f"o{number}", age_s=1000 + number)
    many = scraped(metrics)
    lines = {key[1]: value for key, value in many.items() if key[0] == "runwarden_queue_turns"}

    assert sum(value for key, value in few.items() if key[0] == "runwarden_queue_turns") == 4
    assert few["runwarden_queue_turns", "x" * 100] == 2
    assert "\x1b" not in text
    assert few["runwarden_http_requests_total", "other", "/\N{REPLACEMENT CHARACTER}␛␊", "404"] == 1
    assert (len(lines), lines[OTHERS], "o59" in lines, "o0" in lines) == (51, 14, True, False)
    assert many["runwarden_queue_oldest_seconds", OTHERS] == pytest.approx(1009, abs=0.001)


def test_turns_are_counted_once_by_outcome(database: Database) -> None:
    """Waits and durations are counted too; what ended before this process started does not count."""
    clock = [NOW]
    metrics = ServiceMetrics(database, lambda: clock[0], worker_ttl_s=10)
    before, completed, cancelled = (accept(database, name, age_s=90) for name in "abc")
    with database.write() as connection:
        turns.end(connection, before, 1, TurnOutcome("completed"), NOW - SECOND_MICROS)
        turns.claim(connection, completed, 1, "w", NOW - 20 * SECOND_MICROS)
        turns.end(connection, completed, 1, TurnOutcome("completed"), NOW)
        turns.end(connection, cancelled, 1, TurnOutcome("failed", failure="cancelled by the operator"), NOW)
    found = [scraped(metrics)]
    clock[0] += 3600 * SECOND_MICROS
    found.append(scraped(metrics))

    for one in found:
        count = "runwarden_turn_duration_seconds_count"
        assert [one[count, outcome] for outcome in ("completed", "cancelled", "failed")] == [1, 1, 0]
    assert found[0]["runwarden_turn_duration_seconds_sum", "completed"] == 20
    assert found[0]["runwarden_turn_wait_seconds_sum",] == pytest.approx(70 + 90, abs=0.001)


def test_metrics_report_a_missing_database(
    database: Database, metrics: ServiceMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's own counters are still shown; with a database, pending mails and postings are too."""
    metrics.count_request(RequestRecord("id", "GET", route="/v1/x", status=503))
    owner = organization(database)
    with database.write() as connection:
        invitations.invite(connection, owner, "a@acme.example", NOW)
    up = scraped(metrics)

    def away() -> None:
        raise sa.exc.OperationalError("SELECT 1", {}, Exception("away"))

    monkeypatch.setattr(database, "read", away)
    down = scraped(metrics)

    assert (up["runwarden_mails_owed", "waiting"], up["runwarden_mails_owed", "refused"]) == (1, 0)
    assert (up["runwarden_postings_owed", "waiting"], up["runwarden_database_up",]) == (0, 1)
    assert down["runwarden_database_up",] == 0
    assert down["runwarden_http_requests_total", "GET", "/v1/x", "503"] == 1
    assert not any(key[0].startswith(("runwarden_queue", "runwarden_places")) for key in down)


@pytest.fixture
def target(equipped: Any) -> tuple[Api, str]:
    """A service that offers /metrics, and its address."""
    return Api(equipped), f"{equipped.base_url.removesuffix('/v1')}/metrics"


def test_metrics_need_the_operators_token(target: tuple[Api, str], api: Api, tmp_path: Path) -> None:
    """An organization's token does not.

    Without a configured token there is no endpoint, and a weak one stops the start.
    """
    tenant, url = target

    def status(authorization: str) -> int:
        return BARE.get(url, headers={"Authorization": authorization.encode("latin-1")}).status_code

    assert status(f"Bearer {TOKEN}") == 200
    for given in (f"Bearer {tenant.token}", f"Bearer {TOKEN}x", TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer \xff", ""):
        assert status(given) == 401, given
    off = BARE.get(f"{api.service.base_url.removesuffix('/v1')}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert (off.status_code, off.json()["error_code"]) == (404, "metrics_off")
    for variable in ("RUNWARDEN_METRICS_TOKEN", "RUNWARDEN_OPERATOR_TOKEN"):
        weak = refused_start(tmp_path, **{variable: "short"})
        assert (weak.returncode, "openssl rand" in weak.stderr, variable in weak.stderr) == (2, True, True), weak.stderr


def test_requests_are_counted_by_route_and_status(target: tuple[Api, str]) -> None:
    """The route's template is the label, not the caller's values."""
    api, url = target
    api.ended(api.start("nothing"))
    for number in range(3):
        api.post(f"/external/runs/run_{number}/cancel", {})
    text = BARE.get(url, headers={"Authorization": f"Bearer {TOKEN}"}).text

    assert samples(text)["runwarden_http_requests_total", "POST", "/v1/external/runs/{run_id}/cancel", "404"] >= 3


@pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed; on Debian: apt-get install prometheus",
)
def test_promtool_accepts_what_ships_and_the_alerts_fire(tmp_path: Path) -> None:
    """Each alert fires on the fault that it is for, and none on a healthy service."""
    for file in (*SHIPPED.glob("*.yml"), Path(__file__).parent / "alerts.test.yml"):
        shutil.copy(file, tmp_path)
    (tmp_path / "runwarden-metrics-token").write_text(TOKEN)
    checks = ("check config prometheus.yml", "check rules service.rules.yml watch.rules.yml")
    for words in (*checks, "test rules alerts.test.yml"):
        done = subprocess.run(["promtool", *words.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
