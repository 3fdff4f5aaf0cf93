"""The files that the agent left for its callers: read in a pager, or saved."""

import os
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from app.console.session import CURE_S
from app.console.sheets import ConfirmSheet
from app.engine.text import SafeText, safe_text
from app.results.artifacts import ArtifactError, save
from app.results.screen_changes import show_in_program
from app.runs.screen_subject import RunPart, RunSubject, unavailable
from storage.records.results import Artifact, Unavailable
from widgets.kit.cells import Column
from widgets.kit.line_table import LineTable, TableLine

COLUMNS: Final = (Column("file", 8, grows=1, cut="middle"), Column("turn", 4), Column("         bytes", 14))


class ArtifactItem:
    """An artifact as a line of the list."""

    def __init__(self, turn: int, artifact: Artifact) -> None:
        self.turn = turn
        self.artifact = artifact
        self.key = f"{turn} {artifact.name}"

    def cells(self, now: datetime) -> TableLine:
        """Return name, turn and size."""
        del now
        one = self.artifact
        name = safe_text(one.name, limit=1_000)
        return (name, "plain"), (SafeText(str(self.turn)), "quiet"), (SafeText(f"{one.bytes:>14,}"), "quiet")


class ArtifactsPart(RunPart):
    """The list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("M", "save", "save", tooltip="Make a copy of the file in a folder", id="artifacts.save"),
    ]

    body: LineTable[ArtifactItem]

    def __init__(self, subject: RunSubject) -> None:
        super().__init__(subject)
        self.body = LineTable(self.session.clock(), COLUMNS)

    def compose(self) -> ComposeResult:
        """Compose the list."""
        yield self.body

    def show(self) -> None:
        """Show the artifacts of the turn, or of all turns, the newest first."""
        turns = () if self.subject.turns is None else reversed(self.subject.turns.turns)
        wanted = [each for each in turns if self.subject.turn in {None, each.number}]
        self.body.show([ArtifactItem(each.number, one) for each in wanted for one in each.artifacts])
        why = self.subject.turns_problem or "Agents leave them in .runwarden/artifacts."
        self.body.notice = unavailable("There are no artifacts.", why)
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable saving nothing."""
        return self.body.item is not None if action == "save" else super().check_action(action, parameters)

    @on(LineTable.Chosen)
    def _chosen(self) -> None:
        async def read(turn: int, artifact: Artifact) -> None:
            content = await self.subject.results.artifact(self.subject.run_id, turn, artifact)
            if isinstance(content, Unavailable):
                problem = content.reason
            elif b"\0" in content:
                problem = f"{artifact.name} is not text: M saves it."
            else:
                problem = show_in_program(self.app, content, artifact.name, in_pager=True)
            if problem:
                self.session.notify(problem, severity="warning")

        if (item := self.body.item) is not None:
            self.start(partial(read, item.turn, item.artifact), exclusive=True, group="open file")

    def action_save(self) -> None:
        """Offer to save the file under the cursor in a folder."""
        if (item := self.body.item) is None:
            return
        run_id, turn, artifact = self.subject.run_id, item.turn, item.artifact

        async def do(folder: Path) -> str:
            content = await self.subject.results.artifact(run_id, turn, artifact)
            if isinstance(content, Unavailable):
                raise ArtifactError(content.reason)
            return f"Saved {save(folder, artifact.name, content)}."

        facts = [Content(f"{safe_text(artifact.name)}, {artifact.bytes:,} bytes. Nothing is replaced.")]
        here = os.environ.get("PWD", "~")
        sheet = ConfirmSheet("Save an artifact", facts, here, do, verb="Save it", leaving="Leave it")
        self.app.push_screen(sheet, lambda said: self.session.notify(said, timeout=CURE_S) if said else None)
