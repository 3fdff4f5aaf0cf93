"""`runwarden web`: the console in a browser on this machine."""

import asyncio
import contextlib
import socket
import sys
from pathlib import Path

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed, require_extra
from app.cli.options import ScreenCommand
from app.profiles.values import is_loopback


@click.command(cls=ScreenCommand)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="A loopback address to listen on; others are refused."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="Default: any free port.")
@click.pass_obj
def web(invocation: Invocation, /, *, host: str, port: int) -> int:
    """Serve the console to a browser on this machine, for the first to open the printed link.

    The link works once. Enter prints another, Ctrl-C ends. From another machine, forward the port:
    ssh -L 8000:127.0.0.1:8000 HOST, with --port 8000.
    """
    require_extra("web")
    from app.web.server import WebConsole

    server = WebConsole(_console_argv(invocation), _listen(host, port))
    output = invocation.output

    async def serve() -> int:
        def tell() -> None:
            output.text(server.new_link())
            output.flush()

        def on_line() -> None:
            if sys.stdin.readline():
                tell()
            else:
                loop.remove_reader(sys.stdin)

        loop = asyncio.get_running_loop()
        tell()
        if sys.stdin.isatty():
            loop.add_reader(sys.stdin, on_line)
            output.note("Open it in a browser on this machine; it works once. Enter: new link. Ctrl-C: quit.")
        with contextlib.suppress(asyncio.CancelledError):
            await server.run()
        return Exit.DONE

    return invocation.run(serve)


def _console_argv(invocation: Invocation) -> list[str]:
    """The command that each tab starts, with the options of this one.

    Raises:
        ConfigError: The console could not open.
        CommandFailedError: The token can be read only once.
    """
    if invocation.token_stream is not None:
        raise failed(
            "usage", "--token-stdin gives the token once, but each tab needs it. Use a file, variable or command."
        )
    settings = invocation.settings()
    profile = invocation.profile(settings)
    # -P: a folder called `app` in the current directory is not ours.
    argv = [sys.executable, "-P", "-m", "app", "--profile", profile.name]
    for option, path in (("--config", invocation.config_file), ("--data-dir", invocation.data_dir)):
        if path is not None:
            argv += [option, str(Path(path).expanduser().absolute())]
    return [*argv, *(["--read-only"] if invocation.read_only else []), "console"]


def _listen(host: str, port: int) -> socket.socket:
    if not is_loopback(host):
        raise failed(
            "usage",
            f"{host} can be reached from other machines, and everyone who reaches the console acts with your token. "
            "Use 127.0.0.1 and forward the port: ssh -L PORT:127.0.0.1:PORT HOST.",
        )
    name = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        return socket.create_server((name, port), family=family)
    except OSError as error:
        raise failed("usage", f"{host}:{port} cannot be used: {error.strerror}. Choose another --port.") from error
