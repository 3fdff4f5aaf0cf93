"""What leaves the screen: by the chosen ways, once, and never silently not at all."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from textual.app import App

from app.config import NotifySettings
from app.console.following import RunFollower
from app.console.session import Session
from tests.console.conftest import Scene, Staged
from tests.console.follow.conftest import Mover

WRITE_TITLE = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + '\\n')"


class NotedApp(App[None]):
    """An app that is not on show, and notes what a session says and copies."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.titles: list[str] = []
        self.copied: list[str] = []
        self.rings = 0

    def bell(self) -> None:
        """Notes that the bell rings."""
        self.rings += 1

    def notify(self, message: str, *, title: str = "", **_: Any) -> None:
        """Notes a toast: its title, if it has one."""
        (self.titles if title else self.said).append(title or message)

    def copy_to_clipboard(self, text: str) -> None:
        """Notes what is copied."""
        self.copied.append(text)


@dataclass
class Person:
    """Whom a console tells, besides its own screen."""

    scene: Scene
    app: NotedApp = field(default_factory=NotedApp)

    def follow(self, **notify: Any) -> RunFollower:
        """Another console of the same profile, with these settings."""
        settings = replace(self.scene.engine.settings, notify=NotifySettings(**notify))
        engine = replace(self.scene.engine, settings=settings)
        self.app.run_worker = self.scene.app.run_worker  # type: ignore[method-assign]
        following = RunFollower(engine, Session(settings, engine.profile, engine.clock, None, self.app), lambda _: None)
        engine.subscribe(following.engine_changed)
        following.look()
        return following


def told(file: Path) -> list[str]:
    """What the command was given."""
    return file.read_text().splitlines()


async def test_a_command_is_run_once_for_all_consoles(staged: Staged, move: Mover, tmp_path: Path) -> None:
    """Three consoles show the failure; one of them runs the command, and no later one does again."""
    command = (sys.executable, "-c", WRITE_TITLE, str(tmp_path / "told"), "{title}")
    async with staged() as scene:
        people = [Person(scene), Person(scene)]
        for person in people:
            person.follow(on=("failed",), bell=False, command=command)
        # The staged console itself rings its bell, and must not win what these two are after.
        assert scene.app.following is not None
        scene.app.following.watch.notify = NotifySettings(on=())
        await scene.settle()
        await move(scene, "run_go3", "failed")
        await scene.settle()
        late = Person(scene)
        late.follow(on=("failed",), command=command)
        await scene.settle()

    assert [person.app.titles for person in people] == [["Run failed after 9m30s: acme/solo"]] * 2
    assert late.app.titles == []
    assert told(tmp_path / "told") == ["Run failed after 9m30s: acme/solo"]


async def test_a_command_that_fails_is_said_once(staged: Staged, move: Mover) -> None:
    """With what went wrong and where to correct it; the second failure says nothing new."""
    async with staged() as scene:
        assert scene.app.following is not None
        scene.app.following.watch.notify = NotifySettings(on=())
        person = Person(scene)
        person.follow(on=("failed",), command=("/nowhere/tell", "{title}"))
        await scene.settle()
        for run_id in ("run_go2", "run_go3"):
            await move(scene, run_id, "failed")
            await scene.settle()

    assert person.app.rings == 2
    (said,) = person.app.said
    assert said.startswith("A notification was not delivered. /nowhere/tell cannot be run")
    assert "Correct the command" in said
