"""Options that many commands share, with their values, and the command classes that carry them."""

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial, reduce, wraps
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from app.cli import Format
from app.cli.context import Invocation
from app.engine.text import closest

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from app.profiles.token import Token, TokenError

F = TypeVar("F", bound=Callable[..., Any])


EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "": ("", "demo", "runs list --status failed --from -1d"),
    "demo": ("demo --keep --folder ~/runwarden-demo",),
    "runs list": (
        "runs list --status failed --from -24h",
        "runs list -R 'acme/*' --branch '!main' --json",
        "runs list --search 'is:stuck' --cached",
    ),
    "runs export": ("runs export --from -30d -o csv --out runs.csv",),
    "runs start": (
        "runs start -R acme/api 'Fix the flaky login test.'",
        "runs start -R acme/api -f task.md --wait --timeout 30m",
    ),
    "runs continue": ("runs continue run_01J 'Add a test for it.'",),
    "runs retry": (
        "runs retry run_01J --wait",
        "runs list --status failed --json | jq -r '.runs[].run_id' | xargs runwarden runs retry --yes",
    ),
    "runs cancel": ("runs cancel run_01J", "runs cancel --status queued -R acme/api --dry-run"),
    "runs wait": ("runs wait run_01J run_01K --timeout 1h", "runs wait run_01J run_01K --fail-fast"),
    "runs events": ("runs events --follow --since now",),
    "runs log": (
        "runs log run_01J --follow",
        "runs log run_01J --turn 1 --all --raw",
        "runs log run_01J --follow --json",
    ),
    "runs diff": (
        "runs diff run_01J --stat",
        "runs diff run_01J --turn 2 | git apply",
        "runs diff run_01J --color | less -R",
    ),
    "runs apply": ("runs apply run_01J -C ~/src/api",),
    "agents start": (
        "agents start security-review -R acme/api --input depth=full --wait",
        "agents start claude -R acme/api 'Fix the flaky login test.'",
    ),
    "orgs create": ("orgs create ada@example.com --offer-code PARTNER-1",),
    "orgs import": ("orgs import partners.csv --dry-run", "orgs import partners.csv"),
    "actions list": ("actions list --state unknown", "actions list --from -7d --actor ada --json"),
    "actions export": ("actions export --from -30d --out audit.ndjson",),
    "actions resolve": ("actions resolve act_01J --created run_01K", "actions resolve act_01J --not-created"),
    "watch": ("watch --metrics 9464", "watch --once"),
    "automations check": ("automations check 'nightly review' --replay 30d",),
    "automations log": ("automations log --outcome failed", "automations log 'nightly review' --json"),
    "automations run": ("automations run 'second chance' --run run_01J",),
    "inbox": ("inbox list", "inbox done failed:acme/api"),
    "inbox snooze": ("inbox snooze failed:acme/api --for 2h",),
    "backup": ("backup /backup/runwarden", "backup /backup/runwarden --all-profiles"),
    "config set": ("config set poll.runs_s 30", "config set profiles.acme.read_only --unset"),
    "doctor": ("doctor", "doctor --json"),
    "completion": ("completion --install", "completion fish --install"),
}
"""Examples of commands, without `runwarden`: `--help` ends with them, and a test parses every one."""


def reading(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback that parses an option's text, or each of its texts; a ValueError becomes a usage error."""

    def callback(_: click.Context, param: click.Parameter, value: str | tuple[str, ...] | None) -> object:
        try:
            if isinstance(value, tuple):
                return tuple(parse(part) for part in value)
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), param=param) from error

    return callback


@reading
def as_key(text: str) -> str:
    """The key of a write; an empty one would not prevent a second sending."""
    if not text.strip():
        raise ValueError("the key is empty. Is the variable that holds it set?")
    return text


def options_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in this order."""
    return lambda function: reduce(lambda inner, option: option(inner), reversed(options), function)


def as_path(text: str) -> "Path":
    from pathlib import Path  # help needs none

    return Path(text)


COUNT: Final = click.IntRange(1, 1_000_000_000)
OUT_OPTION: Final = click.option(
    "--out",
    type=click.Path(dir_okay=False),
    callback=reading(as_path),
    metavar="FILE",
    help="Write to a file, completely or not at all.",
)


def _keep(
    attribute: str, read: Callable[[Any], Any] | None = None
) -> Callable[[click.Context, click.Parameter, Any], None]:
    """The callback of an option that sets an attribute of the invocation, by default to the option's own value."""

    def callback(ctx: click.Context, param: click.Parameter, received: Any) -> None:
        invocation = ctx.ensure_object(Invocation)
        name = param.opts[-1]
        if ctx.resilient_parsing and attribute == "token":
            return  # During completion, stdin is the user's terminal.
        # An option that was not given must not undo the group's.
        for entry in received if isinstance(received, tuple) else (True,) * received:
            option, earlier = invocation.given.get(attribute, (None, None))
            if option == name and entry is True:
                return
            value = entry if read is None else read(entry)
            if option is not None and value != earlier:
                raise click.UsageError(f"{option} and {name} contradict each other: use one of them.", ctx)
            invocation.given[attribute] = name, value
            setattr(invocation, attribute, value)

    return callback


