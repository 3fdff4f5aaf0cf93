"""The effect of keys in a dialog."""

from typing import Any

from textual.binding import Binding
from textual.screen import ModalScreen

from app.actions.screen_form import ActionForm
from app.actions.screen_many import ManyForm
from app.actions.screen_resolve import ResolveForm
from app.automations.screen_sheets import ApprovalsSheet
from app.console.sheets import ConfirmSheet
from app.runs.screen_export import ExportScreen
from app.runs.screen_pickers import ViewSaver


def test_enter_never_does_the_irreversible() -> None:
    """In no dialog does enter do the same as ctrl+s, which sends, replaces and destroys."""

    def bound(dialog: type[ModalScreen[Any]], key: str) -> set[str]:
        each = Binding.make_bindings(dialog.BINDINGS)
        return {binding.action for binding in each if binding.key == key}

    def below(kind: type[ModalScreen[Any]]) -> list[type[ModalScreen[Any]]]:
        return [kind, *(each for below_it in kind.__subclasses__() for each in below(below_it))]

    dialogs = [each for each in below(ModalScreen) if each.__module__.startswith("app.")]
    deciding = {each for each in dialogs if bound(each, "ctrl+s")}

    assert {ActionForm, ApprovalsSheet, ConfirmSheet, ExportScreen} <= deciding
    assert {ManyForm, ResolveForm, ViewSaver} <= deciding
    assert not {each.__name__ for each in dialogs if bound(each, "ctrl+s") & bound(each, "enter")}
