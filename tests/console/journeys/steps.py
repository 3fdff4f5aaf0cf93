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
from tests.lab import Drop, Lab, Received, Respond, Server, Step

PATIENCE: Final = 50
"""How many steps of a key or the wheel lead at most to a row or a field."""
NEW_RUN: Final = "run_01JYSTARTED"


@dataclass
class Service:
    """The whole API over one socket: the board's runs and hosts, and whatever is written."""

    server: Server
    board: Lab
    refuses: Step | None = None
    """What every reading request is answered with; None: what the board says."""
    rejects: Step | None = None
    """What every write is answered with; None: it is done."""
    rejects_at: str = ""
    """The branch that no run is started on."""
    loses: set[str] = field(default_factory=set)
    """Emails whose organization is created, and whose answer never arrives."""
    loses_runs: bool = False
    """Runs are started and continued, and no answer arrives."""

    def __post_init__(self) -> None:
        self.server.otherwise = self._answer

    @property
    def written(self) -> list[Received]:
        """The writes that arrived, in order."""
        return [request for request in self.server.requests if request.method == "POST"]

    @property
    def invited(self) -> Counter[str]:
        """How often the service was asked to create an organization for each email."""
        return Counter(str(_body(each)["email"]) for each in self.written if each.path.endswith("organizations"))

    def _answer(self, request: Received) -> Step:
        if request.method == "POST" and self.rejects is not None:
            return self.rejects
        if request.method == "POST" and self.rejects_at and _body(request).get("branch_name") == self.rejects_at:
            return Respond(400, {"message": "Not on that branch."})
        if request.method == "POST":
            return self._create(request) if request.path.endswith("organizations") else self._run(request)
        if self.refuses is not None:
            return self.refuses
        if request.path.endswith("health"):
            return Respond(200, {"code_hosting": self.board.health})
        return self.board.answer(request)

    def _create(self, request: Received) -> Step:
        email = str(_body(request)["email"])
        if email in self.loses:
            return Drop()
        name, _, place = email.partition("@")
        made = {"organization_id": f"org_{name}", "organization_name": place, "organization_slug": name}
        return Respond(201, {**made, "parent_organization_id": "org_parent"})

    def _run(self, request: Received) -> Step:
        body = _body(request)
        run_id = str(body.get("run_id") or self._new_id())
        known = self.board.runs.get(run_id, {"branch_name": "agent/started", "repository": body["repository"]})
        created = {"created": MINUTES_INTO_THE_DAY} if "run_id" not in body else {"created": 0.0}
        self.board.put(run_id, "queued", **created, updated=MINUTES_INTO_THE_DAY)
        kept = {key: known[key] for key in ("branch_name", "repository", "created_at") if key in known}
        self.board.runs[run_id] |= kept
        return Drop() if self.loses_runs else Respond(201, self.board.runs[run_id])

    def _new_id(self) -> str:
        """The first run that is started has a name of its own, the next ones a number behind it."""
        count = sum(run_id.startswith(NEW_RUN) for run_id in self.board.runs)
        return f"{NEW_RUN}{count + 1}" if count else NEW_RUN


def _body(request: Received) -> dict[str, Any]:
    body = request.json()
    assert isinstance(body, dict)
    return body


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
        return self.scene.app.screen.query("CursorView, StatusList, LeadList").first()

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
                await wheel(self.scene.pilot, self.rows, (5, 3), turn)
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
