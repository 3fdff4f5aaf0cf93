"""Two hands on one console: each deed of a journey by its key, or by a click on what the screen shows of it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from textual import events
from textual.widget import Widget
from textual.widgets import Input, TextArea

from tests.console.conftest import Scene
from tests.console.quiet import wheel
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.lab import ORGANIZATION, Drop, Lab, Received, Respond, Step

PATIENCE: Final = 50
"""How many steps of a key or the wheel lead at most to a row or a field."""
NEW_RUN: Final = "run_01JYSTARTED"


@dataclass(kw_only=True, eq=False)
class Service(Lab):
    """The lab, which refuses and loses what it is told to; the first run that is started has a name of its own."""

    refuses: Step | None = None
    """What every reading request is answered with."""
    rejects: Step | None = None
    """What every write is answered with."""
    rejects_at: str = ""
    """The branch that no run is started on."""
    loses: set[str] = field(default_factory=set)
    """Emails whose organization is created, and whose answer never arrives."""
    loses_runs: bool = False
    """Runs are started and continued, and no answer arrives."""

    @property
    def written(self) -> list[Any]:
        """The bodies of the writes that arrived, in order."""
        return [request.json() for request in self.requests if request.method == "POST"]

    @property
    def invited(self) -> Counter[str]:
        """How often the service was asked to create an organization for each email."""
        return Counter(body["email"] for body in self.written)

    def answer(self, request: Received) -> Step:
        """As the lab, but for what is refused or lost."""
        if request.method != "POST":
            return self.refuses or super().answer(request)
        body = request.json()
        if self.rejects is not None:
            return self.rejects
        if self.rejects_at and body.get("branch_name") == self.rejects_at:
            return Respond(400, {"message": "Not on that branch."})
        if "email" in body:
            name, _, place = body["email"].partition("@")
            made = ORGANIZATION | {"organization_id": f"org_{name}", "organization_name": place}
            return Drop() if body["email"] in self.loses else Respond(201, made)
        if "run_id" in body:
            self.move(body["run_id"], "queued", updated=MINUTES_INTO_THE_DAY)
            run_id = body["run_id"]
        else:
            count = sum(run_id.startswith(NEW_RUN) for run_id in self.runs)
            run_id = f"{NEW_RUN}{count + 1}" if count else NEW_RUN
            where = {"branch_name": "agent/started", "repository": body["repository"]}
            self.put(run_id, "queued", created=MINUTES_INTO_THE_DAY, **where)
        return Drop() if self.loses_runs else Respond(201, self.runs[run_id])


@dataclass
class Hand:
    """What a person does, with the keyboard alone."""

    scene: Scene

    async def see(self, *words: str) -> None:
        """Waits until all the words are on the screen, however its lines break."""
        await self.scene.shows(*words)

    async def type(self, text: str) -> None:
        """Types into whatever has the keys, which has to be something to type into."""
        assert isinstance(self.scene.app.screen.focused, Input | TextArea)
        self.scene.app.post_message(events.Paste(text))
        await self.scene.settle()

    def control(self, name: str) -> Input | TextArea:
        """A field of the form on show."""
        control = self.scene.app.screen.query_one(f"#field-{name}").query("Input, TextArea").first()
        assert isinstance(control, Input | TextArea)
        return control

    def value(self, name: str) -> str:
        """What a field of the form on show holds."""
        control = self.control(name)
        return control.value if isinstance(control, Input) else control.text

    @property
    def rows(self) -> Widget:
        """The list on show."""
        # The group of what needs you is there before it has rows.
        lists = self.scene.app.screen.query("CursorView, Options")
        return next(each for each in reversed(lists) if each.region)

    async def do(self, keys: str, words: str) -> None:
        """The words have to be there for the eyes, not for the hand."""
        del words
        await self.scene.press(*keys.split())

    async def fill(self, name: str, text: str) -> None:
        """By tab."""
        for _ in range(PATIENCE):
            if self.control(name).has_focus:
                break
            await self.scene.press("tab")
        await self.type(text)

    async def point(self, words: str) -> None:
        """From the top, line by line."""
        await self.scene.press("home")
        for _ in range(PATIENCE):
            if any(line.startswith("▌") and words in line for line in self._lines()):
                return
            await self.scene.press("down")
        raise AssertionError(f"No row with {words}:\n{self.scene.text}")

    async def mark(self, words: str) -> None:
        """With space."""
        await self.point(words)
        await self.scene.press("space")

    async def open(self, words: str) -> None:
        """With enter."""
        await self.point(words)
        await self.scene.press("enter")

    def _lines(self) -> list[str]:
        region = self.rows.region
        return [line[region.x : region.right] for line in self.scene.lines[region.y : region.bottom]]


class Mouse(Hand):
    """Presses no key but to type into a field."""

    async def do(self, keys: str, words: str) -> None:
        """On the last place where the words stand: dialogs and hints are below what they are about."""
        del keys
        await self._click(words, self._places(words)[-1])

    async def fill(self, name: str, text: str) -> None:
        """By a click into it."""
        await self.scene.pilot.click(self.control(name))
        await self.scene.settle()
        await self.type(text)

    async def point(self, words: str) -> None:
        """By a click on it."""
        await self._click(words, await self._row(words))

    async def mark(self, words: str) -> None:
        """By a click with control."""
        await self._click(words, await self._row(words), control=True)

    async def open(self, words: str) -> None:
        """By a double click."""
        await self._click(words, await self._row(words), times=2)

    async def _row(self, words: str) -> tuple[int, int]:
        """Where the row is; the wheel brings it into view."""
        for turn in (events.MouseScrollUp, events.MouseScrollDown):
            for _ in range(PATIENCE):
                for place in self._seen(words):
                    if self.rows.region.contains(*place):
                        return place
                await wheel(self.scene.app, self.rows, (5, 3), turn)
        raise AssertionError(f"No row with {words}:\n{self.scene.text}")

    def _places(self, words: str) -> list[tuple[int, int]]:
        places = self._seen(words)
        assert places, f"{words!r} is not there to be clicked:\n{self.scene.text}"
        return places

    def _seen(self, words: str) -> list[tuple[int, int]]:
        return [(line.rindex(words), y) for y, line in enumerate(self.scene.lines) if words in line]

    async def _click(self, words: str, place: tuple[int, int], times: int = 1, *, control: bool = False) -> None:
        await self.scene.pilot.click(offset=(place[0] + len(words) // 2, place[1]), times=times, control=control)
        await self.scene.settle()
