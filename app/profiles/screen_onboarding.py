"""The answers given at the first start: their mistakes, and whether the service accepts them."""

import os
import shlex
from pathlib import Path
from typing import ClassVar, Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Button, Static

from app.console.guard import CONSOLE_CSS, BaseApp
from app.console.process import on_terminal
from app.console.sheets import OVER_CSS
from app.console.themes import DEFAULT, FEW_COLOURS, THEMES
from app.engine.text import safe_text
from app.profiles import ConfigError, Profile
from app.profiles.engines import check
from app.profiles.token import CommandToken, EnvToken, FileToken, ReadToken, Token, TokenError, TokenSource
from app.profiles.values import base_address, is_loopback
from app.profiles.write import add_profile, keep_token, name_problem
from widgets.forms.facts import FormChoice
from widgets.forms.field import FormField, LineField, SecretField
from widgets.kit import hidden
from widgets.kit.badges import STYLES, Tone

TokenOrigin = Literal["pasted", "variable", "file", "command"]
"""The token's source. `pasted`: stored in a separate file."""


class Origin(Struct, frozen=True):
    """One of the token's sources, and the field that asks for it."""

    title: str
    label: str
    hint: str
    placeholder: str = ""


ORIGINS: Final[dict[TokenOrigin, Origin]] = {
    "pasted": Origin(
        "pasted here, kept in a file that only you can read", "token", "From its page: Settings, API tokens."
    ),
    "variable": Origin("an environment variable", "variable", "It must be set whenever the console starts."),
    "file": Origin("an existing file", "file", "Readable by you alone: chmod 600.", "~/.secrets/runwarden.token"),
    "command": Origin(
        "the output of a command (a password manager)",
        "command",
        "With its arguments; no shell is involved.",
        "pass show runwarden",
    ),
}
_DULL: Final = frozenset({"api", "www", "app", "runs", "agents"})
"""First parts of a host name that do not identify its owner."""


def suggested_name(base_url: str) -> str:
    try:
        host = urlsplit(base_address(base_url)).hostname or ""
    except ValueError:
        return ""
    if is_loopback(host):
        return "local"
    parts = host.split(".")
    names = [part for part in parts[: max(1, len(parts) - 1)] if part not in _DULL]
    return (names or parts)[0]


def _source(origin: TokenOrigin, typed: str) -> TokenSource | str:
    """The token's source, or the problem with it; a pasted token is in no file until it is written."""
    match origin:
        case "pasted":
            try:
                return ReadToken(Token(typed))
            except TokenError as error:
                return str(error)
        case "variable":
            is_name = typed.isascii() and typed.replace("_", "a").isalnum() and not typed[0].isdigit()
            if is_name:
                return EnvToken(typed)
            return "A variable's name is letters, digits and _."
        case "file":
            if typed:
                return FileToken(Path.cwd() / Path(typed).expanduser())
            return "Which file?"
        case "command":
            try:
                argv = tuple(shlex.split(typed))
            except ValueError:
                return "A quote is not closed."
            return CommandToken(argv) if argv else "Which command?"


_ORIGINS: Final[tuple[TokenOrigin, ...]] = tuple(ORIGINS)
_ACCESS: Final = ("view and act", "view only: nothing is ever changed")


