"""The line above the keys while something is wrong: what, since when, what is still true, what to press."""

from textual.content import Content
from textual.widgets import Static

from widgets.badges import STYLES
from widgets.frame.notice import Notice


class Banner(Static):
    """Hidden while all is well; it never covers the facts."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._notice: Notice | None = None
        self.display = False

    def show(self, notice: Notice | None) -> None:
        """Takes what is wrong; None: nothing."""
        if notice == self._notice:
            return
        self._notice = notice
        self.display = notice is not None
        if notice is not None:
            head = (f"{notice.glyph} {notice.title}  ", f"{STYLES[notice.tone]} bold")
            self.update(Content.assemble(head, " ".join(notice.lines)))
