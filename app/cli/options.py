"""Options that many commands share, and the command classes that carry them."""

import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial, wraps
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click

from app.cli.context import Invocation
from app.cli.output import Format

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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

    def __init__(self, *args: Any, elsewhere: Mapping[str, str] = MappingProxyType({}), **kwargs: Any) -> None:
        """Prepare; `elsewhere` are commands by name, as `module:attribute`, which are imported when they are called."""
        super().__init__(*args, **kwargs)
        self._elsewhere = elsewhere
        self.params += [*output_options(hidden=True), *global_options(hidden=True)]

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """All names."""
        return sorted({*self.commands, *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported if necessary; None for an unknown name."""
        if cmd_name in self._elsewhere and cmd_name not in self.commands:
            module, _, attribute = self._elsewhere[cmd_name].partition(":")
            self.add_command(getattr(import_module(module), attribute))
        return super().get_command(ctx, cmd_name)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End with the examples."""
        write_examples(ctx, formatter)


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
