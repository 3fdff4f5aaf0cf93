"""Expiring keys and failed postings are shown to the operator in time."""

import contextlib
from datetime import UTC, datetime, timedelta

from click.testing import CliRunner

from service.agents.options import Agent, AgentOptions
from service.cli import main
from service.clock import DAY_MICROS
from service.settings import DataFolder
from service.store import agents, endings, hosts, postings, tokens
from service.store.database import Database
from service.store.hosts import Host
from tests.lab import Respond, Server
from tests.service.conftest import NOW, Make, accepted, organization

TODAY = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=NOW)).date()


def day(days: int) -> str:
    """The date in this many days."""
    return (TODAY + timedelta(days=days)).isoformat()


def test_expiring_keys_are_listed_in_time(database: Database) -> None:
    """Each kind is listed, the first to expire first.

    Keys that expire later, were replaced or expired long ago are not.
    """
    owner = organization(database, "acme")
    with database.write() as connection:

        def token(alias: str | None, days: float, at: int = NOW) -> str:
            life = int(days * DAY_MICROS)
            made, _ = tokens.create(connection, owner, scopes=("admin",), alias=alias, now=at, life_micros=life)
            return made.id

        for alias, days in (("soon", 6), ("later", 14.1), ("renewed", 2), ("renewed", 30), ("today", 0.5)):
            token(alias, days)
        token("ended", 1, NOW - 3 * DAY_MICROS)
        token("forgotten", 1, NOW - 9 * DAY_MICROS)
        tokens.revoke(connection, token("revoked", 2), NOW)
        hub = Host("github", "h", None, "api", "u", None, "HUB", day(40))
        hosts.connect(connection, owner, hub, NOW)
        hosts.connect(connection, owner, Host("gitlab", "h", None, "api", "u", None, "LAB", day(13)), NOW)
        hosts.note_answer(connection, owner, hub, "ok", day(3), NOW)
        for name, ends, its_owner in (("known", day(-1), owner), ("unknown", None, None), ("for-all", day(10), None)):
            access = {"provider": "anthropic", "key_env": "MODEL_KEY", "key_ends": ends}
            options = AgentOptions.model_validate({"model": access})
            agents.save(connection, Agent(name, ("a",), options=options, organization_id=its_owner), NOW)
    with database.read() as connection:
        found = endings.soon(connection, NOW)

    assert [(one.kind, one.organization, one.name, one.days) for one in found] == [
        ("api_token", "acme", "ended", 0),
        ("model_key", "acme", "MODEL_KEY", 0),
        ("api_token", "acme", "today", 1),
        ("host_token", "acme", "HUB", 7),
        ("api_token", "acme", "soon", 7),
        ("model_key", "", "MODEL_KEY", 14),
        ("host_token", "acme", "LAB", 14),
    ]


def test_status_shows_expiring_keys_and_unposted_results(tenant: Make) -> None:
    """`status` shows both; the health check learns the expiry that GitHub reports."""
    friday = (datetime.now(UTC) + timedelta(days=5)).date().isoformat()
    with Server() as there:
        answer = {"GitHub-Authentication-Token-Expiration": f"{friday} 23:00:00 UTC"}
        there.otherwise = lambda _: Respond(200, {"resources": {}}, answer)
        entry = {"platform": "github", "host": "h", "api_url": there.origin, "token_env": "SECRET"}
        api = tenant(tokens=[{"alias": "tests", "duration": "20h"}], hosts=[entry])
        assert api.get("/external/installation/health").json()["code_hosting"]["github"]["status"] == "ok"
    slug, folder = api.organization["slug"], DataFolder(api.service.data_dir)
    with contextlib.closing(Database(folder.database_url)) as database:
        run_id = accepted(database, slug).id
        with database.write() as connection:
            postings.want(connection, (run_id, 1), "pull_request", {"commit": "c" * 40, "is_draft": True}, NOW)
            posting = postings.of_run(connection, run_id)[0]
            postings.mark_failed(connection, posting, "GitHub answered 403; the token lacks\na permission", due_at=None)
    shown = CliRunner().invoke(main, ["status", "--data-dir", str(folder.root)]).output

    assert f"expires within 7 days: host token SECRET of {slug}, on {friday}\n" in shown
    assert f"expires within 1 day: api token tests of {slug}, on " in shown
    assert f"not posted: pull_request of {run_id}: GitHub answered 403; the token lacks␊a permission\n" in shown
