"""Options that many commands share, with their values, and the command classes that carry them."""

import json
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click

from app.cli.context import Invocation
from app.cli.exits import failed
from app.cli.output import Format
from app.times import parse_duration, parse_period

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from app.api.requests import Json


def as_key(_: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Callback for an idempotency key; an empty one is refused, because it would not prevent a second sending."""
    if value is not None and not value.strip():
        raise click.BadParameter("the key is empty. Is the variable that holds it set?", param=param)
    return value


def as_duration(_: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Callback for an option that is a duration; a bare number means seconds, as usual on a command line."""
    if value is None:
        return None
    is_bare = value.strip().replace(".", "", 1).isdecimal()
    try:
        return parse_duration(f"{value.strip()}s" if is_bare else value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from error


def as_moment(_: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Callback for an option that is a point in time."""
    period = _period(param, value)
    return None if period is None else period[0]


def as_last_moment(_: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Callback for an option that is the end of a period: a date includes its day."""
    period = _period(param, value)
    return None if period is None else period[1]


def _period(param: click.Parameter, value: str | None) -> tuple[datetime, datetime] | None:
    try:
        return None if value is None else parse_period(value, datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from error


def mapping(pairs: tuple[str, ...]) -> "dict[str, Json]":
    """KEY=VALUE options as an object; a value is parsed as JSON if it is JSON: `3` is a number, `three` is text.

    Raises:
        CommandFailedError: An option is not KEY=VALUE, or a key is given twice.
    """
    found: dict[str, Json] = {}
    for text in pairs:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise failed("usage", f"{text!r} is not KEY=VALUE.")
        if key in found:
            raise failed("usage", f"{key!r} is given twice.")
        found[key] = json_or_text(value)
    return found


def json_or_text(text: str) -> "Json":
    """A value parsed as JSON, or the text itself if it is not JSON."""
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON.")


COUNT: Final = click.IntRange(1, 1_000_000_000)
"""The type of options that are a number of items."""
OUT_OPTION: Final = click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Into a file, all or nothing."
)


def _keep(
    attribute: str, read: Callable[[Any], Any] | None = None
) -> Callable[[click.Context, click.Parameter, Any], None]:
    """The callback of an option that sets an attribute of the invocation, by default to the option's own value."""

    def callback(ctx: click.Context, param: click.Parameter, given: Any) -> None:
        invocation, name = ctx.ensure_object(Invocation), param.opts[-1]
        if ctx.resilient_parsing and attribute == "token_stream":
            return  # During completion, stdin is the user's terminal.
        # An option that was not given must not undo the group's.
        for each in given if isinstance(given, tuple) else (True,) * given:
            option, earlier = invocation.given.get(attribute, (None, None))
            if option == name and each is True:
                return
            value = each if read is None else read(each)
            if option is not None and value != earlier:
                raise click.UsageError(f"{option} and {name} contradict each other: keep one of them.", ctx)
            invocation.given[attribute] = name, value
            setattr(invocation, attribute, value)

    return callback


def _token_line(_: object) -> StringIO:
    # Read now, and only one line: instructions may follow on the same stream.
    return StringIO(sys.stdin.buffer.readline().decode("ascii", errors="replace"))


class _ProfileName(click.types.StringParamType):
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem[str]]":
        from app.cli.completion import PROFILE

        return PROFILE.shell_complete(ctx, param, incomplete)


def global_options(*, hidden: bool) -> list[click.Option]:
    """Options that every command takes, before or after its name."""
    path = click.Path(path_type=Path)

    def named(
        name: str, attribute: str, metavar: str, help_text: str, kind: "click.ParamType[Any]" = path
    ) -> click.Option:
        return click.Option(
            [name],
            multiple=True,
            type=kind,
            metavar=metavar,
            callback=_keep(attribute),
            help=help_text,
            expose_value=False,
            hidden=hidden,
        )

    def flag(names: list[str], callback: Callable[..., None], help_text: str) -> click.Option:
        return click.Option(names, is_flag=True, callback=callback, help=help_text, expose_value=False, hidden=hidden)

    service = "Which of the configured services; beats the environment [RUNWARDEN_PROFILE]."
    return [
        named("--config", "config_file", "FILE", "Configuration file; beats the environment [RUNWARDEN_CONFIG]."),
        named("--profile", "profile_name", "NAME", service, _ProfileName()),
        named("--data-dir", "data_dir", "DIR", "Folder of caches and ledgers [RUNWARDEN_DATA_DIR]."),
        flag(["--read-only"], _keep("read_only"), "Refuse every write."),
        flag(["--token-stdin"], _keep("token_stream", _token_line), "Read the API token from the first line of stdin."),
        flag(["-v", "--verbose"], _keep("verbose"), "Log each request and what else is done, on stderr."),
        named("--log-file", "log_file", "FILE", "Append the log to this file instead."),
    ]


def output_options(*, hidden: bool = False) -> list[click.Option]:
    """`--json` and `--output`."""
    option = partial(click.Option, expose_value=False, hidden=hidden)
    return [
        option(
            ["--json"],
            is_flag=True,
            callback=_keep("asked_format", lambda _: Format.JSON),
            help="One JSON document, errors included.",
        ),
        option(
            ["-o", "--output"],
            multiple=True,
            type=click.Choice([form.value for form in Format]),
            callback=_keep("asked_format", Format),
            help="Output format on stdout.",
        ),
    ]


def async_command(function: Callable[..., Coroutine[None, None, int]]) -> Callable[..., int]:
    """A command's coroutine as a function that runs it on an event loop, with the invocation as first argument."""

    @wraps(function)
    @click.pass_obj
    def command(invocation: Invocation, /, **options: Any) -> int:
        return invocation.run(lambda: function(invocation, **options))

    return command


def write_examples(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """End a command's help with its examples, as they are typed."""
    from app.cli.examples import examples  # for help only

    if shown := examples(ctx.command_path):
        with formatter.section("Examples"):
            formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in shown))


class CommandGroup(click.Group):
    """A group of commands, with the global options; `--json` and `--output` may stand before a command's name."""

    def __init__(
        self, *args: Any, elsewhere: Mapping[str, tuple[str, str]] = MappingProxyType({}), **kwargs: Any
    ) -> None:
        """Prepare; `elsewhere` holds commands by name, as `module:attribute` and a summary: imported when called."""
        super().__init__(*args, **kwargs)
        self._elsewhere = elsewhere
        self.params = self.params or [*output_options(hidden=True), *global_options(hidden=True)]

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """All names, in the order of the documentation."""
        return [*self._elsewhere, *(name for name in self.commands if name not in self._elsewhere)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported if necessary; None for an unknown name."""
        if cmd_name in self._elsewhere and cmd_name not in self.commands:
            module, _, attribute = self._elsewhere[cmd_name][0].partition(":")
            self.add_command(getattr(import_module(module), attribute), cmd_name)
        command = super().get_command(ctx, cmd_name)
        if command is not None and ctx.resilient_parsing:
            from app.cli.completion import suggest

            suggest(self.name or "", command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is refused with a suggestion."""
        known = self.list_commands(ctx)
        if args[0] not in known and not ctx.resilient_parsing and (meant := closest_word(args[0], known)):
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {meant}?", ctx)
        return super().resolve_command(ctx, args)

    def _summaries(self) -> list[tuple[str, str]]:
        own = {name: command.get_short_help_str(200) for name, command in self.commands.items()}
        return [
            *((name, said) for name, (_, said) in self._elsewhere.items()),
            *((name, said) for name, said in own.items() if name not in self._elsewhere),
        ]

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(self._summaries())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End with the examples."""
        write_examples(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """Complete the commands' names without importing the commands."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(name, help=said) for name, said in self._summaries() if name.startswith(incomplete)]


class FactCommand(click.Command):
    """A command that prints facts, with the global options, `--json` and `--output`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [*output_options(), *global_options(hidden=True)]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End with the examples."""
        write_examples(ctx, formatter)


class ScreenCommand(click.Command):
    """A command that opens a screen or another program, with the global options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options(hidden=True)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End with the examples."""
        write_examples(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, unless a format was asked for: it prints no facts."""
        refuse_format(ctx)
        return super().invoke(ctx)


def refuse_format(ctx: click.Context) -> None:
    """Refuse `--json` and `--output` where no facts are printed."""
    option, _ = ctx.ensure_object(Invocation).given.get("asked_format", ("", None))
    if option:
        raise click.UsageError(f"{option} has no meaning here: it belongs to commands that print facts.", ctx)


def closest_word(word: str, known: Iterable[str]) -> str | None:
    """The known word that a misspelled one may mean."""
    from difflib import get_close_matches  # for mistakes only

    return next(iter(get_close_matches(word, list(known), n=1)), None)