def completion_of(kind: str) -> Callable[[click.Context, click.Parameter, str], "list[CompletionItem[str]]"]:
    """The completion of a value from local data: of runs, statuses, repositories, profiles or automations."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
        from app.cli.completion import suggestions  # for completion only

        return suggestions(kind, ctx, param, incomplete)

    return complete


RUN_ID: Final = click.argument("run_id", shell_complete=completion_of("runs"))
RUN_IDS: Final = click.argument(
    "run_ids", nargs=-1, required=True, metavar="RUN_ID...", shell_complete=completion_of("runs")
)


def global_options() -> list[click.Option]:
    """Options that every command takes, before or after its name."""

    def option(
        names: list[str], attribute: str, metavar: str, text: str, read: Callable[[Any], Any] | None = None, **more: Any
    ) -> click.Option:
        path = {"multiple": True, "type": click.Path(), "metavar": metavar}
        more = (path if metavar else {"is_flag": True}) | more
        return click.Option(names, callback=_keep(attribute, read), help=text, expose_value=False, hidden=True, **more)

    service = "The configured service to use; overrides RUNWARDEN_PROFILE."
    return [
        option(["--config"], "config_file", "FILE", "Configuration file; overrides RUNWARDEN_CONFIG.", as_path),
        option(["--profile"], "profile_name", "NAME", service, type=str, shell_complete=completion_of("profiles")),
        option(["--data-dir"], "data_dir", "DIR", "Folder of caches and ledgers [RUNWARDEN_DATA_DIR].", as_path),
        option(["--read-only"], "read_only", "", "Refuse every write."),
        option(["--token-stdin"], "token", "", "Read the API token from the first line of stdin.", _read_token),
        option(["-v", "--verbose"], "verbose", "", "Log requests and other activity to stderr."),
        option(["--log-file"], "log_file", "FILE", "Append the log to this file instead.", as_path),
    ]


def output_options(*, hidden: bool = False) -> list[click.Option]:
    option = partial(click.Option, expose_value=False, hidden=hidden)
    form = click.Choice([form.value for form in Format])
    read = _keep("asked_format", lambda _: Format.JSON)
    keep = _keep("asked_format", Format)
    text = "Output format on stdout."
    return [
        option(["--json"], is_flag=True, callback=read, help="One JSON document, errors included."),
        option(["-o", "--output"], multiple=True, type=form, callback=keep, help=text),
    ]


def _read_token(_: object) -> "Token | TokenError":
    from app.profiles.token import Token, TokenError

    # Read now, and only one line: instructions may follow on the same stream.
    line = sys.stdin.buffer.readline().decode("ascii", errors="replace")
    try:
        return Token(line.strip())
    except TokenError as error:
        return error  # A command that needs no token continues.


def async_command(function: Callable[..., Coroutine[None, None, int]]) -> Callable[..., int]:
    """A command's coroutine as a function that runs it on an event loop, with the invocation as first argument."""

    @click.pass_obj
    def command(invocation: Invocation, /, **options: Any) -> int:
        from app.cli.running import run  # takes longer than help needs

        return run(invocation, lambda: function(invocation, **options))

    return wraps(function)(command)


class HelpfulCommand(click.Command):
    """A command with the global options, whose help ends with examples, as they are typed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if shown := EXAMPLES.get(ctx.command_path.partition(" ")[2]):
            with formatter.section("Examples"):
                lines = (f"{'':{formatter.current_indent}}runwarden {line}".rstrip() for line in shown)
                formatter.write("".join(f"{line}\n" for line in lines))


class FactCommand(HelpfulCommand):
    """A command that prints facts, with `--json` and `--output`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += output_options()


class CommandGroup(HelpfulCommand, click.Group):
    """A group of commands; `--json` and `--output` may precede a command's name."""

    command_class = FactCommand

    def __init__(
        self, *args: Any, elsewhere: Mapping[str, tuple[str, str]] = MappingProxyType({}), **kwargs: Any
    ) -> None:
        """`elsewhere`: commands imported when called, as `module:attribute` and a summary; without one it is hidden."""
        super().__init__(*args, **kwargs)
        self._elsewhere = elsewhere
        self.params += output_options(hidden=True)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """All names but hidden ones, in the order of the documentation."""
        return [*self._summaries()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported if necessary; None for an unknown name."""
        if cmd_name in self._elsewhere and cmd_name not in self.commands:
            module, _, attribute = self._elsewhere[cmd_name][0].partition(":")
            self.add_command(getattr(import_module(module), attribute), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is refused with a suggestion."""
        commands = self._summaries()
        is_known = args[0] in commands or args[0] in self._elsewhere
        if not is_known and not ctx.resilient_parsing and (suggestion := closest(args[0], commands)):
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {suggestion}?", ctx)
        return super().resolve_command(ctx, args)

    def _summaries(self) -> dict[str, str]:
        summaries = {name: command.get_short_help_str(200) for name, command in self.commands.items()}
        return {name: summary for name, (_, summary) in self._elsewhere.items() if summary} or summaries

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([*self._summaries().items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """Complete the commands' names without importing the commands."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        commands = self._summaries().items()
        return [CompletionItem(name, help=summary) for name, summary in commands if name.startswith(incomplete)]


class ScreenCommand(HelpfulCommand):
    """A command that opens a screen or another program."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, unless `--json` or `--output` was given: it prints no facts."""
        option, _ = ctx.ensure_object(Invocation).given.get("asked_format", ("", None))
        if option:
            raise click.UsageError(f"{option} has no meaning here: it belongs to commands that print facts.", ctx)
        return super().invoke(ctx)
