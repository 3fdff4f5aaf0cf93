"""The order of turns is by the database's clock: a worker whose own clock is wrong starves nobody."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from service.store.schema import turns
from tests import service_process
from tests.service.conftest import Api
from tests.service.deployment import deployment
from tests.service_process import demo_setup

AN_HOUR_AHEAD = """
import datetime, service.clock
class Ahead(datetime.datetime):
    @classmethod
    def now(cls, zone=None): return datetime.datetime.now(zone) + datetime.timedelta(hours=1)
service.clock.datetime = Ahead
"""


def test_an_organization_served_by_a_worker_with_a_fast_clock_is_served_again(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has three turns, of which one alone comes before its next; all carry the database's time."""
    setup = demo_setup(tmp_path)
    setup["organizations"].append(setup["organizations"][0] | {"name": "Other", "slug": "other"})
    settings = '[execution]\nsandbox = "none"\nconcurrency = 1\n'
    with deployment(tmp_path / "nodes", postgres_url, settings=settings, setup=setup) as nodes:
        serving = nodes.api("api")
        acme, other = (Api(serving, one) for one in nodes.organizations)
        with monkeypatch.context() as patched:
            patched.setattr(service_process, "PROGRAM", AN_HOUR_AHEAD + service_process.PROGRAM)
            fast = nodes.begin("worker", machine="fast")
        acme.ended(acme.start("nothing"))
        fast.stop()
        theirs = [other.start("nothing") for _ in range(3)]
        mine = acme.start("nothing")
        nodes.begin("worker", machine="right")
        for run_id in theirs:
            other.ended(run_id)
        acme.ended(mine)

        with nodes.database.read() as connection:
            query = sa.select(turns.c.organization_id).order_by(turns.c.dispatched_at)
            order = list(connection.execute(query).scalars())
            now = connection.execute(sa.text("SELECT extract(epoch FROM now()) * 1000000")).scalar_one()
            stamps = [getattr(turns.c, name) for name in ("dispatched_at", "started_at", "finished_at")]
            latest = [connection.execute(sa.select(sa.func.max(stamp))).scalar_one() for stamp in stamps]

    ids = {one["id"]: one["slug"] for one in nodes.organizations}
    assert [ids[one] for one in order] == ["acme", "other", "acme", "other", "other"]
    assert max(latest) <= now
