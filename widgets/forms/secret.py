"""A field for a secret: it is shown as dots, and nothing takes it to the clipboard."""

from widgets.forms.field import LineField
from widgets.forms.text import LineInput


class SecretInput(LineInput):
    """A one-line input that shows dots. Textual's own would copy what is behind them."""

    def __init__(self) -> None:
        super().__init__(password=True)

    def action_copy(self) -> None:
        """Nothing: a clipboard is read by every program, and kept by some."""

    def action_cut(self) -> None:
        """Takes the selection away, without keeping it."""
        self.delete_selection()


class SecretField(LineField):
    """A labelled secret."""

    def __init__(self, key: str, label: str, hint: str) -> None:
        super().__init__(key, label, hint)
        self._control = SecretInput()
