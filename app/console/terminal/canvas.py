"""What the next start needs to draw its earliest picture: where the table of runs stands, and its colours."""

from rich.style import Style
from textual.app import App
from textual.screen import Screen

from app.console.terminal.early import Canvas, terminal_kind
from widgets.runs.renderer import TableRenderer
from widgets.runs.table import RunTable

_LETTER = "x"


def canvas_of(screen: Screen[object], theme: str, env: dict[str, str]) -> Canvas | None:
    """The canvas that is on show; None: there is no table of runs on it.

    Args:
        screen: What is on show.
        theme: The theme as the configuration names it.
        env: The environment that the colours were chosen by.
    """
    table = next(iter(screen.query(RunTable)), None)
    if table is None or not table.region or screen.app.no_color:
        return None
    paint = TableRenderer.of(table)
    inks = {"titles": _ink(screen.app, paint.header_style)}
    for name, ground in (("row", paint.base), ("cursor", paint.cursor)):
        inks[f"{name}.mark"] = _ink(screen.app, ground + paint.mark)
        inks |= {f"{name}.{tone}": _ink(screen.app, ground + style) for tone, style in paint.tones.items()}
    view = table.scrollable_content_region
    return Canvas(
        terminal_kind((screen.size.width, screen.size.height), env),
        theme,
        x=table.region.x,
        y=table.region.y,
        width=view.width,
        height=view.height,
        inks=inks,
    )


def _ink(app: App[object], style: Style) -> str:
    # As Textual itself writes it, in as many colours as this terminal has.
    return style.render(_LETTER, color_system=app.console._color_system).partition(_LETTER)[0]  # noqa: SLF001 — Rich has the name only
