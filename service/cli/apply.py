"""`apply`: the whole set-up of a service from one file, in one process and one transaction."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import click

from service.cli.output import Desk, administers
from service.clock import now_micros
from service.entries import Setup
from service.setup import SetupError, apply


@click.command("apply")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@administers
def command(desk: Desk, file: Path) -> None:
    """Apply FILE (TOML, JSON when it ends in .json, '-' for TOML on standard input); applying again changes nothing."""
    from_stdin = str(file) == "-"
    document = _parse(sys.stdin.buffer.read() if from_stdin else file.read_bytes(), file)
    setup = Setup.model_validate(document)
    with desk.write(create=True) as connection:
        made = apply(connection, setup, Path.cwd() if from_stdin else file.absolute().parent, now_micros())
    made |= {"data_dir": str(desk.folder.root), "outbox": str(desk.folder.outbox)}
    desk.show(made, list(_lines(made)))


def _parse(raw: bytes, file: Path) -> Any:
    try:
        text = raw.decode("utf-8")
        return json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise SetupError(f"{file}: {error}") from error


def _lines(made: dict[str, Any]) -> list[str]:
    lines = []
    for organization in made["organizations"]:
        lines.append(f"{organization['slug']}  {'created' if organization['created'] else 'kept'}")
        lines += [f"  token {one['alias']}: {one['value'] or 'kept'}" for one in organization["tokens"]]
        lines += [f"  {one['platform']}:{one['path']}  {one['url']}" for one in organization["repositories"]]
    return lines
