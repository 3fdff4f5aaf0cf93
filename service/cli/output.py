"""Output: JSON for programs, lines of text, and errors that stop a command with one sentence."""

import csv
import json
import os
import pwd
import socket
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeVar, get_args

import click
from platformdirs import user_data_path
from pydantic import ValidationError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from service.cli import DATA_DIR_VARIABLE
from service.clock import now_micros, rfc3339_or_none
from service.errors import ServiceError, first_fault
from service.settings import DataFolder
from service.setup import SetupError, find_organization
from service.store import audit
from service.store.database import Database
from service.store.organizations import Organization
from service.text import printable

Format = Literal["table", "json", "ndjson", "csv"]
Match = TypeVar("Match")
Row = tuple[Mapping[str, object], str]
"""A row as a document, and as a line of a table."""
DATABASE_VARIABLE = "RUNWARDEN_SERVICE_DATABASE"


class _TomlValue(click.ParamType[Any]):
    name = "TOML"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError as error:
            self.fail(f"{error}; write it as in the document of `apply`", param, ctx)


INLINE: Final = _TomlValue()
"""The type of an option whose value is written in TOML, such as a table."""
org_option = click.option("--org", "slug", required=True, help="The organization's slug or id.")
any_org_option = click.option("--org", "slug", help="The organization's slug or id; all of them if left out.")
elsewhere_option = click.option(
    "--elsewhere", is_flag=True, help="Agents run on other machines: do not look for their programs and variables here."
)


def data_folder(folder: Path | None) -> DataFolder:
    return DataFolder(folder or user_data_path("runwarden") / "service")


@dataclass(frozen=True, slots=True)
class AdminContext:
    """The context of an administration command."""

    folder: DataFolder
    format: Format
    database_url: str | None = None
    """The database's address; None: the database is the folder's own."""

    @contextmanager
    def database(self, *, create: bool = False) -> Iterator[Database]:
        """Open the database; with `create`, make the data folder if there is none.

        Raises:
            SetupError: There is no service here.
        """
        if not create and self.database_url is None and not self.folder.database_file.exists():
            raise SetupError(
                f"there is no service in {self.folder.root}; name its folder with --data-dir, "
                "or begin one with: runwarden service org create NAME"
            )
        self.folder.create()
        noted = self.folder.noted_database
        advice = f"the service in {self.folder.root} uses the database {noted}: set {DATABASE_VARIABLE} as it has it"
        if noted is not None and self.database_url is None:
            raise SetupError(advice)
        database = Database(self.database_url or self.folder.database_url)
        try:
            if noted not in {None, database.shown}:
                raise SetupError(f"{advice}, and not to {database.shown}")
            database.migrate()
            yield database
        finally:
            database.close()

    @contextmanager
    def change(self, action: str, database: Database | None = None, *, create: bool = False) -> Iterator["AdminAct"]:
        """Open the database for one act of administration; the audit trail records its author, and whether it failed.

        `database`: an open database to use.
        """
        with self.database(create=create) if database is None else nullcontext(database) as opened:
            change = None
            try:
                with opened.write() as connection:
                    change = AdminAct(connection)
                    yield change
                    if not change.is_recorded:
                        change.record(action)
            except (ServiceError, DBAPIError):
                if change is not None:
                    with suppress(DBAPIError), opened.write() as connection:
                        change.connection = connection
                        change.record(action, outcome=audit.FAILED)
                raise

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open the database for reading, without blocking a running service."""
        with self.database() as database, database.read() as connection:
            yield connection

    def show_rows(self, name: str, rows: Iterable[Row]) -> None:
        rows_shown = [*rows]
        self.show({name: [document for document, _ in rows_shown]}, *(text for _, text in rows_shown))

    def show(self, document: Mapping[str, object], *lines: str) -> None:
        """Print the document in the chosen format; a table prints `lines` instead.

        NDJSON and CSV have a line for each object of the document's list; a document without a list is one line.
        """
        lists = [value for value in document.values() if isinstance(value, list)]
        has_entries = len(lists) == 1 and all(isinstance(entry, dict) for entry in lists[0])
        entries: Sequence[Mapping[str, object]] = lists[0] if has_entries else [document]
        match self.format:
            case "json":
                click.echo(json.dumps(document, indent=2))
            case "ndjson":
                click.echo("".join(f"{json.dumps(entry)}\n" for entry in entries), nl=False)
            case "csv":
                # Not into sys.stdout itself, whose encoding may be ASCII: click writes UTF-8 then.
                buffer = StringIO()
                rows = csv.writer(buffer, lineterminator="\n")
                names = list(dict.fromkeys(name for entry in entries for name in entry))
                rows.writerows([names] if names else [])
                rows.writerows([_cell(entry.get(name)) for name in names] for entry in entries)
                click.echo(buffer.getvalue(), nl=False)
            case "table" if lines:
                click.echo(printable("\n".join(lines)))
            case "table":
                click.echo("nothing yet", err=True)


def _cell(value: object) -> str:
    """Return a value in CSV; a text that a spreadsheet would take for a formula gets an apostrophe."""
    if not isinstance(value, str):
        return "" if value is None else printable(json.dumps(value))
    text = printable(value).replace("\n", " ")
    if text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{text}"
    return text


def fields_of(row: object, *names: str) -> dict[str, object]:
    """Return these fields of a row for a document; instants, whose names end in `_at`, are in RFC 3339."""
    values = ((name, getattr(row, name)) for name in names)
    return {name: rfc3339_or_none(value) if name.endswith("_at") else value for name, value in values}


def line(*parts: object) -> str:
    """Return a line of text; None and empty parts are left out."""
    return "  ".join(str(part) for part in parts if part not in {None, ""})


def require(match: Match | None, kind: str, name: object, command: str) -> Match:
    """Return the result of a look-up or a change.

    Raises:
        SetupError: It is None, False or empty; `where` is the command that lists what exists.
    """
    if not match:
        raise SetupError(f"there is no {kind} {name!r}; list them with: runwarden {command}")
    return match


def owner_of(connection: Connection, slug: str | None) -> str | None:
    return None if slug is None else find_organization(connection, slug).id


@dataclass(slots=True)
class AdminAct:
    """An act of administration: its transaction, and its entry in the audit trail."""

    connection: Connection
    target: str | None = None
    """The object of the act, set once it is found: the typed text could be anything, even a token."""
    organization_id: str | None = None
    detail: str | None = None
    is_recorded: bool = False
    """Whether the command records its own entries."""

    def of(self, slug: str) -> Organization:
        """Return the organization with a slug or id, as the one that the act is about."""
        organization = find_organization(self.connection, slug)
        self.organization_id = organization.id
        return organization

    def record(self, action: str, *, outcome: str = "done") -> None:
        self.is_recorded = True
        audit.record(
            self.connection,
            operator(),
            action,
            now_micros(),
            target=self.target,
            organization_id=self.organization_id,
            detail=self.detail,
            outcome=outcome,
        )


def operator() -> str:
    """Return the author of a command: the account of the process, whatever the environment says, and the machine."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return f"operator:{name}@{socket.gethostname()}"


