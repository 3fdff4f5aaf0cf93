"""`[[views]]`: tabs over the table of runs, each a line of the query language."""

from datetime import UTC, datetime

from app.config.settings import ViewSettings
from app.config.table import Table


def read_views(root: Table) -> tuple[ViewSettings, ...]:
    """The views, in the order of the file.

    Raises:
        ConfigError: Two have the same name, or one has a query or an order that means nothing.
    """
    views: list[ViewSettings] = []
    for table in root.tables("views"):
        view = _view(table)
        if view.name.casefold() in {other.name.casefold() for other in views}:
            table.fail("name", "another view has this name.", "Rename one of them.")
        views.append(view)
    return tuple(views)


def _view(table: Table) -> ViewSettings:
    from app.ordering import read_order
    from app.query import parse  # only where there are views: it is on the way to the first painted screen

    name, query, order = table.required_text("name"), table.text("query", ""), table.optional_text("sort")
    table.finish()
    if problems := parse(query, datetime.now(UTC)).problems:
        table.fail("query", f"at character {problems[0].start + 1}: {problems[0].message}", problems[0].cure)
    try:
        return ViewSettings(name, query, None if order is None else read_order(order))
    except ValueError as error:
        table.fail("sort", f"{error}.", "Correct the column.")
