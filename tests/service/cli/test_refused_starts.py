"""Start-up is refused for locations and settings that would fail later, and the error names the fix."""

import contextlib
import secrets
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError

from service.clock import now_micros
from service.errors import first_fault
from service.observability.metrics import ServiceMetrics
from service.processes.worker import StartError, one_worker
from service.settings import DataFolder, Settings, SettingsError
from service.setup import OrganizationEntry, TokenEntry
from service.store.database import Database, DatabaseError
from tests.service.postgres import Cluster


def test_one_database_file_has_one_worker(tmp_path: Path) -> None:
    """Two workers would each execute the other's runs again."""
    here, there = (DataFolder(tmp_path / name) for name in ("here", "there"))
    for folder in (here, there):
        folder.create()
    with contextlib.closing(Database(f"sqlite:///{tmp_path / 'shared.sqlite'}")) as shared:
        with (
            one_worker(shared, here),
            pytest.raises(StartError, match=r"shared\.sqlite; stop it"),
            one_worker(shared, there),
        ):
            pytest.fail("a second worker")
        with one_worker(shared, there):
            pass
    with (
        contextlib.closing(Database(here.database_url)) as own,
        one_worker(own, here),
        pytest.raises(StartError, match=r"service\.sqlite; stop it"),
        one_worker(own, there),
    ):
        pytest.fail("a second worker on another's folder")


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    """The error names the option for another folder."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="Not a directory; choose another --data-dir"):
        DataFolder(tmp_path / "file" / "data").create()


def test_a_database_that_is_not_in_utf_8_is_refused(postgres: Cluster) -> None:
    """Such a database could not store every name."""
    name = f"latin_{secrets.token_hex(8)}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
        with (
            contextlib.closing(Database(postgres.url(name))) as database,
            pytest.raises(DatabaseError, match=f"LATIN1, not UTF8; create one with: createdb .* {name}"),
        ):
            database.migrate()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    ("kind", "values", "fault"),
    [
        (TokenEntry, {"alias": "x\ntok_1  valid"}, "alias: it has a character that does not show: a line break, a tab"),
        (
            OrganizationEntry,
            {"name": "Ev\u202eil"},
            "name: it has a character that does not show: RIGHT-TO-LEFT OVERRIDE; remove it",
        ),
        (OrganizationEntry, {"name": "   "}, "name: it is blank"),
        (OrganizationEntry, {"name": "A", "slug": "Ä"}, "slug: it is too long, or has wrong characters"),
        (Settings, {"execution": {"author_name": ""}}, "execution.author_name: it is blank"),
        (Settings, {"execution": {"author_email": "<>"}}, "execution.author_email: git takes no such name"),
        (Settings, {"page": {"url": "runs.example"}}, "page.url: it is not an http or https address"),
        (Settings, {"events": {"allow_private": ["x"]}}, "events.allow_private.0: "),
    ],
)
def test_an_invalid_text_is_refused_in_plain_words(kind: Any, values: Any, fault: str) -> None:
    """The error shows no pattern and no validator's name."""
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(values)

    assert first_fault(refused.value).startswith(fault)
    assert "[" not in first_fault(refused.value)


def test_an_unwritable_database_counts_as_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database may be readable, as with a full disk.

    /readyz and the alert count it as down until half a minute later.
    """
    with contextlib.closing(Database(f"sqlite:///{tmp_path / 'full.sqlite'}")) as database:
        database.migrate()
        metrics = ServiceMetrics(database, now_micros, 30.0)
        with database.write() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
        with pytest.raises(OperationalError), database.write() as connection:
            connection.exec_driver_sql("CREATE TABLE filler AS SELECT zeroblob(10000000) AS content")
        with database.write():
            pass  # A small write may still fit.
        while_full, fault = metrics.render().decode(), database.write_fault
        monkeypatch.setattr("service.store.database._FAULT_S", 0.0)

        assert (fault, database.write_fault) == ("database or disk is full", "")
        assert "runwarden_database_up 0.0" in while_full
        assert "runwarden_database_up 1.0" in metrics.render().decode()
