"""Above the rows of an import: which file, how many may be sent at once, how the rows stand, how far it is."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.text import SafeText
from widgets.badges import STYLES, Tone
from widgets.forms.field import LineField

BAR = 24


class ImportBar(Vertical):
    """Two fields and two lines."""

    DEFAULT_CSS = """
    ImportBar {
        height: auto;
        padding: 0 1;
        #import-counts, #import-progress { height: 1; padding-left: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.file = LineField("file", "file", "A CSV with the columns email and, if wanted, offer_code.")
        self.most = LineField("most", "at most", "So many are sent at once; then it asks again.", value=str(most))

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self.file
        yield self.most
        yield Static(id="import-counts", markup=False)
        yield Static(id="import-progress", markup=False)

    def stand(self, counts: Content) -> None:
        """How the rows stand."""
        self.query_one("#import-counts", Static).update(counts)

    def progress(self, done: int, of: int, text: SafeText) -> None:
        """How far it is."""
        full = done * BAR // max(1, of)
        bar = (("█" * full, STYLES["busy"]), ("░" * (BAR - full), STYLES["quiet"]))
        self.query_one("#import-progress", Static).update(Content.assemble(*bar, f" {done:,} of {of:,}  ", text))

    def say(self, text: SafeText, tone: Tone) -> None:
        """In place of how far it is."""
        self.query_one("#import-progress", Static).update(Content.styled(text, STYLES[tone]))
