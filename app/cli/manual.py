"""`runwarden man`: the manual pages, made from the commands themselves."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import click

from app.cli.context import Invocation
from app.cli.examples import examples
from app.cli.exits import EXIT_BY_KIND, Exit, failed
from app.cli.options import ScreenCommand
from app.version import __version__

MEANINGS: Final = {
    Exit.DONE: "done",
    Exit.FAILED: "the run waited for failed, or something was found unhealthy",
    Exit.USAGE: "usage, configuration, or a request that cannot succeed as it stands",
    Exit.TIMED_OUT: "timed out waiting",
    Exit.NOT_AUTHORIZED: "not authorized",
    Exit.RATE_LIMITED: "rate-limited",
    Exit.UNKNOWN_OUTCOME: "the outcome of a write is unknown",
    Exit.NOT_FOUND: "not found",
    Exit.UNREACHABLE: "the service is unreachable, or its answer unusable",
    Exit.INTERRUPTED: "interrupted",
}


@click.command(cls=ScreenCommand, short_help="Print a manual page, or install them all.")
@click.argument("command", required=False)
@click.option("--install", is_flag=True, help="Write all pages where man finds them, and say where.")
@click.pass_context
def man(ctx: click.Context, /, *, command: str | None, install: bool) -> int:
    """Print the manual page of COMMAND, or of runwarden itself, for man -l -."""
    invocation, root = ctx.ensure_object(Invocation), ctx.find_root()
    names = [None, *_group(root).list_commands(root)]
    if command not in names:
        raise failed("not_found", f"There is no command {command!r}. There are: {', '.join(filter(None, names))}.")
    if not install:
        invocation.output.write(_page(root, command))
        return Exit.DONE
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "man/man1"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            stem = "runwarden" if name is None else f"runwarden-{name}"
            (folder / f"{stem}.1").write_text(_page(root, name), encoding="utf-8")
    except OSError as error:
        raise failed("usage", f"{folder} cannot be written: {error.strerror}.") from error
    invocation.output.text(f"{len(names)} pages written to {folder}. Try: man runwarden-runs")
    return Exit.DONE


def _group(root: click.Context) -> click.Group:
    return cast("click.Group", root.command)


def _page(root: click.Context, name: str | None) -> str:
    command = (name and _group(root).get_command(root, name)) or root.command
    context = root if name is None else click.Context(command, parent=root, info_name=name)
    title = context.command_path.replace(" ", "-")
    lines = [
        f'.TH {title.upper()} 1 "" "Runwarden {__version__}" "Runwarden"',
        ".SH NAME",
        f"{_roff(title)} \\- {_roff(command.get_short_help_str(200))}",
        *_sections(context),
        ".SH EXIT CODES",
        *(
            part
            for code in sorted({*EXIT_BY_KIND.values(), Exit.DONE})
            for part in (".TP", f"{code.value}", MEANINGS[code])
        ),
    ]
    return "\n".join(lines) + "\n"


def _sections(context: click.Context, *, is_part: bool = False) -> Iterator[str]:
    """A command's usage, text, options and examples, then those of the commands below it."""
    command, heading = context.command, ".SS" if is_part else ".SH"
    yield f'.SH "{_roff(context.command_path).upper()}"' if is_part else ".SH SYNOPSIS"
    yield from (f".B {_roff(context.command_path)}", _roff(" ".join(command.collect_usage_pieces(context))))
    yield ".PP" if is_part else ".SH DESCRIPTION"
    yield "\n.PP\n".join(_roff(paragraph) for paragraph in (command.help or "").replace("\b\n", "").split("\n\n"))
    yield f"{heading} Options"
    for param in command.get_params(context):
        names, text = param.get_help_record(context) or ("", "")
        if text:
            yield from (".TP", f".B {_roff(names)}", _roff(text))
    yield from (f"{heading} Examples", ".nf", *map(_roff, examples(context.command_path)), ".fi")
    if isinstance(command, click.Group):
        yield from _below(context, command)


def _below(context: click.Context, group: click.Group) -> Iterator[str]:
    """The commands of a group: of the program itself by name, for each has its own page."""
    if context.parent is None:
        yield ".SH COMMANDS"
    for name in group.list_commands(context):
        each = group.get_command(context, name)
        if each is not None and context.parent is None:
            yield from (".TP", f".BR runwarden\\-{_roff(name)} (1)", _roff(each.get_short_help_str(200)))
        elif each is not None and not each.hidden:
            yield from _sections(click.Context(each, parent=context, info_name=name), is_part=True)


def _roff(text: str) -> str:
    """Text that troff prints as it is."""
    lines = (line.strip().replace("\\", "\\e").replace("-", "\\-") for line in text.splitlines())
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines if line)