class AdminCommand(click.Command):
    """A command with the common options, which gets an `AdminContext` as first argument, and shows plain errors."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        folder = click.Path(path_type=Path, file_okay=False)
        formats = click.Choice(get_args(Format))
        hint = f"URL of the service's database where it is not the folder's own; better in {DATABASE_VARIABLE}."
        self.params += [
            click.Option(["--data-dir"], type=folder, envvar=DATA_DIR_VARIABLE, help="The service's data folder."),
            click.Option(["--database", "database_url"], envvar=DATABASE_VARIABLE, help=hint),
            click.Option(["--json", "as_json"], is_flag=True, help="One JSON document, errors included."),
            click.Option(["-o", "--output", "form"], type=formats, help="Output format on stdout."),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        assert self.callback is not None  # noqa: S101 — each command is made from a function
        before, options = ctx.find_root().params, ctx.params
        data_dir = options.pop("data_dir")
        database_url = options.pop("database_url")
        formats: set[Format] = {name for name in (options.pop("form"), before.get("form")) if name is not None}
        formats |= {"json"} if options.pop("as_json") or before.get("as_json") else set()
        if len(formats) > 1:
            raise click.UsageError(f"{' and '.join(sorted(formats))} contradict each other: ask for one format.", ctx)
        chosen = formats.pop() if formats else "table"
        with plain_errors(as_json=chosen in {"json", "ndjson"}):
            return ctx.invoke(self.callback, AdminContext(data_folder(data_dir), chosen, database_url), **options)


class AdminGroup(click.Group):
    """A group of such commands."""

    command_class = AdminCommand


@contextmanager
def plain_errors(*, as_json: bool) -> Iterator[None]:
    """Turn an error that an operator can fix into one sentence and exit status 2."""
    try:
        yield
    except (ServiceError, OSError) as error:
        fail(str(error), as_json=as_json)
    except DBAPIError as error:
        # Whether the database is damaged, full, read-only or gone, its own message is the most precise.
        fix = "check its server and disk, or restore the back-up"
        fail(f"the database cannot be used: {error.orig}; {fix}", as_json=as_json)
    except ValidationError as error:
        fail(first_fault(error), as_json=as_json)


def fail(message: str, *, as_json: bool) -> NoReturn:
    """Print an error and end with status 2."""
    if as_json:
        click.echo(json.dumps({"error": {"kind": "usage", "message": message}}))
    else:
        click.echo(f"runwarden: {printable(message)}", err=True)
    raise SystemExit(2)
