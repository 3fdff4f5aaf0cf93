"""`runwarden backup`: copies of the files that cannot be fetched again."""

import asyncio
from pathlib import Path

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import FactCommand, async_command
from app.config import LEDGER_FILE, STATE_FILE, Profile, Settings, data_folder


@click.command("backup", cls=FactCommand)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--all-profiles", is_flag=True, help="Of every configured service.")
@async_command
async def backup(invocation: Invocation, /, *, folder: Path, all_profiles: bool) -> int:
    """Copy the ledger and the automations' state into FOLDER, which must be new or empty.

    Consoles and bots may go on working: each copy is complete and of one moment. To restore, end them all and put the
    files back where they were.
    """
    settings = invocation.settings()
    profiles = settings.profiles if all_profiles else (invocation.profile(settings),)
    try:
        copied = await asyncio.to_thread(_copy, settings, profiles, folder)
    except OSError as error:
        raise failed("usage", f"{folder} cannot be written: {error.strerror or error}.") from error
    if not copied:
        raise failed("not_found", "There is nothing to copy yet: no ledger and no state.")
    document: dict[str, object] = {"folder": str(folder), "files": [str(each) for each in copied]}
    invocation.output.record(document, [("copied", str(each)) for each in copied])
    return Exit.DONE


def _copy(settings: Settings, profiles: tuple[Profile, ...], folder: Path) -> list[Path]:
    from storage.copying import copy_database

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise failed("usage", f"{folder} is not empty. Name a new folder for each backup.")
    copied: list[Path] = []
    for profile in profiles:
        source = data_folder(settings, profile)
        for file in (LEDGER_FILE, STATE_FILE):
            if (source / file).exists():
                (folder / source.name).mkdir(mode=0o700, exist_ok=True)
                copy_database(source / file, target := folder / source.name / file)
                copied.append(target)
    return copied
