"""`runwarden config`, `profiles`, `token` and `backup`: the configuration, and the files on this machine."""

import os
import sys
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from app.api.errors import ForbiddenError, NotAuthorizedError, NotFoundError
from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import WRONG_ADDRESS, CommandFailedError, ErrorDetail, Exit, command_error, of_api_error
from app.cli.options import CommandGroup, FactCommand, ScreenCommand, async_command
from app.cli.output import Column, Document, Output, facts
from app.engine.atomic_file import replacing
from app.engine.text import closest
from app.profiles import (
    CACHE_FILE,
    LEDGER_FILE,
    STATE_FILE,
    ConfigError,
    Settings,
    config_path,
    data_folder,
    example_text,
)
from app.profiles.load import mistakes, read_text, toml_values, unusable
from app.profiles.settings import NOTIFY_SUBJECTS, ConsoleSettings, NotifySettings
from app.profiles.table import KeyPath, Table, line_of
from app.profiles.token import FileToken, TokenError
from app.profiles.write import ChangedError, save
from storage.records import CANCELLED, STATUS_ORDER

config = CommandGroup("config", help="Show, check, create, edit or change the configuration file.")


@config.command("edit", cls=ScreenCommand)
@click.pass_obj
def edit(invocation: Invocation) -> int:
    """Open the configuration in $EDITOR, and keep the saved file if it is valid."""
    file = config_path(invocation.config_file, os.environ)
    before = read_text(file)
    text = before or example_text()
    while True:
        # As bytes: click would fail, and the edited text be lost, if an editor writes another encoding.
        edited = click.edit(text.encode(), extension=".toml")
        if edited is not None:
            try:
                text = edited.decode("utf-8-sig").replace("\r\n", "\n")
            except UnicodeDecodeError as error:
                raise _save_rejected(
                    file, edited.decode("latin-1"), reason="Your editor did not save UTF-8."
                ) from error
        if edited is None or text == (before or "").replace("\r\n", "\n"):
            invocation.output.note("Nothing was changed.")
            return Exit.DONE
        try:
            save(file, before, text)
        except ChangedError as error:
            raise _save_rejected(file, text, reason="Another program has changed it in the meantime.") from error
        except ConfigError as error:
            invocation.output.note(f"runwarden: {error}")
            if not (sys.stdin.isatty() and click.confirm("Edit it again?", default=True, err=True)):
                raise _save_rejected(file, text) from error
        else:
            invocation.output.note(f"Written to {file}.")
            return Exit.DONE


@config.command("set")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Remove KEY, so that its default holds again.")
@click.pass_obj
def set_value(invocation: Invocation, /, *, key: str, value: str | None, unset: bool) -> int:
    """Set KEY, such as poll.runs_s or profiles.acme.read_only, to VALUE; comments and order of the file stay.

    VALUE is TOML (3, true, ["a"]); anything else is taken as text.
    """
    if (value is None) != unset:
        raise command_error("usage", "Give a VALUE, or --unset to remove the key.")
    import tomlkit

    file = config_path(invocation.config_file, os.environ)
    before = read_text(file)
    *names, last = key.split(".")
    try:
        document = parent = tomlkit.parse(before or example_text())
        for name in names:
            if name not in parent and value is not None:
                parent[name] = tomlkit.table()
            parent = parent.get(name, {})
            if not hasattr(parent, "keys"):
                raise command_error("usage", f"{name} in {key} is not a table: only keys of tables can be set.")
        if value is None:
            parent.pop(last, None)
        else:
            try:
                parent[last] = tomlkit.value(value)
            except (tomlkit.exceptions.TOMLKitError, ValueError):
                parent[last] = tomlkit.string(value)
        save(file, before, tomlkit.dumps(document))
    except tomlkit.exceptions.TOMLKitError as error:
        raise command_error("config", f"{file}: this is not TOML: {error}", file=str(file)) from error
    text = "unset" if value is None else value
    invocation.output.record({"file": str(file), "key": key, "value": value}, [("file", str(file)), (key, text)])
    return Exit.DONE


