"""Forms with instructions: the person's own editor and the templates of the configuration serve both of them."""

import os
from typing import ClassVar

from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType

from app.console.forms.action_form import ActionForm
from app.console.forms.editor import EditorError, edit
from app.console.forms.templates import TemplatePicker
from app.text import safe_text
from widgets.forms.dialog import FormButton
from widgets.forms.field import ParagraphField


class InstructedForm(ActionForm):
    """A form with a field named `instructions`."""

    DEFAULT_CLASSES = "-long"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+e", "edit", "Open your editor", priority=True),
        Binding("ctrl+t", "template", "Insert a template", priority=True),
    ]
    VERBS: ClassVar[tuple[FormButton, ...]] = (
        *ActionForm.VERBS[:3],
        FormButton("editor", "Editor", "^e", "edit", ("editing",)),
        FormButton("template", "Template", "^t", "template", ("editing",)),
        *ActionForm.VERBS[3:],
    )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Instructions are written while editing, templates taken where there are any."""
        if action in {"edit", "template"}:
            return self.phase == "editing" and (action == "edit" or bool(self.engine.settings.templates))
        return super().check_action(action, parameters)

    def verbs_without_meaning(self) -> frozenset[str]:
        """Buttons that would do nothing just now."""
        return super().verbs_without_meaning() | (frozenset() if self.engine.settings.templates else {"template"})

    def action_edit(self) -> None:
        """Hands the instructions to the person's editor, and the terminal with them."""
        field = self.field("instructions")
        try:
            with self.app.suspend():
                text = edit(field.value, os.environ)
        except SuspendNotSupported:
            self.dialog.note(safe_text("This terminal cannot be handed over; type here."), "warn")
        except EditorError as error:
            self.dialog.note(safe_text(str(error)), "warn")
        else:
            if text != field.value:
                field.fill(text)
        field.take_focus()

    def action_template(self) -> None:
        """Inserts one of the configured texts at the cursor."""
        self.app.push_screen(TemplatePicker(self.engine.settings.templates), self._insert)

    def _insert(self, text: str | None) -> None:
        field = self.field("instructions")
        if text is not None and isinstance(field, ParagraphField):
            field.insert(text)