class OnboardingScreen(Screen[str | None]):
    """Closes with the new profile's name, or with None if the user left without one."""

    CSS_PATH = [OVER_CSS, Path(__file__).with_name("onboarding.tcss")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]  # noqa: RUF012
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s,ctrl+enter", "go", "check and open", priority=True, id="onboarding.go"),
        Binding("ctrl+y", "write_anyway", "write anyway", priority=True, id="onboarding.anyway"),
        Binding("escape", "leave", "leave", priority=True, id="onboarding.leave"),
        # With priority the focus has moved before the next key is read: a token typed at once is never an address.
        hidden("tab", "app.focus_next", priority=True),
        hidden("shift+tab", "app.focus_previous", priority=True),
        hidden("enter", "next_field", priority=True),
    ]

    def __init__(self, file: Path, variables: frozenset[str]) -> None:
        super().__init__()
        self._file = file
        self._variables = variables
        self._suggested = ""
        """The suggested name, as long as it was not replaced."""
        self._origin_choice = FormChoice([origin.title for origin in ORIGINS.values()])
        self._access_choice = FormChoice(_ACCESS)
        self._checking = False
        self._doubted: Profile | None = None
        """The unconfirmed profile, which the user can still write."""

    def compose(self) -> ComposeResult:
        with Vertical(id="onboarding") as sheet:
            sheet.border_title = Content("Welcome to runwarden")
            with VerticalScroll(id="questions", can_focus=False):
                yield Static("Nothing is configured yet. Where is your code-review service?", markup=False)
                yield LineField(
                    "base_url",
                    "service",
                    "Its address, with the version at the end.",
                    placeholder="https://api.example.com/v1",
                )
                yield LineField("name", "name", "A name of your choice.")
                yield _labelled_choice("token from", self._origin_choice, "origin")
                for key, origin in ORIGINS.items():
                    field = SecretField if key == "pasted" else LineField
                    value = "RUNWARDEN_TOKEN" if key == "variable" else ""
                    yield field(key, origin.label, origin.hint, value=value, placeholder=origin.placeholder)
                yield _labelled_choice("access", self._access_choice, "access")
            yield Static(id="verdict")
            with Horizontal(id="verbs"):
                yield Button("esc Leave", id="leave", action="screen.leave", compact=True)
                yield Button("^y Write anyway", id="anyway", action="screen.write_anyway", compact=True)
                yield Static(id="spring")
                yield Button("^s Check and open", id="go", action="screen.go", compact=True)

    def on_mount(self) -> None:
        self._origin_choice.chosen = _ORIGINS.index("variable" if "RUNWARDEN_TOKEN" in self._variables else "pasted")
        self._access_choice.chosen = 0
        self._say(f"Will be written to {safe_text(str(self._file), limit=200)}, readable by you alone.", "quiet")
        self._field("base_url").take_focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow only leaving while the check runs."""
        del parameters
        if action == "go":
            return not self._checking
        if action == "write_anyway":
            return self._doubted is not None and not self._checking
        if action == "next_field":
            return not isinstance(self.focused, Button)
        return True

    def action_go(self) -> None:
        """Check the answers, ask the service, write, and open the console."""
        new = self._complain(everywhere=True)
        if new is None:
            return
        self._checking = True
        self._doubt(None)
        self._say(f"Asking {safe_text(new.base_url, limit=120)} …", "busy")
        self.run_worker(self._check(new), group="check", exclusive=True)

    def action_write_anyway(self) -> None:
        """Write the profile although the service did not confirm it."""
        if self._doubted is not None:
            self._write(self._doubted)

    def action_leave(self) -> None:
        if self._checking:
            self.workers.cancel_group(self, "check")
            self._checking = False
            self._say("Stopped. Nothing was written.", "quiet")
            return
        self.dismiss(None)

    def action_next_field(self) -> None:
        self.focus_next()

    @on(FormField.Changed)
    def take_change(self, event: FormField.Changed) -> None:
        self._doubt(None)
        if event.field == "base_url":
            field = self._field("name")
            if field.value in {"", self._suggested}:
                self._suggested = suggested_name(self._field("base_url").value) or self._suggested
                field.fill(self._suggested)
        if self._field(event.field).has_class("-error"):
            self._complain()

    @on(FormField.Left)
    def complain_if_wrong(self) -> None:
        self._complain()

    @on(FormChoice.Changed)
    def show_origin(self) -> None:
        self._doubt(None)
        for origin in ORIGINS:
            self._field(origin).display = origin == self._origin
        variable = self._field("variable").value
        is_set = f"{variable} is set." if variable in self._variables else f"{variable} is not set here."
        self._field("variable").say(f"{is_set} {ORIGINS['variable'].hint}")

    async def _check(self, new: Profile) -> None:
        refused = await check(new)
        self._checking = False
        if refused is None:
            self._write(new)
            return
        reason, token_is_at_fault = refused
        self._say(f"{reason} Nothing was written.", "bad")
        self._field(self._origin if token_is_at_fault else "base_url").take_focus()
        self._doubt(new)

    def _write(self, new: Profile) -> None:
        written: Path | None = None
        try:
            if isinstance(new.token, ReadToken):
                written = keep_token(self._file.resolve().parent, new.name, new.token.read({}))
                # A relative path: the configuration resolves it against its own folder.
                new = Profile(new.name, new.base_url, FileToken(Path(written.name)), new.read_only)
            add_profile(self._file, new)
        except ConfigError as error:
            if written is not None:
                written.unlink(missing_ok=True)
            self._say(safe_text(str(error), limit=300), "bad")
            return
        self._field("pasted").fill("")
        self.dismiss(new.name)

    def _complain(self, *, everywhere: bool = False) -> Profile | None:
        """Show the problems of visited fields, or of all; return the profile if there are none."""
        address = self._field("base_url").value
        name = self._field("name").value.strip()
        source = _source(self._origin, self._field(self._origin).value.strip())
        problems = {"base_url": "", "name": name_problem(name), self._origin: source if isinstance(source, str) else ""}
        try:
            base_address(address)
        except ValueError as error:
            text = str(error)
            # A text that begins with a scheme keeps its lower case.
            problems["base_url"] = text if text.startswith("http") else f"{text[0].upper()}{text[1:]}"
        first: FormField | None = None
        for key, problem in problems.items():
            field = self._field(key)
            if everywhere:
                field.insist()
            field.complain((problem or None) if field.touched else None)
            first = first or (field if problem else None)
        if everywhere and first is not None:
            first.take_focus()
        if first is not None or isinstance(source, str):
            return None
        return Profile(name, base_address(address), source, self._access_choice.chosen == 1)

    def _doubt(self, new: Profile | None) -> None:
        self._doubted = new
        self.query_one("#anyway").display = new is not None
        self.refresh_bindings()

    def _say(self, text: str, tone: Tone) -> None:
        mark = {"bad": "✗ ", "busy": "◌ "}.get(tone, "")
        self.query_one("#verdict", Static).update(Content.assemble((f"{mark}{text}", STYLES[tone])))

    @property
    def _origin(self) -> TokenOrigin:
        return _ORIGINS[self._origin_choice.chosen or 0]

    def _field(self, key: str) -> FormField:
        return self.query_one(f"#field-{key}", FormField)


def _labelled_choice(label: str, choice: FormChoice, name: str) -> Horizontal:
    return Horizontal(Static(label, classes="onboarding--label", markup=False), choice, id=name, classes="choice")


class OnboardingApp(BaseApp[str]):
    """Returns the new profile's name, or None."""

    TITLE = "runwarden"
    CSS_PATH = CONSOLE_CSS
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False

    def __init__(self, file: Path, variables: frozenset[str]) -> None:
        """Prepare; `file` is the configuration to write, `variables` the names of the set environment variables."""
        super().__init__()
        self._onboarding = OnboardingScreen(file, variables)
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = FEW_COLOURS if self.console.color_system == "standard" else DEFAULT

    def on_mount(self) -> None:
        self.push_screen(self._onboarding, self.exit)


def run_onboarding(file: Path) -> int:
    """Ask for a first profile on this terminal and write it; return the exit code, 0 even without a profile."""
    with on_terminal():
        app = OnboardingApp(file, frozenset(name for name, value in os.environ.items() if value))
        app.run()
    return app.return_code or 0
