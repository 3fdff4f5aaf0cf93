"""Rows as records: reading, changing and deleting rows of any table, with the conditions that several queries share."""

import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

_KEYS_AT_ONCE: Final = 500
Record = TypeVar("Record")


def records_of(
    connection: sa.Connection,
    record: type[Record],
    table: sa.Table,
    *conditions: sa.ColumnElement[bool],
    order: Sequence[Any] = (),
    limit: int | None = None,
    **equal: object,
) -> list[Record]:
    """Return the matching rows as records; the fields of the dataclass `record` name the columns.

    `equal`: columns and their values. A query with no other conditions is built only once.
    """
    query = _all(record, table, limit, *equal)  # type: ignore[arg-type]  # `_all` is cached, and these are hashable
    query = query.where(*conditions) if conditions else query
    query = query.order_by(*order) if order else query
    return [record(*row) for row in connection.execute(query, equal)]


@cache
def _all(record: Any, table: sa.Table, limit: int | None = None, *equal: str) -> sa.Select[Any]:
    columns = (table.c[field.name] for field in fields(record))
    return sa.select(*columns).where(*(table.c[name] == sa.bindparam(name) for name in equal)).limit(limit)


def record_of(
    connection: sa.Connection,
    record: type[Record],
    table: sa.Table,
    *conditions: sa.ColumnElement[bool],
    order: Sequence[Any] = (),
    **equal: object,
) -> Record | None:
    return next(iter(records_of(connection, record, table, *conditions, order=order, limit=1, **equal)), None)


def records_by_owner(
    connection: sa.Connection, record: type[Record], table: sa.Table, *conditions: sa.ColumnElement[bool]
) -> list[tuple[str, Record]]:
    """Return the matching rows as records, each with the id of its organization, by organization."""
    owner = table.c.organization_id.label("owner")
    query = _all(record, table).add_columns(owner).where(*conditions).order_by(owner)  # type: ignore[arg-type]  # `_all` is cached, and these are hashable
    return [(of, record(*row)) for *row, of in connection.execute(query)]


def by_owner(
    connection: sa.Connection, record: type[Record], table: sa.Table, owners: Sequence[str]
) -> defaultdict[str, list[Record]]:
    grouped = defaultdict[str, list[Record]](list)
    for some in batches(owners):
        for owner, row in records_by_owner(connection, record, table, table.c.organization_id.in_(some)):
            grouped[owner].append(row)
    return grouped


def optional_filter(
    column: sa.Column[Any], value: object, compare: Callable[[Any, Any], sa.ColumnElement[bool]] = operator.eq
) -> sa.ColumnElement[bool]:
    """Return the condition that a column compares with a value: a filter, which None turns off."""
    return sa.true() if value is None else compare(column, value)


def of_turn(table: sa.Table, run_id: str, number: int) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return table.c.run_id == run_id, table.c.number == number


def update(connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool], **values: Any) -> int:
    """Set columns of the matching rows; return how many matched."""
    return connection.execute(sa.update(table).where(*conditions).values(values)).rowcount


def delete(connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool], **equal: object) -> int:
    return connection.execute(sa.delete(table).where(*conditions).filter_by(**equal)).rowcount


def exists(connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool], **equal: object) -> bool:
    query = sa.select(sa.literal(1)).select_from(table).where(*conditions).filter_by(**equal)
    return connection.execute(query.limit(1)).first() is not None


def insert_new(connection: sa.Connection, table: sa.Table, values: Mapping[str, object]) -> bool:
    """Insert a row unless one with its key exists; return whether it was inserted."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table).values(dict(values)).on_conflict_do_nothing()
    # Without this option, SQLAlchemy does not keep the row count of an insert on PostgreSQL.
    return connection.execute(statement, execution_options={"preserve_rowcount": True}).rowcount > 0


def replace_rows(
    connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]], keys: Sequence[sa.Column[Any]]
) -> None:
    """Insert rows in place of those with the same keys; the caller ensures that nothing else changes them."""
    if rows:
        same = []
        for key in keys:
            value = sa.bindparam(f"of_{key.name}", type_=key.type)
            same.append(key.is_not_distinct_from(value) if key.nullable else key == value)
        connection.execute(sa.delete(table).where(*same), [{f"of_{k.name}": row[k.name] for k in keys} for row in rows])
        connection.execute(sa.insert(table), rows)


def unsent(connection: sa.Connection, state: sa.Column[str]) -> dict[str, int]:
    """Return how many rows are in the states `waiting` and `refused`."""
    query = sa.select(state, sa.func.count()).group_by(state).where(state.in_(("waiting", "refused")))
    counted: dict[str, int] = dict(connection.execute(query).all())
    return {"waiting": 0, "refused": 0} | counted


def batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the keys in batches that fit into one statement."""
    return (keys[start : start + _KEYS_AT_ONCE] for start in range(0, len(keys), _KEYS_AT_ONCE))
