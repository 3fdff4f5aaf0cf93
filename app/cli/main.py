"""The root command, and one command line from its arguments to its exit code."""

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from app.cli.context import Invocation
from app.cli.options import CommandGroup
from app.start.streams import NotPrintedError, ReaderGoneError, discard_output, printing
from app.version import VERSION_LINE, __version__

BROKEN_PIPE: Final = 141
"""A shell's status for a process that SIGPIPE ended."""
NOT_PRINTED: Final = 74
"""Stdout could not be written (EX_IOERR): neither success nor failure may be reported."""

COMMANDS: Final = {
    "console": ("app.cli.command_console:console", "Open the console."),
    "mcp": ("app.mcp.command:mcp", "Serve programs over MCP on stdin and stdout: facts, and proposals."),
    "demo": ("app.cli.command_console:demo", "Try it: a service, repositories, runs and the console."),
    "serve": ("app.cli.command_console:serve", "Run the self-hosted service."),
    "service": ("app.cli.command_console:service", "Administer a self-hosted service's data folder."),
    "runs": ("app.runs.command:runs", "List, start, continue, retry and wait for runs; show and apply their results."),
    "agents": ("app.actions.command_start:agents", "List and start named agents."),
    "health": ("app.health.command:health", "Check the code hosts, as a monitoring plugin."),
    "orgs": ("app.organizations.command:orgs", "Create, import and list partner organizations."),
    "gitlab": ("app.organizations.command:gitlab", "Onboard GitLab projects."),
    "actions": ("app.actions.command:actions", "List, export, show and resolve writes sent from here."),
    "watch": ("app.automations.command_watch:watch", "Watch without a screen, and carry out the automations."),
    "automations": (
        "app.automations.command:automations",
        "List, check, pause and approve what `runwarden watch` carries out.",
    ),
    "inbox": ("app.inbox.command:inbox", "List open items, and mark them as done."),
    "notify": ("app.notify.command:notify", "Test notification routes, list messages, and acknowledge them."),
    "backup": ("app.profiles.command:backup", "Copy the ledgers and the automations' state."),
    "config": ("app.profiles.command:config", "Show, check, create, edit or change the configuration file."),
    "completion": ("app.cli.command_help:completion", "Complete commands, options and runs in your shell."),
    "doctor": (
        "app.cli.command_doctor:doctor",
        "Check versions, terminal, data folder, service and sandbox, for an issue.",
    ),
    "man": ("app.cli.command_help:man", "Show the help of every command in a pager."),
    "profiles": ("app.profiles.command:profiles", "List the configured services."),
    "token": ("app.profiles.command:token", "Check the API token."),
}
"""The module of each command, and its line in the help; only the called one is imported."""


def _open_console(ctx: click.Context) -> Any:
    if ctx.invoked_subcommand is not None:
        return None
    from app.cli.command_console import console

    return console.invoke(ctx)


root = CommandGroup(
    elsewhere=COMMANDS,
    name="runwarden",
    invoke_without_command=True,
    callback=click.pass_context(_open_console),
    help="Watches a code-review agent service: its runs, the health of its code hosts, and the work you give it.\n\n"
    "Without a command the console opens; without a terminal a snapshot is printed. To try it with nothing to "
    "configure: runwarden demo\n\nThe options below work before and after any command's name.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for option in root.params:
    if isinstance(option, click.Option):
        option.hidden = False  # Other commands take these too, but only the root's help lists them.
click.version_option(__version__, "-V", "--version", message=VERSION_LINE)(root)


def run_command_line(argv: Sequence[str]) -> int:
    """Run one command line, given without the program's name; return its exit code."""
    invocation = Invocation()
    if os.environ.get("_RUNWARDEN_COMPLETE") == "bash_complete":
        from app.cli.completion import join_at_colons  # for completion only

        join_at_colons(os.environ)
    # A name that the terminal's encoding lacks must not end the command.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        try:
            result = root.main([*argv], prog_name="runwarden", standalone_mode=False, obj=invocation)
            code = int(result) if isinstance(result, int) else 0
        except (ReaderGoneError, NotPrintedError):
            raise
        except BaseException as error:  # noqa: BLE001 — the process's boundary reports every error in one form
            from app.cli.failures import report  # for failures only

            code = report(error, invocation, argv)
        with printing():
            sys.stdout.flush()
    except ReaderGoneError:
        discard_output(sys.stdout)
        # The reader is gone, but a script still needs the outcome of a write.
        return BROKEN_PIPE if invocation.outcome is None else invocation.outcome
    except NotPrintedError as error:
        discard_output(sys.stdout)
        advice = f"for a write, see: {invocation.command_line} actions list"
        invocation.output.note(f"runwarden: {error} The command itself was carried out; {advice}")
        return invocation.outcome or NOT_PRINTED
    return 128 + invocation.stopped_by if invocation.stopped_by else code
