"""How an app ends that broke: the traceback names the places, and never the values of variables."""

from typing import Any

from rich.segment import Segments
from textual.app import App


def end_without_values(app: App[Any]) -> None:
    """Stands in for `App._fatal_error`, which prints locals: tokens may be among them."""
    from rich.traceback import Traceback

    app.bell()
    trace = Traceback(show_locals=False, width=None)
    app._exit_renderables.append(Segments(app.console.render(trace, app.console.options)))  # noqa: SLF001 — Textual offers no other way
    app._close_messages_no_wait()  # noqa: SLF001 — as above