def _save_rejected(file: Path, text: str, reason: str = "It is not valid.") -> CommandFailedError:
    """Save the rejected text in `FILE.rejected`, and return the failure that names it."""
    beside = file.with_name(f"{file.name}.rejected")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(beside) as written:
        written.write(text)
    return command_error("config", f"{file} was not changed. {reason} Your text is in {beside}.", file=str(file))


@config.command("path")
@click.pass_obj
def show_path(invocation: Invocation) -> int:
    """Print the path of the configuration file; it need not exist."""
    path = config_path(invocation.config_file, os.environ)
    document = {"path": str(path), "exists": path.is_file()}
    if invocation.output.format is Format.TABLE:
        invocation.output.text(str(path))
    else:
        invocation.output.record(document, [("path", str(path)), ("exists", "yes" if document["exists"] else "no")])
    return Exit.DONE


@config.command("check")
@click.pass_obj
def check(invocation: Invocation) -> int:
    """Check the configuration, token files included, and show the settings in effect, or all mistakes.

    Nothing is sent, and no program is run for a token.
    """
    warnings = list[ConfigError]()
    try:
        settings = invocation.settings()
        errors = list[ConfigError]()
    except ConfigError as error:
        if error.file is None or not error.path:
            raise
        settings, errors = mistakes(error.file, read_text(error.file) or "")
    if settings.file is not None:
        text = read_text(settings.file) or ""
        root = Table(settings.file, text, toml_values(settings.file, text))
        errors += _unusable(settings, root)
        if settings.automations or settings.notify != NotifySettings():
            from app.cli.running import run  # asyncio

            statuses = run(invocation, lambda: _statuses(settings))
            errors += _unknown_statuses(settings, root, statuses)
        if settings.notify != NotifySettings():
            from app.notify.channels import faults

            for route, reason in faults(settings.notify, os.environ).items():
                text = f"the route {route!r} does not work from here: {reason}"
                warnings.append(ConfigError(text, fix="", file=root.file, key="notify"))
        if settings.keys:
            from app.console.keymap import unknown_actions

            warnings += [_key_mistake(root, *warning) for warning in unknown_actions(settings.keys).items()]
    for warning in warnings:
        invocation.output.note(f"warning: {warning}")
    if errors:
        raise _check_failed(invocation.output, errors)
    profile = invocation.profile(settings)
    names = [profile.name for profile in settings.profiles]
    folder = str(data_folder(settings, profile))
    document: dict[str, object] = {
        "ok": True,
        "file": None if settings.file is None else str(settings.file),
        "profiles": names,
        "profile": profile.name,
        "base_url": profile.base_url,
        "read_only": profile.read_only,
        "data_folder": folder,
        "warnings": list(map(str, warnings)),
    }
    shown = {
        "file": settings.file or "none: only the environment",
        "profiles": ", ".join(names),
        "read_only": "yes" if profile.read_only else "no",
    }
    pairs = [(name, str(shown.get(name, value))) for name, value in document.items() if name not in {"ok", "warnings"}]
    invocation.output.record(document, pairs)
    return Exit.DONE


def _check_failed(output: Output, errors: list[ConfigError]) -> CommandFailedError:
    """The failure with all mistakes; without JSON, all but the last are printed now, each on a line of its own."""
    errors.sort(key=lambda error: error.line or 0)
    problems: list[ErrorDetail] = [{"line": error.line, "key": error.key, "message": str(error)} for error in errors]
    sentences = list(map(str, errors))
    if not output.format.is_json:
        for line in sentences[:-1]:
            output.note(line)
        sentences = sentences[-1:]
    first = errors[0]
    message = " ".join(sentences)
    return command_error("config", message, file=str(first.file), line=first.line, key=first.key, problems=problems)


async def _statuses(settings: Settings) -> frozenset[str]:
    """The statuses that the specification names, and those that runs of any profile have had."""
    from storage.cache.cache import Cache
    from storage.errors import StorageError

    statuses = {*STATUS_ORDER, CANCELLED}
    for file in (data_folder(settings, profile) / CACHE_FILE for profile in settings.profiles):
        with suppress(StorageError):
            if file.exists():
                async with await Cache.open(file) as cache:
                    statuses |= set(await cache.known_statuses())
    return frozenset(statuses)


