"""The operator's page: cancelling many runs."""

import html
import re
from typing import Any

import pytest

from service.clock import now_micros
from service.store import runs, turns
from service.store.database import Database
from tests.service.conftest import OPERATOR, Api, Make, order
from tests.service.test_page import Browser, text_of
from tests.waiting import present


@pytest.fixture
def operator(idle: Api) -> Browser:
    """A browser with the operator's session."""
    browser = Browser(idle.service.base_url)
    assert browser.sign_in(OPERATOR).status_code == 303
    return browser


def accepted(database: Database, owner: str, count: int, **fields: Any) -> list[str]:
    """Store queued runs, and return their ids."""
    with database.write() as connection:
        return [runs.accept(connection, order(owner, **fields), now_micros()).id for _ in range(count)]


def test_an_operator_cancels_what_was_shown(
    idle: Api, tenant: Make, operator: Browser, database_of_idle: Database
) -> None:
    """After a confirmation from this session; neither later turns nor those of others; each is in the audit trail."""
    mine = tenant(on=idle.service)
    owner, slug = mine.organization["id"], mine.organization["slug"]
    old, *_ = ids = accepted(database_of_idle, owner, 41)
    with database_of_idle.write() as connection:
        assert turns.cancel(connection, old, "done", now_micros())
    listed = operator.get(f"/operator/runs?org={slug}")
    preview = html.unescape(present(re.search(r'href="(/operator/runs/cancel[^"]+)"', listed.text))[1])
    shown = operator.get(preview)
    assert "Cancel 40 runs?" in text_of(shown)
    fields = dict(re.findall(r'type="hidden" name="(org|status|shown)" value="([^"]*)"', shown.text))
    with database_of_idle.write() as connection:
        # An old run, and one of the preview, have another turn by now.
        assert turns.cancel(connection, ids[1], "done", now_micros())
        for one in ids[:2]:
            assert runs.resume(connection, present(runs.by_id(connection, one)), order(owner), now_micros())
    later = [*ids[:2], *accepted(database_of_idle, owner, 1)]
    assert operator.post("/operator/runs/cancel", csrf="0" * 64, **fields).status_code == 403
    assert operator.post("/operator/runs/cancel", {"Sec-Fetch-Site": "cross-site"}, **fields).status_code == 403
    assert operator.post("/operator/runs/cancel", **fields | {"shown": "run_x:" + "9" * 5000}).status_code == 400

    done = operator.get(operator.post("/operator/runs/cancel", **fields).headers["location"])
    assert "39 runs cancelled" in text_of(done)
    assert {one["run_id"] for one in mine.runs(status="queued")} == {*later}
    assert {one["run_id"] for one in mine.runs(status="failed")} == {*ids[2:]}
    trail = mine.service.admin("audit", "list", "--org", slug, "--action", "run.cancel")["entries"]
    assert {(one["actor"], one["target"]) for one in trail} == {("operator:page", one) for one in ids[2:]}
