"""What Activity asks of the ledger, without its screen: how the query changes, and what each reading leads to."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from app.console.activity.actions import QueryActions
from app.console.activity.loaders import ActivityLoader
from app.console.activity.query import ActivityQuery

NONE_WRITTEN = SimpleNamespace(newest=(), tally={}, matching=0)


async def test_what_is_sought_during_a_reading_is_led_to_by_the_next() -> None:
    """The reading on its way may not hold it yet: it shows nothing, and leaves the key to the next one."""
    asked = 0

    async def journal(*_: Any, **__: Any) -> SimpleNamespace:
        nonlocal asked
        asked += 1
        if asked == 1:
            loader.go(loader.query, "act_new")
        return NONE_WRITTEN

    works: list[Any] = []
    led_to: list[str] = []
    engine = SimpleNamespace(clock=lambda: datetime.now(UTC), ledger=SimpleNamespace(journal=journal), reconciliation=0)
    loader = ActivityLoader(cast("Any", engine), works.append, led_to.append)
    loader.ask()
    await works[0]()
    assert led_to == ["act_new"]

    loader.ask()
    await works[1]()
    assert led_to == ["act_new", ""]


def test_the_query_changes_by_name() -> None:
    """Views go round, time is cut shorter; clearing takes the filters, then the view."""
    loader = ActivityLoader(cast("Any", None), lambda _: None, lambda _: None)
    actions = QueryActions(cast("Any", None), loader)
    for name in ("next_view", "since"):
        actions.do(name)
    actions.search("  two   words ")
    assert loader.query == ActivityQuery(view=1, since="1h", search="two words")
    assert not actions.is_possible("kinds")

    actions.clear()
    assert loader.query == ActivityQuery(view=1)
    actions.clear()
    assert loader.query == ActivityQuery()
    actions.do("view_before")
    assert loader.query.view == 1
    actions.do("0")
    assert loader.query.view == 0