def _unknown_statuses(settings: Settings, root: Table, known: frozenset[str]) -> Iterator[ConfigError]:
    """The statuses in triggers and `notify.on` that no run ever had: probably typos, which would never match."""

    def mistake(table: Table, key: str, word: str) -> ConfigError:
        suggestion = closest(word, known)
        fix = f"Did you mean {suggestion}?" if suggestion else f"Known are: {', '.join(sorted(known))}."
        return table.mistake(key, f"no run has had the status {word!r}.", fix)

    for word in settings.notify.on:
        if word not in known | NOTIFY_SUBJECTS:
            yield mistake(root.table("notify"), "on", word)
    for table in root.tables("automations"):
        on = table.table("on")
        for key in ("run", "from"):
            if (status := on.values.get(key)) and status not in known | {"stuck"}:
                yield mistake(on, key, str(status))


def _unusable(settings: Settings, root: Table) -> Iterator[ConfigError]:
    """Mistakes that otherwise only the console or the start of a profile would find."""
    from app.api.network import FROM_ENVIRONMENT, NONE, Network, as_proxy  # httpx, which takes long to import

    if settings.keys or any(command.key for command in settings.commands):
        from app.console.keymap import problems

        for sentence, place in problems(settings.keys, settings.commands).items():
            yield _key_mistake(root, sentence, place)
    if settings.console.theme != ConsoleSettings().theme:
        from app.console.themes import theme_problem

        if problem := theme_problem(settings.console.theme):
            yield root.table("console").mistake("theme", problem, "")
    for profile in settings.profiles:
        if isinstance(profile.token, FileToken):
            try:
                profile.token.read({})
            except TokenError as error:
                table = root.table("profiles").table(profile.name)
                yield table.mistake("token_file", error.message, error.fix)
        try:
            if profile.proxy not in {FROM_ENVIRONMENT, NONE}:
                as_proxy(profile.proxy)
            if profile.ca_file or profile.client_cert:
                Network.of(profile).context()
        except ValueError as error:
            key = next((key for key in ("ca_file", "client_cert") if str(error).startswith(key)), "proxy")
            yield root.table("profiles").table(profile.name).mistake(key, f"{error}.", "Correct it, or take it out.")


def _key_mistake(root: Table, sentence: str, place: tuple[str, str]) -> ConfigError:
    path: KeyPath = place
    if place[0] == "commands":
        # A command with a mistake is in the file, but not in the settings.
        names = [command.values.get("name") for command in root.tables("commands")]
        path = ("commands", names.index(place[1]), "key")
    elif place[1] not in root.table("keys").values:
        path = ("keys", *place[1].split("."))
    return ConfigError(sentence, fix="", file=root.file, line=line_of(root.text, path))


@config.command("keys")
@click.pass_obj
def keys(invocation: Invocation) -> int:
    """List the ids for [keys], with their current keys."""
    from app.console.keymap import catalog

    keys = invocation.settings().keys
    entries: list[Document] = [
        {"id": fact.id, "keys": keys[fact.id].split(",") if fact.id in keys else [*fact.keys], "does": fact.does}
        for fact in catalog()
    ]
    columns: tuple[Column[Any], ...] = (
        Column("id", name="id"),
        Column("keys", lambda entry: " ".join(entry["keys"]), "keys", lambda entry: " ".join(entry["keys"])),
        Column("does", name="does", flexible=True),
    )
    invocation.output.listing("keys", entries, columns)
    return Exit.DONE


@config.command("init")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def init(invocation: Invocation, *, force: bool) -> int:
    """Create the configuration file from the commented example, readable by you alone."""
    path = config_path(invocation.config_file, os.environ)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(example_text())
    except FileExistsError as error:
        raise command_error(
            "config", f"{path} exists already. Edit it, or replace it with --force.", file=str(path)
        ) from error
    except OSError as error:
        raise unusable(path, "written", error) from error
    invocation.output.record({"path": str(path), "created": True}, [("created", str(path))])
    invocation.output.note("Set your service's address in it, then: runwarden config check")
    return Exit.DONE


profiles = CommandGroup("profiles", help="List the configured services.")


@profiles.command("list")
@click.pass_obj
def list_profiles(invocation: Invocation) -> int:
    """List every profile with its address and the source of its token."""
    settings = invocation.settings()
    try:
        chosen = invocation.profile(settings).name
    except ConfigError:
        chosen = ""
    entries: list[Document] = [
        facts(profile, "name base_url read_only")
        | {"default": profile.name == chosen, "token_from": str(profile.token)}
        for profile in settings.profiles
    ]
    columns: tuple[Column[Any], ...] = (
        Column("profile", lambda row: row["name"], "profile"),
        Column("default", lambda row: "yes" if row["default"] else "", "default"),
        Column("base_url", name="base_url", flexible=True),
        Column("token from", name="token_from", flexible=True),
        Column("read_only", lambda row: "yes" if row["read_only"] else "no", "read_only"),
    )
    empty = "No profile is configured. Create a file with: runwarden config init"
    invocation.output.listing("profiles", entries, columns, empty=empty)
    return Exit.DONE


token = CommandGroup("token", help="Check the API token.")


@token.command("check")
@async_command
async def check_token(invocation: Invocation, /) -> int:
    """Ask the service whether it accepts the token: exit code 0 if runs may be read, 4 if not.

    The API does not report when a token expires, or whether it may create organizations.
    """
    async with invocation.engine(needs_token=True) as engine:
        origin = str(engine.profile.token)
        source = {"base_url": engine.profile.base_url, "token_from": origin}
        try:
            health = await _is_allowed(engine.client.health())
            runs = await _is_allowed(engine.client.list_runs(page_size=1))
        except NotFoundError as error:
            raise of_api_error(error, hint=WRONG_ADDRESS) from error
        except NotAuthorizedError:
            invocation.beside_error = {"valid": False, **source, "runs": False, "health": False}
            raise
    document = {"valid": True, **source, "runs": runs, "health": health}
    pairs = [
        ("token", "accepted"),
        ("service", engine.profile.base_url),
        ("token from", origin),
        ("runs", "allowed" if runs else "not allowed: it needs scope runs:read or admin"),
        ("health", "allowed" if health else "not allowed"),
    ]
    invocation.output.record(document, pairs)
    return Exit.DONE if runs else Exit.NOT_AUTHORIZED


async def _is_allowed(request: Awaitable[object]) -> bool:
    try:
        await request
    except ForbiddenError:
        return False
    return True


@click.command("backup", cls=FactCommand)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--all-profiles", is_flag=True, help="Of every configured service.")
@click.pass_obj
def backup(invocation: Invocation, /, *, folder: Path, all_profiles: bool) -> int:
    """Copy the ledger and the automations' state into FOLDER, which must be new or empty.

    Consoles and bots may continue: each copy is complete and of one moment. To restore, stop them all and put the
    files back where they were.
    """
    from storage.database import copy_database  # sqlite3

    settings = invocation.settings()
    copied: list[str] = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise command_error("usage", f"{folder} is not empty. Name a new folder for each backup.")
        for profile in settings.profiles if all_profiles else (invocation.profile(settings),):
            source = data_folder(settings, profile)
            for file in (LEDGER_FILE, STATE_FILE):
                if (source / file).exists():
                    target = folder / source.name / file
                    target.parent.mkdir(mode=0o700, exist_ok=True)
                    copy_database(source / file, target)
                    copied.append(str(target))
    except OSError as error:
        raise command_error("usage", f"{folder} cannot be written: {error.strerror or error}.") from error
    if not copied:
        raise command_error("not_found", "Nothing to copy yet: there is no ledger and no state.")
    invocation.output.record({"folder": str(folder), "files": copied}, [("copied", path) for path in copied])
    return Exit.DONE
